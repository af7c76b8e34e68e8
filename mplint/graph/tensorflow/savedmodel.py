"""TensorFlow SavedModels: the graph behind a signature, its functions, its variables. Needs no TensorFlow."""

from __future__ import annotations

import mmap
import os

from mplint.graph.keras.config import policy_name
from mplint.graph.model import FIRST_INPUT, FLOATS, Graph, GraphError, ModelGraph, Node, OpKind, Tensor, connect
from mplint.graph.op_kinds import kind_of
from mplint.graph.protobuf import Message
from mplint.graph.storage import parse_json, reads
from mplint.graph.tensorflow.bundle import read_bundle
from mplint.graph.tensorflow.nodes import (
    NodeDef,
    attributes_of,
    functions_in,
    node_of,
    output_dtype,
    output_of,
    output_shape,
    restored,
    results_of,
)
from mplint.graph.tensorflow.types import constant_of, dtype_of, shape_of

MAX_FILE = 1 << 31  # what protocol buffers allow
INIT = "__saved_model_init_op"
VARIABLES = ("VarHandleOp", "VariableV2", "Variable")


@reads("SavedModel")
def load(path: str) -> ModelGraph:
    """The model in a SavedModel folder, or in the saved_model.pb given. Raises GraphError."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    file = os.path.join(folder, "saved_model.pb")
    if os.path.getsize(file) > MAX_FILE:
        raise GraphError("saved_model.pb is larger than a protocol buffer can be")
    if os.path.getsize(file) == 0:
        raise GraphError("saved_model.pb is empty")
    with open(file, "rb") as stream:
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))  # unmapped with the last that looks at it
    model = _Reader(path, file, Message(data, 0, len(data)), read_bundle(os.path.join(folder, "variables"))).read()
    _keras_metadata(folder, model)
    connect(model.graph)
    for function in model.functions.values():
        connect(function)
    return model


class _Reader:
    def __init__(self, path: str, file: str, saved: Message, variables: dict[str, Tensor]) -> None:
        self.file, self.variables = file, variables
        graphs = list(saved.each(2))
        chosen = next((g for g in graphs if "serve" in _tags(g)), graphs[0] if graphs else None)
        definition = chosen.first(2) if chosen is not None else None
        if chosen is None or definition is None:
            raise GraphError("saved_model.pb holds no graph")
        self.meta, self.definition = chosen, definition
        about = chosen.first(1)
        self.model = ModelGraph(path, "savedmodel", Graph(), producer=f"tensorflow {about.string(5) if about else ''}".strip())
        library = definition.first(2)
        self.library = {name: function for function in (library.each(1) if library else ()) if (name := _function_name(function))}
        self.used: dict[str, Tensor] = {}
        self.pending: list[tuple[str, Node]] = []
        self.calls: list[tuple[Node, str]] = []

    def read(self) -> ModelGraph:
        """The graph behind the serving signature, with the functions that it calls."""
        nodes = {node.name: node for node in (node_of(message) for message in self.definition.each(1))}
        self.keys = self._restored(nodes)
        inputs, outputs = self._signature(nodes)
        wanted = _needed(nodes, [ref.partition(":")[0] for _, ref in outputs] or list(nodes))
        builder = _Body(self, self.model.graph)
        for name in wanted:
            builder.add(nodes[name])
        graph = self.model.graph
        for ends, found in ((inputs, graph.inputs), (outputs, graph.outputs)):
            for name, reference in ends:
                if reference.partition(":")[0] in builder.nodes:
                    tensor = builder.tensor(reference)
                    found.append(tensor)
                    graph.public.setdefault(id(tensor), name)
        while self.pending:
            name, caller = self.pending.pop()
            if name in self.library and name not in self.model.functions:
                self.model.functions[name] = self._function(name, self.library[name], caller)
        for node, name in self.calls:
            if name in self.model.functions:
                node.callees += (self.model.functions[name],)
        self.model.graph.constants |= self.used
        return self.model

    def _restored(self, nodes: dict[str, NodeDef]) -> dict[str, str]:
        """The checkpoint's key of every variable of the graph, from the function, or in TensorFlow 1 the nodes, that restore it."""
        found = restored(nodes)
        saver = self.meta.first(3)
        call = nodes.get(saver.string(3).partition(":")[0]) if saver is not None else None
        for name in functions_in(call) if call is not None else ():
            definition = self.library.get(name)
            signature = definition.first(1) if definition is not None else None
            if call is None or definition is None or signature is None:
                continue
            inner = restored({node.name: node for node in (node_of(message) for message in definition.each(3))})
            for argument, variable in zip(signature.each(2), call.inputs, strict=False):
                key = inner.get(argument.string(1))
                if key is not None:
                    found[variable.partition(":")[0]] = key
        return found

    def _signature(self, nodes: dict[str, NodeDef]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """The inputs and outputs of serving_default, else of all signatures."""
        found: dict[str, Message] = {}
        for entry in self.meta.each(5):
            value = entry.first(2)
            if value is not None and entry.string(1) != INIT:
                found[entry.string(1)] = value
        chosen = [found["serving_default"]] if "serving_default" in found else list(found.values())
        if len(chosen) < len(found):
            self.model.metadata["signatures"] = ", ".join(sorted(found))
        ends: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        for signature in chosen:
            for side, number in enumerate((1, 2)):
                for entry in signature.each(number):
                    info = entry.first(2)
                    reference = info.string(1) if info is not None else ""
                    if reference and reference.partition(":")[0] in nodes:
                        ends[side].append((entry.string(1), reference))
        return ends

    def _function(self, name: str, definition: Message, caller: Node) -> Graph:
        graph = Graph(name)
        arguments = caller.inputs[FIRST_INPUT.get(caller.op_type, 0) :]
        builder = _Body(self, graph)
        signature = definition.first(1)
        shapes = _argument_shapes(definition)
        for place, argument in enumerate(signature.each(2) if signature is not None else ()):
            label, dtype = argument.string(1), dtype_of(argument.number(3))
            bound = arguments[place] if place < len(arguments) else None
            if dtype == "resource" and bound is not None and bound.name in self.used:
                builder.tensors[label, 0] = bound
                graph.inputs.append(bound)
                continue
            tensor = Tensor(label, dtype, shapes.get(place))
            builder.tensors[label, 0] = tensor
            graph.inputs.append(tensor)
        nodes = {node.name: node for node in (node_of(message) for message in definition.each(3))}
        for node in _needed(nodes, list(nodes)):
            builder.add(nodes[node])
        results = {entry.string(1): entry.string(2) for entry in definition.each(4)}
        declared = [output.string(1) for output in signature.each(3)] if signature is not None else []
        for output in declared if results.keys() == set(declared) else results:
            graph.outputs.append(builder.tensor(results[output]))
        return graph


class _Body:
    """A graph or the body of a function that is being put together; its tensors by node and output."""

    def __init__(self, reader: _Reader, graph: Graph) -> None:
        self.reader, self.graph = reader, graph
        self.tensors: dict[tuple[str, int], Tensor] = {}
        self.nodes: dict[str, tuple[NodeDef, Node]] = {}

    def tensor(self, reference: str) -> Tensor:
        """The tensor that an input names: "node", "node:1", or in a function "node:output:1"."""
        found = self.nodes.get(reference.partition(":")[0])
        key = output_of(reference, found[0].op if found is not None else "")
        if key not in self.tensors:
            name, place = key
            made = Tensor(name if place == 0 else f"{name}:{place}")
            if found is not None:
                definition, node = found
                made.dtype, made.shape = output_dtype(definition, place), output_shape(definition, place)
                node.outputs = (*node.outputs, made)
            self.tensors[key] = made
        return self.tensors[key]

    def add(self, definition: NodeDef) -> None:
        """A node of the graph; a constant or a variable becomes a tensor and no node."""
        name, op = definition.name, definition.op
        if op == "NoOp":
            return
        if op == "Const" and "value" in definition.attributes:
            value = definition.attributes["value"].first(8)
            if value is not None:
                tensor = constant_of(name, value, self.reader.file)
                self.graph.constants[name] = tensor
                self.tensors[name, 0] = tensor
                return
        if op in VARIABLES:
            self.tensors[name, 0] = self._variable(definition)
            return
        inputs = [self.tensor(reference) for reference in definition.inputs if not reference.startswith("^")]
        dtype = output_dtype(definition, 0)
        kind = kind_of("tensorflow", op)
        if op in ("Gather", "GatherV2") and definition.inputs and self._is_variable(definition.inputs[0]):
            kind = OpKind.EMBEDDING
        node = Node(
            name,
            kind,
            op,
            domain="tensorflow",
            inputs=tuple(inputs),
            attributes=attributes_of(definition),
            layer=name.rpartition("/")[0],
            compute_dtype=_compute(definition, dtype, inputs),
        )
        self.graph.nodes.append(node)
        self.nodes[name] = (definition, node)
        if op not in ("Assert", "AssignVariableOp"):
            self.tensor(name)
        for place in range(1, results_of(definition)):
            self.tensor(f"{name}:{place}")
        for function in functions_in(definition):
            self.reader.pending.append((function, node))
            self.reader.calls.append((node, function))

    def _is_variable(self, reference: str) -> bool:
        found = self.nodes.get(reference.partition(":")[0])
        return found is not None and found[0].op == "ReadVariableOp"

    def _variable(self, definition: NodeDef) -> Tensor:
        attributes = definition.attributes
        shared = attributes["shared_name"].string(2) if "shared_name" in attributes else ""
        key = shared or definition.name
        used = self.reader.used
        if key not in used:
            stored = self.reader.variables.get(self.reader.keys.get(definition.name, key))
            dtype = dtype_of(attributes["dtype"].number(6)) if "dtype" in attributes else None
            shape = shape_of(attributes["shape"].first(7)) if "shape" in attributes else None
            used[key] = Tensor(key, dtype, shape, weights=stored.weights if stored is not None and stored.dtype == dtype else None)
        return used[key]


def _compute(definition: NodeDef, dtype: str | None, inputs: list[Tensor]) -> str | None:
    if dtype in FLOATS or definition.op in ("Shape", "Rank", "Size"):
        return dtype if dtype in FLOATS else None
    return next((tensor.dtype for tensor in inputs if tensor.dtype in FLOATS), None)


def _needed(nodes: dict[str, NodeDef], ends: list[str]) -> list[str]:
    """The nodes that `ends` depend on, in an order in which they can run; circles, as loops of TensorFlow 1 have them, are cut."""
    order: list[str] = []
    state: dict[str, int] = {}
    for end in ends:
        stack = [(end, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                state[name] = 2
                order.append(name)
            elif name in nodes and name not in state:
                state[name] = 1
                stack.append((name, True))
                stack += [(reference.lstrip("^").partition(":")[0], False) for reference in nodes[name].inputs]
    return order


def _tags(meta: Message) -> list[str]:
    about = meta.first(1)
    return [tag.text() for tag in about.each(4)] if about is not None else []


def _function_name(definition: Message) -> str:
    signature = definition.first(1)
    return signature.string(1) if signature is not None else ""


def _argument_shapes(definition: Message) -> dict[int, tuple[int | str | None, ...] | None]:
    """The shapes of a function's arguments, from the attributes that tracing left."""
    found: dict[int, tuple[int | str | None, ...] | None] = {}
    for entry in definition.each(7):
        attributes = entry.first(2)
        for pair in attributes.each(1) if attributes is not None else ():
            value = pair.first(2)
            listed = value.first(1) if value is not None and pair.string(1) == "_output_shapes" else None
            shape = listed.first(7) if listed is not None else None
            if shape is not None:
                found[entry.number(1)] = shape_of(shape)
    return found


def _keras_metadata(folder: str, model: ModelGraph) -> None:
    """The policy that Keras 2 notes beside the graph."""
    path = os.path.join(folder, "keras_metadata.pb")
    if not os.path.isfile(path) or os.path.getsize(path) > 1 << 28:
        return
    with open(path, "rb") as stream:
        data = memoryview(stream.read())
    for node in Message(data, 0, len(data)).each(1):
        if node.string(3) == "root":
            config = parse_json(node.string(5).encode(), "keras_metadata.pb")
            if isinstance(config, dict):
                model.policy = policy_name(config)
                model.metadata["keras_class"] = str(config.get("class_name", ""))
