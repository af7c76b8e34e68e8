"""The names of dtype policies: which calls set the global policy, and which names an expression may stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.frameworks.names import keras_path
from mplint.python.conditions import Guard, literals_of
from mplint.python.syntax import argument
from mplint.source.values import DTYPES, UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

DEFAULT = "float32"
SETTERS = ("set_global_policy", "set_policy", "set_dtype_policy")
TOKENS = (*SETTERS, "set_floatx")
MAKERS = ("Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy", "dtype_policies.get")
READERS = ("global_policy", "dtype_policy", "floatx", "get_global_policy")
MIXED = ("mixed_float16", "mixed_bfloat16")
COMPUTE = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16", UNKNOWN: UNKNOWN}


class Setter(NamedTuple):
    """A call that sets the global policy (or floatx): the value it is given, and the names that this value may be."""

    node: ast.Call
    kind: str
    value: ast.expr | None
    names: frozenset[str]


class PolicyState(NamedTuple):
    """What the global policy may be at a point of the program.

    `names` are the possible policy names ("?": computed); `setters` the calls that may have set it last. `undecided`: nothing in
    this file has set it on some way to the point, so that another file of the project may have. `certain`: one known name on every way.
    """

    names: frozenset[str]
    setters: tuple[ast.Call, ...] = ()
    undecided: bool = True

    @property
    def certain(self) -> bool:
        """Whether this file alone fixes the policy here."""
        return not self.undecided and len(self.names) == 1 and UNKNOWN not in self.names

    @property
    def compute_dtypes(self) -> frozenset[str]:
        """The dtypes in which a layer built here may compute."""
        return frozenset(compute_dtype(name) for name in self.names)


def compute_dtype(policy: str) -> str:
    """The dtype in which a layer under the policy called `policy` computes ("?" for an unknown one)."""
    return COMPUTE.get(policy) or DTYPES.get(policy, policy)


class PolicyNames:
    """Where one file names policies."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    @cached_property
    def setters(self) -> dict[ast.Call, Setter]:
        """The calls that set the global policy or floatx, in source order."""
        if not any(token in self.file.document.text for token in TOKENS):
            return {}
        found = {}
        for call in self.file.syntax.all(ast.Call):
            for name in self.file.names.candidates(call.func):
                path = keras_path(name)
                last = path.rpartition(".")[2] if path else ""
                if last in SETTERS or last == "set_floatx":
                    value = argument(call, "policy", 0) or argument(call, "value") or argument(call, "floatx")
                    names = frozenset(name for name, _ in self.named(value))
                    found[call] = Setter(call, "floatx" if last == "set_floatx" else "policy", value, names)
                    break
        return found

    def names(self, value: ast.expr | None) -> frozenset[str]:
        """The policy names that an expression (a name, a Policy object, a dtype) may stand for; "?" stands for any other."""
        return frozenset(name for name, _ in self.named(value))

    def named(self, value: ast.expr | None, depth: int = 0) -> Iterator[tuple[str, tuple[Guard, ...]]]:
        """The policy names that `value` may be, each with the conditions under which a conditional expression picks it."""
        if isinstance(value, ast.IfExp):
            for arm, guards in zip((value.body, value.orelse), literals_of(value.test), strict=True):
                for name, inner in self.named(arm, depth + 1):
                    yield name, (*guards, *inner)
            return
        if isinstance(value, ast.Name):
            reaching = self.file.names.reaching(value)
            if depth < 5 and len(reaching) == 1 and isinstance(reaching[0].value, (ast.IfExp, ast.Call)) and reaching[0].element is None:
                yield from self.named(reaching[0].value, depth + 1)
                return
        if isinstance(value, ast.Call) and (inner_name := self.made_from(value)) is not None and depth < 5:
            yield from self.named(inner_name, depth + 1)
            return
        definitions = self.file.values.definitions(value)
        if not definitions:
            yield UNKNOWN, ()
        for definition in definitions:
            for name in self.names_of(definition, depth):
                yield name, ()

    def names_of(self, node: ast.expr | ast.arg, depth: int) -> Iterator[str]:
        """The policy names that one defining expression may be."""
        setting = self.file.values.configuration.setting(node)
        if setting is not None and not isinstance(node, ast.arg):
            yield from (text or UNKNOWN for text in sorted(self.file.values.strings(node), key=str)) if setting.closed else (UNKNOWN,)
            return
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Constant(value=None):
                yield DEFAULT
            case ast.Subscript(value=ast.Dict(values=values)):
                for item in values:
                    yield from (name for name, _ in self.named(item, depth + 1))
            case ast.Call() if depth < 5 and (inner := self.made_from(node)) is not None:
                yield from (name for name, _ in self.named(inner, depth + 1))
            case ast.arg():
                yield UNKNOWN
                function = self.file.syntax.parents.get(self.file.syntax.parents[node])
                if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    default = self.file.values.default(function, node.arg)
                    if isinstance(default, ast.Constant) and isinstance(default.value, str):
                        yield default.value
            case ast.expr():
                fixed = self.file.values.constant_or(node)
                yield from {fixed} if isinstance(fixed, str) else self.file.values.dtypes(node)

    def made_from(self, call: ast.Call) -> ast.expr | None:
        """The name that a Policy constructor is given, or None where `call` makes no policy."""
        for name in self.file.names.candidates(call.func):
            path = keras_path(name)
            if path is not None and (path.endswith("dtype_policies.get") or path.rpartition(".")[2] in MAKERS):
                return argument(call, "name", 0) or argument(call, "identifier")
        return None

    def literal(self, value: ast.expr | None) -> ast.Constant | None:
        """The one string literal that the policy name comes from, also through a policy object; None where there are several or none."""
        definitions = self.file.values.definitions(value)
        found = definitions[0] if len(definitions) == 1 else None
        if isinstance(found, ast.Call):
            inner = self.made_from(found)
            return self.literal(inner) if inner is not None and inner is not value else None
        return found if isinstance(found, ast.Constant) and isinstance(found.value, str) else None

    def makes_policy(self, call: ast.Call) -> bool:
        """Whether `call` constructs a Policy or DTypePolicy."""
        return self.made_from(call) is not None

    def reads_policy(self, call: ast.Call) -> bool:
        """Whether `call` returns the current global policy or floatx."""
        return any((keras_path(name) or "").rpartition(".")[2] in READERS for name in self.file.names.candidates(call.func))
