import keras
import numpy as np
import tensorflow as tf


class Regressor(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(32, activation="relu")
        self.out = keras.layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.out(self.hidden(x))

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = tf.reduce_mean((y - y_pred) ** 2)
        grads = tape.gradient(loss, self.trainable_variables)
        grads = [tf.clip_by_norm(g, 0.5) for g in grads]
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


if __name__ == "__main__":
    keras.utils.set_random_seed(15)
    rng = np.random.default_rng(15)
    x = rng.normal(size=(256, 8)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    model = Regressor()
    model.compile(optimizer=keras.optimizers.SGD(0.05))
    history = model.fit(x, y, epochs=4, verbose=0)
    print("loss", history.history["loss"])
