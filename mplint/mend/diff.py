"""A model before and after, node by node, as lines that people read."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from mplint.graph.model import Graph, ModelGraph, Node, Tensor
from mplint.graph.operations import chunks

SHOWN = 8  # elements of a constant
MOST = 200  # lines


def differing(before: ModelGraph, after: ModelGraph) -> list[str]:
    """The lines in which two models differ, `-` before those that go and `+` before those that come."""
    old, new = list(_lines(before)), list(_lines(after))
    found: list[str] = []
    for kind, first, last, other, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            found += [f"- {line}" for line in old[first:last]] + [f"+ {line}" for line in new[other:end]]
    return found if len(found) <= MOST else [*found[:MOST], f"… and {len(found) - MOST} more lines"]


def counted(before: ModelGraph, after: ModelGraph) -> str:
    """How many nodes there are more or fewer."""
    difference = sum(1 for _ in after.nodes()) - sum(1 for _ in before.nodes())
    if not difference:
        return "as many nodes as before"
    return f"{abs(difference)} node{'s' if abs(difference) > 1 else ''} {'more' if difference > 0 else 'fewer'}"


def _lines(model: ModelGraph) -> Iterator[str]:
    for body, prefix in ((model.graph, ""), *((body, f"in {name}: ") for name, body in model.functions.items())):
        yield from _body(body, prefix)


def _body(body: Graph, prefix: str) -> Iterator[str]:
    pending: list[tuple[Graph, str]] = [(body, prefix)]
    while pending:
        graph, before = pending.pop()
        yield from (f"{before}input {tensor.name}: {tensor.described}" for tensor in graph.inputs)
        for name, tensor in graph.constants.items():
            if (tensor.size or SHOWN + 1) <= SHOWN:
                yield f"{before}constant {name}: {tensor.described} = {_values(tensor)}"
        for node in graph.nodes:
            yield before + _line(node)
            pending += [(inner, f"{before}in {node.name}: ") for inner in reversed(list(node.graphs.values()))]
        yield from (f"{before}output {tensor.name}: {tensor.described}" for tensor in graph.outputs)


def _line(node: Node) -> str:
    """A node as ONNX text has it, with the dtypes and shapes of its results; of a layer its compute dtype."""
    results = ", ".join(f"{tensor.name}: {tensor.described}" for tensor in node.outputs) or node.name
    operands = ", ".join("" if tensor is None else tensor.name for tensor in node.inputs)
    policy = f", computed in {node.compute_dtype}" if node.variable_dtype is not None else ""
    return f"{results} = {node.op_type}({operands}){policy}"


def _values(tensor: Tensor) -> str:
    values = [f"{float(value):.6g}" for chunk in chunks(tensor) for value in chunk.tolist()]
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"
