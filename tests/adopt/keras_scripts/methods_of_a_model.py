"""A GAN whose model takes its parts by keyword, takes gradients in one method and applies them in another."""
import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(7)


class Pair(keras.Model):
    def __init__(self, **parts):
        super().__init__()
        self.__dict__.update(parts)
        self.maker = keras.Sequential(self.maker)
        self.judge = keras.Sequential(self.judge)

    def losses_of(self, real):
        made = self.maker(tf.random.normal([32, 8]))
        seen, told = self.judge(real), self.judge(made)
        judged = tf.reduce_mean((seen - 1.0) ** 2) + tf.reduce_mean(told**2)
        return judged / 8, tf.reduce_mean((told - 1.0) ** 2) / 8

    def compute_gradients(self, real):
        with tf.GradientTape() as maker_tape, tf.GradientTape() as judge_tape:
            judge_loss, maker_loss = self.losses_of(real)
        maker_gradients = maker_tape.gradient(maker_loss, self.maker.trainable_variables)
        judge_gradients = judge_tape.gradient(judge_loss, self.judge.trainable_variables)
        return maker_gradients, judge_gradients

    def apply_gradients(self, maker_gradients, judge_gradients):
        self.maker_optimizer.apply_gradients(zip(maker_gradients, self.maker.trainable_variables))
        self.judge_optimizer.apply_gradients(zip(judge_gradients, self.judge.trainable_variables))

    @tf.function
    def step(self, real):
        maker_gradients, judge_gradients = self.compute_gradients(real)
        self.apply_gradients(maker_gradients, judge_gradients)


pair = Pair(
    maker=[layers.Dense(32, activation="relu"), layers.Dense(8)],
    judge=[layers.Dense(32, activation="relu"), layers.Dense(1)],
    maker_optimizer=keras.optimizers.Adam(1e-3),
    judge_optimizer=keras.optimizers.Adam(1e-3),
)
data = np.random.default_rng(7).normal(0.5, 0.2, size=(128, 8)).astype("float32")
for epoch in range(3):
    for start in range(0, 128, 32):
        pair.step(data[start : start + 32])
    judge_loss, maker_loss = pair.losses_of(tf.constant(data[:32]))
    print("judge loss", float(judge_loss), "maker loss", float(maker_loss))
