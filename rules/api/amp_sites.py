"""The deprecated homes of autocast and its family: the table, and every place where a program refers to one."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint import data
from mplint.python.names import Binding, position
from mplint.python.syntax import FUNCTIONS

from .version_tests import VersionTests

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.python.neighbors import Neighbors

NEW_ROOTS = (
    "torch.amp", "torch.autocast", "torch.GradScaler", "torch.get_autocast_dtype", "torch.set_autocast_dtype", "torch.is_autocast_enabled",
)  # fmt: skip
VERSION_TEST = re.compile(
    r"version|hasattr|getattr|torch_?\d|\btorch_[gl]|_TORCH_|(?i:greater|at_least|_ge_|_gte|new_amp|new_api|has_native)"
)
PROBES = {"hasattr", "getattr", "setattr", "delattr", "object", "patch", "replace", "register"}


class Symbol(NamedTuple):
    """A deprecated name and what stands for it: dotted names, the old parameters in positional order, the device it implies.

    `kind` is "autocast", "scaler", "custom" (takes `device_type=` by keyword), "cast" or "function" (device first, positions kept).
    """

    old: str
    new: str
    kind: str
    device: str
    params: tuple[str, ...] = ()
    new_in: str = "2.4"

    @property
    def tail(self) -> str:
        """The last part of the old name."""
        return self.old.rpartition(".")[2]


class Site(NamedTuple):
    """One expression that refers to a deprecated symbol.

    `use` says how: "call", "decorator", "partial" (first argument of functools.partial), "base", "annotation", "class" (isinstance,
    comparison, attribute of the class), "init" (`GradScaler.__init__` in a subclass) or "bare" (stored, passed).
    `bound` is the import that binds its root name, None where that is torch itself or unbound.
    """

    node: ast.Name | ast.Attribute
    symbol: Symbol
    use: str
    bound: Binding | None


@cache
def symbols() -> dict[str, Symbol]:
    """The deprecated names by dotted name, from data/amp_api.toml."""
    import tomllib
    from pathlib import Path

    table = tomllib.loads((Path(data.__file__).parent / "amp_api.toml").read_text(encoding="utf-8"))
    found: dict[str, Symbol] = {}
    for row in table["symbol"]:
        if "same_as" in row:
            found[row["old"]] = found[row["same_as"]]._replace(old=row["old"])
        elif "new" in row:
            device = row["old"].split(".")[1]
            tail = row["old"].rpartition(".")[2]
            kind = {"autocast": "autocast", "GradScaler": "scaler", "_cast": "cast"}.get(tail, "custom")
            since = row.get("new_in") or {"autocast": "1.10", "scaler": "2.3"}.get(kind, "2.4")
            found[row["old"]] = Symbol(row["old"], row["new"], kind, device, tuple(row["params"]), since)
    for row in table["function"]:
        match = re.fullmatch(r"([\w.]+)\('(\w+)'.*\)", row["replace"])
        if match is not None:
            found[row["old"]] = Symbol(row["old"], match[1], "function", match[2])
    return found


class OldAmp:
    """Where a file refers to the deprecated amp names: `sites` (expressions) and `imports` (statements that name them)."""

    def __init__(self, file: SourceFile, modules: Neighbors) -> None:
        self.file = file
        self.modules = modules
        self.version_tests = VersionTests(file, modules)
        self._fallbacks: dict[ast.AST, bool] = {}
        self._version_tests: dict[ast.expr, bool] = {}
        self._left_at: dict[int, int] = {}

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Every expression that refers to a deprecated symbol and is meant to, in source order; fallbacks are left out."""
        syntax, table = self.file.syntax, symbols()
        tails = {name.rpartition(".")[2] for name in table}
        local = {alias.asname or alias.name for statement in syntax.all(ast.ImportFrom) for alias in statement.names}
        starred = any(module in ("torch.cuda.amp", "torch.cpu.amp") for module in self.file.names.star_imports)
        found: list[Site] = []
        for attribute in syntax.all(ast.Attribute):
            if attribute.attr in tails and isinstance(attribute.ctx, ast.Load):
                found += self._site(attribute)
        for name in syntax.all(ast.Name):
            if (name.id in local or (starred and name.id in tails)) and isinstance(name.ctx, ast.Load):
                found += self._site(name)
        return tuple(sorted(found, key=lambda s: position(s.node)))

    @cached_property
    def imports(self) -> tuple[tuple[ast.ImportFrom, tuple[Symbol, ...]], ...]:
        """The `from … import` statements that name deprecated symbols, with those; fallbacks are left out."""
        table = symbols()
        found = []
        for statement in self.file.syntax.all(ast.ImportFrom):
            named = tuple(s for a in statement.names if not statement.level and (s := table.get(f"{statement.module}.{a.name}")))
            if named and not self.is_fallback(statement):
                found.append((statement, named))
        return tuple(found)

    def _site(self, node: ast.Name | ast.Attribute) -> Iterator[Site]:
        table = symbols()
        candidates = self.file.names.candidates(node)
        symbol = next((table[name] for name in candidates if name in table), None)
        if symbol is None or any(name.startswith(NEW_ROOTS) for name in candidates):
            return
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        reaching = self.file.names.reaching(root) if isinstance(root, ast.Name) else []
        bound = [b for b in reaching if b.target is not None and f"{symbol.old}.".startswith(f"{b.target}.")]
        if isinstance(node, ast.Name) and not bound and reaching:
            return  # an alias: the reference that it stands for is a site of its own
        use = self._use(node)
        if use == "probe" or self.is_fallback(node) or (bound and all(self.is_fallback(b.node) for b in bound)):
            return
        yield Site(node, symbol, use, bound[0] if bound and bound[0].target != "torch" else None)

    def _use(self, node: ast.expr) -> str:
        parent = self.file.syntax.parents[node]
        match parent:
            case ast.Call(func=func) if func is node:
                return "call"
            case ast.Call(func=func, args=[first, *_]) if first is node and self.file.names.resolve(func) == "functools.partial":
                return "partial"
            case ast.Call(func=func) if last_name(func) in PROBES:
                return "probe"
            case ast.Call(func=func) if last_name(func).lower().endswith(("isinstance", "issubclass", "cast")):
                return "class"
            case ast.keyword(arg="spec" | "spec_set" | "autospec" | "type"):
                return "class"
            case ast.FunctionDef() | ast.AsyncFunctionDef() if any(d is node for d in parent.decorator_list):
                return "decorator"
            case ast.ClassDef():
                return "base"
            case ast.Compare() | ast.Subscript() | ast.BinOp():
                return "annotation" if self._is_annotation(node) else "class"
            case ast.Attribute(attr=attr, ctx=ctx):
                if not isinstance(ctx, ast.Load):
                    return "probe"
                owner = self.file.syntax.enclosing_class(node)
                same = owner is not None and self.file.names.resolve(node) in self.file.names.base_names(owner)
                return "init" if attr == "__init__" and same else "class"
            case ast.Tuple() if isinstance(outer := self.file.syntax.parents[parent], (ast.Call, ast.Subscript)):
                if isinstance(outer, ast.Subscript) or last_name(outer.func).lower().endswith("isinstance"):
                    return "annotation" if self._is_annotation(node) else "class"
        if self._is_annotation(node):
            return "annotation"
        return "probe" if self.file.names.resolve(node) in self._patched else "bare"

    @cached_property
    def _patched(self) -> set[str | None]:
        """The dotted names that the program assigns to."""
        return {self.file.names.resolve(a) for a in self.file.syntax.all(ast.Attribute) if isinstance(a.ctx, ast.Store)}

    def _is_annotation(self, node: ast.AST) -> bool:
        child = node
        for parent in self.file.syntax.ancestors(node):
            if isinstance(parent, (ast.arg, ast.AnnAssign)):
                return parent.annotation is child
            if isinstance(parent, FUNCTIONS):
                return parent.returns is child
            if isinstance(parent, (ast.stmt, ast.Call)):
                return False
            child = parent
        return False

    def is_fallback(self, node: ast.AST) -> bool:
        """Whether `node` runs only where the new API is missing: an except arm or the other arm of a version check that has it."""
        passed: list[ast.AST] = []
        known = self._fallbacks.get(node)
        while known is None:
            passed.append(node)
            parent = self.file.syntax.parents.get(node)
            if parent is None:
                known = False
            elif self._is_other_arm(parent, node) or (isinstance(node, ast.stmt) and self._follows_new(node)):
                known = True
            else:
                node = parent
                known = self._fallbacks.get(node)
        self._fallbacks.update(dict.fromkeys(passed, known))
        return known

    def _is_other_arm(self, parent: ast.AST, child: ast.AST) -> bool:
        """Whether `child` is an arm of `parent` of which another one has the new API."""
        match parent:
            case ast.ExceptHandler():
                attempt = self.file.syntax.parents[parent]
                if not isinstance(attempt, (ast.Try, ast.TryStar)):
                    return False
                return self._prefers_new([*attempt.body, *attempt.orelse]) or self._prefers_own(attempt, parent)
            case ast.If(test=test, body=body, orelse=orelse) if child is not test and self._asks_version(test):
                inside = isinstance(child, ast.stmt) and self.file.syntax.block(child) is body
                if inside and not orelse and leaves(body):
                    return self._prefers_new(self._statements_after(parent))
                return self._prefers_new(orelse if inside else body)
            case ast.IfExp(test=test, body=one, orelse=other) if child is not test and self._asks_version(test):
                return self._prefers_new([other if child is one else one])
        return False

    def _statements_after(self, statement: ast.If) -> list[ast.stmt]:
        """What runs where an `if` that leaves its function does not hold."""
        block = self.file.syntax.block(statement)
        return block[next(n for n, item in enumerate(block) if item is statement) + 1 :]

    def _prefers_own(self, attempt: ast.Try | ast.TryStar, handler: ast.ExceptHandler) -> bool:
        """Whether the attempt imports from a module of the project, which is there, what the handler imports from torch."""
        second = {a.asname or a.name for s in handler.body if isinstance(s, ast.ImportFrom) for a in s.names}
        for statement in attempt.body:
            if isinstance(statement, ast.ImportFrom) and second & {a.asname or a.name for a in statement.names}:
                return self.modules.is_there(statement.module or "", statement.level)
        return False

    def _follows_new(self, statement: ast.stmt) -> bool:
        """Whether an earlier statement of its block has left the function with the new API."""
        block = self.file.syntax.block(statement)
        line = self._left_at.get(id(block))
        if line is None:
            line = self._left_at[id(block)] = next((s.lineno for s in block if self._returned_new(s)), sys.maxsize)
        return line < statement.lineno

    def _returned_new(self, statement: ast.stmt) -> bool:
        """Whether an earlier statement has left the function with the new API where that exists."""
        match statement:
            case ast.If(test=test, body=body) if leaves(body) and self._asks_version(test):
                return self._prefers_new(statement.body)
            case ast.Try(body=[*_, ast.Return()]):
                return self._prefers_new(statement.body)
        return False

    def _asks_version(self, test: ast.expr) -> bool:
        known = self._version_tests.get(test)
        if known is None:
            spelled = VERSION_TEST.search(self.file.text(test)) is not None
            known = self._version_tests[test] = spelled or self.version_tests.asks(test)
        return known

    def _prefers_new(self, block: list[ast.stmt] | list[ast.expr]) -> bool:
        for node in (n for item in block for n in ast.walk(item)):
            if isinstance(node, ast.ImportFrom):
                if any(f"{node.module}.{alias.name}".startswith(NEW_ROOTS) for alias in node.names):
                    return True
            elif isinstance(node, ast.Import):
                if any(alias.name.startswith("torch.amp") for alias in node.names):
                    return True
            elif isinstance(node, (ast.Name, ast.Attribute)) and any(n.startswith(NEW_ROOTS) for n in self.file.names.candidates(node)):
                return True
        return False


def leaves(block: list[ast.stmt]) -> bool:
    """Whether a block leaves its function on every way through it."""
    match block[-1] if block else None:
        case ast.Return() | ast.Raise():
            return True
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            return leaves(last) or (leaves(other or body) and all(leaves(handler.body) for handler in handlers))
        case ast.If(body=body, orelse=other):
            return leaves(body) and leaves(other)
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return leaves(body)
    return False


def last_name(node: ast.AST) -> str:
    """The last identifier of a dotted expression, "" for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
