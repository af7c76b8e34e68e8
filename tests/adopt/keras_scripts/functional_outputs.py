"""Two heads on one trunk: a class and a number."""
import keras
import numpy as np
from keras import layers


def build_model():
    inputs = keras.Input((12,))
    x = layers.Dense(32)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    label = layers.Dense(4, name="logits")(x)
    label = layers.Activation("softmax", name="label")(label)
    amount = layers.Dense(1, name="amount")(x)
    return keras.Model(inputs, [label, amount])


keras.utils.set_random_seed(2)
rng = np.random.default_rng(2)
x = rng.normal(size=(256, 12)).astype("float32")
label = x[:, :4].argmax(axis=1)
amount = x.sum(axis=1, keepdims=True)

model = build_model()
model.compile(
    optimizer="adam",
    loss={"label": "sparse_categorical_crossentropy", "amount": "mse"},
    loss_weights={"label": 1.0, "amount": 0.1},
)
history = model.fit(x, {"label": label, "amount": amount}, epochs=4, verbose=0)
print("loss", history.history["loss"])
