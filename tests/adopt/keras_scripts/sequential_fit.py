"""Classify blobs with a Sequential model."""

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
x = rng.normal(size=(256, 16)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int32") + (x[:, 2] > 0)

# the network
model = keras.Sequential(
    [
        layers.Dense(32, activation="relu"),  # hidden
        layers.Dense(8, activation="relu"),
        layers.Dense(3, activation="softmax"),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=32, epochs=4, verbose=0)
print("loss", history.history["loss"])
