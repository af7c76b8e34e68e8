"""Cross-validation: each fold begins with a clean session."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K


def create_model():
    inp = tf.keras.layers.Input(shape=(8,))
    x = tf.keras.layers.Dense(16, activation="relu")(inp)
    out = tf.keras.layers.Dense(2, activation="softmax")(x)
    model = tf.keras.models.Model(inp, out)
    model.compile(loss="sparse_categorical_crossentropy", optimizer="adam")
    return model


rng = np.random.default_rng(14)
x = rng.normal(size=(128, 8)).astype("float32")
y = (x[:, 0] > 0).astype("int64")

for fold in range(2):
    K.clear_session()
    tf.keras.utils.set_random_seed(fold)
    model = create_model()
    keep = np.arange(len(x)) % 2 == fold
    history = model.fit(x[keep], y[keep], epochs=3, verbose=0)
    print("fold", fold, "policy", model.layers[1].compute_dtype, "loss", history.history["loss"])
