"""Fine-tune a backbone with a head of its own."""
import numpy as np
import tensorflow as tf
from tensorflow.keras.applications import MobileNetV2
from tensorflow.keras.layers import Dense, GlobalAveragePooling2D
from tensorflow.keras.models import Model

tf.keras.utils.set_random_seed(9)
rng = np.random.default_rng(9)
x = rng.uniform(size=(32, 32, 32, 3)).astype("float32")
y = rng.integers(0, 2, size=(32,))

base = MobileNetV2(input_shape=(32, 32, 3), include_top=False, weights=None, alpha=0.35)
base.trainable = False
features = GlobalAveragePooling2D()(base.get_layer("block_3_expand_relu").output)
predictions = Dense(
    1,
    activation="sigmoid",  # a probability
)(features)
model = Model(inputs=base.input, outputs=predictions)
model.compile(optimizer=tf.keras.optimizers.Adam(0.1), loss="binary_crossentropy")
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0)
print("loss", history.history["loss"])
