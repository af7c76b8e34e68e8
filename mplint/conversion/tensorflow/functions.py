"""Functions of a SavedModel as graphs, and back; and a graph with half emulated: computed in float32, stored in half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mplint.conversion.policy import ConversionError

FLOAT, HALVES = 1, {"float16": 19, "bfloat16": 14}
END = "mplint_end_{}"
ADDED = "-AutoMixedPrecision"
OWN = "-mplint"  # ends the names of what emulation adds
MARGIN = 4.0
NEXT_TO_NOTHING = 1e-38  # makes nothing of what half holds, and leaves infinity; a product with 0 would be optimized away
RESULTS = {"Const": "output", "Mul": "z", "AddV2": "z"}  # what the results of added operations are called, where not y


def graph_of(function: Any) -> tuple[Any, dict[str, str], list[str]]:
    """A FunctionDef as a GraphDef, its tensors' names in the graph by their names in the function, and the tensors that it returns.

    Call it inside a tf.Graph that holds the library. Arguments become `_Arg` nodes.
    """
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

    try:
        graph, names = function_def_to_graph_def(function)
    except (KeyError, ValueError, AttributeError) as error:
        raise ConversionError(f"it has an operation that TensorFlow does not know here: {str(error).splitlines()[0][:160]}") from None
    for index, argument in enumerate(function.signature.input_arg):
        _as_argument(graph.node[index], argument.type, index)
    ends = []
    for index, argument in enumerate(function.signature.output_arg):
        returned = function.ret[argument.name]
        end = graph.node.add(name=END.format(index), op="Identity", input=[names.get(returned, returned)])
        end.attr["T"].type = argument.type
        ends.append(f"{end.name}:0")
    return graph, dict(names), ends


def with_body(function: Any, graph: Any, names: dict[str, str]) -> Any:
    """The FunctionDef with the nodes of a rewritten graph: types, inputs and casts come from the graph, all else stays as it was."""
    from tensorflow.core.framework import function_pb2

    inside = {flat: nested for nested, flat in names.items()}
    inside |= {f"{argument.name}:0": argument.name for argument in function.signature.input_arg}
    arguments = {argument.name for argument in function.signature.input_arg}
    ends = {END.format(index): argument.name for index, argument in enumerate(function.signature.output_arg)}

    results = {node.name: RESULTS[node.op] for node in graph.node if node.op in RESULTS}

    def named(reference: str) -> str:
        if reference.startswith("^"):
            return reference
        flat = reference if ":" in reference else f"{reference}:0"
        name = flat.partition(":")[0]
        return inside.get(flat) or f"{name}:{results.get(name, 'y')}:0"  # a cast that was added

    made = function_pb2.FunctionDef()
    made.CopyFrom(function)
    for node in _merge(made.node_def, graph, named):
        if node.name in ends:
            made.ret[ends[node.name]] = named(node.input[0])
        elif node.name not in arguments:
            _add(made.node_def, node, named)
    return made


def bare(graph: Any) -> Any:
    """A copy of a GraphDef whose placeholders are `_Arg` nodes, which the optimizer takes in any shape and type."""
    from tensorflow.core.framework import graph_pb2

    made = graph_pb2.GraphDef()
    made.node.extend(graph.node)
    for index, node in enumerate(made.node):
        if node.op == "Placeholder":
            _as_argument(node, node.attr["dtype"].type, index)
    return made


def with_nodes(graph: Any, rewritten: Any) -> Any:
    """The GraphDef with the types, inputs and casts of a rewritten copy."""
    from tensorflow.core.framework import graph_pb2

    made = graph_pb2.GraphDef()
    made.CopyFrom(graph)
    for node in _merge(made.node, rewritten, str):
        _add(made.node, node, str)
    return made


def turned(before: Any, after: Any) -> Iterator[tuple[Any, str]]:
    """The nodes that compute in half after the rewriting and did not before, each with the attribute that says so."""
    given = {node.name: node for node in before}
    for node in after:
        if node.name in given:
            old = given[node.name]
            yield from ((node, key) for key, value in node.attr.items() if value.type in HALVES.values() and old.attr[key].type == FLOAT)


def emulated(before: Any, after: Any, name: str) -> Any:
    """The rewritten graph in float32, with each half result rounded to half where it is made.

    A result beyond a quarter of float16's range becomes infinite: the inputs that a plan is proven on may be kinder than others.
    """
    from tensorflow.core.framework import graph_pb2
    from tensorflow.python.framework import op_def_registry

    made = graph_pb2.GraphDef()
    made.CopyFrom(after)
    half = HALVES[name]
    attributes = {node.name: key for node, key in turned(before.node, after.node)}
    rounded: dict[str, str] = {}
    for node in list(made.node):
        if node.op == "Cast" and node.name.endswith(ADDED):
            if node.attr["DstT"].type == half:
                rounded[f"{node.name}:0"] = _guarded(made, node.name, node.input[0], half)
            else:
                node.attr["SrcT"].type = FLOAT
        elif node.name in attributes:
            key = attributes[node.name]
            node.attr[key].type = FLOAT
            place = 0
            for output in op_def_registry.get(node.op).output_arg:
                count = node.attr[output.number_attr].i if output.number_attr else 1
                for result in (f"{node.name}:{index}" for index in range(place, place + count)):
                    if output.type_attr == key:
                        label = _cast(made, f"{result.replace(':', '-')}{OWN}", result, FLOAT, half)
                        rounded[result] = _guarded(made, label, result, half)
                place += count
    for node in made.node:
        if not node.name.endswith(OWN):
            flat = [reference if ":" in reference or reference.startswith("^") else f"{reference}:0" for reference in node.input]
            node.input[:] = [rounded.get(reference, reference) for reference in flat]
    return made


def _as_argument(node: Any, dtype: int, index: int) -> None:
    node.op = "_Arg"
    del node.input[:]
    node.attr.clear()
    node.attr["T"].type, node.attr["index"].i = dtype, index


def _merge(nodes: Any, graph: Any, named: Any) -> Iterable[Any]:
    """Give nodes the types and inputs that they have in the rewritten graph; the nodes that only the graph has are returned."""
    rewritten = {node.name: node for node in graph.node}
    for node in nodes:
        new = rewritten.pop(node.name)
        for key, value in new.attr.items():
            if value.WhichOneof("value") == "type" and key in node.attr and node.attr[key].type != value.type:
                node.attr[key].type = value.type
        controls = [reference for reference in node.input if reference.startswith("^")]
        inputs = [named(reference) for reference in new.input if not reference.startswith("^")]
        if new.op != "_Arg":
            node.input[:] = inputs + controls
    return rewritten.values()


def _add(nodes: Any, node: Any, named: Any) -> None:
    added = nodes.add(name=node.name, op=node.op, input=[named(reference) for reference in node.input])
    for key, value in node.attr.items():
        added.attr[key].CopyFrom(value)


def _guarded(graph: Any, rounded: str, exact: str, half: int) -> str:
    """Add what gives a rounded tensor back as float32, infinite where the exact one is beyond the margin; the name of that."""
    back = _cast(graph, f"{rounded}-back{OWN}", rounded, half, FLOAT)
    if half != HALVES["float16"]:
        return back
    wide = _product(graph, f"{rounded}-wide{OWN}", exact, MARGIN)
    held = _cast(graph, f"{rounded}-held{OWN}", _cast(graph, f"{rounded}-over{OWN}", wide, FLOAT, half), half, FLOAT)
    nothing = _product(graph, f"{rounded}-nothing{OWN}", held, NEXT_TO_NOTHING)
    node = graph.node.add(name=f"{rounded}-guarded{OWN}", op="AddV2", input=[back, nothing])
    node.attr["T"].type = FLOAT
    return str(node.name)


def _product(graph: Any, name: str, reference: str, factor: float) -> str:
    """Add a product with a number and return its name."""
    number = graph.node.add(name=f"{name}-factor{OWN}", op="Const")
    number.attr["dtype"].type = number.attr["value"].tensor.dtype = FLOAT
    number.attr["value"].tensor.tensor_shape.SetInParent()
    number.attr["value"].tensor.float_val.append(factor)
    node = graph.node.add(name=name, op="Mul", input=[reference, number.name])
    node.attr["T"].type = FLOAT
    return name


def _cast(graph: Any, name: str, reference: str, given: int, wanted: int) -> str:
    """Add a cast and return its name."""
    node = graph.node.add(name=name, op="Cast", input=[reference])
    node.attr["SrcT"].type, node.attr["DstT"].type, node.attr["Truncate"].b = given, wanted, False
    return name
