"""A VAE whose losses are taken on the outputs of its encoder."""

import keras
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers


class Sampling(layers.Layer):
    """Uses (z_mean, z_log_var) to sample z."""

    def call(self, inputs):
        z_mean, z_log_var = inputs
        epsilon = tf.random.normal(shape=tf.shape(z_mean), seed=1)
        return z_mean + tf.exp(0.5 * z_log_var) * epsilon


def make_encoder(dim):
    inputs = keras.Input((16,))
    x = layers.Dense(32, activation="relu")(inputs)
    z_mean = layers.Dense(dim, name="z_mean")(x)
    z_log_var = layers.Dense(dim, name="z_log_var")(x)
    z = Sampling()([z_mean, z_log_var])
    return keras.Model(inputs, [z_mean, z_log_var, z], name="encoder")


def make_decoder(dim):
    inputs = keras.Input((dim,))
    x = layers.Dense(32, activation="relu")(inputs)
    return keras.Model(inputs, layers.Dense(16, activation="sigmoid")(x), name="decoder")


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.total = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.total]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            z_mean, z_log_var, z = self.encoder(data)
            reconstruction = self.decoder(z)
            reconstruction_loss = tf.reduce_mean(keras.losses.binary_crossentropy(data, reconstruction))
            kl_loss = -0.5 * (1 + z_log_var - tf.square(z_mean) - tf.exp(z_log_var))
            total_loss = reconstruction_loss + tf.reduce_mean(tf.reduce_sum(kl_loss, axis=1))
        grads = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights))
        self.total.update_state(total_loss)
        return {"loss": self.total.result()}


keras.utils.set_random_seed(16)
data = np.random.default_rng(16).uniform(size=(256, 16)).astype("float32")
vae = VAE(make_encoder(2), make_decoder(2))
vae.compile(optimizer=keras.optimizers.Adam(1e-3))
history = vae.fit(data, epochs=4, verbose=0)
print("loss", history.history["loss"])
