"""What adoption understands of Keras programs: layers whose dtypes clash, the Keras that they are written for, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.adopt.adopt import adopt
from mplint.targets import Targets
from mplint.versions import Versions

KERAS2 = Targets(None, Versions.parse(">=2.4,<3"))


def after(text: str, path: str = "train.py", targets: Targets = KERAS2) -> str:
    return adopt(path, text.encode(), "mixed_float16", targets).after.decode()


def left(text: str, targets: Targets = KERAS2) -> str:
    result = adopt("train.py", text.encode(), "mixed_float16", targets)
    assert result.after == result.before
    return "\n".join(note.text for note in result.left)


BLUR = """\
import numpy as np
from keras.layers import Dense, Input, Lambda
from keras.models import Model
from keras import backend as K

seen = Input(shape=(12,))
inner = Dense(6, activation="relu")(seen)
middle = Dense(3)(inner)
width = Dense(3)(inner)

def blurred(parts):
    centre, log_width = parts
    grain = K.random_normal(shape=K.shape(centre))
    return centre + K.exp(log_width / 2) * grain

code = Lambda(blurred)([middle, width])
back = Dense(12, activation="sigmoid")(code)
net = Model(seen, back)
spread = -0.5 * K.sum(1 + width - K.square(middle) - K.exp(width), axis=-1)
net.add_loss(K.mean(K.sum(K.binary_crossentropy(seen, back), axis=-1) + spread))
net.compile(optimizer="adam")
net.fit(np.zeros((8, 12)), epochs=1)
coder = Model(seen, middle)
"""


def test_a_lambda_that_mixes_in_noise_is_computed_in_float32() -> None:
    assert 'Lambda(blurred, dtype="float32")' in after(BLUR).replace("'", '"')


def test_a_layer_that_meets_a_float32_output_stays_float32_as_well() -> None:
    found = after(BLUR).replace("'", '"')
    assert 'middle = Dense(3, dtype="float32")(inner)' in found  # an output of `coder`
    assert 'width = Dense(3, dtype="float32")(inner)' in found  # computed with together with it
    assert 'inner = Dense(6, activation="relu")(seen)' in found


def test_a_layer_of_another_file_stays_float32_where_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "votes.py").write_text(
        "import tensorflow as tf\n\nclass Votes(tf.keras.layers.Layer):\n    def __init__(self, rounds, **kwargs):\n"
        "        super().__init__(**kwargs)\n        self.rounds = rounds\n\n    def call(self, inputs):\n"
        "        share = tf.zeros(tf.shape(inputs))\n        for _ in range(self.rounds):\n"
        "            share += inputs\n        return share\n"
    )
    text = """\
import numpy as np
import tensorflow as tf
from votes import Votes

net = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="relu"), Votes(2), tf.keras.layers.Dense(1)])
net.compile("adam", "mse")
net.fit(np.zeros((8, 3)), np.zeros((8, 1)))
"""
    assert 'Votes(2, dtype="float32")' in after(text).replace("'", '"')


LOOP = """\
import tensorflow as tf
{imports}
net = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(1)])
steps = tf.keras.optimizers.Adam()
mean = tf.keras.metrics.Mean()
for x, y in tf.data.Dataset.from_tensors((tf.zeros((8, 3)), tf.zeros((8, 1)))):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net(x) - y) ** 2)
    slopes = tape.gradient(loss, net.trainable_variables)
    steps.apply_gradients(zip(slopes, net.trainable_variables))
    mean(loss)
{last}
"""


def test_metrics_that_reset_states_speak_of_keras_2() -> None:
    assert "get_scaled_loss" in after(LOOP.format(imports="", last="mean.reset_states()"), targets=Targets())
    assert "scale_loss" in after(LOOP.format(imports="", last="mean.reset_state()"), targets=Targets(None, Versions.parse(">=3")))


def test_a_package_that_another_file_needs_tells_the_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "norms.py").write_text(
        "import tensorflow as tf\nimport tensorflow_addons as tfa\n\ndef block():\n"
        "    return tf.keras.Sequential([tf.keras.layers.Dense(4), tfa.layers.InstanceNormalization()])\n"
    )
    text = LOOP.format(imports="from norms import block", last="").replace('tf.keras.layers.Dense(4, activation="relu")', "block()")
    assert "get_scaled_loss" in after(text, targets=Targets())


def test_an_optimizer_of_several_star_imports_is_one() -> None:
    text = LOOP.format(imports="from tensorflow.keras.layers import *\nfrom tensorflow.keras.optimizers import *", last="")
    assert "LossScaleOptimizer(Adam())" in after(text.replace("tf.keras.optimizers.Adam()", "Adam()"))


def test_sparse_inputs_and_updates_by_hand_are_reasons() -> None:
    sparse = """\
from keras.layers import Dense, Input
from keras.models import Model

edges = Input(shape=(9,), sparse=True)
net = Model(edges, Dense(2)(edges))
net.compile("sgd", "mse")
net.fit([], [])
"""
    assert "sparse matrices" in left(sparse)
    by_hand = """\
from keras import backend as K
from keras.layers import Dense
from keras.models import Sequential
from keras.optimizers import Adam

net = Sequential([Dense(1, input_dim=3)])
wanted = K.placeholder(shape=(None, 1))
steps = Adam().get_updates(net.trainable_weights, [], K.mean(K.square(wanted - net.output)))
learn = K.function([net.input, wanted], [], updates=steps)
learn([[[0, 0, 0]], [[0]]])
"""
    assert "puts its updates into a graph" in left(by_hand)


def test_the_outputs_of_keras_1_are_outputs() -> None:
    text = """\
from keras.layers import Conv2D, Input
from keras.models import Model

def shape(size):
    seen = Input(size)
    inner = Conv2D(4, 3, activation="relu")(seen)
    mask = Conv2D(1, 1, activation="sigmoid")(inner)
    net = Model(input=seen, output=mask)
    net.compile(optimizer="adam", loss="binary_crossentropy")
    return net
"""
    assert 'activation="sigmoid", dtype="float32")' in after(text).replace("'", '"')
