"""Damaged and hostile model files end as one GraphError with the reason, soon, with little memory, and with nothing run or written."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("h5py")
pytest.importorskip("numpy")

import h5py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import (
    FILES,
    call,
    checkpoint,
    exported,
    exported_program,
    field,
    graph_node,
    keras_archive,
    keras_config,
    keras_weights,
    layer,
    legacy_checkpoint,
    pickled,
    safetensors,
    saved_model,
    tensor,
    variables_index,
)

from mplint.graph.load import load_graph
from mplint.graph.model import GraphError, ModelGraph, OpKind
from mplint.graph.tensorflow.bundle import read_bundle

CONTENT = {name: make() for name, make in FILES.items()}
MEMORY = 200 << 20


def load(folder: Path, name: str, data: bytes) -> ModelGraph:
    (folder / name).write_bytes(data)
    return load_graph(folder / name)


def refused(folder: Path, name: str, data: bytes, reason: str) -> None:
    before = sorted(folder.rglob("*"))
    tracemalloc.start()
    try:
        with pytest.raises(GraphError, match=reason):
            read(load(folder, name, data))
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert sorted(folder.rglob("*")) in (before, sorted({*before, folder / name}))


def read(model: ModelGraph) -> None:
    """Everything that a rule could touch."""
    for node in model.nodes():
        assert isinstance(node.described, str)
    for weight in [*model.constants(), *(model.optimizer.tensors if model.optimizer else ())]:
        assert weight.described
        for _ in weight.weights.chunks() if weight.weights is not None else ():
            pass


@pytest.mark.parametrize("name", FILES)
def test_the_sound_files_are_read(name: str, tmp_path: Path) -> None:
    model = load(tmp_path, name, CONTENT[name])
    read(model)
    assert any(True for _ in model.constants())
    assert {node.compute_dtype for node in model.nodes()} <= {"float16"}


@pytest.mark.parametrize(("place", "value"), [(8, 1), (10, 99)], ids=["encrypted", "packed in an unknown way"])
def test_weights_that_cannot_be_unpacked_are_refused(place: int, value: int, tmp_path: Path) -> None:
    content = bytearray(CONTENT["script.pt"])
    at = -1
    while not content[at + 46 :].startswith(b"own/data/0"):
        at = content.index(b"PK\x01\x02", at + 1)  # the entries of its table of contents
    content[at + place] = value
    refused(tmp_path, "script.pt", bytes(content), "own/data/0 can't be unpacked")


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(name: str, data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(CONTENT[name])
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(("set", "cut", "drop", "copy", "flip"))):
            case "set":
                content[place] = data.draw(st.integers(0, 255))
            case "flip":
                content[place] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del content[max(place, 12) :]
            case "drop":
                del content[place : place + data.draw(st.integers(1, 9))]
            case "copy":
                content[place:place] = content[place : place + data.draw(st.integers(1, 40))]
        if not content:
            content = bytearray(b"\0")
    try:
        read(load(tmp_path, name, bytes(content)))
    except GraphError as error:
        assert str(error) and "\n" not in str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.sampled_from(["", "dense", "float16", "Dense", "InputLayer"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "config", "class_name", "dtype", "layers", "args"]), inner)
    ),
    max_leaves=8,
)


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The paths to everything in a JSON value."""
    found = [path]
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += places(part, (*path, key))
    return found


def replaced(value: object, path: tuple[object, ...], new: object) -> object:
    if not path:
        return new
    changed = json.loads(json.dumps(value))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_configurations_with_anything_in_them_are_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    config: object = keras_config(layer("LSTM", "lstm", "dense", units=3, layer=layer("Dense", "cell", None, units=2)))
    program: object = exported_program()
    for _ in range(data.draw(st.integers(1, 3))):
        config = replaced(config, data.draw(st.sampled_from(places(config))), data.draw(JSON))
        program = replaced(program, data.draw(st.sampled_from(places(program))), data.draw(JSON))
    for name, content in (("model.keras", keras_archive(config)), ("model.pt2", exported(program))):
        try:
            read(load(tmp_path, name, content))
        except GraphError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "function", ["os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "posix.system", "builtins.getattr"]
)
@pytest.mark.parametrize("name", ["model.pt", "old.pth"])
def test_a_pickle_that_would_run_something_is_refused_and_nothing_runs(function: str, name: str, tmp_path: Path) -> None:
    module, _, attribute = function.rpartition(".")
    target = tmp_path / "written"
    payload = call(module, attribute, f"touch {target}")
    content = checkpoint({"weight": tensor("0", (2, 3), 6), "x": payload}) if name == "model.pt" else legacy_checkpoint() + b""
    if name == "old.pth":
        content = content.replace(pickled({"little_endian": True}), pickled({"little_endian": payload}))
    refused(tmp_path, name, content, f"the pickle calls {function} when it is loaded")
    assert not target.exists()


def test_the_refused_payload_is_one_that_pickle_itself_runs(tmp_path: Path) -> None:
    import pickle

    target = tmp_path / "written"
    pickle.loads(pickled(call("os", "system", f"touch {target}")))
    assert target.exists()


def test_objects_of_unknown_classes_are_described_and_not_made(tmp_path: Path) -> None:
    made = b"\x80\x02cos\nno_such_class\n)\x81}X\x06\x00\x00\x00weightK\x01sb."
    model = load(tmp_path, "model.pt", checkpoint({"w": tensor("0", (6,), 6), "p": 1}).replace(b"unused", made))
    assert [t.name for t in model.constants()] == ["w"]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pt", lambda: checkpoint({"w": tensor("0", (1 << 40,), 6)}), "claims 1099511627776 elements"),
        ("a.pt", lambda: checkpoint({"w": tensor("0", (6,), 1 << 50)}), "a storage claims"),
        ("a.pt", lambda: checkpoint({"w": tensor("0", (3,), 6, offset=5)}), "claims 3 elements at 5"),
        ("a.pt", lambda: checkpoint(storages={"0": bytes(4), "1": bytes(12)}), "claims 12 bytes; model/data/0 has 4"),
        ("a.pth", lambda: legacy_checkpoint()[:-5], "cut off"),
        (
            "a.safetensors",
            lambda: safetensors({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
            "not in the file",
        ),
        ("a.safetensors", lambda: safetensors({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)), "takes 12 bytes"),
        ("a.safetensors", lambda: safetensors(b'{"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"w":{}}', bytes(2)), "'w' twice"),
        ("a.safetensors", lambda: safetensors({"w": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}}, bytes(9)), "describes"),
        ("a.safetensors", lambda: struct.pack("<Q", 1 << 31) + b"{}" + bytes(8), "header claims"),
        (
            "a.safetensors",
            lambda: safetensors({n: {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]} for n in "ab"}, bytes(2)),
            "overlap",
        ),
        ("a.pt2", lambda: exported(weight=bytes(3)), "claims 32 bytes"),
        ("a.keras", lambda: keras_archive("[" * 200_000), "nested too deeply"),
        ("a.keras", lambda: keras_archive("[" + "[]," * 7_000_000 + "[]]"), "more JSON entries"),
        ("a.keras", lambda: keras_archive(weights=keras_weights()[:900]), "cut off|outside"),
        ("a.keras", lambda: keras_archive(keras_config(layer("Add", "sum", "sum"))), "cyclic"),
        ("a.keras", lambda: keras_archive(keras_config(layer("ReLU", "r", "nobody"))), "not there"),
        ("a.h5", lambda: CONTENT["model.h5"][:1500], "cut off|outside"),
    ],
)
def test_claims_that_the_file_does_not_keep_are_refused(name: str, data: object, reason: str, tmp_path: Path) -> None:
    refused(tmp_path, name, data(), reason)  # type: ignore[operator]


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    refused(tmp_path, "a.keras", keras_archive(" " * (100 << 20), packing=zipfile.ZIP_DEFLATED), "zip bomb")
    refused(tmp_path, "b.keras", keras_archive(weights=bytes(1 << 28), packing=zipfile.ZIP_DEFLATED), "zip bomb")


def test_a_member_larger_than_it_claims_is_not_read_on(tmp_path: Path) -> None:
    content = bytearray(keras_archive(json.dumps(keras_config()) + " " * 5000, packing=zipfile.ZIP_DEFLATED))
    size = struct.pack("<I", len(json.dumps(keras_config())) + 5000)
    assert content.count(size) == 2
    refused(tmp_path, "a.keras", bytes(content.replace(size, struct.pack("<I", 300))), "unpacked|holds|JSON|CRC")


def test_models_within_models_are_read_to_a_depth(tmp_path: Path) -> None:
    config: dict[str, object] = keras_config()
    for _ in range(90):
        nested = {**config, "name": "inner", "inbound_nodes": []}
        config = {**config, "config": {**keras_config()["config"], "layers": [nested], "output_layers": []}}  # type: ignore[dict-item]
    refused(tmp_path, "a.keras", keras_archive(config), "nested too deeply")


def test_a_model_that_is_called_often_is_described_once(tmp_path: Path) -> None:
    config = keras_config()
    for depth in range(25):  # each level calls the one below twice: 2**25 calls
        given = layer("InputLayer", "given", None, batch_shape=[None, 4])
        block = {**config, "name": f"block{depth}"}
        reference = layer("ReLU", "", "given")["inbound_nodes"]
        block["inbound_nodes"] = [*reference, *reference]  # type: ignore[misc]
        whole = {
            "name": f"level{depth}",
            "layers": [given, block],
            "input_layers": [["given", 0, 0]],
            "output_layers": [[f"block{depth}", 1, 0]],
        }
        config = {**config, "config": whole}
    model = load(tmp_path, "a.keras", keras_archive(config))
    assert len(list(model.nodes())) == 51


def test_hdf5_that_points_outside_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(64))
    with h5py.File(tmp_path / "link.h5", "w", libver="latest") as file:
        file["model_weights"] = h5py.ExternalLink(str(secret), "/data")
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("vars/0", (4,), "f4", external=[(str(secret), 0, 16)])
    with h5py.File(tmp_path / "virtual.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(str(secret), "x", (4,))
        file.create_virtual_dataset("vars/0", layout)
    for name, reason in (("link.h5", "another file"), ("external.h5", "another file"), ("virtual.h5", "other files")):
        with pytest.raises(GraphError, match=reason):
            load_graph(tmp_path / name)


def test_a_group_that_contains_itself_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("vars/inner")
        group["again"] = file["vars"]
    with pytest.raises(GraphError, match="contains itself"):
        load_graph(tmp_path / "a.h5")


def test_data_that_is_no_model_is_told_apart(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["pixels"] = [1, 2, 3]
    with pytest.raises(GraphError, match="Keras did not write"):
        load_graph(tmp_path / "data.h5")
    refused(tmp_path, "a.pt", checkpoint({"vocabulary": ["a", "b"]}, {}), "holds no tensors")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*b", "(.*)*x", "((a*)*)*", "a" * 400])
def test_patterns_in_a_policy_map_that_take_forever_are_not_tried(pattern: str, tmp_path: Path) -> None:
    policies = {"class_name": "DTypePolicyMap", "config": {"default_policy": POLICY_FLOAT, "policy_map": {pattern: "mixed_float16"}}}
    config = keras_config(
        layer("Dense", "a" * 120, "given", units=2) | {"config": {"name": "a" * 120, "trainable": True, "dtype": policies, "units": 2}}
    )
    assert {node.compute_dtype for node in load(tmp_path, "a.keras", keras_archive(config)).nodes()} == {"float16", "float32"}


POLICY_FLOAT = {"class_name": "DTypePolicy", "config": {"name": "float32"}}


def test_an_index_of_shards_is_checked_against_its_files(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    (tmp_path / "one.safetensors").write_bytes(CONTENT["model.safetensors"])
    for places, reason in (
        ({"a": "../one.safetensors"}, "outside its folder"),
        ({"a": str(tmp_path / "one.safetensors")}, "outside its folder"),
        ({"a": "two.safetensors"}, "not there"),
        ({"c": "one.safetensors"}, "and it is not"),
    ):
        index.write_text(json.dumps({"weight_map": places}))
        with pytest.raises(GraphError, match=reason):
            load_graph(index)
    index.write_text(json.dumps({"metadata": {"total_size": 12}, "weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}))
    model = load_graph(index)
    assert ([tensor.described for tensor in model.constants()], model.notes) == (["float16[2, 2]", "float32[1]"], [])


def test_a_weight_that_is_cut_off_later_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    model = load(tmp_path, "a.safetensors", CONTENT["model.safetensors"])
    os.truncate(tmp_path / "a.safetensors", 20)
    with pytest.raises(GraphError, match="ends"):
        read(model)


def test_savedmodels_with_circles_and_functions_that_are_not_there(tmp_path: Path) -> None:
    loop = [graph_node("a", "Merge", ["b"], T=field(6, 1)), graph_node("b", "NextIteration", ["a"], T=field(6, 1))]
    missing = graph_node("z", "PartitionedCall", ["y", "a"], f=field(10, field(1, "nowhere")))
    model = load(tmp_path, "saved_model.pb", saved_model(*loop, missing))
    assert [node.name for node in model.graph.nodes] == ["x", "y"]
    refused(tmp_path, "saved_model.pb", saved_model()[:-7], "cut off|no graph")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tables_of_variables_with_changed_bytes_are_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    folder = tmp_path / "variables"
    folder.mkdir(exist_ok=True)
    (folder / "variables.data-00000-of-00001").write_bytes(bytes(4))
    content = bytearray(variables_index())
    (folder / "variables.index").write_bytes(content)
    (stored,) = read_bundle(str(folder)).values()
    assert (stored.described, stored.weights is not None) == ("float16[2]", True)
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "variables.index").write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    try:
        read(load(tmp_path, "saved_model.pb", CONTENT["saved_model.pb"]))
    except GraphError as error:
        assert "\n" not in str(error)


def test_a_savedmodel_whose_variables_are_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    for index in (b"", bytes(100), bytes(40) + struct.pack("<Q", 0xDB4775248B80FB57)):
        (tmp_path / "variables" / "variables.index").write_bytes(index)
        with pytest.raises(GraphError, match=r"variables\.index"):
            load(tmp_path, "saved_model.pb", CONTENT["saved_model.pb"])


def test_lambda_layers_and_custom_classes_are_opaque(tmp_path: Path) -> None:
    code = {"class_name": "__lambda__", "config": {"code": "4wEAAAAAAAAAAAAAAAEAAAABAAAA", "defaults": None, "closure": None}}
    custom = {**layer("Dense", "own", "dense", units=2), "module": "attacker", "registered_name": "Own>Dense"}
    model = load(tmp_path, "a.keras", keras_archive(keras_config(layer("Lambda", "shady", "dense", function=code), custom)))
    assert [(node.name, node.kind) for node in model.graph.nodes[1:]] == [("shady", OpKind.OPAQUE), ("own", OpKind.OPAQUE)]
