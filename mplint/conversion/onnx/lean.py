"""An ONNX model without a second copy of its weights: a small message, and the tensors that it refers to by name.

ONNX Runtime takes initializers that lie in memory, or are mapped, as they are. What is checked or changed is the message alone.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import onnx
import onnx_ir as ir

from mplint.graph.onnx.file import encoded

if TYPE_CHECKING:
    from onnxruntime import OrtValue

KEPT = 4096  # bytes of a tensor that stays in the message
STORE = "mplint"  # where the message says that the others lie
KINDS = "FLOAT DOUBLE FLOAT16 BFLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64"
ELEMENTS = frozenset(ir.DataType[name] for name in KINDS.split())


FILES: WeakValueDictionary[tuple[str, int, int, int], np.memmap] = WeakValueDictionary()


class Lean(NamedTuple):
    """A message, and by name the initializers of its main graph that it only refers to; `aliases` are the other names of inputs."""

    proto: onnx.ModelProto
    weights: dict[str, ir.TensorProtocol]
    aliases: Mapping[str, str] = MappingProxyType({})

    def copy(self) -> Lean:
        """The same with a message that may be changed."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        return self._replace(proto=proto)


def lean(model: ir.Model) -> Lean:
    """A model as a message without its large weights; those of branches and loop bodies are initializers of the main graph in it."""
    names = _names(model)
    weights: dict[str, ir.TensorProtocol] = {}
    with _replaced(model) as replaced:
        for graph in (model.graph, *model.graph.subgraphs()):
            for name, value in graph.initializers.items():
                tensor = value.const_value
                if tensor is None or value.is_graph_input() or tensor.nbytes <= KEPT or tensor.dtype not in ELEMENTS or names[name] > 1:
                    continue
                weights[name] = tensor
                stub = ir.ExternalTensor(STORE, 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name)  # type: ignore[arg-type]
                replaced(value, stub)
        for graph in model.graphs():
            for value in graph.initializers.values():
                if isinstance(value.const_value, ir.ExternalTensor) and value.const_value.location != STORE:
                    replaced(value, ir.Tensor(value.const_value.numpy(), name=value.name))
        proto = ir.to_proto(model)
    for node in proto.graph.node:
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []), *attribute.graphs):
                _lift(graph, proto.graph, weights)
    return Lean(proto, weights)


class _Replaced:
    def __init__(self) -> None:
        self.old: list[tuple[ir.Value, ir.TensorProtocol | None]] = []

    def __call__(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        self.old.append((value, value.const_value))
        value.const_value = tensor


@contextmanager
def _replaced(model: ir.Model) -> Iterator[_Replaced]:
    """Change the tensors of a model while it is read."""
    changes = _Replaced()
    try:
        yield changes
    finally:
        for value, tensor in reversed(changes.old):
            value.const_value = tensor


def _names(model: ir.Model) -> Counter[str]:
    """How often each name is given to a value in the main graph and the bodies in it."""
    found: Counter[str] = Counter()
    for graph in (model.graph, *model.graph.subgraphs()):
        found.update(value.name or "" for value in graph.inputs)
        found.update(list(graph.initializers))
        found.update(value.name or "" for node in graph for value in node.outputs)
    return found


def _lift(graph: onnx.GraphProto, main: onnx.GraphProto, weights: dict[str, ir.TensorProtocol]) -> None:
    """Make the initializers of a body that lie elsewhere initializers of the main graph."""
    lifted = [tensor for tensor in graph.initializer if tensor.name in weights]
    if lifted:
        main.initializer.extend(lifted)
        kept = [tensor for tensor in graph.initializer if tensor.name not in weights]
        del graph.initializer[:]
        graph.initializer.extend(kept)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []), *attribute.graphs):
                _lift(inner, main, weights)


def value_of(tensor: ir.TensorProtocol) -> OrtValue:
    """A tensor as ONNX Runtime takes it, with the memory that it has."""
    from onnxruntime import OrtValue

    array = array_of(tensor)
    if tensor.dtype == ir.DataType.BFLOAT16:
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array, int(tensor.dtype))
    return OrtValue.ortvalue_from_numpy(array)


def array_of(tensor: ir.TensorProtocol) -> np.ndarray:
    """The elements of a tensor as ONNX Runtime takes them, mapped where they lie in a file; those of bfloat16 as numbers of 16 bits."""
    array = _mapped(tensor) if isinstance(tensor, ir.ExternalTensor) else np.ascontiguousarray(tensor.numpy())
    return array.view(np.uint16) if tensor.dtype == ir.DataType.BFLOAT16 else array


def _mapped(tensor: ir.ExternalTensor) -> np.ndarray:
    """A tensor in a file, which is mapped once for all that need it, for as long as someone does: mapped pages count as memory."""
    key = _key(tensor)
    whole = FILES.get(key)
    if whole is None:
        whole = FILES[key] = np.memmap(tensor.path, dtype=np.uint8, mode="r")
    start = tensor.offset or 0
    found: np.ndarray = whole[start : start + tensor.nbytes].view(np.ndarray)
    return found.view(tensor.dtype.numpy()).reshape(tensor.shape.numpy())


def _key(tensor: ir.ExternalTensor) -> tuple[str, int, int, int]:
    """What tells the file of a tensor from others, and from what lay there before."""
    about = os.stat(tensor.path)
    return os.path.realpath(tensor.path), about.st_ino, about.st_mtime_ns, about.st_size


def forget_pages() -> None:
    """Let go of what was read of mapped files: their pages count as memory until then, and are read again where they are needed."""
    for whole in list(FILES.values()):
        _forget(whole, 0, whole.size)


def _forget(whole: np.memmap, start: int, end: int) -> None:
    """Let go of the pages between two places of a mapped file."""
    if hasattr(mmap, "MADV_DONTNEED"):
        pages: mmap.mmap = whole._mmap  # type: ignore[attr-defined]
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        pages.madvise(mmap.MADV_DONTNEED, first, end - first)


def with_weights(thin: Lean) -> ir.Model:
    """The model of a message, with its weights."""
    model = ir.from_proto(thin.proto)
    for name, tensor in thin.weights.items():
        model.graph.initializers[name].const_value = tensor
    return model


def fault_of(model: ir.Model) -> str:
    """Why the ONNX checker refuses a model, with full type inference; "" where it does not."""
    return fault_in(lean(model).proto)


def fault_in(proto: onnx.ModelProto) -> str:
    """Why the ONNX checker refuses a message; "" where it does not. The weights that it only refers to are not read."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in _tensors(copy.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value=STORE)
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        path = os.path.join(folder, "model.onnx")
        with open(os.path.join(folder, STORE), "wb"), open(path, "wb") as stream:
            stream.write(copy.SerializeToString())
        try:
            onnx.checker.check_model(path, full_check=True)
        except Exception as error:
            return str(error).strip().splitlines()[0][:300].replace(f"{folder}{os.sep}", "")
    return ""


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph and of the bodies in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (*([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []), *attribute.graphs):
                yield from _tensors(inner)


def write_whole(model: ir.Model, path: str) -> None:
    """Write a model into one file, its large weights one by one: none of them stands in memory with the others."""
    thin = lean(model)
    kept = [tensor for tensor in thin.proto.graph.initializer if tensor.name not in thin.weights]
    stubs = [tensor for tensor in thin.proto.graph.initializer if tensor.name in thin.weights]
    graph = onnx.GraphProto()
    graph.CopyFrom(thin.proto.graph)
    del graph.initializer[:]
    graph.initializer.extend(kept)
    thin.proto.ClearField("graph")
    inner = graph.SerializeToString()
    heads = [_head(stub, thin.weights[stub.name].nbytes) for stub in stubs]
    total = len(inner) + sum(len(head) + thin.weights[stub.name].nbytes for head, stub in zip(heads, stubs, strict=True))
    with open(path, "wb") as stream:
        stream.write(thin.proto.SerializeToString())
        stream.write(_tagged(GRAPH, total))
        stream.write(inner)
        for head, stub in zip(heads, stubs, strict=True):
            tensor = thin.weights[stub.name]
            stream.write(head)
            stream.write(array_of(tensor).data)
            release(tensor)


GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # the numbers of fields


def _head(stub: onnx.TensorProto, size: int) -> bytes:
    """What stands in front of the bytes of an initializer: what it is, and how long."""
    described = onnx.TensorProto()
    described.CopyFrom(stub)
    described.ClearField("external_data")
    described.ClearField("data_location")
    about = described.SerializeToString() + _tagged(RAW_DATA, size)
    head: bytes = _tagged(INITIALIZER, len(about) + size) + about
    return head


def _tagged(field: int, length: int) -> bytes:
    return encoded(field << 3 | 2) + encoded(length)


def release(tensor: ir.TensorProtocol) -> None:
    """Let go of the pages of a weight that lies in a file, which count as memory; what still looks at it reads them again."""
    if isinstance(tensor, ir.ExternalTensor):
        with suppress(BufferError):
            tensor.release()
        whole, start = FILES.get(_key(tensor)), tensor.offset or 0
        if whole is not None:
            _forget(whole, start, start + tensor.nbytes)
