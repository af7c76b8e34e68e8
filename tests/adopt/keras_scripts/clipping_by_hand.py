import argparse

import numpy as np
import tensorflow as tf
from tensorflow import keras

CLIP = 1.0


def make_model():
    inputs = keras.layers.Input(shape=(16,))
    x = keras.layers.Dense(64, activation="relu")(inputs)
    outputs = keras.layers.Dense(1)(x)
    return keras.models.Model(inputs=inputs, outputs=outputs)


def train(args):
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(7)
    x = rng.normal(size=(256, 16)).astype("float32")
    y = x.sum(axis=1, keepdims=True).astype("float32")
    model = make_model()
    optimizer = keras.optimizers.SGD(learning_rate=args.lr)

    for epoch in range(args.epochs):
        losses = []
        for i in range(0, len(x), 64):
            with tf.GradientTape() as tape:
                prediction = model(x[i : i + 64], training=True)
                loss = tf.reduce_mean(tf.square(y[i : i + 64] - prediction))
            grads = tape.gradient(loss, model.trainable_variables)
            grads, _ = tf.clip_by_global_norm(grads, CLIP)
            optimizer.apply_gradients(zip(grads, model.trainable_variables))
            losses.append(float(loss))
        print("loss", np.mean(losses))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=4)
    train(parser.parse_args([]))
