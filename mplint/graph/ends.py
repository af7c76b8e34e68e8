"""The inputs and outputs of a model that are half: which of them people read, and which are passed on to the next step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mplint.graph.facts import GraphFacts, source
from mplint.graph.model import HALF, Node, OpKind, Tensor
from mplint.graph.operations import operation

# States that a model hands to itself, and features that another model reads.
STATE = re.compile(
    r"past|present|cache|state|memor|hidden|(?:^|[_./])[hckv]\d*(?:$|[_./])|\bkey|value|feature|embed|encod|latent|residual", re.I
)
PROBABILITIES = ("softmax", "logsoftmax", "sigmoid", "logsigmoid", "hardsigmoid")


def half_outputs(graph: GraphFacts) -> Iterator[tuple[Tensor, Node]]:
    """The outputs in half that are results, with the node that computes each."""
    inputs = {tensor.shape for tensor in graph.model.graph.inputs if tensor.dtype in HALF and STATE.search(tensor.name)}
    for tensor in graph.model.graph.outputs:
        if tensor.dtype not in HALF or STATE.search(tensor.name) or tensor.shape in inputs:
            continue
        node = maker(tensor)
        if node is not None and node.kind not in (OpKind.EMBEDDING, OpKind.POOLING, OpKind.OPAQUE):
            yield tensor, node


def maker(tensor: Tensor) -> Node | None:
    """The operation that computes a tensor, inside of the region or body that it comes out of."""
    for _ in range(20):
        origin = source(tensor)
        node = origin.producer
        bodies = list(node.graphs.values()) if node is not None and node.kind is OpKind.CONTROL else []
        if node is None or len(bodies) != 1 or len(bodies[0].outputs) != len(node.outputs):
            return node
        tensor = next(inner for outer, inner in zip(node.outputs, bodies[0].outputs, strict=True) if outer is origin)
    return None


def half_inputs(graph: GraphFacts) -> Iterator[Tensor]:
    """The inputs in half that carry data from outside, not a state."""
    for tensor in graph.model.graph.inputs:
        if tensor.dtype in HALF and not STATE.search(tensor.name):
            yield tensor


def is_probability(node: Node) -> bool:
    """Whether a node computes probabilities or their logarithms."""
    activation = node.attributes.get("activation")
    return operation(node) in PROBABILITIES or activation in ("softmax", "sigmoid", "log_softmax")
