"""Small training scripts of Keras 3: healthy ones, and each with one mistake planted, for TensorFlow, and some for torch as well.

The line at which a mistake is to be found ends with `# here`.
"""

from __future__ import annotations

from training_scripts import Planted, Remarked

STEPS = 12
FIT = """
import numpy as np
import keras
from keras import layers

keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([
    keras.Input((16,)),
    layers.Dense(32, activation="relu"),
    layers.LayerNormalization(),
    layers.Dense(8),
    layers.Activation("softmax", dtype="float32"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
inputs, targets = np.random.randn(384, 16).astype("float32"), np.random.randint(0, 8, 384)
model.fit(inputs, targets, batch_size=32, epochs=2, verbose=0)
"""
CUSTOM = """
import numpy as np
import keras
from keras import layers, ops

keras.mixed_precision.set_global_policy("mixed_float16")


class Block(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 8))

    def call(self, inputs):
        features = ops.relu(ops.matmul(inputs, self.kernel))
        return features


model = keras.Sequential([keras.Input((16,)), Block(), layers.Dense(4, dtype="float32")])
model.compile(optimizer="adam", loss="mse")
inputs, targets = np.random.randn(384, 16).astype("float32"), np.zeros((384, 4), "float32")
model.fit(inputs, targets, batch_size=32, epochs=2, verbose=0)
"""
LOOP = """
import keras
import tensorflow as tf

keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4, dtype="float32")])
optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(inputs, targets):
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=True)
        loss = criterion(targets, outputs)
        scaled = optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for _ in range(12):
    train_step(tf.random.normal((32, 16)), tf.random.uniform((32,), 0, 4, tf.int32))
"""
EAGER = LOOP.replace("@tf.function\n", "")
STEP = """
import numpy as np
import keras
import tensorflow as tf

keras.mixed_precision.set_global_policy("mixed_float16")


class Trained(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(32, activation="relu")
        self.last = keras.layers.Dense(4, dtype="float32")

    def call(self, inputs):
        return self.last(self.first(inputs))

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = self.compute_loss(y=targets, y_pred=outputs)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


model = Trained()
model.compile(optimizer="adam", loss="mse")
model.fit(np.random.randn(384, 16).astype("float32"), np.zeros((384, 4), "float32"), batch_size=32, epochs=2, verbose=0)
"""
HEALTHY = {
    "fit": FIT,
    "a layer of one's own": CUSTOM,
    "a loop": LOOP,
    "an eager loop": EAGER,
    "a compiled loop": LOOP.replace("@tf.function", "@tf.function(jit_compile=True)"),
    "a train_step": STEP,
    "bfloat16": FIT.replace("mixed_float16", "mixed_bfloat16"),
    "float32": FIT.replace("mixed_float16", "float32"),
    "float32 in a loop": LOOP.replace("mixed_float16", "float32").replace(
        "keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-3))", "keras.optimizers.Adam(1e-3)"
    ),
    "a limit of the optimizer": FIT.replace('optimizer="adam"', "optimizer=keras.optimizers.Adam(clipnorm=1.0)"),
    "a limit that carries the scale": EAGER.replace(
        "    optimizer.apply",
        "    limit = 1.0 * (optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale)\n"
        "    gradients, _ = tf.clip_by_global_norm(gradients, limit)\n    optimizer.apply",
    ),
    "validation and two calls of fit": FIT.replace("verbose=0)", "verbose=0, validation_split=0.5)") + FIT.splitlines()[-1] + "\n",
    "normalized batches": FIT.replace("layers.LayerNormalization()", "layers.BatchNormalization(), layers.Dropout(0.1)"),
    "a scale too large at first": LOOP.replace("Adam(1e-3))", "Adam(1e-3), initial_scale=2.0**20)").replace("range(12)", "range(30)"),
    "convolutions": FIT.replace(
        '    layers.Dense(32, activation="relu"),',
        '    layers.Reshape((4, 4, 1)),\n    layers.Conv2D(8, 3, padding="same"),\n    layers.Flatten(),',
    ),
}
CUSTOM_STEP = """
import numpy as np
import tensorflow as tf
import keras
from keras import layers

keras.mixed_precision.set_global_policy("mixed_float16")


class Trainer(keras.Model):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.error = keras.metrics.MeanSquaredError()

    @property
    def metrics(self):
        return [self.error]

    def call(self, inputs):
        return self.model(inputs)

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            outputs = self.model(inputs, training=True)
            loss = self.optimizer.scale_loss(tf.reduce_mean((outputs - targets) ** 2))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.error.update_state(targets, outputs)
        return {"error": self.error.result()}


model = Trainer(keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(4, dtype="float32")]))
model.compile(optimizer=keras.optimizers.SGD(0.01))
inputs, targets = np.random.random((384, 16)).astype("float32"), np.random.random((384, 4)).astype("float32")
model.fit(inputs, targets, batch_size=32, epochs=2, verbose=0)
"""
HEALTHY["a subclass"] = """
import numpy as np
import keras
from keras import layers

keras.mixed_precision.set_global_policy("mixed_float16")


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Dense(16, activation="relu")
        self.last = layers.Dense(4, dtype="float32")

    def call(self, inputs):
        return self.last(self.first(inputs))


model = Classifier()
model.compile(optimizer=keras.optimizers.SGD(0.01), loss=keras.losses.MeanSquaredError(), metrics=[keras.metrics.MeanSquaredError()])
model.fit(np.random.random((384, 16)), np.random.random((384, 4)), batch_size=32, epochs=2, verbose=0, validation_split=0.2)
"""
HEALTHY["a model that is built by its data"] = FIT.replace("    keras.Input((16,)),\n", "")
HEALTHY["a train_step that tells no loss"] = CUSTOM_STEP
ON_TORCH = (
    "fit",
    "a model that is built by its data",
    "a subclass",
    "a layer of one's own",
    "bfloat16",
    "float32",
    "a limit of the optimizer",
    "normalized batches",
)


def _with(old: str, new: str, script: str) -> str:
    assert old in script
    return script.replace(old, new)


PLAIN = "keras.optimizers.Adam(1e-3)"
WRAPPED = f"keras.mixed_precision.LossScaleOptimizer({PLAIN})"
CALL = "        return features\n"
APPLY = "    optimizer.apply_gradients(zip(gradients, model.trainable_variables))\n"


def _call(line: str) -> str:
    """The layer of one's own with another line at its end."""
    return _with(CALL, f"        {line}  # here\n", CUSTOM)


def _gradients(line: str, script: str = LOOP) -> str:
    """The loop with a line that changes gradients before they are applied."""
    return _with(APPLY, f"    {line}  # here\n{APPLY}", script)


PLANTED = {
    "an output in float16": Planted(
        "MP201",
        _with('    layers.Activation("softmax", dtype="float32"),\n', "", FIT).replace(
            "layers.Dense(8),", 'layers.Dense(8, activation="softmax"),  # here'
        ),
    ),
    "an output in bfloat16": Planted(
        "MP201", _with(', dtype="float32"),\n])', "),  # here\n])", FIT).replace("mixed_float16", "mixed_bfloat16")
    ),
    "an output of a loop in float16": Planted(
        "MP201", _with(', keras.layers.Dense(4, dtype="float32")])', ", keras.layers.Dense(4)])  # here", LOOP)
    ),
    "an exponential in half": Planted("MP202", _call("return ops.exp(features * 0 + 20)")),
    "a loss of float16 outputs": Planted(
        "MP211",
        _with('keras.layers.Dense(4, dtype="float32")', "keras.layers.Dense(4)", EAGER)
        .replace("loss = criterion(targets, outputs)", "loss = tf.reduce_mean(tf.square(outputs * 0 + 400))  # here")
        .replace("scale_loss(loss)", "scale_loss(tf.cast(loss, tf.float32))"),
    ),
    "an input in float16": Planted("MP203", _with("keras.Input((16,)),", 'keras.Input((16,), dtype="float16"),  # here', FIT)),
    "a mask that is infinite": Planted("MP204", _call("return features + (1.0 - ops.cast(features > 0, features.dtype)) * -1e9")),
    "a constant that is infinite": Planted("MP204", _call("return features - 1e6")),
    "an epsilon that is zero": Planted("MP205", _call("return features / (ops.sum(features, -1, keepdims=True) + 1e-8)")),
    "a floor that is zero": Planted("MP205", _call("return ops.log(ops.maximum(features, 1e-9))")),
    "a float32 constant beside float16": Planted(
        "MP209", _with("from keras", "import tensorflow as tf\nfrom keras", _call("return features * tf.ones((8,))"))
    ),
    "float32 targets beside float16 outputs": Planted(
        "MP209",
        _with('keras.layers.Dense(4, dtype="float32")', "keras.layers.Dense(4)", LOOP)
        .replace("import tensorflow as tf", "import numpy as np\nimport tensorflow as tf")
        .replace("loss = criterion(targets, outputs)", "loss = tf.reduce_mean((targets - outputs) ** 2)  # here")
        .replace("tf.random.uniform((32,), 0, 4, tf.int32))", 'np.ones((32, 4), "float32"))'),
    ),
    "a weight in float16": Planted(
        "MP210",
        _with("add_weight(shape=(shape[-1], 8))", 'add_weight(shape=(shape[-1], 8), dtype="float16")', CUSTOM).replace(
            'optimizer="adam"', "optimizer=keras.optimizers.SGD(1e-6)"
        ),
    ),
    "everything in float16": Planted(
        "MP210", _with("mixed_float16", "float16", FIT).replace('optimizer="adam"', "optimizer=keras.optimizers.SGD(1e-6)")
    ),
    "a sum that overflows": Planted("MP211", _call("return features + ops.sum(features * 0 + 9000, -1, keepdims=True)")),
    "positions in half": Planted("MP212", _call("return features + ops.sum(ops.cos(ops.cast(ops.arange(3000), features.dtype)))")),
    "a loop without a scale": Planted("MP301", _with(WRAPPED, PLAIN, LOOP).replace(APPLY, APPLY.replace("\n", "  # here\n"))),
    "an eager loop without a scale": Planted("MP301", _with(WRAPPED, PLAIN, EAGER).replace(APPLY, APPLY.replace("\n", "  # here\n"))),
    "mixed layers in a float32 model": Planted(
        "MP301",
        _with('set_global_policy("mixed_float16")', 'set_global_policy("float32")', FIT)
        .replace('activation="relu")', 'activation="relu", dtype="mixed_float16")')
        .replace("model.compile(", "model.compile(  # here\n    "),
    ),
    "a loss scaled behind the tape": Planted(
        "MP302",
        _with("        scaled = optimizer.scale_loss(loss)\n", "    scaled = optimizer.scale_loss(loss)  # here\n", EAGER),
    ),
    "a scale for bfloat16": Planted(
        "MP306", _with("mixed_float16", "mixed_bfloat16", LOOP).replace(APPLY, APPLY.replace("\n", "  # here\n"))
    ),
    "a scale around a scale": Planted(
        "MP308",
        _with(WRAPPED, f"keras.mixed_precision.LossScaleOptimizer({WRAPPED})", LOOP).replace("Adam(1e-3)))", "Adam(1e-3)))  # here"),
    ),
    "gradients divided by hand": Planted(
        "MP308",
        _with(
            "    optimizer.apply_gradients(zip(gradients, model.trainable_variables))\n",
            "    if optimizer.built:\n        gradients = [each / optimizer.dynamic_scale for each in gradients]\n"
            "    optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # here\n",
            EAGER,
        ),
    ),
    "a train_step without the scale": Planted(
        "MP313",
        _with("            scaled = self.optimizer.scale_loss(loss)\n", "", STEP)
        .replace("gradient(scaled,", "gradient(loss,")
        .replace("self.trainable_variables))\n", "self.trainable_variables))  # here\n"),
    ),
    "a loop that scales nothing": Planted(
        "MP313",
        _with("        scaled = optimizer.scale_loss(loss)\n", "", LOOP)
        .replace("gradient(scaled,", "gradient(loss,")
        .replace(APPLY, APPLY.replace("\n", "  # here\n")),
    ),
    "a fixed scale that nothing is multiplied by": Planted(
        "MP313",
        _with(WRAPPED, "keras.optimizers.SGD(0.1, loss_scale_factor=1024)", LOOP)
        .replace("        scaled = optimizer.scale_loss(loss)\n", "")
        .replace("gradient(scaled,", "gradient(loss,")
        .replace(APPLY, APPLY.replace("\n", "  # here\n")),
    ),
    "a limit for all gradients": Planted("MP314", _gradients("gradients, _ = tf.clip_by_global_norm(gradients, 1.0)")),
    "a limit for each gradient": Planted("MP314", _gradients("gradients = [tf.clip_by_norm(each, 0.5) for each in gradients]", EAGER)),
    "a limit for each value": Planted("MP314", _gradients("gradients = [tf.clip_by_value(each, -0.1, 0.1) for each in gradients]")),
    "noise on scaled gradients": Planted(
        "MP314", _gradients("gradients = [each + tf.random.normal(each.shape, stddev=0.01) for each in gradients]")
    ),
    "decay on scaled gradients": Planted(
        "MP314",
        _gradients("gradients = [each + 0.01 * weight for each, weight in zip(gradients, model.trainable_variables)]", EAGER),
    ),
}
PLANTED_ON_TORCH = (
    "an output in float16",
    "an exponential in half",
    "an input in float16",
    "a constant that is infinite",
    "an epsilon that is zero",
    "a weight in float16",
    "a sum that overflows",
    "positions in half",
    "mixed layers in a float32 model",
)
SHOWN = (
    _with("    train_step(tf.random.normal((32, 16)),", "    loss = train_step(tf.random.normal((32, 16)),", LOOP)
    + "    print(float(loss))  # here\n"
)
REMARKED = {
    "a scaled loss that a function gives back": Remarked("MP315", _with("    return loss\n", "    return scaled\n", SHOWN), SHOWN),
    "a scaled loss that an eager loop prints": Remarked(
        "MP315",
        _with("    return loss\n", "    print(f'{scaled:.3f}')  # here\n    return loss\n", EAGER),
        _with(
            "    return loss\n",
            "    print(float(scaled / (optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale)))\n    return loss\n",
            EAGER,
        ),
    ),
}
