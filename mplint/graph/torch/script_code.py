"""The operations of a TorchScript module, from the text of its methods, followed with the module's attributes as values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from mplint.graph.model import FLOATS, Attribute, GraphError, ModelGraph, Node, OpKind, Tensor
from mplint.graph.op_kinds import kind_of
from mplint.graph.torch.operands import argument_at, operands_of, placed
from mplint.graph.torch.pickles import Instance

MAX_STEPS = 400_000
MAX_DEPTH = 60
# The numbers of dtypes in code.
DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 9: "complex64", 11: "bool",
    15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn",
}  # fmt: skip
WEIGHTED = (OpKind.MATMUL, OpKind.CONV, OpKind.RECURRENT, OpKind.EMBEDDING)
SIZES = frozenset(("size", "dim", "len", "numel", "format", "is_floating_point", "dtype", "device", "warn", "item", "NumToTensor"))
MAKERS = frozenset(("arange", "linspace", "logspace", "eye"))
BOOLS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "isnan", "isinf"))
INDEXED = frozenset(("gather", "index", "index_select", "index_put", "take", "take_along_dim", "masked_select", "scatter", "index_fill"))
UNKNOWN = object()

Make = Callable[[str, object], Tensor | None]


class Function(NamedTuple):
    """A function or method of the code."""

    definition: ast.FunctionDef


class Module(NamedTuple):
    """A submodule: the object that the archive holds, and the path to it."""

    instance: Instance
    path: str


@dataclass(slots=True)
class Code:
    """What the code of an archive defines: its functions and methods, and the names of the buffers of its classes."""

    functions: dict[str, Function] = field(default_factory=dict)
    buffers: dict[str, set[str]] = field(default_factory=dict)


class _Return(Exception):
    """The value that a function gives."""

    def __init__(self, value: object) -> None:
        self.value = value


def read_code(
    model: ModelGraph,
    root: Instance,
    code: Code,
    make: Make,
    constants: list[Tensor | None],
    examples: list[Tensor | None],
) -> None:
    """Fill the nodes of `model` from the forward method of `root`."""
    forward = code.functions.get(f"{root.kind}.forward")
    if forward is None:
        model.notes.append("The module has no forward method: nothing is known of its operations.")
        return
    reader = _Reader(model, code, make, constants)
    arguments: list[object] = [Module(root, "")]
    for place, argument in enumerate(forward.definition.args.args[1:]):
        kind = ast.unparse(argument.annotation) if argument.annotation is not None else "Tensor"
        if kind in ("Tensor", "Optional[Tensor]"):
            example = examples[place] if place < len(examples) else None
            tensor = Tensor(argument.arg, example.dtype if example else None, example.shape if example else None)
            model.graph.inputs.append(tensor)
            arguments.append(tensor)
        else:
            arguments.append(UNKNOWN)
    result = reader.run(forward, arguments, "", 0)
    model.graph.outputs = [tensor for tensor in _flat(result) if isinstance(tensor, Tensor)]
    if isinstance(result, dict):
        model.graph.public = {id(tensor): name for name, tensor in result.items() if isinstance(tensor, Tensor)}
    model.notes.append("TorchScript keeps no dtypes or shapes of what flows: dtypes are those that the weights and casts bring about.")
    if reader.guessed:
        model.notes.append("Where the code branches on what is known at run time only, both branches were read.")


class _Reader:
    def __init__(self, model: ModelGraph, code: Code, make: Make, constants: list[Tensor | None]) -> None:
        self.model, self.functions, self.buffers, self.make, self.constants = model, code.functions, code.buffers, make, constants
        self.left = MAX_STEPS
        self.guessed = False
        for place, tensor in enumerate(constants):
            if tensor is not None:
                model.graph.constants.setdefault(f"CONSTANTS.c{place}", tensor)

    def run(self, function: Function, arguments: list[object], path: str, depth: int) -> object:
        """What a function gives for these arguments."""
        if depth > MAX_DEPTH:
            raise GraphError("calls nested too deeply")
        names = [argument.arg for argument in function.definition.args.args]
        values: dict[str, object] = dict(zip(names, arguments, strict=False))
        defaults = function.definition.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            if name not in values:
                values[name] = self.value(default, {}, path, depth)
        try:
            self.block(function.definition.body, values, path, depth)
        except _Return as result:
            return result.value
        return None

    def block(self, body: list[ast.stmt], values: dict[str, object], path: str, depth: int) -> None:
        for statement in body:
            self.left -= 1
            if self.left < 0:
                raise GraphError("more code than any module has")
            match statement:
                case ast.Assign(targets=[target], value=expression):
                    _bind(target, self.value(expression, values, path, depth), values)
                case ast.AnnAssign(target=target, value=ast.expr() as expression):
                    _bind(target, self.value(expression, values, path, depth), values)
                case ast.Return(value=expression):
                    raise _Return(self.value(expression, values, path, depth) if expression is not None else None)
                case ast.Expr(value=expression):
                    self.value(expression, values, path, depth)
                case ast.If(test=test):
                    self.branch(statement, self.value(test, values, path, depth), values, path, depth)
                case ast.For(body=inner) | ast.While(body=inner) | ast.With(body=inner):
                    if isinstance(statement, ast.For):
                        _bind(statement.target, UNKNOWN, values)
                    self.guessed = True
                    self.block(inner, values, path, depth)
                case _:
                    pass

    def branch(self, statement: ast.If, test: object, values: dict[str, object], path: str, depth: int) -> None:
        """The branch that is taken where that is known, else both."""
        if isinstance(test, bool | int | float):
            self.block(statement.body if test else statement.orelse, values, path, depth)
            return
        if _raises(statement.body) or _raises(statement.orelse):  # a check of the arguments
            self.block(statement.orelse if _raises(statement.body) else statement.body, values, path, depth)
            return
        self.guessed = True
        given: list[object] = []
        for body in (statement.body, statement.orelse):
            try:
                self.block(body, values, path, depth)
            except _Return as result:
                given.append(result.value)
        if len(given) == 2:
            raise _Return(next((value for value in given if isinstance(value, Tensor)), given[0]))

    def value(self, expression: ast.expr, values: dict[str, object], path: str, depth: int) -> object:
        self.left -= 1
        match expression:
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name):
                return values.get(name, UNKNOWN)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(part, values, path, depth) for part in parts]
            case ast.Dict(keys=names, values=parts):
                made = [self.value(part, values, path, depth) for part in parts]
                return {name.value: part for name, part in zip(names, made, strict=True) if isinstance(name, ast.Constant)}
            case ast.Attribute(value=ast.Name(id="CONSTANTS"), attr=name):
                place = int(name[1:]) if name[1:].isdecimal() else -1
                return self.constants[place] if 0 <= place < len(self.constants) else UNKNOWN
            case ast.Attribute(value=inner, attr=name):
                owner = self.value(inner, values, path, depth)
                return self.member(owner, name) if isinstance(owner, Module) else _dotted(expression) or UNKNOWN
            case ast.Subscript(value=inner, slice=ast.Constant(value=int(place))):
                items = self.value(inner, values, path, depth)
                return items[place] if isinstance(items, list) and -len(items) <= place < len(items) else UNKNOWN
            case ast.Call():
                return self.call(expression, values, path, depth)
            case _:
                return UNKNOWN

    def member(self, owner: Module, name: str) -> object:
        """An attribute of a module: a submodule, a weight, or a plain value."""
        value = owner.instance.state.get(name, UNKNOWN)
        path = f"{owner.path}.{name}" if owner.path else name
        if isinstance(value, Instance):
            return Module(value, path)
        if isinstance(value, list):
            return [self.make(f"{path}.{place}", item) or UNKNOWN for place, item in enumerate(value)]
        if path in self.model.graph.constants:
            tensor = self.model.graph.constants[path]
            tensor.fixed = name in self.buffers.get(owner.instance.kind, ())
            return tensor
        return value if value is None or isinstance(value, bool | int | float | str) else self.make(path, value) or UNKNOWN

    def call(self, expression: ast.Call, values: dict[str, object], path: str, depth: int) -> object:
        function = expression.func
        if isinstance(function, ast.Name) and function.id in ("annotate", "unchecked_cast") and len(expression.args) == 2:
            return self.value(expression.args[1], values, path, depth)
        arguments = [self.value(argument, values, path, depth) for argument in expression.args]
        if isinstance(function, ast.Name) and function.id == "getattr" and len(arguments) == 2:
            owner, name = arguments
            return self.member(owner, name) if isinstance(owner, Module) and isinstance(name, str) else UNKNOWN
        if isinstance(function, ast.Attribute):
            owner = self.value(function.value, values, path, depth)
            if isinstance(owner, Module):
                method = self.functions.get(f"{owner.instance.kind}.{function.attr}")
                return self.run(method, [owner, *arguments], owner.path, depth + 1) if method is not None else UNKNOWN
        named = values.get(function.id) if isinstance(function, ast.Name) else _dotted(function)
        if not isinstance(named, str):
            return UNKNOWN
        if named in self.functions:
            return self.run(self.functions[named], arguments, path, depth + 1)
        keywords = {k.arg: self.value(k.value, values, path, depth) for k in expression.keywords if k.arg is not None}
        return self.operation(named, arguments, keywords, path)

    def operation(self, name: str, arguments: list[object], keywords: dict[str, object], path: str) -> object:
        """The node of a call of torch; sizes and checks are none."""
        domain, _, plain = name.rpartition(".")
        plain = plain.rstrip("_") if not plain.startswith("__") else plain
        tensors = [value for value in _flat(arguments) if isinstance(value, Tensor)]
        if domain not in ("torch", "ops") and not domain.startswith("ops."):
            return UNKNOWN
        makes = kind_of("torch", plain) in (OpKind.MOVE, OpKind.RANDOM) or plain in MAKERS
        if plain in SIZES or plain == "RaiseException" or not (tensors or makes):
            return UNKNOWN
        kind = kind_of("torch", plain) if not domain.startswith("ops.") or domain in ("ops.prim", "ops.aten") else OpKind.OPAQUE
        attributes: dict[str, Attribute] = {}
        for key, value in [*((f"arg{place}", value) for place, value in enumerate(arguments)), *keywords.items()]:
            if argument_of(plain, key) in operands_of(plain) and is_number(value):
                continue
            if isinstance(value, bool | int | float | str):
                attributes[key] = value
            elif isinstance(value, list) and all(isinstance(item, int | float) for item in value):
                attributes[key] = tuple(item for item in value if isinstance(item, int | float))
        dtype = _result(plain, kind, arguments, keywords, tensors)
        output = Tensor(f"{plain}_{len(self.model.graph.nodes)}", dtype)
        compute = dtype if dtype in FLOATS else next((t.dtype for t in tensors if t.dtype in FLOATS and t.shape != ()), None)
        inputs = tuple(_inputs(plain, arguments, keywords, dtype))
        node = Node(output.name, kind, f"aten::{plain}", "aten", inputs, (output,), {}, attributes, {}, compute, None, path)
        self.model.graph.nodes.append(node)
        return output


def _result(plain: str, kind: OpKind, arguments: list[object], keywords: dict[str, object], tensors: list[Tensor]) -> str | None:
    """The dtype that an operation gives: what a cast asks for, the weights' for products, else that of what goes in."""
    if plain in BOOLS:
        return "bool"
    if kind is OpKind.CAST or "dtype" in keywords:
        asked = keywords.get("dtype", next((v for v in arguments[1:] if isinstance(v, int) and not isinstance(v, bool)), None))
        named = {"half": "float16", "float": "float32", "double": "float64", "bfloat16": "bfloat16"}.get(plain)
        if named or isinstance(asked, int):
            return named or (DTYPES.get(asked) if isinstance(asked, int) else None)
    if plain in ("argmax", "argmin"):
        return "int64"
    if kind in WEIGHTED:
        return next((t.dtype for t in reversed(tensors) if t.dtype in FLOATS and t.weights is not None), _promoted(tensors))
    if kind is OpKind.OPAQUE or not tensors:
        return None
    return _promoted(_data(plain, arguments) or tensors)


def _data(plain: str, arguments: list[object]) -> list[Tensor]:
    """The tensors whose dtypes make that of the result: no conditions, masks and indices; none where all count."""
    if plain in INDEXED:
        return [value for value in arguments[:1] if isinstance(value, Tensor)]
    named = operands_of(plain)
    return [value for place, value in enumerate(arguments) if isinstance(value, Tensor) and argument_at(plain, place) in named]


def _promoted(tensors: list[Tensor]) -> str | None:
    """The dtype of a result of tensors; a scalar tensor does not widen it."""
    dtypes = {tensor.dtype for tensor in tensors if tensor.shape != ()} or {tensor.dtype for tensor in tensors}
    if None in dtypes:
        return None
    floats = dtypes & FLOATS
    if len(floats or dtypes) == 1:
        return next(iter(floats or dtypes))
    return "float64" if "float64" in floats else "float32" if floats else "int64"


def _inputs(plain: str, arguments: list[object], keywords: dict[str, object], made: str | None) -> Iterator[Tensor | None]:
    """The arguments that are tensors, or lists of them, or could be, and the numbers that the operation computes with."""
    given = {**{f"arg{place}": value for place, value in enumerate(arguments)}, **keywords}
    named = {argument_of(plain, key): value for key, value in given.items()}
    numbers = {name: float(value) for name in operands_of(plain) if is_number(value := named.get(name))}  # type: ignore[arg-type]
    if numbers:
        yield from placed(plain, {name: value for name, value in named.items() if isinstance(value, Tensor)}, numbers, made)
        return
    for value in _flat(arguments):
        if isinstance(value, Tensor) or value is None:
            yield value


def is_number(value: object) -> bool:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def argument_of(plain: str, key: str) -> str:
    """The name of an argument, which for one that was given by its place is "arg0"."""
    place = key.removeprefix("arg")
    return argument_at(plain, int(place)) or key if place.isdecimal() else key


def _flat(value: object) -> list[object]:
    if isinstance(value, dict):
        value = list(value.values())
    return [part for item in value for part in _flat(item)] if isinstance(value, list) else [value]


def _bind(target: ast.expr, value: object, values: dict[str, object]) -> None:
    match target:
        case ast.Name(id=name):
            values[name] = value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for place, part in enumerate(parts):
                _bind(part, value[place] if isinstance(value, list) and place < len(value) else _part(value), values)
        case _:
            pass


def _part(value: object) -> object:
    """One of the tensors that an operation with several outputs gives."""
    return value if isinstance(value, Tensor) else UNKNOWN


def _dotted(expression: ast.expr) -> str | None:
    """A dotted name such as torch.conv2d."""
    parts: list[str] = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    return ".".join([expression.id, *reversed(parts)]) if isinstance(expression, ast.Name) else None


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(s, ast.Raise) or (isinstance(s, ast.Expr) and "RaiseException" in ast.dump(s)[:300]) for s in body)
