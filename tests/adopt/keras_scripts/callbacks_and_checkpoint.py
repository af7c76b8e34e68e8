#!/usr/bin/env python
import os
import tempfile

import numpy as np
from keras.callbacks import EarlyStopping, ModelCheckpoint
from keras.layers import LSTM, Dense, Embedding, Input
from keras.models import Sequential
from keras.utils import set_random_seed

set_random_seed(13)
rng = np.random.default_rng(13)
tokens = rng.integers(1, 32, size=(128, 8))
labels = (tokens.sum(axis=1) > 128).astype("float32")

folder = tempfile.mkdtemp()
model = Sequential()
model.add(Input((8,)))
model.add(Embedding(32, 16))
model.add(LSTM(16))
model.add(Dense(1, activation="sigmoid"))
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(
    tokens,
    labels,
    validation_split=0.25,
    epochs=3,
    verbose=0,
    callbacks=[ModelCheckpoint(os.path.join(folder, "best.keras"), save_best_only=True), EarlyStopping(patience=3)],
)
print("loss", history.history["loss"])
