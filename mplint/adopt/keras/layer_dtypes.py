"""Keras layers that mix tensors of a hard-coded dtype with tensors in the layer's compute dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.keras.versions import loop_major
from mplint.frameworks.names import keras_path
from mplint.python.bindings import Binding
from mplint.python.syntax import FUNCTIONS, Function, argument, walk_expressions
from mplint.source.keras.layers import CONVOLUTIONS, DEPTHWISE
from mplint.source.keras.models import KerasModels
from mplint.source.keras.policy import KerasPolicy
from mplint.source.precision import PrecisionFacts
from mplint.source.values import UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

COMPUTE, NUMBER, OPEN = "compute", "number", "open"
MAX_DEPTH = 12
CASTS = ("cast", "convert_to_tensor", "constant", "to_float", "Variable")
FILLED = ("zeros", "ones", "fill", "eye", "linspace", "normal", "uniform", "truncated_normal", "random_normal", "random_uniform",
          "one_hot")  # fmt: skip
WRITTEN = ("range",)  # those whose dtype is known only where it is written
BACKENDS = ("jax", "torch")  # those that promote where two float dtypes meet in an operator
SAME = frozenset(
    {"abs", "add", "clip", "clip_by_value", "concat", "concatenate", "cos", "divide", "dropout", "einsum", "exp", "expand_dims"}
    | {"gather", "gelu", "identity", "log", "matmul", "maximum", "minimum", "moveaxis", "multiply", "negative", "pad", "pow"}
    | {"relu", "repeat", "reshape", "reverse", "roll", "rsqrt", "sigmoid", "sin", "softmax", "sqrt", "square", "squeeze", "stack"}
    | {"stop_gradient", "subtract", "swapaxes", "tanh", "tensordot", "tile", "transpose", "reduce_mean", "reduce_sum", "reduce_max"}
    | {"mean", "sum", "numpy", "read_value"}
)
SUBSCRIPTED = ("einsum",)
MIXING = frozenset(
    {"add", "subtract", "multiply", "divide", "matmul", "maximum", "minimum", "einsum", "concat", "stack", "tensordot", "pow"}
)
# Layers that give one tensor of their compute dtype, whatever they get.
NORMS = {"BatchNormalization", "LayerNormalization", "GroupNormalization"}
COMPUTING = CONVOLUTIONS | DEPTHWISE | {"Dense", "EinsumDense", "Embedding"} | NORMS
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.MatMult)


class Kind(NamedTuple):
    """What an expression in a layer holds: the compute dtype, a number, an unknown, or a hard-coded dtype and the call that fixes it."""

    name: str
    source: ast.Call | None = None


class Mix(NamedTuple):
    """An operation between a hard-coded dtype and the compute dtype; `fixed` is the operand, `source` the call that fixes its dtype."""

    node: ast.expr | ast.AugAssign
    fixed: ast.expr
    source: ast.Call
    dtype: str
    owner: ast.ClassDef


class LayerDtypes:
    """Finds the mixes in one file."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._kinds: dict[ast.AST, Kind] = {}

    @cached_property
    def mixes(self) -> list[Mix]:
        """Every mix in the `call` of a layer, in source order."""
        found = []
        for owner in self.file.syntax.all(ast.ClassDef):
            method = next((m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == "call"), None)
            if method is not None and self.file.fact(PrecisionFacts).is_keras_layer(owner):
                mixed = [mix for scope in (method, *self._helpers(owner, method)) for mix in self._of(owner, scope)]
                found += mixed if mixed and not self._has_own_dtype(owner) else []
        return found

    def _helpers(self, owner: ast.ClassDef, method: Function) -> Iterator[Function]:
        """The functions of this file that only the layer's `call` runs."""
        for statement in self.file.values.own_statements(method):
            for call in ast.walk(statement) if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)) else ():
                helper = self.file.names.local_function(call.func) if isinstance(call, ast.Call) else None
                if isinstance(helper, FUNCTIONS) and helper is not method and self._runs_only_in(helper, method):
                    yield helper

    def _runs_only_in(self, helper: Function, method: Function) -> bool:
        sites = self.file.values.call_sites.get(helper, [])
        return bool(sites) and all(self.file.syntax.function(site) is method for site in sites)

    def _has_own_dtype(self, owner: ast.ClassDef) -> bool:
        """Whether the class turns autocast off or fixes its own dtype."""
        for node in ast.walk(owner):
            match node:
                case ast.Attribute(attr="autocast" | "_autocast" | "_dtype_policy", ctx=ast.Store()):
                    return True
                case ast.keyword(arg="autocast" | "experimental_autocast"):
                    return True
                case ast.Call(func=ast.Attribute(attr="__init__"), keywords=keywords) if any(
                    k.arg == "dtype" and not isinstance(k.value, ast.Name) for k in keywords
                ):
                    return True
        return False

    def _of(self, owner: ast.ClassDef, method: Function) -> Iterator[Mix]:
        for statement in self.file.values.own_statements(method):
            roots = [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.expr)]
            nodes = [n for root in roots for n in walk_expressions(root)]
            for node in [*nodes, statement]:
                sides = self._sides(node)
                if not sides or self.file.fact(PrecisionFacts).dtype_guard(node):
                    continue
                kinds = [self.kind(side) for side in sides]
                fixed = next(((s, k) for s, k in zip(sides, kinds, strict=True) if k.source is not None), None)
                if fixed is None or fixed[1].source is None or all(k.name != COMPUTE for k in kinds):
                    continue
                if isinstance(node, (ast.expr, ast.AugAssign)) and not self._promotes(node, fixed[1].source):
                    yield Mix(node, fixed[0], fixed[1].source, fixed[1].name, owner)

    def _promotes(self, node: ast.AST, source: ast.Call) -> bool:
        """Whether `keras.ops` or `keras.random` makes the tensor: multi-backend code, in which most backends promote.

        Operators of TensorFlow, the default backend, do not; that counts where the program itself sets a policy.
        """
        path = keras_path(self.file.names.resolve(source.func)) or ""
        return path.startswith(("ops.", "random.")) and (isinstance(node, ast.Call) or not self._may_raise)

    @cached_property
    def _may_raise(self) -> bool:
        """Whether the program sets a mixed policy, and no backend that promotes."""
        text = self.file.document.text
        other = any(f'"{name}"' in text or f"'{name}'" in text for name in BACKENDS)
        return self.file.fact(KerasPolicy).exit().certain and not other

    @cached_property
    def _casts_every_input(self) -> bool:
        """Whether layers cast all their floating inputs to the compute dtype, as those of Keras 3 do, and not the first alone."""
        return loop_major(self.file, self.file.targets) == 3

    def _sides(self, node: ast.AST) -> list[ast.expr]:
        """The operands that TensorFlow wants in one dtype; none where the operation promotes or is no arithmetic."""
        match node:
            case ast.BinOp(left=left, right=right, op=op) if isinstance(op, OPERATORS):
                return [left, right]
            case ast.AugAssign(target=ast.Name() as target, value=value, op=op) if isinstance(op, OPERATORS):
                return [target, value]
            case ast.Call(func=ast.Attribute(attr=last)) if last in MIXING:
                path = self.file.names.resolve(node.func) or ""
                if not path.startswith("tensorflow.") or keras_path(path) is not None:
                    return []
                if last in ("concat", "stack"):
                    return list(node.args[0].elts) if node.args and isinstance(node.args[0], (ast.List, ast.Tuple)) else []
                return [a for a in node.args[last in SUBSCRIPTED :][:2] if not isinstance(a, ast.Starred)]
        return []

    def kind(self, node: ast.AST, depth: int = 0) -> Kind:
        """What an expression holds."""
        found = self._kinds.get(node)
        if found is None:
            self._kinds[node] = Kind(OPEN)
            found = self._kinds[node] = self._kind(node, depth) if depth < MAX_DEPTH else Kind(OPEN)
        return found

    def _kind(self, node: ast.AST, depth: int) -> Kind:
        match node:
            case ast.Constant(value=int() | float()):
                return Kind(NUMBER)
            case ast.UnaryOp(operand=inner):
                return self.kind(inner, depth + 1)
            case ast.Subscript(value=inner):
                return Kind(OPEN) if isinstance(inner, ast.Attribute) and inner.attr == "shape" else self.kind(inner, depth + 1)
            case ast.BinOp(left=left, right=right):
                return self._joined([self.kind(left, depth + 1), self.kind(right, depth + 1)])
            case ast.arg():
                return self._parameter(node)
            case ast.Name() | ast.Attribute() | ast.IfExp():
                return self._defined(node, depth)
            case ast.Call():
                return self._call(node, depth)
        return Kind(OPEN)

    def _joined(self, kinds: list[Kind]) -> Kind:
        """The result of an operation: in TensorFlow all operands have one dtype, so one that is known tells."""
        for kind in kinds:
            if kind.name == COMPUTE:
                return kind
        fixed = [k for k in kinds if k.source is not None]
        if fixed:
            return fixed[0]
        return Kind(NUMBER) if kinds and all(k.name == NUMBER for k in kinds) else Kind(OPEN)

    def _defined(self, node: ast.Name | ast.Attribute | ast.IfExp, depth: int) -> Kind:
        if self.file.fact(PrecisionFacts).dtype_guard(node):
            return Kind(OPEN)
        if isinstance(node, ast.Name):
            bindings = self.file.names.reaching(node)
            if bindings and all(self._is_element_of_input(b) for b in bindings):
                return Kind(COMPUTE)
            changed = [b.node for b in bindings if isinstance(self.file.syntax.parents.get(b.node), ast.AugAssign)]
            if changed and len(changed) == len(bindings):
                return self._joined([self.kind(target, depth + 1) for target in changed if target is not node])
            if any(b.value is None and not isinstance(b.node, ast.arg) for b in bindings):
                return Kind(OPEN)
        kinds = [self.kind(d, depth + 1) for d in self.file.values.definitions(node) if d is not node]
        names = {k.name for k in kinds}
        return kinds[-1] if len(names) == 1 else Kind(OPEN)

    def _is_element_of_input(self, binding: Binding) -> bool:
        """Whether a binding takes one tensor out of the inputs that a layer is called with, as in `query, key = inputs`."""
        if binding.element is None or not isinstance(binding.value, ast.Name):
            return False
        if not isinstance(self.file.syntax.parents[binding.value], ast.Assign):
            return False
        found = [b.node for b in self.file.names.reaching(binding.value)]
        return bool(found) and all(isinstance(n, ast.arg) and self._parameter(n).name == COMPUTE for n in found)

    def _gives_compute_dtype(self, func: ast.Attribute) -> bool:
        """Whether `self.dense(...)` runs a layer that follows the policy and gives its compute dtype."""
        if not isinstance(func.value, ast.Name) or func.value.id != "self":
            return False
        models, policy = self.file.fact(KerasModels), self.file.fact(KerasPolicy)
        layers = [models.layer(made) for made in models.made(func)]
        return bool(layers) and all(
            layer is not None and layer.kind in COMPUTING and policy.dtype_argument(layer.call) is None for layer in layers
        )

    def _parameter(self, node: ast.arg) -> Kind:
        method = self.file.syntax.function(node)
        owner = self.file.syntax.parents.get(method) if method is not None else None
        if method is not None and not (isinstance(owner, ast.ClassDef) and method.name == "call"):
            return self._passed(method, node)
        if method is None:
            return Kind(OPEN)
        spec = method.args.args
        given = spec[1 : len(spec) - len(method.args.defaults)] if self._casts_every_input else spec[1:2]
        return Kind(COMPUTE) if node in given and node.arg not in ("training", "mask") else Kind(OPEN)

    def _passed(self, function: Function, parameter: ast.arg) -> Kind:
        """What the one call of a helper passes for a parameter."""
        sites = self.file.values.call_sites.get(function, [])
        given = self.file.values.passed(sites[0], function, parameter.arg) if len(sites) == 1 else None
        kind = self.kind(given, MAX_DEPTH // 2) if given is not None else Kind(OPEN)
        return kind if kind.name == COMPUTE else Kind(OPEN)

    def _call(self, node: ast.Call, depth: int) -> Kind:
        func = node.func
        if not isinstance(func, ast.Attribute):
            return Kind(OPEN)
        if func.attr in ("add_weight", "add_variable") and isinstance(func.value, ast.Name) and func.value.id == "self":
            dtype = argument(node, "dtype")
            return Kind(COMPUTE) if dtype is None or self.file.values.dtypes(dtype) <= {"float32"} else Kind(OPEN)
        if isinstance(self.file.names.local_function(func), (*FUNCTIONS, ast.ClassDef)):
            return Kind(OPEN)
        if self._gives_compute_dtype(func):
            return Kind(COMPUTE)
        path = self.file.names.resolve(func)
        if path is not None and path.startswith(("numpy.", "math.", "torch.", "jax.")):
            return Kind(OPEN)
        first = node.args[0] if node.args else None
        if func.attr in CASTS or func.attr in FILLED or func.attr in WRITTEN:
            return self._made(node, func.attr, path, first, depth)
        if func.attr not in SAME:
            return Kind(OPEN)
        if path is None:
            return self.kind(func.value, depth + 1) if not isinstance(func.value, ast.Name) or func.value.id != "self" else Kind(OPEN)
        operands = self._sides(node) or ([first] if first is not None else [])
        return self._joined([self.kind(a, depth + 1) for a in operands])

    def _made(self, node: ast.Call, last: str, path: str | None, first: ast.expr | None, depth: int) -> Kind:
        """The kind of a cast or constructor: its literal dtype, else float32 for what TensorFlow fills or makes of floats."""
        position = 1 if last in CASTS or last in ("zeros", "ones") else None
        dtype = argument(node, "dtype", position)
        if path is None and last not in ("convert_to_tensor", "cast"):
            return Kind(OPEN)
        if dtype is not None:
            if isinstance(dtype, ast.Attribute) and dtype.attr in ("compute_dtype", "_compute_dtype"):
                return Kind(COMPUTE)
            if isinstance(dtype, ast.Attribute) and dtype.attr == "dtype":
                return self.kind(dtype.value, depth + 1)
            if not literal(dtype, self.file):
                return Kind(OPEN)
            names = self.file.values.dtypes(dtype)
            return Kind(next(iter(names)), node) if len(names) == 1 and names <= {"float32", "float16"} else Kind(OPEN)
        if not (path or "").startswith("tensorflow.") and not (keras_path(path) or "").startswith(("ops.", "random.", "backend.")):
            return Kind(OPEN)
        if last in FILLED:
            return Kind("float32", node)
        if first is None or last in ("cast", "to_float", *WRITTEN):
            return Kind(OPEN)
        if last in ("constant", "convert_to_tensor", "Variable") and holds_floats(first):
            return Kind("float32", node)
        return self.kind(first, depth + 1) if last in ("convert_to_tensor", "Variable") else Kind(OPEN)


def holds_floats(node: ast.expr) -> bool:
    """Whether an expression is made of numbers, a float among them, such as `[0.5] * 3`."""
    parts = [n for n in ast.walk(node) if not isinstance(n, (ast.operator, ast.unaryop, ast.expr_context))]
    numbers = [n.value for n in parts if isinstance(n, ast.Constant)]
    plain = all(isinstance(n, (ast.Constant, ast.List, ast.Tuple, ast.BinOp, ast.UnaryOp)) for n in parts)
    return plain and all(isinstance(n, (int, float)) for n in numbers) and any(isinstance(n, float) for n in numbers)


def literal(dtype: ast.expr, file: SourceFile) -> bool:
    """Whether a dtype is written out: a string or a dotted name of a package."""
    if isinstance(dtype, ast.Constant):
        return isinstance(dtype.value, str)
    return (
        isinstance(dtype, (ast.Attribute, ast.Name)) and file.names.resolve(dtype) is not None and UNKNOWN not in file.values.dtypes(dtype)
    )
