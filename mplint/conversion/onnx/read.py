"""Reading an ONNX file, with what the in-memory form does not know made plain: sparse tensors become dense."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

LEFT_OUT = "mplint.left_out"


def read(path: str) -> ir.Model:
    """The model in a file; weights that lie in other files stay there. Its `meta` says what of the file it does not hold."""
    proto = onnx.load(path, load_external_data=False)
    for graph in _graphs(proto.graph):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, sparse.values.name))
        del graph.sparse_initializer[:]
        _densify(graph.node)
    for function in proto.functions:
        _densify(function.node)
    model = ir.from_proto(proto)
    if proto.training_info:
        model.meta[LEFT_OUT] = ["the graphs for training are left out: they train float32 weights"]
    for opsets in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        if "ai.onnx" in opsets:  # the other name of ONNX's own domain
            opsets.setdefault("", opsets.pop("ai.onnx"))
    ir.external_data.set_base_dir(model.graph, os.path.dirname(path))
    return model


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _densify(nodes: object) -> None:
    for node in nodes:  # type: ignore[attr-defined]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR and attribute.name == "sparse_value":
                attribute.CopyFrom(onnx.helper.make_attribute("value", _dense(attribute.sparse_tensor, "")))


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    values, at = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    full = np.zeros(tuple(sparse.dims), dtype=values.dtype)
    if at.ndim == 1:
        full.reshape(-1)[at] = values
    else:
        full[tuple(at.T)] = values
    return numpy_helper.from_array(full, name)
