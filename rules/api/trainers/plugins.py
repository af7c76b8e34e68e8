"""Precision plugin classes of Lightning under their old names: what MP110 knows of imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Change, Fix, Replace, Severity, Span
from mplint.python.file import SourceFile
from mplint.python.neighbors import Neighbors
from mplint.targets import Targets

from .spellings import Spelling

HOMES = ("lightning.pytorch.plugins", "pytorch_lightning.plugins", "lightning.plugins")
PUBLIC = (*HOMES, *(f"{home}.precision" for home in HOMES))  # modules within them are gone, or have other names
REMOVED = {"NativeMixedPrecisionPlugin": "MixedPrecision", "ApexMixedPrecisionPlugin": ""}  # in 2.0
RENAMED = {  # in 2.2
    "PrecisionPlugin": "Precision", "MixedPrecisionPlugin": "MixedPrecision", "HalfPrecisionPlugin": "HalfPrecision",
    "DoublePrecisionPlugin": "DoublePrecision", "DeepSpeedPrecisionPlugin": "DeepSpeedPrecision", "FSDPPrecisionPlugin": "FSDPPrecision",
    "FSDPMixedPrecisionPlugin": "FSDPPrecision", "XLAPrecisionPlugin": "XLAPrecision",
    "BitsandbytesPrecisionPlugin": "BitsandbytesPrecision", "TransformerEnginePrecisionPlugin": "TransformerEnginePrecision",
}  # fmt: skip
OTHER_SIGNATURE = ("FSDPMixedPrecisionPlugin",)


def plugins(file: SourceFile, targets: Targets, modules: Neighbors) -> Iterator[Spelling]:
    """The old names, each where it is imported or, through its module, used; not in Lightning's own sources."""
    if "Plugin" not in file.document.text or any(modules.is_there(home, 0) for home in HOMES):
        return
    pinned = targets.trainer("lightning")
    if pinned is not None and pinned.before("2.0"):
        return
    renamed = {} if pinned is not None and pinned.before("2.2") else RENAMED
    for statement in file.syntax.all(ast.ImportFrom):
        if not statement.level and (statement.module or "").startswith(HOMES):
            for alias in statement.names:
                if alias.name in REMOVED or alias.name in renamed:
                    new = REMOVED.get(alias.name) or renamed.get(alias.name, "")
                    yield _spelling(file, alias, alias.name, _renaming(file, alias, new) if statement.module in PUBLIC else ())
    for attribute in file.syntax.all(ast.Attribute):
        if attribute.attr in REMOVED or attribute.attr in renamed:
            names = file.names.candidates(attribute)
            if names and all(name.startswith(HOMES) for name in names):
                end = file.span(attribute)
                name = Span(end.end_line, end.end_column - len(attribute.attr), end.end_line, end.end_column)
                new = REMOVED.get(attribute.attr) or renamed.get(attribute.attr, "")
                fits = new and attribute.attr not in OTHER_SIGNATURE
                yield _spelling(file, attribute, attribute.attr, (Replace(name, new),) if fits else ())


def _renaming(file: SourceFile, alias: ast.alias, new: str) -> tuple[Change, ...]:
    """The changes of an imported name: its import, and, where it has no other name there, every use."""
    if not new or alias.name in OTHER_SIGNATURE:
        return ()
    span = file.span(alias)
    changes: list[Change] = [Replace(Span(span.line, span.column, span.line, span.column + len(alias.name)), new)]
    if alias.asname is None:
        names = [name for name in file.syntax.all(ast.Name) if name.id == alias.name]
        if any(name.id == new for name in file.syntax.all(ast.Name)):
            return ()
        changes += [Replace(file.span(name), new) for name in names]
    return tuple(changes)


def _spelling(file: SourceFile, node: ast.AST, name: str, changes: tuple[Change, ...]) -> Spelling:
    removed = name in REMOVED
    why = "Lightning 2.0 removed the class: the import fails." if removed else "Lightning 2.2 renamed it and warns about the old name."
    new = REMOVED.get(name) or RENAMED.get(name, "")
    return Spelling(
        file.span(node),
        f"`{name}` was {'removed' if removed else f'renamed to `{new}`'}",
        why,
        f"Use `{new}`." if new else 'Use `precision="16-mixed"`, which needs no plugin.',
        Fix(f"use `{new}`", Applicability.SAFE, changes) if changes else None,
        Severity.ERROR if removed else None,
    )
