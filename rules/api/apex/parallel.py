"""What apex.parallel held, which went with apex.amp: torch's own data parallelism and synchronized batch norm in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Change, Replace
from mplint.python.arguments import drop_argument
from mplint.python.file import SourceFile
from mplint.python.syntax import has_star

from .uses import Import

HOME = "apex.parallel"
TORCH = {
    "DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "convert_syncbn_model": "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
}


def parallel_changes(file: SourceFile) -> tuple[list[Change], list[Import], set[int]]:
    """The changes, the imports that nothing needs any more, and the ids of the references that are gone.

    A name is left alone as a whole where one of its uses has no counterpart.
    """
    changes: list[Change] = []
    unneeded: list[Import] = []
    gone: set[int] = set()
    for name, replacement in TORCH.items():
        uses = list(references(file, f"{HOME}.{name}"))
        calls = [(use, file.syntax.parents[use]) for use in uses]
        if not uses or not all(isinstance(c, ast.Call) and c.func is use and is_plain(file, name, c) for use, c in calls):
            continue
        for use, call in calls:
            changes.append(Replace(file.span(use), replacement))
            gone |= {id(n) for n in ast.walk(use)}
            if isinstance(call, ast.Call):
                changes += [delayed(file, call, keyword) for keyword in call.keywords]
        for statement in file.syntax.all(ast.ImportFrom):
            for alias in statement.names:
                if not statement.level and statement.module == HOME and alias.name == name:
                    unneeded.append(Import(statement, alias, alias.asname or alias.name))
    return changes, unneeded, gone


def delayed(file: SourceFile, call: ast.Call, keyword: ast.keyword) -> Change:
    """What becomes of `delay_allreduce`, which allows for parameters that get no gradient."""
    if isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
        return Replace(file.span(keyword), "find_unused_parameters=True")
    return drop_argument(file, call, keyword.value)


def references(file: SourceFile, name: str) -> Iterator[ast.Name | ast.Attribute]:
    """The expressions that can be something of apex, the outermost ones."""
    last = name.rpartition(".")[2]
    nodes: list[ast.Name | ast.Attribute] = [*file.syntax.all(ast.Attribute), *file.syntax.all(ast.Name)]
    for node in nodes:
        if isinstance(node.ctx, ast.Load) and name in file.names.candidates(node):
            inside = file.syntax.parents[node]
            if not (isinstance(inside, ast.Attribute) and inside.attr == last):
                yield node


def is_plain(file: SourceFile, name: str, call: ast.Call) -> bool:
    """Whether a call has nothing but what torch takes too: the model, and `delay_allreduce` as a constant."""
    if file.names.candidates(call.func) != (f"{HOME}.{name}",) or len(call.args) != 1 or has_star(call):
        return False
    if not call.keywords:
        return True
    (first, *others) = call.keywords
    known = isinstance(first.value, ast.Constant) and isinstance(first.value.value, bool)
    return name == "DistributedDataParallel" and not others and first.arg == "delay_allreduce" and known
