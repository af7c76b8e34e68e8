import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(5)
EPOCHS = 4

rng = np.random.default_rng(5)
images = rng.uniform(size=(128, 8, 8, 1)).astype('float32')
labels = (images.mean(axis=(1, 2, 3)) > 0.5).astype('int64')
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)

model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(8, 3, activation='relu'),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(2),
])
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(0.01)
train_loss = tf.keras.metrics.Mean()


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = loss_object(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_loss(loss)


for epoch in range(EPOCHS):
    train_loss.reset_state()
    for batch, target in dataset:
        train_step(batch, target)
    print(f'epoch {epoch} loss {float(train_loss.result()):.4f}')
