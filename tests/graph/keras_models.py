"""Keras models of the kinds that people save: what the loaders say of them is held against Keras itself."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import layers, ops

CLASSES = {"weights": None, "classes": 4}


def everything() -> keras.Model:
    """Two inputs, wrappers, a nested model, a shared layer, operations, and a float32 head."""
    image, ids = layers.Input((16, 16, 3), name="image"), layers.Input((7,), dtype="int32", name="ids")
    x = layers.Conv2D(8, 3, name="stem")(image)
    x = layers.BatchNormalization()(x) * 2.0 + 1.0
    x = layers.GlobalAveragePooling2D()(layers.SeparableConv2D(12, 3, padding="same")(x))
    e = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(layers.Embedding(50, 8)(ids))
    e = layers.TimeDistributed(layers.Dense(6))(e)
    e = layers.MultiHeadAttention(2, 4)(e, e)
    parts = [layers.Input((6,)), layers.Dense(8), layers.LayerNormalization(), layers.Dense(12, dtype="float32")]
    inner = keras.Sequential(parts, name="inner")
    shared = layers.Dense(8, name="shared")
    z = layers.Concatenate()([shared(x), shared(inner(ops.mean(e, axis=1)))])
    z = ops.cast(z, "float32")
    head = layers.Dense(3, activation="softmax", dtype="float32", name="probabilities")
    return keras.Model([image, ids], [head(z), ops.argmax(z, axis=-1)])


def nested() -> keras.Model:
    """A functional model in a functional model, called twice."""
    given = layers.Input((8, 8, 4))
    y = layers.Conv2D(6, 3, padding="same", activation="relu")(given)
    block = keras.Model(given, layers.Add()([layers.Conv2D(4, 1)(y), given]), name="block")
    outer = layers.Input((8, 8, 4))
    x = block(block(outer))
    return keras.Model(outer, layers.Dense(2)(layers.Flatten()(layers.MaxPooling2D()(x))))


def sequence() -> keras.Model:
    """A sequential model without an Input layer, built on its first input."""
    first = [layers.Conv1D(8, 3, strides=2, padding="same"), layers.ReLU(), layers.GRU(5, return_sequences=True)]
    model = keras.Sequential([*first, layers.GlobalMaxPooling1D(), layers.Dense(2)])
    model.build((None, 20, 3))
    return model


def images() -> keras.Model:
    """Preprocessing, padding, cropping, transposed and depthwise convolutions, upsampling, reshaping."""
    given = layers.Input((20, 20, 3), dtype="uint8")
    x = layers.Rescaling(1 / 255)(given)
    x = layers.ZeroPadding2D(((1, 2), (3, 4)))(x)
    x = layers.DepthwiseConv2D(3, depth_multiplier=2)(x)
    x = layers.PReLU(shared_axes=[1, 2])(layers.Conv2DTranspose(8, 3, strides=2, padding="same")(x))
    x = layers.Cropping2D(2)(layers.UpSampling2D(2, interpolation="bilinear")(x))
    x = layers.AveragePooling2D(4)(layers.GroupNormalization(4)(x))
    x = layers.Reshape((-1, 8))(x)
    x = layers.Permute((2, 1))(layers.Dropout(0.1)(x))
    return keras.Model(given, layers.Softmax(dtype="float32")(layers.GlobalAveragePooling1D()(x)))


def encoder() -> keras.Model:
    """A transformer layer of EinsumDense and Attention, with residuals."""
    given = layers.Input((10, 16))
    q, k = layers.EinsumDense("abc,cd->abd", output_shape=(None, 24))(given), layers.Dense(24)(given)
    x = layers.Attention()([q, k])
    x = layers.Add()([layers.Dense(16)(x), given])
    x = layers.LayerNormalization()(x)
    x = layers.Dense(16, activation="gelu")(layers.Dropout(0.1)(x))
    return keras.Model(given, layers.Activation("linear", dtype="float32")(x[:, 0]))


def mapped() -> keras.Model:
    """Layers whose policies come from one DTypePolicyMap by their paths."""
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    policies["head.*"] = keras.DTypePolicy("float32")
    policies["stem"] = keras.DTypePolicy("mixed_float16")
    given = layers.Input((6,))
    x = layers.Dense(8, name="stem", dtype=policies)(given)
    x = layers.Dense(8, name="body", dtype=policies)(x)
    return keras.Model(given, layers.Dense(2, name="head_out", dtype=policies)(x))


def quantized() -> keras.Model:
    """Dense layers in int8."""
    model = keras.Sequential([layers.Input((16,)), layers.Dense(8), layers.Dense(4)])
    model.quantize("int8")
    return model


def recurrent() -> keras.Model:
    """States that are returned, a layer over cells, a masked sequence."""
    given = layers.Input((None, 6))
    x, *states = layers.LSTM(5, return_state=True, return_sequences=True)(layers.Masking()(given))
    y = layers.RNN([layers.GRUCell(4), layers.SimpleRNNCell(3)])(x)
    return keras.Model(given, [layers.RepeatVector(2)(y), layers.Subtract()(states)])


OWN: dict[str, Callable[[], keras.Model]] = {f.__name__: f for f in (everything, nested, sequence, images, encoder, mapped, recurrent)}
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
APPLICATIONS: dict[str, Callable[[], keras.Model]] = {
    "MobileNetV2": lambda: keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, **CLASSES),
    "MobileNetV3Small": lambda: keras.applications.MobileNetV3Small((32, 32, 3), alpha=0.75, **CLASSES),
    "ResNet50V2": lambda: keras.applications.ResNet50V2(input_shape=(32, 32, 3), **CLASSES),
    "DenseNet121": lambda: keras.applications.DenseNet121(input_shape=(32, 32, 3), **CLASSES),
    "EfficientNetB0": lambda: keras.applications.EfficientNetB0(input_shape=(32, 32, 3), **CLASSES),
    "ConvNeXtTiny": lambda: keras.applications.ConvNeXtTiny(input_shape=(32, 32, 3), **CLASSES),
    "NASNetMobile": lambda: keras.applications.NASNetMobile(input_shape=(32, 32, 3), **CLASSES),
    "Xception": lambda: keras.applications.Xception(input_shape=(71, 71, 3), **CLASSES),
}
