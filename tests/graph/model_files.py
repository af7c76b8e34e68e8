"""Small model files of every format, written by hand or by packages that need no framework."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile

import numpy as np

POLICY = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "mixed_float16"}, "registered_name": None}


def layer(kind: str, name: str, before: str | None, **config: object) -> dict[str, object]:
    """One layer of a functional configuration, fed by the layer `before`."""
    given = {"class_name": "__keras_tensor__", "config": {"shape": [None, 4], "dtype": "float32", "keras_history": [before, 0, 0]}}
    return {
        "module": "keras.layers",
        "class_name": kind,
        "name": name,
        "config": {"name": name, "trainable": True, "dtype": "float32" if kind == "InputLayer" else POLICY, **config},
        "inbound_nodes": [{"args": [given], "kwargs": {}}] if before else [],
    }


def keras_config(*more: dict[str, object]) -> dict[str, object]:
    """A functional model of an input, a Dense layer, and more."""
    layers = [
        layer("InputLayer", "given", None, batch_shape=[None, 4]),
        layer("Dense", "dense", "given", units=3, activation="relu"),
        *more,
    ]
    config = {"name": "model", "layers": layers, "input_layers": [["given", 0, 0]], "output_layers": [["dense", 0, 0]]}
    return {"module": "keras.src.models.functional", "class_name": "Functional", "config": config}


def keras_weights() -> bytes:
    """model.weights.h5 of that model."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        group = file.create_group("layers/dense/vars")
        group.attrs["name"] = "dense"
        group["0"], group["1"] = np.ones((4, 3), "float32"), np.zeros(3, "float32")
    return buffer.getvalue()


def keras_archive(config: object | None = None, weights: bytes | None = None, packing: int = zipfile.ZIP_STORED) -> bytes:
    """A .keras file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packing) as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config or keras_config()))
        archive.writestr("model.weights.h5", keras_weights() if weights is None else weights)
    return buffer.getvalue()


def keras_h5() -> bytes:
    """The same model as Keras 2 would write it."""
    import h5py

    layers = [
        {
            "class_name": "InputLayer",
            "config": {"batch_input_shape": [None, 4], "dtype": "float32", "name": "given"},
            "name": "given",
            "inbound_nodes": [],
        },
        {
            "class_name": "Dense",
            "config": {"name": "dense", "dtype": {"class_name": "Policy", "config": {"name": "mixed_float16"}}, "units": 3},
            "name": "dense",
            "inbound_nodes": [[["given", 0, 0, {}]]],
        },
    ]
    config = {"name": "model", "layers": layers, "input_layers": [["given", 0, 0]], "output_layers": [["dense", 0, 0]]}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["keras_version"] = "2.15.0"
        file.attrs["model_config"] = json.dumps({"class_name": "Functional", "config": config})
        group = file.create_group("model_weights/dense")
        group.attrs["weight_names"] = [b"dense/kernel:0", b"dense/bias:0"]
        group["dense/kernel:0"], group["dense/bias:0"] = np.ones((4, 3), "float32"), np.zeros(3, "float32")
    return buffer.getvalue()


def safetensors(header: object, data: bytes = b"") -> bytes:
    """A safetensors file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def two_tensors() -> bytes:
    """A sound safetensors file."""
    header = {"a": {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}}
    return safetensors(header, bytes(12))


class _Call:
    """Pickles as a call of `function`."""

    def __init__(self, module: str, name: str, arguments: tuple[object, ...]) -> None:
        self.function, self.arguments = (module, name), arguments

    def __reduce__(self) -> tuple[object, ...]:
        return _placeholder, (self.function, self.arguments)


def _placeholder() -> None: ...


class _Global:
    """Pickles as a name, whether or not there is such a thing."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes names and storages that are not installed here."""

    def persistent_id(self, value: object) -> object:
        return value.key if isinstance(value, _Storage) else None

    def save(self, value: object, save_persistent_id: bool = True) -> None:
        if isinstance(value, _Global):
            self.write(f"c{value.module}\n{value.name}\n".encode())
        elif isinstance(value, _Call):
            self.save(_Global(*value.function))
            self.save(value.arguments)
            self.write(b"R")
        else:
            super().save(value, save_persistent_id)


class _Storage:
    def __init__(self, kind: str, key: str, count: int) -> None:
        self.key = ("storage", _Global("torch", kind), key, "cpu", count)


def tensor(key: str, shape: tuple[int, ...], count: int, kind: str = "HalfStorage", offset: int = 0) -> _Call:
    """A tensor as torch pickles it, on a storage of `count` elements."""
    stride = tuple(int(np.prod(shape[place + 1 :])) for place in range(len(shape)))
    return _Call("torch._utils", "_rebuild_tensor_v2", (_Storage(kind, key, count), offset, shape, stride, False, {}))


def call(module: str, name: str, *arguments: object) -> _Call:
    """A call that the pickle makes when it is loaded."""
    return _Call(module, name, arguments)


def pickled(value: object) -> bytes:
    """A pickle that may name what is not there."""
    buffer = io.BytesIO()
    _Pickler(buffer, 2).dump(value)
    return buffer.getvalue()


def checkpoint(value: object | None = None, storages: dict[str, bytes] | None = None) -> bytes:
    """A file of torch.save in the zip format."""
    state = {"weight": tensor("0", (2, 3), 6), "bias": tensor("1", (3,), 3, "FloatStorage")}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/data.pkl", pickled(state if value is None else value))
        for key, data in (storages if storages is not None else {"0": bytes(12), "1": bytes(12)}).items():
            archive.writestr(f"model/data/{key}", data)
        archive.writestr("model/version", "3\n")
    return buffer.getvalue()


def legacy_checkpoint() -> bytes:
    """A file of torch.save in the format before torch 1.6."""
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"weight": tensor("0", (2, 3), 6)}, ["0"]]
    return b"".join(pickled(part) for part in parts) + struct.pack("<Q", 6) + bytes(12)


def exported_program() -> dict[str, object]:
    """The JSON of a program that multiplies its input with a weight."""
    half = {"dtype": 6, "sizes": [{"as_int": 4}, {"as_int": 4}], "strides": [{"as_int": 4}, {"as_int": 1}], "storage_offset": {"as_int": 0}}
    node = {
        "target": "torch.ops.aten.mm.default",
        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}, {"name": "mat2", "arg": {"as_tensor": {"name": "w"}}}],
        "outputs": [{"as_tensor": {"name": "mm"}}],
        "metadata": {},
    }
    named = [{"as_tensor": {"name": name}} for name in ("w", "x", "mm")]
    graph = {"inputs": named[:2], "outputs": named[2:], "nodes": [node], "tensor_values": dict.fromkeys(("w", "x", "mm"), half)}
    signature = {
        "input_specs": [{"parameter": {"arg": {"name": "w"}, "parameter_name": "weight"}}, {"user_input": {"arg": named[1]}}],
        "output_specs": [{"user_output": {"arg": named[2]}}],
    }
    return {"graph_module": {"graph": graph, "signature": signature}, "opset_version": {"aten": 10}}


def exported(program: object | None = None, weight: bytes = bytes(32)) -> bytes:
    """A .pt2 file."""
    half = {"dtype": 6, "sizes": [{"as_int": 4}, {"as_int": 4}], "strides": [{"as_int": 4}, {"as_int": 1}], "storage_offset": {"as_int": 0}}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m/models/model.json", json.dumps(program or exported_program()))
        config = {"config": {"weight": {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": half}}}
        archive.writestr("m/data/weights/model_weights_config.json", json.dumps(config))
        archive.writestr("m/data/weights/weight_0", weight)
    return buffer.getvalue()


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """A number of a protocol buffer."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes(found) + bytes([value])


def graph_node(name: str, op: str, inputs: list[str], **attributes: bytes) -> bytes:
    """A NodeDef."""
    parts = [field(1, name), field(2, op), *(field(3, value) for value in inputs)]
    return b"".join(parts + [field(5, field(1, key) + field(2, value)) for key, value in attributes.items()])


def saved_model(*more: bytes) -> bytes:
    """A saved_model.pb that adds a constant to its input, in float16; `more` nodes belong to its graph."""
    kind = field(6, 19)
    constant = field(8, field(1, 19) + field(2, field(2, field(1, 2))) + field(4, bytes(4)))
    nodes = [
        graph_node("x", "Placeholder", [], dtype=kind, shape=field(7, field(2, field(1, 2)))),
        graph_node("c", "Const", [], dtype=kind, value=constant),
        graph_node("y", "AddV2", ["x", "c"], T=kind),
        *more,
    ]
    info = {name: field(1, f"{name}:0") + field(2, 19) for name in ("x", "y")}
    signature = field(1, field(1, "x") + field(2, info["x"])) + field(2, field(1, "y") + field(2, info["y"]))
    meta = field(1, field(4, "serve") + field(5, "2.15.0")) + field(2, b"".join(field(1, node) for node in nodes))
    return field(1, 1) + field(2, meta + field(5, field(1, "serving_default") + field(2, signature)))


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A block of a table in the format of LevelDB, uncompressed, its checksum left out."""
    body = b"".join(varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in entries)
    return body + struct.pack("<II", 0, 1) + bytes(5)


def variables_index() -> bytes:
    """A variables.index with one variable of two half numbers."""
    shape = field(2, field(1, 2))
    data = block([(b"", field(1, 1)), (b"w/.ATTRIBUTES/VARIABLE_VALUE", field(1, 19) + field(2, shape) + field(5, 4))])
    index = block([(b"z", varint(0) + varint(len(data) - 5))])
    foot = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
    return data + index + foot.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def torchscript() -> bytes:
    """A TorchScript module of one product, as torch.jit.save lays it out."""
    code = """class Own(Module):
  __parameters__ = ["weight", ]
  weight : Tensor
  def forward(self: __torch__.Own,
    x: Tensor) -> Tensor:
    weight = self.weight
    if torch.gt(torch.dim(x), 1):
      _0 = torch.linear(x, weight, CONSTANTS.c0)
    else:
      _0 = torch.mul(torch.to(x, 5), 2.)
    return torch.softmax(_0, -1)
"""
    module = b"\x80\x02c__torch__\nOwn\n)\x81}X\x06\x00\x00\x00weight" + pickled(tensor("0", (2, 3), 6))[2:-1] + b"sb."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("own/data.pkl", module)
        archive.writestr("own/data/0", bytes(12))
        archive.writestr("own/code/__torch__.py", code)
        archive.writestr("own/constants.pkl", pickled((tensor("0", (2,), 2),)))
        archive.writestr("own/constants/0", bytes(4))
    return buffer.getvalue()


FILES = {
    "model.keras": keras_archive,
    "model.h5": keras_h5,
    "model.safetensors": two_tensors,
    "model.pt": checkpoint,
    "old.pth": legacy_checkpoint,
    "model.pt2": exported,
    "script.pt": torchscript,
    "saved_model.pb": saved_model,
}
