"""How large the tensors of an ONNX model become on samples, found by one run of a copy that gives the largest of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from mplint.conversion.onnx.program import is_float
from mplint.conversion.onnx.run import Feed, Session


def observed(model: ir.Model, feeds: Sequence[Feed]) -> dict[str, float]:
    """The largest |value| of each float32 tensor of the graph by name, over all feeds; the model is used up.

    Nothing where it does not run so: a maximum of no elements is refused.
    """
    graph = model.graph
    values = [value for value in (*graph.inputs, *(output for node in graph for output in node.outputs)) if is_float(value)]
    nodes = []
    for at, value in enumerate(values):
        size = ir.node("Abs", [value], outputs=[ir.Value(name=f"mplint_size_{at}")])
        largest = ir.node("ReduceMax", [size.outputs[0]], {"keepdims": 0}, outputs=[ir.Value(name=f"mplint_largest_{at}")])
        largest.outputs[0].type, largest.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
        nodes += [size, largest]
    graph.extend(nodes)
    graph.outputs[:] = [node.outputs[0] for node in nodes[1::2]]
    found: dict[str, float] = {}
    try:
        session = Session(model)
        for feed in feeds:
            for value, result in zip(values, session.run(feed), strict=True):
                size_here = float(result)  # type: ignore[arg-type]
                found[value.name or ""] = max(found.get(value.name or "", 0.0), size_here if not math.isnan(size_here) else math.inf)
        session.close()
    except Exception:
        return {}
    return found
