import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K
from tensorflow.keras import layers, models, optimizers


def dice_loss(y_true, y_pred, smooth=1e-6):
    y_true_f = K.flatten(tf.cast(y_true, "float32"))
    y_pred_f = K.flatten(y_pred)
    intersection = tf.reduce_sum(y_true_f * y_pred_f)
    return 1 - (2.0 * intersection + smooth) / (tf.reduce_sum(y_true_f) + tf.reduce_sum(y_pred_f) + smooth)


def unet(shape):
    inputs = layers.Input(shape)
    c1 = layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    p1 = layers.MaxPooling2D()(c1)
    c2 = layers.Conv2D(16, 3, padding="same", activation="relu")(p1)
    u1 = layers.Conv2DTranspose(8, 2, strides=2, padding="same")(c2)
    joined = layers.concatenate([u1, c1])
    outputs = layers.Conv2D(1, 1, activation="sigmoid")(joined)
    return models.Model(inputs, outputs)


tf.keras.utils.set_random_seed(11)
rng = np.random.default_rng(11)
x = rng.uniform(size=(32, 16, 16, 1)).astype("float32")
y = (x > 0.6).astype("float32")
model = unet((16, 16, 1))
model.compile(optimizer=optimizers.Adam(0.01), loss=dice_loss)
history = model.fit(x, y, batch_size=8, epochs=3, verbose=0)
print("loss", history.history["loss"])
