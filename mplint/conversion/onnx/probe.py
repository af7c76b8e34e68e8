"""How large tensors of a model become on a feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mplint.conversion.onnx.run import Feed, Session


class Extent(NamedTuple):
    """The lowest and the highest value of a tensor."""

    low: float
    high: float

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


class Probe:
    """A twin of a model that gives the extents of some float32 or bool tensors of its main graph, and nothing else."""

    def __init__(self, model: ir.Model, values: Sequence[ir.Value]) -> None:
        twin = model.clone()
        copies: dict[ir.Value, ir.Value] = {}
        for node, other in zip(model.graph, twin.graph, strict=True):
            copies |= zip(node.outputs, other.outputs, strict=True)
        copies |= zip(model.graph.inputs, twin.graph.inputs, strict=True)
        copies |= {value: twin.graph.initializers[name] for name, value in model.graph.initializers.items()}
        outputs = []
        for number, value in enumerate(values):
            source = copies[value]
            added = []
            if value.dtype == ir.DataType.BOOL:
                added = [ir.node("Cast", [source], {"to": int(ir.DataType.FLOAT)}, outputs=[ir.Value(name=f"mplint_float_{number}")])]
                source = added[0].outputs[0]
            for kind in ("ReduceMin", "ReduceMax"):
                node = ir.node(kind, [source], {"keepdims": 0}, outputs=[ir.Value(name=f"mplint_{kind}_{number}")])
                node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
                added.append(node)
                outputs.append(node.outputs[0])
            maker = copies[value].producer()
            if maker is not None:  # right behind it, so that the tensor is not kept until the end
                twin.graph.insert_after(maker, added)
            else:
                twin.graph.extend(added)
        twin.graph.outputs.clear()
        twin.graph.outputs.extend(outputs)
        _drop_idle(twin.graph)
        self.session = Session(twin)

    def close(self) -> None:
        """Free the twin."""
        self.session.close()

    def extents(self, feed: Feed) -> list[Extent]:
        """The extents of the tensors, in their order."""
        found = [float(np.asarray(item)) for item in self.session.run(feed)]
        return [Extent(low, high) for low, high in zip(found[::2], found[1::2], strict=True)]


def _drop_idle(graph: ir.Graph) -> None:
    """Take away the nodes and weights of a graph that no output needs: a runtime that optimizes nothing would run them, too."""
    for node in reversed(list(graph)):
        if not any(value.is_graph_output() or any(True for _ in value.uses()) for value in node.outputs):
            graph.remove(node, safe=True)
    for name, value in list(graph.initializers.items()):
        if not (value.is_graph_input() or value.is_graph_output() or any(True for _ in value.uses())):
            del graph.initializers[name]
