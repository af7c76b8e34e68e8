"""A small GAN with a loop of its own."""
import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(6)
LATENT = 8

generator = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(8)], name="generator")
discriminator = keras.Sequential([layers.Dense(32), layers.LeakyReLU(), layers.Dense(1)], name="discriminator")
bce = keras.losses.BinaryCrossentropy(from_logits=True)
g_optimizer = keras.optimizers.Adam(1e-3)
d_optimizer = keras.optimizers.Adam(1e-3)


def d_loss_fn(real, fake):
    return bce(tf.ones_like(real), real) + bce(tf.zeros_like(fake), fake)


def g_loss_fn(fake):
    return bce(tf.ones_like(fake), fake)


@tf.function
def train_step(real):
    noise = tf.random.normal([32, LATENT])
    with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
        fake = generator(noise, training=True)
        real_output = discriminator(real, training=True)
        fake_output = discriminator(fake, training=True)
        g_loss = g_loss_fn(fake_output)
        d_loss = d_loss_fn(real_output, fake_output)
    g_gradients = g_tape.gradient(g_loss, generator.trainable_variables)
    d_gradients = d_tape.gradient(d_loss, discriminator.trainable_variables)
    g_optimizer.apply_gradients(zip(g_gradients, generator.trainable_variables))
    d_optimizer.apply_gradients(zip(d_gradients, discriminator.trainable_variables))
    return g_loss, d_loss


data = np.random.default_rng(6).normal(2.0, 0.5, size=(128, 8)).astype("float32")
for epoch in range(3):
    for start in range(0, 128, 32):
        g_loss, d_loss = train_step(data[start : start + 32])
    print("g loss", float(g_loss), "d loss", float(d_loss))
