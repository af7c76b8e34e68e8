"""A train_step of the model's own, under compile and fit."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


keras.utils.set_random_seed(4)
rng = np.random.default_rng(4)
x = rng.normal(size=(256, 32)).astype("float32")
y = x[:, :1] - x[:, 1:2]
inputs = keras.Input(shape=(32,))
hidden = layers.Dense(32, activation="tanh")(inputs)
outputs = layers.Dense(1)(hidden)
model = CustomModel(inputs, outputs)
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", metrics=["mae"])
history = model.fit(x, y, epochs=4, verbose=0)
print("loss", history.history["loss"])
