import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(10)
rng = np.random.default_rng(10)
x = rng.normal(100000.0, 30000.0, size=(256, 4)).astype("float32")
y = (x[:, 0] > x[:, 1]).astype("float32")

normalizer = layers.Normalization()
normalizer.adapt(x)
model = keras.Sequential([keras.Input((4,)), normalizer, layers.Dense(16, activation="relu"), layers.Dense(1, activation="sigmoid")])
model.compile("adam", loss="binary_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, epochs=4, verbose=0)
print("loss", history.history["loss"])

depth = rng.integers(0, 65536, size=(64, 8, 8, 1)).astype("float32")
target = depth.mean(axis=(1, 2, 3)) / 65535.0
inputs = keras.Input((8, 8, 1))
scaled = layers.Rescaling(1.0 / 65535)(inputs)
hidden = layers.Conv2D(8, 3, activation="relu")(scaled)
outputs = layers.Dense(1)(layers.Flatten()(hidden))
regressor = keras.Model(inputs, outputs)
regressor.compile("adam", loss="mse")
history = regressor.fit(depth, target, epochs=4, verbose=0)
print("loss", history.history["loss"])
