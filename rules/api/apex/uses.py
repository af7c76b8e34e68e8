"""apex.amp in a program: where it is imported, what of it is used, and whether the program can do without it."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.python.definitions import Definitions
from mplint.python.names import position

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.rule import Surroundings

AMP = "apex.amp"
NATIVE = (
    "torch.cuda.amp", "torch.amp", "GradScaler", "NativeScaler", "torch.autocast", "accelerator.backward(", "accelerator.clip_grad_norm_(",
)  # fmt: skip


# Folders of a checkout in which a copy of apex may lie.
PARTS = ("third_party", "thirdparty", "external", "submodules", "vendor", "libs")
VENDORS = ("apex.", *(f"{part}.{inner}" for part in PARTS for inner in ("", "apex.")))


class Import(NamedTuple):
    """One import of apex.amp: the statement, the alias, and the name that it binds."""

    statement: ast.Import | ast.ImportFrom
    alias: ast.alias
    name: str


class Use(NamedTuple):
    """An expression that names something of apex.amp: `function` is its last part ("scale_loss"), "" for the module itself."""

    node: ast.Name | ast.Attribute
    function: str


class Apex:
    """What one file does with apex.amp."""

    def __init__(self, file: SourceFile, around: Surroundings) -> None:
        self.file = file
        self.targets, self.modules = around
        self.definitions = Definitions(file.syntax, file.names)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """The imports that need apex.amp to be there, in source order."""
        found = []
        for origin in self.file.syntax.all(ast.ImportFrom):
            source = "" if origin.level else origin.module or ""
            for alias in origin.names:
                if f"{source}.{alias.name}" == AMP or source == AMP or source.startswith(AMP + "."):
                    found.append(Import(origin, alias, alias.asname or alias.name))
        for statement in self.file.syntax.all(ast.Import):
            for alias in statement.names:
                if alias.name == AMP or alias.name.startswith(AMP + "."):
                    found.append(Import(statement, alias, alias.asname or alias.name.partition(".")[0]))
        return tuple(sorted(found, key=lambda i: position(i.statement)))

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """Every reference to apex.amp and what it holds, in source order; of `apex.amp.initialize` only the whole."""
        found = []
        nodes: list[ast.Name | ast.Attribute] = [*self.file.syntax.all(ast.Name), *self.file.syntax.all(ast.Attribute)]
        for node in nodes:
            if not isinstance(node.ctx, ast.Load) or not self._is_spelled(node):
                continue
            parent = self.file.syntax.parents.get(node)
            names = self.file.names.candidates(node)
            if isinstance(parent, ast.Attribute) and any(n == AMP for n in names):
                continue
            if any(n == AMP or n.startswith(AMP + ".") for n in names):
                found.append(Use(node, next(n for n in names if n.startswith(AMP))[len(AMP) + 1 :]))
        return tuple(sorted(found, key=lambda use: position(use.node)))

    @cached_property
    def flags(self) -> frozenset[str]:
        """The names that say whether apex is installed: true where its import went well and false elsewhere, or set by a probe."""
        set_true: set[str] = set()
        for item in self.imports:
            parent = self.file.syntax.parents[item.statement]
            if isinstance(parent, ast.Try) and item.statement in parent.body:
                set_true |= self._set_to((True,), [*parent.body, *parent.orelse])
                set_true |= self._set_to((False, None), [statement for handler in parent.handlers for statement in handler.body])
        values = {name: [b.value for b in found] for name, found in self.file.names.bindings.get(self.file.tree, {}).items()}
        found = {
            name
            for name in set_true
            if all(isinstance(v, ast.Constant) and (v.value is None or isinstance(v.value, bool)) for v in values.get(name, []))
        }
        found |= {name for name, given in values.items() if len(given) == 1 and given[0] is not None and probes_for_apex(given[0])}
        return frozenset(found)

    def _set_to(self, accepted: tuple[object, ...], statements: list[ast.stmt]) -> set[str]:
        """The names that statements set to one of these constants."""
        found = set()
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=given)) if given in accepted:
                    found.add(name)
        return found

    def _is_spelled(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether the root of an expression is one of the names that apex is imported under."""
        while isinstance(node, ast.Attribute):
            if not isinstance(node.value, (ast.Name, ast.Attribute)):
                return False
            node = node.value
        return node.id in self._roots

    @cached_property
    def _roots(self) -> set[str]:
        plain = {
            a.asname or "apex" for i in self.file.syntax.all(ast.Import) for a in i.names if a.name == "apex" or a.name.startswith("apex.")
        }
        return plain | {i.name for i in self.imports}

    @cached_property
    def is_vendored(self) -> bool:
        """Whether the project holds a copy of apex that has apex.amp: the program runs with that."""
        return any(self.modules.is_there(f"{home}{AMP}") for home in ("", *VENDORS))

    @cached_property
    def has_native_path(self) -> bool:
        """Whether the file can train with torch's own mixed precision too."""
        return any(word in self.file.document.text for word in NATIVE)

    def is_guarded(self, node: ast.AST) -> bool:
        """Whether the program goes on without apex: its import stands in a `try` whose handlers don't raise."""
        child = node
        for parent in self.file.syntax.ancestors(node):
            if isinstance(parent, ast.Try) and any(child is s for s in parent.body) and parent.handlers:
                return not any(isinstance(n, ast.Raise) for handler in parent.handlers for s in handler.body for n in ast.walk(s))
            child = parent
        return False

    def is_chosen(self, node: ast.AST) -> bool:
        """Whether a condition, or a function of its own, decides if this import runs at all."""
        return self.file.syntax.function(node) is not None or any(isinstance(p, ast.If) for p in self.file.syntax.ancestors(node))

    @cached_property
    def is_adapter(self) -> bool:
        """Whether apex is only used in functions or classes that are named after it, which the program may leave alone."""
        uses = [use for use in self.uses if use.function]
        return bool(uses) and all("apex" in self.file.syntax.qualname(self.file.syntax.statement(use.node)).lower() for use in uses)


def probes_for_apex(value: ast.expr) -> bool:
    """Whether an expression asks if apex can be imported: `find_spec("apex") is not None`."""
    return any(
        isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in ("find_spec", "find_loader")
        and any(isinstance(a, ast.Constant) and str(a.value).partition(".")[0] == "apex" for a in node.args)
        for node in ast.walk(value)
    )
