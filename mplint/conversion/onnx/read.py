"""Reading an ONNX file, with what the in-memory form does not know made plain: sparse tensors become dense."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from mplint.conversion.onnx.lean import fault_in
from mplint.graph.model import GraphError
from mplint.graph.onnx.file import read_proto

LEFT_OUT = "mplint.left_out"


# What a file may say wrongly of its values, and what is done about it in the copy; each with those before it.
MENDS: dict[str, Callable[[onnx.ModelProto], None]] = {
    "sizes of -1 are open": lambda proto: _open_sizes(proto),
    "the shapes between inputs and outputs are left out": lambda proto: _forget_shapes(proto),
    "the shapes of the outputs are those that follow": lambda proto: _follow_shapes(proto),
}


def read(path: str, mends: Sequence[str] = (), *, mapped: bool = True) -> ir.Model:
    """The model in a file, mended; weights that lie in other files stay there, and those in the file are `mapped`, or in memory.

    Its `meta` says what of the file it does not hold.
    """
    try:
        proto = read_proto(path) if mapped else onnx.load(path, load_external_data=False)
    except GraphError as error:
        raise ValueError(str(error)) from None
    _mend(proto, mends)
    base = os.path.dirname(path)
    for graph in _graphs(proto.graph):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, sparse.values.name, base))
        del graph.sparse_initializer[:]
        _take_in(graph.node, base)
    for function in proto.functions:
        _take_in(function.node, base)
    model = ir.from_proto(proto)
    if proto.training_info:
        model.meta[LEFT_OUT] = ["the graphs for training are left out: they train float32 weights"]
    for opsets in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        if "ai.onnx" in opsets:  # the other name of ONNX's own domain
            opsets.setdefault("", opsets.pop("ai.onnx"))
    ir.external_data.set_base_dir(model.graph, base)
    return model


def faults_of(path: str) -> tuple[str, tuple[str, ...]]:
    """Why the ONNX checker refuses the model in a file, "" where it does not; and the `MENDS` that make a copy right, () if none does."""
    proto = read_proto(path)
    fault = fault_in(proto)
    signs = [dim.dim_value for value in (*proto.graph.input, *proto.graph.output) for dim in value.type.tensor_type.shape.dim]
    names = list(MENDS)
    if not fault:
        return "", tuple(names[:1]) if min(signs, default=0) < 0 else ()
    for count in range(1, len(names) + 1):
        copy = onnx.ModelProto.FromString(proto.SerializeToString())
        _mend(copy, names[:count])
        if not fault_in(copy):
            return fault, tuple(names[:count])
    return fault, ()


def _mend(proto: onnx.ModelProto, mends: Sequence[str]) -> None:
    for mend in mends:
        MENDS[mend](proto)


def _open_sizes(proto: onnx.ModelProto) -> None:
    for graph in _graphs(proto.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
                if dim.dim_value < 0:
                    dim.ClearField("dim_value")


def _forget_shapes(proto: onnx.ModelProto) -> None:
    for graph in _graphs(proto.graph):
        graph.ClearField("value_info")


def _follow_shapes(proto: onnx.ModelProto) -> None:
    """Put the shapes that type inference finds where the outputs declare others."""
    bare = onnx.ModelProto.FromString(proto.SerializeToString())
    for value in bare.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    with suppress(Exception):  # it knows no shapes
        found = onnx.shape_inference.infer_shapes(bare)
        for value, other in zip(proto.graph.output, found.graph.output, strict=True):
            if other.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.CopyFrom(other.type.tensor_type.shape)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _take_in(nodes: Iterable[onnx.NodeProto], base: str) -> None:
    """Make the sparse attributes of nodes dense, and load those that lie in a file: only initializers may."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR and attribute.name == "sparse_value":
                attribute.CopyFrom(onnx.helper.make_attribute("value", _dense(attribute.sparse_tensor, "", base)))
            for tensor in (attribute.t, *attribute.tensors):
                if tensor.data_location == onnx.TensorProto.EXTERNAL:
                    load_external_data_for_tensor(tensor, base)
                    tensor.data_location = onnx.TensorProto.DEFAULT
                    del tensor.external_data[:]


def _dense(sparse: onnx.SparseTensorProto, name: str, base: str) -> onnx.TensorProto:
    values, at = numpy_helper.to_array(sparse.values, base), numpy_helper.to_array(sparse.indices, base)
    full = np.zeros(tuple(sparse.dims), dtype=values.dtype)
    if at.ndim == 1:
        full.reshape(-1)[at] = values
    else:
        full[tuple(at.T)] = values
    return numpy_helper.from_array(full, name)
