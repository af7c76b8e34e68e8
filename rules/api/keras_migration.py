"""What to change so that removed Keras API becomes its stable counterpart, in one consistent step."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from mplint.findings import Applicability, Change, Fix, InsertStatements, RemoveImport, Replace, Span
from mplint.frameworks.names import keras_path
from mplint.python.definitions import Definitions
from mplint.python.syntax import argument, has_star

from .removed_names import EXPERIMENTAL, Reference, is_guarded, removed_references, table
from .version_tests import VersionTests

if TYPE_CHECKING:
    from mplint.python.file import SourceFile
    from mplint.rule import Surroundings
    from mplint.targets import Targets

TITLE = "use the stable `mixed_precision` API"
Changes = list[Change]


class Migration:
    """The fixes of one file's references to removed API.

    References that share an alias share one fix: rebinding the alias changes what every use of it means.
    """

    def __init__(self, file: SourceFile, around: Surroundings) -> None:
        self.file = file
        self.targets = around.targets
        self.tests = VersionTests(file, around.modules)
        self.definitions = Definitions(file.syntax, file.names)

    @cached_property
    def references(self) -> list[Reference]:
        """All references, in source order."""
        return removed_references(self.file)

    def fix(self, reference: Reference) -> Fix | None:
        """The change that makes the reference, and whatever hangs together with it, use the stable API; None where it is not exact."""
        binder = reference.binding or reference.binds
        if binder is None:
            changes = self.own_changes(reference)
        else:
            changes = self._together(binder)
        return stable_fix(changes, self.targets) if changes else None

    def _together(self, binder: ast.AST) -> Changes | None:
        group = [r for r in self.references if binder in (r.binding, r.binds)]
        owners = [r for r in group if r.binds is binder]
        if not owners or any(is_guarded(self.file, self.tests, r.node) for r in group) or any(self._is_shared(r, binder) for r in owners):
            return None
        renames = self._new_names(owners)
        changes: Changes = []
        if isinstance(binder, ast.ImportFrom):
            statement = self._import_changes(binder, owners, renames)
            if statement is None:
                return None
            changes += statement
        for reference in group:
            if reference.binds is not binder or not isinstance(binder, ast.ImportFrom):
                own = self.own_changes(reference)
                if own is None:
                    return None
                changes += own
            if reference.binding is binder and (new := renames.get(reference.alias)) is not None and isinstance(reference.node, ast.expr):
                changes.append(Replace(self.file.span(root_of(reference.node)), new))
        return changes

    def _is_shared(self, owner: Reference, binder: ast.AST) -> bool:
        """Whether some use of the alias may see another binding too, or the alias leaves the file's sight."""
        for name in self.file.syntax.all(ast.Name):
            if name.id == owner.bound and isinstance(name.ctx, ast.Load):
                nodes = [b.node for b in self.file.names.reaching(name)]
                if binder in nodes and len(nodes) > 1:
                    return True
        return False

    def _new_names(self, owners: list[Reference]) -> dict[str, str]:
        """New names for what an import binds under a name that is gone: experimental, set_policy."""
        found: dict[str, str] = {}
        bound = {name for names in self.file.names.bindings.values() for name in names}
        for owner in owners:
            if isinstance(owner.node, ast.alias) and owner.node.asname is None and isinstance(owner.binds, ast.ImportFrom):
                last = owner.path.rpartition(".")[2]
                new = "mixed_precision" if owner.path == EXPERIMENTAL else table().renamed.get(last)
                if new is not None and new not in bound:
                    found[owner.bound] = new
        return found

    def _import_changes(self, statement: ast.ImportFrom, owners: list[Reference], renames: dict[str, str]) -> Changes | None:
        module = statement.module or ""
        if module.startswith("tensorflow.python") or statement.level:
            return None
        span = self.file.span(statement)
        if owners[0].path == EXPERIMENTAL:
            bound = renames.get(owners[0].bound, owners[0].bound)
            line = f"from {module.rpartition('.')[0]} import mixed_precision" + ("" if bound == "mixed_precision" else f" as {bound}")
            if len(statement.names) == 1:
                return [Replace(span, line)]
            return [InsertStatements(span, (line,)), RemoveImport(span, "experimental")]
        changes: Changes = []
        if module.endswith(".experimental"):
            found = re.match(r"from[ \t]+" + re.escape(module) + r"\b", self.file.text(statement))
            if found is None:
                return None
            end = span.column + found.end()
            changes.append(Replace(Span(span.line, end - len(".experimental"), span.line, end), ""))
        for owner in owners:
            last = owner.path.rpartition(".")[2]
            if (owner.path.startswith(EXPERIMENTAL + ".") and owner.path != f"{EXPERIMENTAL}.{last}") or last not in table().stable:
                return None
            if (new := table().renamed.get(last)) is not None and isinstance(owner.node, ast.alias):
                asname = owner.node.asname or (None if owner.bound in renames else owner.bound)
                changes.append(Replace(self.file.span(owner.node), f"{new} as {asname}" if asname else new))
        return changes

    def own_changes(self, reference: Reference) -> Changes | None:
        """What must change at the reference itself; None where no exact counterpart is known."""
        node, path = reference.node, reference.path
        if isinstance(node, ast.alias):
            return self._alias_changes(reference, node)
        if keras_path(self.file.names.candidates(node)[0]) is None:
            return None
        changes: Changes = []
        if path.startswith(EXPERIMENTAL):
            tail = path[len(EXPERIMENTAL) + 1 :].split(".")[0]
            if tail not in table().stable and (tail or reference.binds is None):
                return None
            if reference.binding is None:
                removed = self._component(node, EXPERIMENTAL)
                if removed is None or "tensorflow.python" in self.file.text(node):
                    return None
                end, start = self.file.span(removed), self.file.span(removed.value)
                changes.append(Replace(Span(start.end_line, start.end_column, end.end_line, end.end_column), ""))
            named = self._component(node, f"{EXPERIMENTAL}.{tail}")
        elif reference.entry.use in ("mixed_precision.set_global_policy", "config.set_dtype_policy"):
            tail, named = path.rpartition(".")[2], self._component(node, path)
        else:
            return None
        new = table().renamed.get(tail) if path.startswith("mixed_precision") else reference.entry.use.rpartition(".")[2]
        if new is not None and named is not None:
            changes.append(Replace(last_token(self.file, named), new))
        call = self.file.syntax.parents[node]
        if isinstance(call, ast.Call) and call.func is node:
            given = self.argument_changes(call, tail)
            return None if given is None else changes + given
        return changes

    def _alias_changes(self, reference: Reference, alias: ast.alias) -> Changes | None:
        """The change of a plain `import …mixed_precision.experimental as name`."""
        if reference.path != EXPERIMENTAL or alias.name.startswith("tensorflow.python"):
            return None
        return [Replace(self.file.span(alias), alias.name.removesuffix(".experimental") + (f" as {alias.asname}" if alias.asname else ""))]

    def _component(self, node: ast.expr, path: str) -> ast.Attribute | None:
        """The part of a dotted expression that stands for `path`, where it is written as an attribute."""
        while isinstance(node, ast.Attribute):
            if any(keras_path(name) == path for name in self.file.names.candidates(node)):
                return node
            node = node.value
        return None

    def argument_changes(self, call: ast.Call, kind: str) -> Changes | None:
        """How the arguments of a Policy or LossScaleOptimizer call must change; None where that is not exact."""
        if kind not in ("Policy", "LossScaleOptimizer"):
            return []
        value = loss_scale_argument(call)
        if value is None:
            return None if has_star(call) else []
        found = self.definitions.of(value)
        given = found[0] if len(found) == 1 else None
        fixed = given.value if isinstance(given, ast.Constant) else ...
        if fixed == "dynamic" or (kind == "Policy" and fixed is None):
            return without_argument(self.file, call, value)
        if kind == "Policy" or given is None:
            return None
        new = self._loss_scale_keywords(given)
        if new is None:
            return None
        keyword = next((k for k in call.keywords if k.value is value), None)
        return [Replace(self.file.span(keyword or value), new)] if new else without_argument(self.file, call, value)

    def _loss_scale_keywords(self, value: ast.expr) -> str | None:
        """The keywords of the stable LossScaleOptimizer that mean the same as an old loss scale."""
        number = self.definitions.number(value)
        if number is not None:
            return f"dynamic=False, initial_scale={self.file.text(value)}" if self.targets.keras_major == 2 else None
        if not isinstance(value, ast.Call) or has_star(value):
            return None
        name = (self.file.names.resolve(value.func) or "").rpartition(".")[2]
        if name == "FixedLossScale" and self.targets.keras_major == 2 and (scale := argument(value, "loss_scale_value", 0)) is not None:
            return f"dynamic=False, initial_scale={self.file.text(scale)}"
        multiplier = argument(value, "multiplier", 2)
        if name != "DynamicLossScale" or (multiplier is not None and self.definitions.number(multiplier) != 2):
            return None
        scale, period = argument(value, "initial_loss_scale", 0), argument(value, "increment_period", 1)
        given = (("initial_scale", scale), ("dynamic_growth_steps", period))
        return ", ".join(f"{word}={self.file.text(item)}" for word, item in given if item is not None)


def stable_fix(changes: Sequence[Change], targets: Targets) -> Fix:
    """The fix that these changes make; only shown where the project supports a TensorFlow that lacks the stable names."""
    tensorflow = targets.tensorflow
    if tensorflow is not None and tensorflow.before("2.4"):
        return Fix(f"{TITLE} once the project needs TensorFlow 2.4 or newer", Applicability.DISPLAY, tuple(changes))
    return Fix(TITLE, Applicability.SAFE, tuple(changes))


def root_of(node: ast.expr) -> ast.expr:
    """The name at the start of a dotted expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def last_token(file: SourceFile, node: ast.Attribute) -> Span:
    """The place of the attribute's own name."""
    span = file.span(node)
    return Span(span.end_line, span.end_column - len(node.attr), span.end_line, span.end_column)


def loss_scale_argument(call: ast.Call) -> ast.expr | None:
    """The loss scale that a Policy or an old LossScaleOptimizer is given, or None."""
    return argument(call, "loss_scale", 1)


def without_argument(file: SourceFile, call: ast.Call, value: ast.expr) -> Changes | None:
    """Remove an argument and the comma before it; None where something else stands between."""
    given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=lambda a: (a.lineno, a.col_offset))
    at = next(i for i, item in enumerate(given) if item is value or (isinstance(item, ast.keyword) and item.value is value))
    before = file.span(given[at - 1])
    own = file.span(given[at])
    gap = Span(before.end_line, before.end_column, own.line, own.column)
    lines = file.lines[gap.line - 1 : gap.end_line]
    lines[-1] = lines[-1][: gap.end_column]
    lines[0] = lines[0][gap.column :]
    if at == 0 or "\n".join(lines).strip() != ",":
        return None
    return [Replace(Span(before.end_line, before.end_column, own.end_line, own.end_column), "")]
