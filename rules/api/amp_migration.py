"""How references to the deprecated amp names become references to `torch.amp`, an import and its uses together."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.findings import AddImport, Applicability, Change, Fix, InsertStatements, RemoveImport, Replace, Span
from mplint.python.arguments import argument_start, set_keyword
from mplint.python.names import alternatives

from .amp_sites import OldAmp, Site, Symbol, last_name, symbols

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.targets import Targets

CAUTION = {Applicability.SAFE: 0, Applicability.UNSAFE: 1, Applicability.DISPLAY: 2}
MODULES = {"torch.cuda.amp": "torch.amp", "torch.cpu.amp": "torch.amp"}


DTYPES = ("torch.float16", "torch.half", "torch.bfloat16")


class Rewrite(NamedTuple):
    """The changes of one reference and how safe they are."""

    changes: tuple[Change, ...]
    applicability: Applicability = Applicability.SAFE


class Migration:
    """Fixes for one file. `fix(site)` and `import_fix(statement)` are None where the new API can't express the code."""

    def __init__(self, file: SourceFile, old: OldAmp, targets: Targets) -> None:
        self.file = file
        self.targets = targets
        self.old = old
        self._groups: dict[ast.stmt, tuple[frozenset[str], Fix | None]] = {}

    def fix(self, site: Site) -> Fix | None:
        """The fix of one reference: together with its import and the import's other uses where it has one of its own."""
        if site.bound is not None and isinstance(statement := site.bound.node, (ast.Import, ast.ImportFrom)):
            moved, fix = self._group(statement)
            if fix is not None and self._root(site) in moved:
                return fix
        rewrite = self._rewrite(site, None)
        return None if rewrite is None else self._as_fix(rewrite, [site.symbol])

    def import_fix(self, statement: ast.ImportFrom) -> Fix | None:
        """The fix of an import statement: the same as that of its uses; None where a deprecated name has to stay."""
        moved, fix = self._group(statement)
        named = {alias.asname or alias.name for alias in statement.names if f"{statement.module}.{alias.name}" in symbols()}
        return fix if named <= moved else None

    def _as_fix(self, rewrite: Rewrite, found: list[Symbol]) -> Fix:
        lacking = [s.new_in for s in found if self.targets.torch_lacks(s.new_in)]
        new = " and ".join(f"`{name}`" for name in dict.fromkeys(s.new for s in found))
        first = max(lacking, key=lambda version: [int(part) for part in version.split(".")], default="")
        title = f"Use {new}" + (f" once the project needs torch {first} or newer" if lacking else "")
        return Fix(title, Applicability.DISPLAY if lacking else rewrite.applicability, tuple(dict.fromkeys(rewrite.changes)))

    def _root(self, site: Site) -> str:
        node: ast.expr = site.node
        while isinstance(node, ast.Attribute):
            node = node.value
        return node.id if isinstance(node, ast.Name) else ""

    def _group(self, statement: ast.Import | ast.ImportFrom) -> tuple[frozenset[str], Fix | None]:
        """The local names of an import that can move to torch.amp with all their uses, and the fix that moves them."""
        if statement not in self._groups:
            self._groups[statement] = self._build(statement)
        return self._groups[statement]

    def _build(self, statement: ast.Import | ast.ImportFrom) -> tuple[frozenset[str], Fix | None]:
        moved: list[ast.alias] = []
        dropped: list[ast.alias] = []
        rewrites: list[Rewrite] = []
        found: list[Symbol] = []
        for alias in statement.names:
            target = f"{statement.module}.{alias.name}" if isinstance(statement, ast.ImportFrom) else alias.name
            symbol = symbols().get(target)
            local = alias.asname or alias.name
            if symbol is None and (target not in MODULES or "." in local):
                continue
            renamed = symbol is not None and symbol.kind in ("function", "cast")
            uses = self._uses(statement, local)
            if uses is None or (symbol is None and not uses):
                continue
            parts = [self._rewrite(site, None if renamed else local) for site in uses]
            if any(part is None for part in parts):
                continue
            (dropped if renamed else moved).append(alias)
            rewrites += [part for part in parts if part is not None]
            found += [symbol] if symbol is not None else [site.symbol for site in uses]
        header = self._header(statement, moved, dropped) if moved or dropped else None
        if header is None:
            return frozenset(), None
        worst = max((r.applicability for r in rewrites), key=CAUTION.__getitem__, default=Applicability.SAFE)
        changes = (*header, *(c for r in rewrites for c in r.changes))
        return frozenset(a.asname or a.name for a in (*moved, *dropped)), self._as_fix(Rewrite(changes, worst), found)

    def _uses(self, statement: ast.stmt, local: str) -> list[Site] | None:
        """The sites under the name that the import binds; None where something else uses or binds it too."""
        if self.file.document.path.endswith("__init__.py") or local in self._exported:
            return None
        by_root: dict[ast.AST, Site] = {}
        for site in self.old.sites:
            node: ast.AST = site.node
            while isinstance(node, ast.Attribute):
                node = node.value
            by_root[node] = site
        uses = []
        for name in self.file.syntax.all(ast.Name):
            if name.id == local and isinstance(name.ctx, ast.Load):
                reaching = self.file.names.reaching(name)
                if not any(b.node is statement for b in reaching):
                    continue
                others = [b for b in reaching if b.node is not statement]
                if name not in by_root or any(not isinstance(b.value, ast.Constant) for b in others):
                    return None
                uses.append(by_root[name])
        return uses

    @cached_property
    def _exported(self) -> set[str]:
        lists = [a.value for a in self.file.syntax.all(ast.Assign) if last_name(a.targets[0]) == "__all__"]
        return {n.value for value in lists for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str)}

    def _header(
        self, statement: ast.Import | ast.ImportFrom, moved: list[ast.alias], dropped: list[ast.alias]
    ) -> tuple[Change, ...] | None:
        """The changes of the import statement itself: some names move to torch.amp, some are needed no more."""
        span = self.file.span(statement)
        if isinstance(statement, ast.Import):
            starts = [self.file.span(alias) for alias in moved]
            return tuple(
                Replace(Span(s.line, s.column, s.line, s.column + len(a.name)), MODULES[a.name]) for a, s in zip(moved, starts, strict=True)
            )
        module = "torch" if statement.module in ("torch.cuda", "torch.cpu") else "torch.amp"
        if len(moved) == len(statement.names):
            match = re.match(rf"from[ \t]+({re.escape(statement.module or '')})\s", self.file.text(statement))
            if match is None:
                return None
            return (Replace(Span(span.line, span.column + match.start(1), span.line, span.column + match.end(1)), module),)
        names = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in moved)
        removed = [RemoveImport(span, alias.name) for alias in (*moved, *dropped)]
        return (*([InsertStatements(span, (f"from {module} import {names}",), after=True)] if moved else []), *removed)

    def _rewrite(self, site: Site, local: str | None) -> Rewrite | None:
        """The changes of one reference; `local` is the name that its import keeps, None where the reference spells out torch.amp."""
        node, symbol = site.node, site.symbol
        if any(isinstance(parent, ast.JoinedStr) for parent in self.file.syntax.ancestors(node)):
            return None
        callee, needed = self._callee(site, local)
        if callee is None:
            return None
        renamed: tuple[Change, ...] = (Replace(self.file.span(node), callee),) if callee != self.file.text(node) else ()
        parent = self.file.syntax.parents[node]
        device = self._quoted(symbol.device)
        made: tuple[Change, ...] | None
        match site.use, parent:
            case "call", ast.Call():
                made = self._arguments(parent, symbol, 0)
            case "partial", ast.Call():
                made = self._arguments(parent, symbol, 1)
            case "decorator", _ if symbol.kind in ("custom", "autocast"):
                end = self.file.span(node)[2:]
                made = (Replace(Span(*end, *end), f"(device_type={device})" if symbol.kind == "custom" else f"({device})"),)
            case (("annotation" | "class"), _) if symbol.kind in ("autocast", "scaler"):
                made = ()
            case "base", ast.ClassDef():
                return self._base(parent, site, local, (*needed, *renamed))
            case "bare", _ if symbol.kind != "cast":
                return self._bare(site, callee, needed)
            case "init", _:
                made = ()  # goes with the base class
            case _:
                return None
        return None if made is None else Rewrite((*needed, *renamed, *made))

    def _callee(self, site: Site, local: str | None) -> tuple[str | None, tuple[Change, ...]]:
        """How the reference is spelled afterwards, and the import that this needs."""
        tail = site.symbol.new.removeprefix("torch.")
        if local is not None:
            return (local if isinstance(site.node, ast.Name) else f"{local}.{tail.removeprefix('amp.')}"), ()
        if site.bound is None and self.file.names.resolve(self._root_node(site)) == "torch":
            return f"{self._root(site)}.{tail}", ()
        if site.bound is not None and len(self.file.names.reaching(self._root_node(site))) > 1:
            return None, ()
        bound = self.file.names.bindings.get(self.file.tree, {}).get("torch", [])
        if any(b.target != "torch" for b in bound):
            return None, ()
        return f"torch.{tail}", (() if bound else (AddImport("torch"),))

    def _root_node(self, site: Site) -> ast.Name:
        node: ast.expr = site.node
        while isinstance(node, ast.Attribute):
            node = node.value
        assert isinstance(node, ast.Name)
        return node

    def _arguments(self, call: ast.Call, symbol: Symbol, shift: int) -> tuple[Change, ...] | None:
        """The changes of the arguments that follow the first `shift`: the device comes first, every other one gets its name."""
        positional = call.args[shift:]
        starred = any(isinstance(a, ast.Starred) for a in call.args)
        if self._has_device(call, symbol, positional):
            return ()
        if any(k.arg in ("device", "device_type") for k in call.keywords) or (starred and symbol.kind not in ("scaler", "function")):
            return None
        if symbol.kind == "custom":
            return (set_keyword(self.file, call, "device_type", self._quoted(symbol.device)),)
        if symbol.kind == "cast":
            return (self._insert(positional[1], self._quoted(symbol.device), ""),) if len(positional) == 2 else None
        if symbol.kind != "function" and len(positional) > len(symbol.params):
            return None
        device, changes = self._quoted(symbol.device), []
        for index, value in enumerate(positional):
            name = "" if starred or symbol.kind == "function" else f"{self._parameter(call, symbol, index)}="
            changes.append(self._insert(value, device if index == 0 else "", name))
        if not positional and call.keywords:
            changes.append(self._insert(call.keywords[0], device, ""))
        elif not positional and shift:
            end = self.file.span(call.args[shift - 1])[2:]
            changes.append(Replace(Span(*end, *end), f", {device}"))
        elif not positional:
            line, column = self.file.span(call)[2:]
            changes.append(Replace(Span(line, column - 1, line, column - 1), device))
        return tuple(changes)

    def _parameter(self, call: ast.Call, symbol: Symbol, index: int) -> str:
        """The name of an argument: a dtype alone in the place of `enabled`, which the old class refuses, was meant for the dtype."""
        alone = index == 0 and len(call.args) == 1 and not any(keyword.arg == "dtype" for keyword in call.keywords)
        is_dtype = alone and symbol.kind == "autocast" and self.file.names.resolve(call.args[0]) in DTYPES
        return "dtype" if is_dtype else symbol.params[index]

    def _has_device(self, call: ast.Call, symbol: Symbol, positional: list[ast.expr]) -> bool:
        """Whether the arguments already are those of the new API, the device among them."""
        match symbol.kind, positional:
            case (("autocast" | "scaler"), [ast.Constant(value=str(text))]):
                return text.partition(":")[0] in ("cuda", "cpu")
            case (("autocast" | "custom"), []):
                return any(k.arg == "device_type" for k in call.keywords)
            case "scaler", []:
                return any(k.arg == "device" for k in call.keywords)
        return False

    def _insert(self, value: ast.expr | ast.keyword, first: str, name: str) -> Replace:
        """Put an argument before `value` (on a line of its own where `value` has one) and give `value` its name."""
        line, column = argument_start(self.file, value)
        before = self.file.lines[line - 1][:column]
        separator = "" if not first else ", " if before.strip() else f",\n{before}"
        return Replace(Span(line, column, line, column), f"{first}{separator}{name}")

    def _base(self, owner: ast.ClassDef, site: Site, local: str | None, changes: tuple[Change, ...]) -> Rewrite | None:
        """A subclass: its base moves, and so do the arguments it hands to the base's `__init__`."""
        symbol = site.symbol
        if symbol.kind not in ("autocast", "scaler") or owner.keywords:
            return None
        found = list(changes)
        calls = [c for c in self.file.syntax.all(ast.Call) if self.file.syntax.enclosing_class(c) is owner]
        inits = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "__init__"]
        by_node = {site.node: site for site in self.old.sites}
        for call in inits:
            assert isinstance(call.func, ast.Attribute)
            holder = call.func.value
            if isinstance(holder, ast.Call) and last_name(holder.func) == "super":
                made = self._arguments(call, symbol, 0)
            elif isinstance(holder, (ast.Name, ast.Attribute)) and holder in by_node and call.args:
                made = self._arguments(call, symbol, 1)
                if isinstance(holder, ast.Attribute):
                    renamed, needed = self._callee(by_node[holder], local if self._root(by_node[holder]) == self._root(site) else None)
                    found += [*needed, Replace(self.file.span(holder), renamed or "")]
            else:
                continue
            if made is None:
                return None
            found += made
        own = any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in owner.body)
        by_position = any(c.args and self.file.names.local_function(c.func) is owner for c in self.file.syntax.all(ast.Call))
        if (symbol.kind == "autocast" and not (own and inits)) or (by_position and not own):
            return None
        return Rewrite(tuple(found), Applicability.SAFE if own else Applicability.UNSAFE)

    def _bare(self, site: Site, callee: str, needed: tuple[Change, ...]) -> Rewrite | None:
        """A reference that is stored or passed: what calls it later must find the device filled in."""
        symbol = site.symbol
        device = self._quoted(symbol.device)
        given = f"device_type={device}" if symbol.kind == "custom" else device
        partial = self._local("functools.partial")
        imports = () if partial or self._local("functools") else (AddImport("functools"),)
        text = f"{partial or self._local('functools', 'functools') + '.partial'}({callee}, {given})"
        changes = (*imports, *needed, Replace(self.file.span(site.node), text))
        called, safe = False, True
        for name in self.file.syntax.all(ast.Name):
            if isinstance(name.ctx, ast.Load) and name is not site.node and self._holds(name, site.node):
                used = self.file.syntax.parents[name]
                called = isinstance(used, ast.Call) and used.func is name
                if isinstance(used, ast.Call) and called and used.args and symbol.kind == "autocast":
                    return None
                safe = safe and called
        return Rewrite(changes, Applicability.SAFE if called and safe else Applicability.UNSAFE)

    def _holds(self, name: ast.Name, node: ast.expr) -> bool:
        """Whether a variable may hold what `node` stands for."""
        values = [b.value for b in self.file.names.reaching(name) if b.value is not None and b.element is None]
        return any(arm is node for value in values for arm in alternatives(value))

    def _local(self, target: str, default: str = "") -> str:
        """The module-level name that is bound to `target`, else `default`."""
        table = self.file.names.bindings.get(self.file.tree, {})
        return next((name for name, found in table.items() if len(found) == 1 and found[0].target == target), default)

    def _quoted(self, text: str) -> str:
        return f"{self._quote}{text}{self._quote}"

    @cached_property
    def _quote(self) -> str:
        """The quotes that most strings of the file have."""
        single = double = 0
        for node in self.file.syntax.all(ast.Constant):
            if isinstance(node.value, str) and node.lineno == node.end_lineno:
                text = self.file.text(node).lstrip("rRbBuUfF")
                single += text.startswith("'") and not text.startswith("'''")
                double += text.startswith('"') and not text.startswith('"""')
        return "'" if single > double else '"'
