"""ONNX models, read through onnx-ir: every opset, bodies of If, Loop and Scan, local functions, external data."""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mplint.graph.model import Attribute, Graph, GraphError, ModelGraph, Node, OpKind, Tensor, Weights, connect, literal
from mplint.graph.onnx.dtypes import dtype_name
from mplint.graph.onnx.file import InlineWeights, external_file, read_proto
from mplint.graph.op_kinds import kind_of
from mplint.graph.storage import FileWeights, reads

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnx_ir as ir

STANDARD = ("", "ai.onnx")
OLDEST = 7
SMALL = 64  # tensors in attributes up to this many elements are shown as tuples
MAX_BODIES = 60  # bodies within bodies
# Exporters put a call's scope before its name, and some begin with a wrapper that says nothing.
_WRAPPERS = re.compile(r"^(?:StatefulPartitionedCall(?:_\d+)?|PartitionedCall(?:_\d+)?|functional(?:_\d+)?)/")
_MADE_UP = re.compile(r"unk__\d+")
SCOPES = "pkg.torch.onnx.name_scopes"


@reads("ONNX model")
def load(path: str) -> ModelGraph:
    """The ONNX model at `path`; its weights stay in their files. Raises GraphError for what can't be read."""
    return read_model(read_proto(path), path)


def read_model(proto: onnx.ModelProto, path: str) -> ModelGraph:
    """The graph of an ONNX message, which is changed, as if it lay at `path`. Raises GraphError for what can't be read."""
    import onnx_ir as ir

    from mplint.graph.onnx.types import complete, drop_maps, infer, mark_shapes, settle

    check_depth(proto.graph)
    notes = infer(proto)
    drop_maps(proto)
    try:
        with silenced("onnx_ir"):
            model = ir.from_proto(proto)
    except RecursionError:
        raise GraphError("nested too deeply to be read") from None
    except Exception as error:  # onnx-ir wraps whatever a malformed model brings about
        raise GraphError(f"not a valid ONNX model: {innermost(error)}") from None
    del proto
    reader = _Reader(path, {function_name(*key): function for key, function in model.functions.items()})
    graph = reader.graph(model.graph, {})
    functions = {name: reader.graph(function, {}) for name, function in reader.functions.items()}
    for node, name in reader.calls:
        node.callees = (functions[name],)
    found = ModelGraph(
        path=path,
        format="onnx",
        graph=graph,
        functions=functions,
        opset={name or "ai.onnx": version for name, version in model.opset_imports.items()},
        producer=" ".join(part for part in (model.producer_name, model.producer_version) if part),
        metadata=dict(model.metadata_props),
        notes=notes,
        mendable=True,
    )
    if found.opset.get("ai.onnx", OLDEST) < OLDEST:
        found.notes.append(f"Opset {found.opset['ai.onnx']} is older than {OLDEST}: operators may mean something else.")
    for part in (graph, *functions.values()):
        connect(part)
    complete(found)
    for node in found.nodes():
        settle(node)
    mark_shapes(found)
    return found


class _Reader:
    """Turns the graphs of one onnx-ir model into ours."""

    def __init__(self, path: str, functions: dict[str, ir.Function]) -> None:
        self.path = path
        self.functions = functions
        self.calls: list[tuple[Node, str]] = []

    def graph(self, source: ir.Graph | ir.Function, outer: dict[int, Tensor], depth: int = 0) -> Graph:
        """One graph; `outer` holds the tensors of the graphs around it by the identity of onnx-ir's values."""
        if depth > MAX_BODIES:
            raise GraphError("nested too deeply to be read")
        known = dict(outer) if depth else outer
        body = Graph(source.name or "")
        for name, value in source.initializers.items() if hasattr(source, "initializers") else ():
            body.constants[name] = self.tensor(value, known)
        body.inputs = [self.tensor(value, known) for value in source.inputs if value.name not in body.constants]
        for number, item in enumerate(ordered(source)):
            if item.op_type == "Constant" and item.domain in STANDARD and len(item.outputs) == 1:
                constant = self.tensor(item.outputs[0], known)
                if (value := constant_value(item)) is not None:
                    self.fill(constant, value)
                    body.constants[constant.name] = constant
                    continue
            body.nodes.append(self.node(item, known, number, depth))
        body.outputs = [self.tensor(value, known) for value in source.outputs]
        return body

    def node(self, item: ir.Node, known: dict[int, Tensor], number: int, depth: int) -> Node:
        """One node with its bodies."""
        outputs = tuple(self.tensor(value, known) for value in item.outputs)
        attributes, graphs = self.attributes(item, known, depth)
        inputs = [None if value is None else self.operand(value, item, known) for value in item.inputs]
        node = Node(
            name=text(item.name) or next((t.name for t in outputs if t.name), f"{item.op_type}_{number}"),
            kind=self.kind(item),
            op_type=text(item.op_type),
            domain=text(item.domain),
            inputs=(*inputs, *written(item, attributes, len(inputs))),
            outputs=outputs,
            attributes=attributes,
            graphs=graphs,
            layer=layer_path(text(item.name), item.metadata_props),
        )
        name = function_name(item.domain, item.op_type, item.overload)
        if name in self.functions:
            self.calls.append((node, name))
        return node

    def kind(self, item: ir.Node) -> OpKind:
        """What the node computes."""
        if function_name(item.domain, item.op_type, item.overload) in self.functions:
            return OpKind.CALL
        own = kind_of("onnx", item.op_type)
        if item.domain in STANDARD or item.domain == "ai.onnx.ml":
            return own
        return kind_of("onnx-contrib", item.op_type) if own is OpKind.OPAQUE else own

    def attributes(self, item: ir.Node, known: dict[int, Tensor], depth: int) -> tuple[dict[str, Attribute], dict[str, Graph]]:
        """The plain attributes, and the bodies, of a node."""
        import onnx_ir as ir

        plain: dict[str, Attribute] = {}
        graphs: dict[str, Graph] = {}
        for name, attribute in item.attributes.items():
            match attribute.type:
                case _ if attribute.is_ref():
                    plain[name] = None
                case ir.AttributeType.GRAPH:
                    graphs[name] = self.graph(attribute.as_graph(), known, depth + 1)
                case ir.AttributeType.GRAPHS:
                    graphs |= {f"{name}[{i}]": self.graph(g, known, depth + 1) for i, g in enumerate(attribute.as_graphs())}
                case ir.AttributeType.TENSOR:
                    plain[name] = small_values(attribute.as_tensor())
                case ir.AttributeType.INTS | ir.AttributeType.FLOATS | ir.AttributeType.STRINGS:
                    plain[name] = tuple(attribute.value)
                case ir.AttributeType.INT | ir.AttributeType.FLOAT | ir.AttributeType.STRING:
                    plain[name] = attribute.value
                case _:
                    plain[name] = None
        return plain, graphs

    def operand(self, value: ir.Value, item: ir.Node, known: dict[int, Tensor]) -> Tensor:
        """The tensor that a node reads; raises GraphError for one that nothing in the model makes."""
        if id(value) not in known and value.producer() is None and not value.is_graph_input() and not value.is_initializer():
            who = f"the node {text(item.name) or text(item.op_type)}"
            raise GraphError(f'not a valid ONNX model: {who} reads "{text(value.name)}", which nothing makes')
        return self.tensor(value, known)

    def tensor(self, value: ir.Value, known: dict[int, Tensor]) -> Tensor:
        """The tensor for a value of onnx-ir, made once."""
        found = known.get(id(value))
        if found is None:
            found = known[id(value)] = Tensor(
                text(value.name), None if value.dtype is None else dtype_name(value.dtype), shape_of(value.shape)
            )
            if value.const_value is not None:
                self.fill(found, value.const_value)
        return found

    def fill(self, tensor: Tensor, constant: ir.TensorProtocol) -> None:
        """Give a tensor the dtype, the shape and the weights of a constant."""
        tensor.dtype = dtype_name(constant.dtype)
        tensor.shape = shape_of(constant.shape)
        tensor.weights = self.weights(constant, tensor)

    def weights(self, constant: ir.TensorProtocol, tensor: Tensor) -> Weights:
        """Where the elements of a constant lie; places outside the model's folder and outside the file are refused."""
        import onnx_ir as ir

        count = tensor.size
        if count is None or count < 0 or tensor.dtype is None:
            raise GraphError(f"the weight {tensor.name} has no valid shape")
        if not isinstance(constant, ir.ExternalTensor):
            return InlineWeights(tensor.nbytes or 0, lambda: inline(constant, tensor.name))
        try:
            file = external_file(self.path, os.fspath(constant.location))
            nbytes, offset = tensor.nbytes or 0, constant.offset or 0
            size = os.path.getsize(file)
            if offset < 0 or offset + nbytes > size:
                raise GraphError(f"{nbytes:,} bytes are said to lie at byte {offset:,} of {constant.location}, which has {size:,}")
        except GraphError as error:
            raise GraphError(f"the weight {tensor.name} can't be read: {error}") from None
        if constant.length is not None and constant.length != nbytes:
            claimed = f"{tensor.described}, {nbytes:,} bytes, but {constant.length:,} are stored"
            raise GraphError(f"the weight {tensor.name} is {claimed}")
        return FileWeights(file, offset, nbytes, tensor.dtype)


def written(item: ir.Node, attributes: dict[str, Attribute], given: int) -> Iterator[Tensor]:
    """The numbers that an operator takes as attributes where others take operands: what fills a shape, and the bounds of older Clips."""
    match item.op_type:
        case "ConstantOfShape":
            values = attributes.get("value")
            number = values[0] if isinstance(values, tuple) and len(values) == 1 else 0.0 if "value" not in attributes else None
            dtype = item.outputs[0].dtype
            if isinstance(number, int | float):
                yield literal(number, "float32" if dtype is None else dtype_name(dtype))
        case "Clip" if given == 1:
            for name, bound in (("min", -math.inf), ("max", math.inf)):
                number = attributes.get(name, bound)
                yield literal(number if isinstance(number, int | float) else bound, "float32")


def ordered(source: ir.Graph | ir.Function) -> Iterable[ir.Node]:
    """The nodes in an order in which they can run; raises GraphError for a cycle."""
    seen: set[int] = set()
    for node in source:
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and producer.graph is source and id(producer) not in seen:
                try:
                    source.sort()
                except Exception:
                    raise GraphError(f"the graph has a cycle through the node {node.name or node.op_type}") from None
                return source
        seen.add(id(node))
    return source


def check_depth(graph: object) -> None:
    """Raise GraphError where bodies nest so deeply that reading them would need more stack than there is."""
    level = [graph]
    for _ in range(MAX_BODIES):
        level = [
            body
            for outer in level
            for node in outer.node  # type: ignore[attr-defined]
            for attribute in node.attribute
            for body in ([attribute.g] if attribute.HasField("g") else list(attribute.graphs))
        ]
        if not level:
            return
    raise GraphError("nested too deeply to be read")


def layer_path(name: str, metadata: dict[str, str]) -> str:
    """The path of the module that a node belongs to, as its exporter left it in metadata or in the node's name."""
    scopes = metadata.get(SCOPES)
    if scopes:
        try:
            path = ast.literal_eval(scopes)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            path = ()
        if isinstance(path, list) and len(path) > 1 and all(isinstance(part, str) for part in path):
            return str(path[-2]).replace(".", "/")
    if "/" not in name:
        return ""
    return _WRAPPERS.sub("", name.strip("/").rpartition("/")[0] + "/").rstrip("/")


def constant_value(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node in any of its spellings; None for strings and sparse ones."""
    import numpy as np
    import onnx_ir as ir

    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64), ("value_ints", np.int64)):
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref():
            return ir.Tensor(np.array(attribute.value, dtype))
    attribute = node.attributes.get("value")
    return attribute.as_tensor() if attribute is not None and not attribute.is_ref() and attribute.type is ir.AttributeType.TENSOR else None


def inline(constant: ir.TensorProtocol, name: str) -> np.ndarray:
    """The elements of a constant that the model file holds."""
    try:
        return constant.numpy()
    except Exception as error:
        raise GraphError(f"the weight {name} can't be read: {innermost(error)}") from None


def small_values(constant: ir.TensorProtocol) -> Attribute:
    """The elements of a small tensor in an attribute, None for a larger one."""
    if constant.size > SMALL or isinstance(constant.dtype, str):
        return None
    try:
        values = constant.numpy().reshape(-1).tolist()
    except Exception:
        return None
    return tuple(values)


def shape_of(shape: ir.ShapeProtocol | None) -> tuple[int | str | None, ...] | None:
    """Numbers, names of symbolic dimensions, None for unknown ones, which some exporters write as -1."""
    return None if shape is None else tuple((d if d >= 0 else None) if isinstance(d, int) else _symbol(d.value) for d in shape)


def _symbol(name: str | None) -> str | None:
    """The name of a dimension; None for those that ONNX's inference makes up."""
    return None if name is None or _MADE_UP.fullmatch(name) else name


def text(value: str | bytes | None) -> str:
    """A name; protobuf gives bytes where it is no valid UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


@contextmanager
def silenced(logger: str) -> Iterator[None]:
    """Keep a library's warnings off the terminal: what matters of them becomes an error or a note."""
    import logging

    log = logging.getLogger(logger)
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def function_name(domain: str, name: str, overload: str = "") -> str:
    """How a local function is called in `ModelGraph.functions`."""
    return f"{domain}::{name}" + (f":{overload}" if overload else "")


def innermost(error: BaseException) -> str:
    """The first line of the error at the bottom of a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
