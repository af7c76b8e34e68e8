"""What `mplint convert` makes of .keras archives."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mplint.cli.main import main
from mplint.conversion.keras.archive import convert
from mplint.conversion.policy import ConversionError, Options, policy

FLOAT16 = policy("mixed_float16")


def layer(kind: str, name: str, *inputs: str, module: str = "keras.layers", **config: object) -> dict[str, Any]:
    """A layer's entry in config.json, with a policy object that it shares with all others."""
    shared = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": None, "shared_object_id": 7}
    dtype = "float32" if kind == "InputLayer" else shared
    nodes = [{"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": [source, 0, 0]}} for source in inputs], "kwargs": {}}]
    return {
        "module": module,
        "class_name": kind,
        "config": {"name": name, "dtype": dtype, **config},
        "registered_name": None if module == "keras.layers" else f"my>{kind}",
        "name": name,
        "inbound_nodes": nodes if inputs else [],
    }


def archive(path: Path, *layers: dict[str, Any], output: str) -> str:
    config = {"name": "m", "layers": layers, "input_layers": [[layers[0]["name"], 0, 0]], "output_layers": [[output, 0, 0]]}
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("metadata.json", json.dumps({"keras_version": "3.15.0"}))
        made.writestr("config.json", json.dumps({"module": "keras", "class_name": "Functional", "config": config}))
        made.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n" + bytes(2000))
    return str(path)


def policies(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as made:
        layers = json.loads(made.read("config.json"))["config"]["layers"]
    dtypes = {entry["name"]: entry["config"]["dtype"] for entry in layers}
    return {name: dtype if isinstance(dtype, str) else dtype["config"]["name"] for name, dtype in dtypes.items()}


def converted(path: str, tmp_path: Path, **largest: float) -> dict[str, str]:
    out = tmp_path / "out.keras"
    convert(path, str(out), FLOAT16, Options(), largest).save(str(out))
    return policies(out)


def test_layers_compute_in_half_and_what_makes_the_output_does_not(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.keras",
        layer("InputLayer", "x"),
        layer("Normalization", "norm", "x"),
        layer("Dense", "hidden", "norm"),
        layer("Mine", "own", "hidden", module="mine"),
        layer("Dense", "head", "own"),
        layer("Softmax", "softmax", "head"),
        layer("Reshape", "shape", "softmax"),
        output="shape",
    )
    half = {"hidden": "mixed_float16", "head": "mixed_float16"}
    assert converted(path, tmp_path) == dict.fromkeys(("x", "norm", "own", "softmax", "shape"), "float32") | half


def test_a_policy_object_that_layers_share_is_not_shared_afterwards(tmp_path: Path) -> None:
    """Keras makes one object of all entries with one id: the first would decide for the rest."""
    path = archive(tmp_path / "a.keras", layer("InputLayer", "x"), layer("Dense", "a", "x"), layer("Dense", "b", "a"), output="b")
    converted(path, tmp_path)
    with zipfile.ZipFile(tmp_path / "out.keras") as made:
        assert b"shared_object_id" not in made.read("config.json")


def test_all_other_members_are_the_same_bytes(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras", layer("InputLayer", "x"), layer("Dense", "a", "x"), layer("Dense", "b", "a"), output="b")
    converted(path, tmp_path)
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(tmp_path / "out.keras") as made:
        assert given.namelist() == made.namelist()
        assert all(given.read(name) == made.read(name) for name in given.namelist() if name != "config.json")


@pytest.mark.parametrize(
    ("entry", "largest"),
    [
        (layer("Rescaling", "a", "x", scale=1000.0, offset=0.0), {}),
        (layer("Dense", "a", "x"), {"x": 1e6}),
        (layer("Embedding", "a", "x", input_dim=50_000), {}),
        (layer("Lambda", "a", "x"), {}),
    ],
    ids=["large Rescaling", "raw features", "float ids", "Lambda"],
)
def test_fragile_layers_stay_float32(entry: dict[str, Any], largest: dict[str, float], tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras", layer("InputLayer", "x"), entry, layer("Dense", "b", "a"), layer("Dense", "c", "b"), output="c")
    assert converted(path, tmp_path, **largest) == {"x": "float32", "a": "float32", "b": "mixed_float16", "c": "float32"}


def test_policies_that_are_plain_names_are_set_as_such(tmp_path: Path) -> None:
    """Keras 2 and the first releases of Keras 3 write names; an operation's dtype is a name too, and stays."""
    product = layer("Multiply", "b", "a", module="keras.ops")
    entries = [layer("InputLayer", "x"), layer("Dense", "a", "x"), product, layer("Dense", "c", "b")]
    for entry in entries:
        entry["config"]["dtype"] = "float32"
    product["registered_name"] = None
    path = archive(tmp_path / "a.keras", *entries, output="c")
    assert converted(path, tmp_path) == {"x": "float32", "a": "mixed_float16", "b": "float32", "c": "float32"}


def test_layers_in_layers_are_converted_with_them(tmp_path: Path) -> None:
    cells = [layer("LSTMCell", "first"), layer("GRUCell", "second")]
    wrapper = layer("RNN", "rnn", "x", cell=layer("StackedRNNCells", "stack", cells=cells))
    path = archive(tmp_path / "a.keras", layer("InputLayer", "x"), wrapper, layer("Dense", "b", "rnn"), output="b")
    result = convert(path, "b.keras", FLOAT16, Options(), {})
    assert result.in_half == ["rnn", "rnn/stack", "rnn/stack/first", "rnn/stack/second"]
    kept = convert(path, "b.keras", FLOAT16, Options(), {}, {"rnn": "it is measured so"})
    assert kept.in_half == [] and dict(kept.kept)["rnn/stack (StackedRNNCells)"] == "it is measured so"


def test_a_layer_stays_float32_where_an_operation_makes_too_much_of_it(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.keras",
        layer("InputLayer", "x"),
        layer("Dense", "a", "x"),
        layer("Sum", "sum", "a", module="keras.src.ops.numpy"),
        layer("Dense", "b", "sum"),
        layer("Dense", "c", "b"),
        output="c",
    )
    result = convert(path, "b.keras", FLOAT16, Options(), {}, {"sum": "its results reach 1e+06"})
    assert result.in_half == ["b"] and dict(result.kept)["a (Dense)"] == "what 'sum' makes of it: its results reach 1e+06"


def test_a_subclassed_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("metadata.json", "{}")
        made.writestr("config.json", json.dumps({"module": "mine", "class_name": "Net", "config": {"units": 3}}))
    with pytest.raises(ConversionError, match="Convert the live model"):
        convert(str(path), "b.keras", FLOAT16, Options(), {})


@pytest.mark.framework
def test_the_command_proves_the_model_with_keras(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import keras
    import numpy as np
    from keras import layers

    keras.utils.set_random_seed(0)
    x = keras.Input((16,), name="x")
    inner = keras.Sequential([keras.Input((16,)), layers.Dense(32, activation="gelu"), layers.LayerNormalization(), layers.Dense(8)])
    sequence = layers.Bidirectional(layers.LSTM(4))(layers.Reshape((4, 2))(inner(x)))
    outputs = layers.Activation("softmax")(layers.Dense(5)(sequence))
    model = keras.Model(x, outputs)
    source, target = tmp_path / "a.keras", tmp_path / "b.keras"
    model.save(source)
    assert main(["convert", str(source), "-o", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "outputs against the original's on 8 samples" in printed and "set_global_policy" in printed and repr(str(target)) in printed
    loaded = keras.models.load_model(target)
    computing = [layer.compute_dtype for layer in loaded._flatten_layers() if not isinstance(layer, keras.Model | layers.InputLayer)]
    assert computing.count("float16") == len(computing) - 1 and loaded.layers[-1].compute_dtype == "float32"
    assert loaded(np.ones((2, 16), "float32")).dtype == "float32"
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True))
