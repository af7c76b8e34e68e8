"""In which dtype an expression is computed: inferred from casts, constructors, autocast regions and layer policies.

Only positive evidence counts. An expression about which the program says nothing is unknown ("?"), and an unknown
operand makes the result of mixed arithmetic unknown.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mplint.frameworks.names import keras_path
from mplint.python.syntax import argument
from mplint.source.dtype_guards import has_dtype_guard
from mplint.source.dtype_names import FLOATS
from mplint.source.keras.policy import KerasPolicy
from mplint.source.loops import iterated
from mplint.source.operations import CONSTRUCTORS, INTEGERS, LIKE, LOWER, LOWER_MODULES, PROMOTED, SAME_DTYPE
from mplint.source.promotion import FOLLOWS, INPUT, INTEGER, NOTHING, SCALAR, Precision, join, known, promote
from mplint.source.torch.autocast import Autocasts
from mplint.source.values import UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

MAX_DEPTH = 10


class PrecisionFacts:
    """Infers dtypes in one file.

    With `assume` ("float16"), code around which the file itself puts nothing in force is taken to run in that dtype, by
    autocast or by policy: what a finding rests on that only the rest of the project can prove.
    """

    def __init__(self, file: SourceFile, assume: str | None = None) -> None:
        self.file = file
        self.assume = assume
        self._known: dict[ast.AST, Precision] = {}

    def of(self, node: ast.expr | ast.arg, depth: int = 0) -> Precision:
        """The precision of an expression where it stands."""
        found = self._known.get(node)
        if found is None:
            self._known[node] = NOTHING  # a definition that refers to itself says nothing
            found = self._known[node] = self._of(node, depth) if depth <= MAX_DEPTH else NOTHING
        return found

    def _of(self, node: ast.expr | ast.arg, depth: int) -> Precision:
        match node:
            case ast.Constant(value=bool()):
                return known(INTEGER)
            case ast.Constant(value=int() | float()):
                return known(SCALAR)
            case ast.UnaryOp(op=ast.Not()) | ast.Compare():
                return known(INTEGER)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return known(INTEGER)
            case ast.UnaryOp(op=ast.Invert(), operand=inner):
                return self.of(inner, depth + 1)
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                return self.of(inner, depth + 1)
            case ast.BinOp(op=ast.MatMult()):
                return self._lower(node, [node.left, node.right], depth)
            case ast.BinOp(left=left, right=right, op=op):
                if isinstance(op, ast.Pow) and self.autocast(node):
                    return known("float32")
                return promote([self.of(left, depth + 1), self.of(right, depth + 1)])
            case ast.Call():
                return self._call(node, depth)
            case ast.Attribute(attr="ndim" | "shape"):
                return known(INTEGER)
            case ast.Attribute(attr="T" | "mT" | "data" | "grad", value=inner):
                return self.of(inner, depth + 1)
            case ast.Name() | ast.Attribute() | ast.IfExp():
                return self._defined(node, depth)
            case ast.arg():
                return self._parameter(node)
            case ast.Tuple(elts=[]) | ast.List(elts=[]):
                return NOTHING
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                return promote([self.of(e, depth + 1) for e in elts])
        return NOTHING

    def _defined(self, node: ast.expr, depth: int) -> Precision:
        if self.file.values.number(node) is not None:
            return known(SCALAR)
        if isinstance(node, ast.Name) and self.dtype_guard(node):
            return NOTHING
        definitions = [d for d in self.file.values.definitions(node) if d is not node]
        if not definitions and isinstance(node, ast.Name):
            return join([self.of(whole, depth + 1) for whole in iterated(self.file, node)])
        if isinstance(node, ast.Attribute) and definitions and all(self._is_setting(d) for d in definitions):
            return known(SCALAR)
        found = [self.of(d, depth + 1) for d in definitions]
        return join(found) if found else NOTHING

    def _is_setting(self, node: ast.AST) -> bool:
        """Whether an attribute's value is arithmetic on numbers and constructor arguments (`self.scale = width ** -0.5`)."""
        match node:
            case ast.BinOp(left=left, right=right, op=op) if not isinstance(op, ast.MatMult):
                return all(isinstance(side, (ast.Constant, ast.Name, ast.UnaryOp)) or self._is_setting(side) for side in (left, right))
            case ast.Call(func=func):
                return (self.file.names.resolve(func) or "").startswith("math.")
        return False

    def dtype_guard(self, node: ast.AST) -> bool:
        """Whether a condition on a dtype decides whether `node` runs (`if x.dtype == torch.float16:`, `… if half else …`)."""
        return has_dtype_guard(self.file.syntax, node)

    def _parameter(self, node: ast.arg) -> Precision:
        function = self.file.syntax.function(node)
        owner = self.file.syntax.parents.get(function) if function is not None else None
        if function is None or not isinstance(owner, ast.ClassDef) or function.name != "call" or not self.is_keras_layer(owner):
            return NOTHING
        spec = function.args.args
        if len(spec) < 2 or node is not spec[1]:
            return NOTHING
        return self._under_policy(INPUT, node)

    def _under_policy(self, dtype: str, node: ast.AST) -> Precision:
        """`dtype` (FOLLOWS or INPUT), made concrete in a layer where this file fixes the policy."""
        owner = self.file.syntax.enclosing_class(node)
        if owner is None or not self.is_keras_layer(owner):
            return known(dtype, node)
        if self.assume is not None and self.file.fact(KerasPolicy).exit().undecided:
            return known(self.assume, node)
        policy = self.file.fact(KerasPolicy).exit()
        if policy.certain:
            compute = next(iter(policy.compute_dtypes))
            return known(compute, policy.setters[0] if policy.setters else node)
        return known(dtype, node)

    def is_keras_layer(self, owner: ast.ClassDef) -> bool:
        """Whether the class derives from a Keras Layer or Model."""
        return any(
            ((path := keras_path(name)) is not None and path.rpartition(".")[2] in ("Layer", "Model"))
            or (name.endswith((".Layer", ".Model")) and "keras" in name)
            for name in self.file.names.base_names(owner)
        )

    def autocast(self, node: ast.AST, depth: int = 0) -> Precision | None:
        """The one half dtype that autocast puts in force at `node`, here or at every call of its function; None where none or open."""
        if not self.file.mentions_autocast:
            return known(self.assume, node) if self.assume is not None and self._in_forward(node) else None
        facts = self.file.fact(Autocasts)
        around = facts.regions_around(node)
        if around:
            half = facts.half_at(node)
            return Precision(half, around[0].node) if len(half) == 1 and UNKNOWN not in half else None
        function = self.file.syntax.function(node)
        calls = self.file.values.call_sites.get(function, []) if function is not None else []
        found = [self.autocast(call, depth + 1) for call in calls] if depth < 4 else []
        if not found and self.assume is not None and self._in_forward(node):
            return known(self.assume, node)
        first = found[0] if found else None
        return first if first is not None and all(f is not None and f.dtypes == first.dtypes for f in found) else None

    def _in_forward(self, node: ast.AST) -> bool:
        """Whether the node stands in a method of a torch module, or in a function, that training may run."""
        return self.file.syntax.function(node) is not None and "torch" in self.file.document.text

    def in_region(self, node: ast.AST) -> bool:
        """Whether the node stands in an autocast region, on or off."""
        return self.file.mentions_autocast and bool(self.file.fact(Autocasts).regions_around(node))

    def _lower(self, node: ast.AST, operands: list[ast.expr], depth: int) -> Precision:
        region = self.autocast(node)
        if region is not None and (self.assume is None or self.in_region(node)):
            return region
        given = promote([self.of(operand, depth + 1) for operand in operands])
        return given if region is None or given.only == "float32" else region  # a module cast to half leaves float32 operands alone

    def _call(self, node: ast.Call, depth: int) -> Precision:
        func = node.func
        if self.file.names.local_function(func) is not None:
            definitions = [d for d in self.file.values.definitions(node) if d is not node]
            return join([self.of(d, depth + 1) for d in definitions]) if definitions else NOTHING
        path = self.file.names.resolve(func)
        if isinstance(func, ast.Name) and path is None and func.id in ("float", "int", "len", "min", "max", "round"):
            return known(SCALAR)
        if path is not None:
            return self._function(node, path, depth)
        if isinstance(func, ast.Attribute):
            return self._method(node, func, depth)
        return self._module_call(node, depth)

    def _cast(self, node: ast.Call, dtype: ast.expr | None, depth: int) -> Precision | None:
        """The precision after a cast to `dtype`; None where it names none."""
        if dtype is None:
            return None
        if isinstance(dtype, ast.Attribute) and dtype.attr in ("dtype", "compute_dtype", "_compute_dtype"):
            if dtype.attr == "dtype":
                source = self.of(dtype.value, depth + 1)
                if source.only in FLOATS:
                    return Precision(source.dtypes, source.because)
                if source.only == INTEGER:
                    return known(INTEGER)
            return self._under_policy(FOLLOWS, node)
        names = self.file.values.dtypes(dtype)
        if UNKNOWN not in names:
            return Precision(frozenset(names), node)
        integer = {self._last(d) for d in self.file.values.definitions(dtype)}
        if integer <= {"int32", "int64", "int8", "uint8", "bool", "long", "int16", "int"}:
            return known(INTEGER)
        follows = [d for d in self.file.values.definitions(dtype) if isinstance(d, ast.Attribute) and d.attr in ("dtype", "compute_dtype")]
        if follows and follows[0] is not dtype:
            return self._cast(node, follows[0], depth + 1)
        return NOTHING

    @staticmethod
    def _last(node: ast.AST) -> str:
        return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else str(getattr(node, "value", ""))

    def _function(self, node: ast.Call, path: str, depth: int) -> Precision:
        last = path.rpartition(".")[2]
        keras = keras_path(path)
        first = node.args[0] if node.args else argument(node, "input") or argument(node, "x")
        dtype = argument(node, "dtype")
        if last in ("cast", "to_float", "convert_to_tensor", "saturate_cast") and (keras is not None or path.startswith("tensorflow.")):
            target = dtype or (node.args[1] if len(node.args) > 1 else None)
            cast = self._cast(node, target, depth)
            return (
                cast if cast is not None else (self.of(first, depth + 1) if first is not None and last == "convert_to_tensor" else NOTHING)
            )
        if path.startswith("math.") or path in ("numpy.sqrt", "numpy.power", "numpy.log"):
            return known(SCALAR)
        if not path.startswith(("torch.", "tensorflow.", "numpy.")) and keras is None:
            return NOTHING
        if dtype is not None and (cast := self._cast(node, dtype, depth)) is not None:
            return cast
        if path.startswith("numpy."):
            return NOTHING
        if last in LIKE and first is not None:
            return self.of(first, depth + 1)
        if last in CONSTRUCTORS:
            return known("float32", node) if last not in ("tensor", "constant", "full", "eye") or self._is_float(node) else NOTHING
        if last in INTEGERS:
            return known(INTEGER)
        if path.startswith("torch."):
            if last in LOWER:
                return self._lower(node, [a for a in node.args if not isinstance(a, (ast.Constant, ast.Starred))], depth)
            if last in PROMOTED:
                return self._promoted(node, first, depth)
            if last == "where" and len(node.args) == 3:
                return promote([self.of(a, depth + 1) for a in node.args[1:]])
            if last in ("cat", "stack", "concat") and first is not None:
                return self.of(first, depth + 1)
            if path.startswith("torch.nn.") and last[:1].isupper():
                return NOTHING
        elif last in ("where", "cond") and len(node.args) == 3:
            return promote([self.of(a, depth + 1) for a in node.args[1:]])
        elif last in LOWER or last in PROMOTED:
            return self.of(first, depth + 1) if first is not None else NOTHING
        if last in SAME_DTYPE and first is not None:
            others = [
                a for a in node.args[1:2] if last in ("add", "multiply", "subtract", "divide", "maximum", "minimum", "mul", "sub", "div")
            ]
            return promote([self.of(first, depth + 1), *(self.of(o, depth + 1) for o in others)])
        return NOTHING

    def _is_float(self, node: ast.Call) -> bool:
        value = argument(node, "fill_value", 1) or (node.args[0] if node.args else None)
        constant = self.file.values.constant_or(value)
        return isinstance(constant, float)

    def _promoted(self, node: ast.AST, operand: ast.expr | None, depth: int) -> Precision:
        if (region := self.autocast(node)) is not None:
            return known("float32", region.because)
        return self.of(operand, depth + 1) if operand is not None and not self.in_region(node) else NOTHING

    def _method(self, node: ast.Call, func: ast.Attribute, depth: int) -> Precision:
        receiver, name = func.value, func.attr
        match name:
            case "half":
                return known("float16", node) if not node.args else NOTHING
            case "bfloat16" | "float" | "double":
                return known({"float": "float32", "double": "float64"}.get(name, name), node) if not node.args else NOTHING
            case "to" | "type" | "astype" | "type_as":
                return self._to(node, receiver, depth)
        if name in INTEGERS:
            return known(INTEGER)
        dtype = argument(node, "dtype")
        if dtype is not None and (cast := self._cast(node, dtype, depth)) is not None:
            return cast
        if name in LOWER:
            return self._lower(node, [receiver, *node.args], depth)
        if name in PROMOTED:
            return self._promoted(node, receiver, depth)
        if name in SAME_DTYPE or name in LIKE:
            return self.of(receiver, depth + 1)
        return self._module_call(node, depth)

    def _to(self, node: ast.Call, receiver: ast.expr, depth: int) -> Precision:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "type_as" and node.args:
            other = self.of(node.args[0], depth + 1)
            return other if other.only in FLOATS else known(FOLLOWS, node)
        for value in [argument(node, "dtype"), *node.args]:
            if value is None:
                continue
            cast = self._cast(node, value, depth)
            if cast is not None and cast is not NOTHING:
                return cast
            if isinstance(value, ast.Name) and cast is NOTHING and self._may_be_dtype(value):
                return NOTHING
        return self.of(receiver, depth + 1)

    def _may_be_dtype(self, value: ast.Name) -> bool:
        return "dtype" in value.id or "precision" in value.id or value.id in ("x", "other", "tensor")

    def _module_call(self, node: ast.Call, depth: int) -> Precision:
        """The output of a module called by name: a matmul-like one inside a region computes in half."""
        made = self.file.values.made_by(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else []
        kinds = {name.rpartition(".")[2] for _, name in made if name.startswith("torch.nn.")}
        if kinds and len(kinds) == len(made) and kinds <= LOWER_MODULES:
            if (region := self.autocast(node)) is not None:
                return region
            if node.args and (operand := self.of(node.args[0], depth + 1)).only in ("float16", "bfloat16"):
                return operand
        return NOTHING
