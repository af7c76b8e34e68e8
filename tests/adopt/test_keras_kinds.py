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


PLAYER = """\
import tensorflow as tf
import tensorflow_probability as tfp

class Player(tf.keras.Model):
    def __init__(self, size):
        super().__init__()
        self.hidden = tf.keras.layers.Dense(64, activation="relu")
        self.center = tf.keras.layers.Dense(size)
        self.spread = tf.keras.layers.Dense(size)

    def call(self, seen):
        x = self.hidden(seen)
        return self.center(x), tf.clip_by_value(self.spread(x), 1e-6, 1)

    def move(self, seen):
        center, spread = self(seen)
        drawn = tfp.distributions.Normal(center, spread)
        taken = drawn.sample()
        move = tf.math.scalar_mul(tf.constant(2.0, dtype=tf.float32), tf.math.tanh(taken))
        return move, drawn.log_prob(taken)

player = Player(2)
optimizer = {optimizer}(1e-3)
for seen in data:
    with tf.GradientTape() as tape:
        move, chance = player.move(seen)
        loss = -tf.reduce_mean(chance)
    gradients = tape.gradient(loss, player.trainable_variables)
    optimizer.apply_gradients(grads_and_vars=zip(gradients, player.trainable_variables))
"""


def test_an_output_with_bounds_is_a_head() -> None:
    found = after(PLAYER.format(optimizer="tf.keras.optimizers.Adam"))
    assert found.count('Dense(size, dtype="float32")') == 2
    assert "tf.constant(2.0, dtype=tf.float32)" in found  # it meets what is float32 now


def test_the_optimizers_of_tensorflow_are_those_of_keras() -> None:
    assert "LossScaleOptimizer(tf.optimizers.Adam(1e-3))" in after(PLAYER.format(optimizer="tf.optimizers.Adam"))


OLD = """\
from keras.models import Model
from keras.layers import Dense, Input
{line}

seen = Input(shape=(12,))
net = Model(seen, Dense(1)(seen))
net.compile("adam", "mse")
net.fit(x, y{argument})
"""


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("from keras.engine.topology import Layer", ""),
        ("from keras.layers.normalization import BatchNormalization", ""),
        ("from keras import backend as K\nK.get_session()", ""),
        ("", ", nb_epoch=3"),
    ],
)
def test_a_keras_without_policies_is_a_reason(line: str, argument: str) -> None:
    text = OLD.format(line=line, argument=argument)
    assert "which has no policies" in left(text, Targets())


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("from keras.layers import BatchNormalization, Layer", ", epochs=3"),
        ("try:\n    from keras.engine.topology import Layer\nexcept ImportError:\n    from keras.layers import Layer", ""),
    ],
)
def test_a_keras_with_policies_is_adopted(line: str, argument: str) -> None:
    assert "set_global_policy" in after(OLD.format(line=line, argument=argument), targets=Targets())


BESIDE = """\
import tensorflow as tf

class Judge(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = tf.keras.layers.Dense(64, activation="relu")
        self.worth = tf.keras.layers.Dense(1)

    def call(self, seen, move):
        return self.worth(self.hidden(tf.concat([seen, move], axis=1)))

class Learner:
    def __init__(self):
        self.judge = Judge()
        self.optimizer = tf.keras.optimizers.Adam(1e-3)

    def learn(self, seen, moves, gains):
        seen = tf.convert_to_tensor(seen, dtype=tf.float32)
        moves = tf.convert_to_tensor(moves, dtype=tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.judge(seen, moves) - gains) ** 2)
        gradients = tape.gradient(loss, self.judge.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.judge.trainable_variables))

learner = Learner()
for seen, moves, gains in memory:
    learner.learn(seen, moves, gains)
"""


def test_keras_3_casts_all_that_a_layer_is_given() -> None:
    assert "set_global_policy" in after(BESIDE, targets=Targets(None, Versions.parse(">=3")))


def test_what_is_no_layer_is_not_asked_for_its_compute_dtype() -> None:
    assert "(MP209)" in left(BESIDE)  # Keras 2 casts the first argument alone


def test_layers_of_distributions_are_float32() -> None:
    text = """\
import tensorflow as tf
import tensorflow_probability as tfp

net = tf.keras.Sequential([
    tf.keras.layers.Dense(64, activation="relu"),
    tfp.layers.DenseFlipout(8),
    tf.keras.layers.Dense(2),
    tfp.layers.DistributionLambda(lambda t: tfp.distributions.Normal(t[..., :1], tf.math.softplus(t[..., 1:]))),
])
net.compile(optimizer="adam", loss=lambda y, spread: -spread.log_prob(y))
net.fit(x, y, epochs=3)
"""
    found = after(text)
    assert 'tfp.layers.DenseFlipout(8, dtype="float32")' in found
    assert 'tf.math.softplus(t[..., 1:])), dtype="float32")' in found and 'Dense(64, activation="relu")' in found


EMBEDDED = """\
from tensorflow.keras import Input, Model, layers

def learn_embedding(batches):
    inputs = Input(shape=(52, 16))
    encoded = layers.LSTM(64)(inputs)
    decoded = layers.LSTM(96, return_sequences=True)(layers.RepeatVector(52)(encoded))
    outputs = layers.TimeDistributed(layers.Dense(16))(decoded)
    encoder = Model(inputs, encoded)
    whole = Model(inputs, outputs)
    whole.compile(optimizer="adam", loss="mse")
    whole.fit(batches)
    return encoder

learn_embedding(None)
"""


def test_a_model_that_is_trained_has_outputs_whatever_its_function_is_called() -> None:
    assert 'layers.TimeDistributed(layers.Dense(16, dtype="float32"), dtype="float32")' in after(EMBEDDED)


OWN_APPLY = """\
import tensorflow as tf

class Pair(tf.keras.Model):
    def __init__(self, parts):
        super().__init__()
        self.net, self.steps = parts

    def gradients_of(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.net(x) ** 2)
        return tape.gradient(loss, self.net.trainable_variables)

    def apply_gradients(self, gradients):
        self.steps.apply_gradients(zip(gradients, self.net.trainable_variables))

    def train(self, x):
        self.apply_gradients(self.gradients_of(x))

pair = Pair(load_parts(tf.keras.layers.Dense(1), tf.keras.optimizers.Adam()))
pair.train(tf.zeros([8, 4]))
"""


def test_a_model_that_calls_a_method_like_an_optimizer_does_still_updates_itself() -> None:
    assert "`self.steps` would get float16 gradients of a loss that nothing scales" in left(OWN_APPLY)


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("from keras.layers import CuDNNGRU", ""),
        ("other = Model(input=seen, output=seen)", ""),
        ("import tensorflow as tf\nlog = tf.summary.FileWriter('runs')", ""),
    ],
)
def test_what_keras_and_tensorflow_have_no_more_is_a_reason(line: str, argument: str) -> None:
    text = OLD.format(line="", argument=argument).replace("net = Model", f"{line}\nnet = Model")
    assert "which has no policies" in left(text, Targets())


@pytest.mark.parametrize(
    "test", ["if tf.__version__.startswith('1'):", "if hasattr(tf, 'Session'):", "old = tf.__version__ < '2'\nif old:"]
)
def test_a_name_of_tensorflow_1_in_an_arm_of_a_version_test_is_no_reason(test: str) -> None:
    guarded = f"import tensorflow as tf\n{test}\n    log = tf.summary.FileWriter('runs')"
    assert "set_global_policy" in after(OLD.format(line=guarded, argument=""), targets=Targets())


def test_a_module_that_others_run_may_be_too_old_as_well() -> None:
    text = (
        "import tensorflow as tf\nfrom keras.layers import Dense, Input\nfrom keras.models import Model\n\n\nclass Painter:\n"
        "    def __init__(self, place):\n        self.log = tf.summary.FileWriter(place)\n        seen = Input(shape=(12,))\n"
        "        self.net = Model(seen, Dense(1, activation='sigmoid')(seen))\n        self.net.compile('adam', 'mse')\n\n"
        "    def train(self, x, y):\n        self.net.train_on_batch(x, y)\n"
    )
    assert "`tf.summary.FileWriter` is written for TensorFlow 1" in left(text, Targets())


def test_the_pin_of_a_package_that_is_not_used_is_no_reason() -> None:
    text = (
        "import tensorflow as tf\n\nnet = tf.keras.Sequential([tf.keras.layers.Dense(8, activation='relu'), tf.keras.layers.Dense(1)])\n"
        "net.compile('adam', 'mse')\nnet.fit(x, y)\n"
    )
    pinned = Targets(None, Versions.parse("==2.3.1"), Versions.parse("==2.4.0"))
    assert "set_global_policy" in after(text, targets=pinned)
    assert "pins Keras before 2.4" in left(
        text.replace("import tensorflow as tf", "import tensorflow as tf, keras").replace("tf.keras", "keras"), pinned
    )


def test_a_loss_of_another_file_in_which_dtypes_clash_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "scores.py").write_text(
        "import tensorflow as tf\n\ndef built():\n    return tf.keras.Sequential([tf.keras.layers.Dense(4)])\n\n"
        "def sliced(net, batch):\n    ways = tf.random.normal(tf.shape(batch))\n"
        "    with tf.GradientTape() as inner:\n        inner.watch(batch)\n        along = tf.reduce_sum(ways * net(batch))\n"
        "    return tf.reduce_mean(inner.gradient(along, batch) * ways)\n"
    )
    text = (
        "import tensorflow as tf\nfrom scores import built, sliced\n\nnet = built()\n"
        "optimizer = tf.keras.optimizers.Adam()\nfor batch in tf.data.Dataset.from_tensor_slices(x).batch(8):\n"
        "    with tf.GradientTape() as tape:\n        loss = sliced(net, batch)\n"
        "    gradients = tape.gradient(loss, net.trainable_variables)\n"
        "    optimizer.apply_gradients(zip(gradients, net.trainable_variables))\n"
    )
    (tmp_path / "train.py").write_text(text)
    assert "where half and float32 tensors meet" in left(text)


WRITTEN_OUT = """\
import tensorflow as tf

class Painter(tf.keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.body = tf.keras.layers.Dense(16, activation="relu")
        self.last = tf.keras.layers.Dense(8, activation="sigmoid")

    def call(self, codes):
        return self.last(self.body(codes))

class Net(tf.keras.Model):
    def __init__(self, optimizer):
        super().__init__()
        self.optimizer = optimizer
        self.inner = tf.keras.layers.Dense(4, activation="relu")
        self.painter = Painter()

    def call(self, seen):
        return self.painter(self.inner(seen))

    def learn(self, seen):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.keras.losses.binary_crossentropy(seen, self.__call__(seen)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))

net = Net(tf.keras.optimizers.Adam())
for batch in tf.data.Dataset.from_tensor_slices(x).batch(8):
    net.learn(batch)
"""


def test_a_model_that_calls_itself_by_its_full_name_has_a_float32_head() -> None:
    found = after(WRITTEN_OUT).replace("'", '"')
    assert 'self.last = tf.keras.layers.Dense(8, activation="sigmoid", dtype="float32")' in found
    assert "get_scaled_loss" in found


def test_a_model_that_is_loaded_from_where_it_was_saved_before_is_none_that_is_loaded_only() -> None:
    text = (
        "import tensorflow as tf\n\ndef tried(net, x, y, folder):\n    best = f'{folder}/best.keras'\n"
        "    kept = tf.keras.callbacks.ModelCheckpoint(filepath=best, save_best_only=True)\n    net.fit(x, y, callbacks=[kept])\n"
        "    net = tf.keras.models.load_model(best)\n    return net.evaluate(x, y)\n"
    )
    assert "trains layers that other code builds" in left(text)
    assert "dtypes that they were saved with" in left(text.replace("load_model(best)", "load_model('old.keras')"))
    again = (
        "import tensorflow as tf\n\ndef longer(x, y, path):\n    net = tf.keras.models.load_model(path)\n"
        "    net.fit(x, y)\n    net.save(path)\n\nlonger(x, y, 'net.keras')\n"
    )
    assert "dtypes that they were saved with" in left(again)


def test_a_model_with_a_fit_of_its_own_that_takes_no_gradients_has_nothing_to_adopt() -> None:
    text = (
        "import tensorflow as tf\nfrom sklearn.linear_model import Ridge\n\nclass Echo(tf.keras.Model):\n    def __init__(self):\n"
        "        super().__init__()\n        self.pool = tf.keras.Sequential([tf.keras.layers.SimpleRNN(64)])\n"
        "        self.last = Ridge()\n\n"
        "    def fit(self, x, y):\n        self.last.fit(self.pool(x), y)\n        return self\n"
    )
    assert left(text) == ""
    trained = text.replace("        self.last.fit(self.pool(x), y)\n", "        super().fit(x, y)\n")
    assert "the program that builds `Echo` has to call" in left(trained)


NETS = """\
import tensorflow as tf

class Block(tf.keras.Model):
    def __init__(self, wide, name):
        super().__init__()
        self.core = tf.keras.layers.Dense(wide)
        self.end = tf.keras.layers.Activation(name)

    def call(self, seen):
        return self.end(self.core(seen))

class Painter(tf.keras.Model):
    def __init__(self, conf):
        super().__init__()
        parts = [tf.keras.layers.InputLayer(conf["wide"])]
        for _ in range(conf["deep"]):
            parts.append(Block(8, "relu"))
        parts.append(Block(8, "tanh"))
        self.net = tf.keras.Sequential(parts)

    def call(self, codes):
        return self.net(codes)

class Judge(tf.keras.Model):
    def __init__(self, conf):
        super().__init__()
        self.net = tf.keras.Sequential([tf.keras.layers.InputLayer(conf["wide"]), tf.keras.layers.Dense(1)])

    def call(self, seen):
        return self.net(seen)
"""

PAIR = """\
import tensorflow as tf
from nets import Judge, Painter

class Pair:
    def __init__(self, conf):
        self.painter, self.judge = Painter(conf), Judge(conf)
        self.optimizer = tf.keras.optimizers.Adam()

    @tf.function
    def learn(self):
        codes = tf.random.normal((8, 4))
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self.judge(self.painter(codes)))
        gradients = tape.gradient(loss, self.painter.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.painter.trainable_variables))
"""


def test_both_models_of_another_file_are_told_where_one_judges_what_the_other_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "train.py").write_text(PAIR)
    found = adopt("train.py", PAIR.encode(), "mixed_float16", Targets()).left
    assert {name for name in ("Judge", "Painter") for note in found if f"`{name}` builds its model in other code" in note.text} == {
        "Judge",
        "Painter",
    }
