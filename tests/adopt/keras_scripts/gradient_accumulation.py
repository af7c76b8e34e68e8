"""Accumulate gradients by hand over four batches."""
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(12)
STEPS = 4

inputs = keras.Input((16,))
outputs = keras.layers.Dense(4, activation="softmax")(keras.layers.Dense(32, activation="relu")(inputs))
model = keras.Model(inputs, outputs)
optimizer = keras.optimizers.Adam(0.01)
loss_fn = keras.losses.SparseCategoricalCrossentropy()

rng = np.random.default_rng(12)
x = rng.normal(size=(256, 16)).astype("float32")
y = x[:, :4].argmax(axis=1)

for epoch in range(4):
    total = 0.0
    accumulated = [tf.zeros_like(v) for v in model.trainable_variables]
    for step in range(16):
        batch = slice(step * 16, (step + 1) * 16)
        with tf.GradientTape() as tape:
            loss = loss_fn(y[batch], model(x[batch], training=True)) / STEPS
        gradients = tape.gradient(loss, model.trainable_variables)
        accumulated = [a + g for a, g in zip(accumulated, gradients)]
        total += float(loss) * STEPS
        if (step + 1) % STEPS == 0:
            optimizer.apply_gradients(zip(accumulated, model.trainable_variables))
            accumulated = [tf.zeros_like(v) for v in model.trainable_variables]
    print(f"epoch {epoch}: loss {total / 16:.4f}")
