"""What `mplint convert` does to Keras programs: where the policy goes, what stays float32, what is listed and why."""

from __future__ import annotations

import ast
import difflib
import io
import json
import tokenize
from pathlib import Path

import pytest

from mplint.adopt.adopt import adopt
from mplint.adopt.program import Adoption
from mplint.targets import Targets
from mplint.versions import Versions

SCRIPTS = sorted((Path(__file__).parent / "keras_scripts").glob("*.py"))
NOTEBOOK = Path(__file__).parent / "keras_scripts" / "digits.ipynb"
KERAS_2, KERAS_3 = (Targets(keras=Versions.parse(text)) for text in (">=2.10,<3", ">=3"))
FIT = 'model.compile(optimizer="adam", loss="mse")\nmodel.fit(x, y)\n'


def adopted(text: str, policy: str = "mixed_float16", targets: Targets = KERAS_3) -> Adoption:
    return adopt("train.py", text.encode(), policy, targets)


def result(text: str, policy: str = "mixed_float16", targets: Targets = KERAS_3) -> str:
    return adopted(text, policy, targets).after.decode()


def listed(text: str, policy: str = "mixed_float16", targets: Targets = KERAS_3) -> list[tuple[int | None, str]]:
    adoption = adopted(text, policy, targets)
    assert adoption.after == adoption.before
    return [(note.location.line, note.text) for note in adoption.left]


@pytest.mark.parametrize(
    ("imports", "layers", "written"),
    [
        ("import keras\n", "keras.layers", "keras.mixed_precision"),
        ("import tensorflow as tf\n", "tf.keras.layers", "tf.keras.mixed_precision"),
        ("import tensorflow\n", "tensorflow.keras.layers", "tensorflow.keras.mixed_precision"),
        ("from tensorflow import keras\n", "keras.layers", "keras.mixed_precision"),
        ("import tensorflow.keras as K\n", "K.layers", "K.mixed_precision"),
        ("from keras import layers, mixed_precision\n", "layers", "mixed_precision"),
        ("from tensorflow.keras import layers, mixed_precision as mp\n", "layers", "mp"),
        ("import tf_keras\n", "tf_keras.layers", "tf_keras.mixed_precision"),
    ],
)
def test_the_policy_is_set_in_the_spelling_of_the_program(imports: str, layers: str, written: str) -> None:
    package = "tensorflow.keras" if "tensorflow.keras" in imports else "keras"
    home = layers.removesuffix(".layers")
    model = f"model = {home}.Sequential" if "." in layers else f"from {package} import Sequential\nmodel = Sequential"
    text = f"{imports}\n{model}([{layers}.Dense(8), {layers}.Dense(1)])\n{FIT}"
    lines = result(text).splitlines()
    assert f'{written}.set_global_policy("mixed_float16")' in lines
    assert sum("set_global_policy" in line for line in lines) == 1


def test_what_is_not_imported_yet_is_imported_from_the_package_of_the_layers() -> None:
    imports = "from tensorflow.keras.layers import Dense\nfrom tensorflow.keras.models import Sequential\n"
    text = f"{imports}\nmodel = Sequential()\nmodel.add(Dense(1))\n"
    expected = (
        "from tensorflow.keras.layers import Dense\nfrom tensorflow.keras.models import Sequential\n"
        "from tensorflow.keras import mixed_precision\n\n"
        'mixed_precision.set_global_policy("mixed_float16")\n\nmodel = Sequential()\nmodel.add(Dense(1, dtype="float32"))\n'
    )
    assert result(text + FIT) == expected + FIT


def test_the_policy_stands_in_main_before_the_scope_that_builds_the_model() -> None:
    text = (
        "import argparse\n\nimport tensorflow as tf\n\n\ndef build():\n    return tf.keras.Sequential([tf.keras.layers.Dense(1)])\n\n\n"
        "def main(args):\n    strategy = tf.distribute.MirroredStrategy()\n    with strategy.scope():\n        model = build()\n"
        '        model.compile("adam", "mse")\n    model.fit(args.x, args.y)\n\n\n'
        'if __name__ == "__main__":\n    main(argparse.ArgumentParser().parse_args())\n'
    )
    lines = result(text).splitlines()
    at = lines.index('    tf.keras.mixed_precision.set_global_policy("mixed_float16")')
    assert lines[at + 1] == "    with strategy.scope():"


def test_the_policy_is_set_again_after_clear_session_in_keras_3_only() -> None:
    text = (
        "import keras\n\nfor fold in range(5):\n    keras.backend.clear_session()\n"
        '    model = keras.Sequential([keras.layers.Dense(1)])\n    model.compile("adam", "mse")\n    model.fit(x, y)\n'
    )
    assert result(text).count("set_global_policy") == 2
    assert result(text, targets=KERAS_2).count("set_global_policy") == 1


def test_heads_of_every_kind_stay_float32_and_hidden_layers_do_not() -> None:
    text = (
        "import keras\nfrom keras import layers\n\n\nclass Decoder(layers.Layer):\n    def __init__(self):\n        super().__init__()\n"
        '        self.hidden = layers.Dense(64, activation="relu")\n        self.out = layers.Dense(3)\n\n'
        "    def call(self, x):\n        return self.out(self.hidden(x))\n\n\n"
        "class Net(keras.Model):\n    def __init__(self):\n        super().__init__()\n        self.decoder = Decoder()\n\n"
        "    def call(self, x):\n        return self.decoder(x)\n\n\nmodel = Net()\n" + FIT
    )
    after = result(text)
    assert 'layers.Dense(3, dtype="float32")' in after and 'layers.Dense(64, activation="relu")\n' in after


def test_layers_that_take_raw_numbers_stay_float32() -> None:
    text = (
        "import keras\nfrom keras import layers\n\nmodel = keras.Sequential([layers.Normalization(), layers.Rescaling(1 / 65535), "
        "layers.Rescaling(1 / 255), layers.Dense(8), layers.Dense(1)])\n" + FIT
    )
    after = result(text)
    assert 'Normalization(dtype="float32")' in after and 'Rescaling(1 / 65535, dtype="float32")' in after
    assert "Rescaling(1 / 255)," in after


def test_bfloat16_needs_no_scaling() -> None:
    text = (Path(__file__).parent / "keras_scripts" / "gan_two_optimizers.py").read_text()
    after = result(text, "mixed_bfloat16")
    assert "scale" not in after and 'set_global_policy("mixed_bfloat16")' in after and after.count('dtype="float32"') == 2


def test_keras_2_scales_and_unscales_by_hand() -> None:
    text = (Path(__file__).parent / "keras_scripts" / "train_step_with_clipping.py").read_text()
    after = result(text, targets=KERAS_2)
    assert "scaled_loss = self.optimizer.get_scaled_loss(loss)" in after
    assert after.index("get_unscaled_gradients(grads)") < after.index("clip_by_norm(g, 0.5)")


def test_a_program_that_has_adopted_the_policy_is_left_alone() -> None:
    once = result(SCRIPTS[0].read_text())
    adoption = adopted(once)
    assert adoption.after == adoption.before and adoption.trains and not adoption.left
    assert [note.text for note in adoption.made] == ["the global policy is mixed_float16"]


def test_half_an_adoption_is_completed() -> None:
    text = (
        'import keras\n\nkeras.mixed_precision.set_global_policy("mixed_float16")\n'
        'model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(3, activation="softmax")])\n' + FIT
    )
    assert 'Dense(3, activation="softmax", dtype="float32")' in result(text)


def test_a_program_that_chooses_its_precision_is_left_alone() -> None:
    model = "model = keras.Sequential([keras.layers.Dense(3)])\n"
    text = f"import sys\nimport keras\n\nkeras.mixed_precision.set_global_policy(sys.argv[1])\n{model}"
    adoption = adopted(text + FIT)
    assert adoption.after == adoption.before and not adoption.left
    assert adoption.made[0].text.startswith("the program chooses its precision itself")


def test_another_policy_is_not_overwritten() -> None:
    policy = 'keras.mixed_precision.set_global_policy("mixed_bfloat16")'
    text = f"import keras\n\n{policy}\nmodel = keras.Sequential([keras.layers.Dense(3)])\n"
    assert listed(text + FIT) == [(3, "the global policy is mixed_bfloat16 already: write 'mixed_float16' here to change it")]


MODEL = "model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
DEEP = "model = tf.keras.Sequential([tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)])\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (f"import tensorflow as tf\n\nsession = tf.compat.v1.Session()\n{MODEL}{FIT}", 3, "is TensorFlow 1"),
        (f"import tensorflow as tf\n\nstrategy = tf.distribute.TPUStrategy()\n{MODEL}{FIT}", 3, "use mixed_bfloat16"),
        (f'import tensorflow as tf\n\ntf.keras.backend.set_floatx("float64")\n{MODEL}{FIT}', 3, "float64"),
        (f'import keras\n\nmodel = keras.models.load_model("m.keras")\n{FIT}', 3, "saved with"),
        (f"import keras\nfrom project.networks import model\n\n{FIT}", 2, "is built when `project.networks` is imported"),
        (
            "import jax\nimport keras\n\nmodel = keras.Sequential([keras.layers.Dense(1)])\n"
            "step = jax.value_and_grad(lambda v: model(v))\n",
            5,
            "use mixed_bfloat16",
        ),
        (
            f"import tensorflow as tf\n\n{DEEP}optimizers = make()\n\n\ndef step(x, y):\n    with tf.GradientTape() as tape:\n"
            "        loss = tf.reduce_mean((model(x) - y) ** 2)\n    grads = tape.gradient(loss, model.trainable_variables)\n"
            "    optimizers[0].apply_gradients(zip(grads, model.trainable_variables))\n\n\nstep(x, y)\n",
            11,
            "would get float16 gradients of a loss that nothing scales",
        ),
    ],
    ids=["session", "tpu", "floatx", "loaded", "imported", "jax", "opaque-optimizer"],
)
def test_what_cannot_be_adopted_is_listed_with_line_and_reason(text: str, line: int, said: str) -> None:
    notes = listed(text)
    assert any(place == line and said in reason for place, reason in notes), notes


def test_what_has_no_kernel_for_half_tensors_gets_its_input_in_float32() -> None:
    text = (
        "import tensorflow as tf\n\n\nclass Spectrum(tf.keras.layers.Layer):\n    def call(self, x):\n"
        "        return tf.abs(tf.signal.rfft(x))\n"
        f"\n\nmodel = tf.keras.Sequential([Spectrum(), tf.keras.layers.Dense(1)])\n{FIT}"
    )
    adoption = adopted(text)
    assert "tf.abs(tf.signal.rfft(tf.cast(x, tf.float32)))" in adoption.after.decode() and not adoption.left
    unreachable = text.replace("import tensorflow as tf\n", "import tensorflow as tf\nfrom tensorflow.signal import rfft\n")
    notes = listed(unreachable.replace("tf.signal.rfft", "rfft"))
    assert [line for line, said in notes if "has no kernel for half tensors" in said] == [7], notes


def test_a_loss_that_a_layer_adds_is_float32_as_the_others_are() -> None:
    text = (
        "import keras\nfrom keras import layers, ops\n\n\nclass Sparse(layers.Layer):\n    def call(self, x):\n"
        "        self.add_loss(0.1 * ops.mean(x))\n        return x\n\n\n"
        "inputs = keras.Input((8,))\nmodel = keras.Model(inputs, layers.Dense(1)(Sparse()(layers.Dense(8)(inputs))))\n" + FIT
    )
    assert 'self.add_loss(ops.cast(0.1 * ops.mean(x), "float32"))' in result(text)


def test_a_module_that_others_run_gets_its_heads_and_a_note_on_the_policy() -> None:
    layers = "[keras.layers.Dense(8), keras.layers.Dense(2, activation='softmax')]"
    text = f"import keras\n\n\ndef build():\n    return keras.Sequential({layers})\n"
    adoption = adopted(text)
    after = adoption.after.decode()
    assert "softmax', dtype='float32')" in after and "set_global_policy" not in after
    assert 'has to call `keras.mixed_precision.set_global_policy("mixed_float16")` first' in adoption.left[0].text


def test_a_model_from_another_file_is_listed() -> None:
    text = f"import keras\nfrom project.networks import build\n\nmodel = build()\n{FIT}"
    adoption = adopted(text)
    assert "set_global_policy" in adoption.after.decode()
    assert [(n.location.line, n.text.split(":")[0]) for n in adoption.left] == [(4, "`build` builds its model in other code")]


def test_layers_of_keras_on_the_torch_backend_follow_the_policy_and_no_autocast() -> None:
    text = (
        'import os\n\nos.environ["KERAS_BACKEND"] = "torch"\nimport keras\nimport torch\n\n'
        f"model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])\n{FIT}"
    )
    after = result(text)
    assert "set_global_policy" in after and "autocast" not in after and 'Dense(1, dtype="float32")' in after


def comments(text: str) -> list[str]:
    return [token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("targets", [KERAS_2, KERAS_3], ids=["keras2", "keras3"])
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_comments_and_formatting_stay_and_a_second_run_changes_nothing(path: Path, targets: Targets, policy: str) -> None:
    before = path.read_text()
    after = result(before, policy, targets)
    ast.parse(after)
    assert comments(after) == comments(before)
    touched = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line.startswith(("- ", "+ "))]
    assert 2 <= len(touched) <= 24 and all(line == line.rstrip() or line in ("+ ", "- ") for line in touched)
    assert result(after, policy, targets) == after


def test_a_notebook_keeps_its_cells_and_metadata() -> None:
    before = json.loads(NOTEBOOK.read_text())
    after = json.loads(adopt(NOTEBOOK.name, NOTEBOOK.read_bytes(), "mixed_float16", KERAS_3).after)
    assert [cell["id"] for cell in after["cells"]] == [cell["id"] for cell in before["cells"]]
    changed = [n for n, (old, new) in enumerate(zip(before["cells"], after["cells"], strict=True)) if old != new]
    assert changed == [1, 4] and after["metadata"] == before["metadata"]
    assert "%matplotlib inline" in "".join(after["cells"][3]["source"])
