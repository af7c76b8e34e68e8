"""Whether a program runs on a TPU."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

CLASSES = ("TPUStrategy", "TPUStrategyV2", "TPUClusterResolver", "initialize_tpu_system")
HOMES = ("tensorflow.", "torch_xla.tpu.")


def tpu_calls(file: SourceFile) -> list[ast.Call]:
    """The calls that connect to a TPU or distribute over one, in source order."""
    found = []
    for call in file.syntax.all(ast.Call):
        for name in file.names.candidates(call.func):
            parts = name.split(".")
            if name.startswith(HOMES) and any(part in CLASSES for part in parts[-2:]):
                found.append(call)
                break
    return found


def depends_on_device(file: SourceFile, node: ast.AST) -> bool:
    """Whether a condition around `node` asks which device or strategy there is."""
    child = node
    for parent in file.syntax.ancestors(node):
        if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
            text = ast.unparse(parent.test).lower()
            if any(word in text for word in ("tpu", "gpu", "cuda", "strategy", "device", "accelerator", "resolver")):
                return True
        if isinstance(parent, (ast.ExceptHandler,)) or (
            isinstance(parent, ast.Try) and child not in parent.body and child not in parent.finalbody
        ):
            return True
        child = parent
    return False


def is_conditional(file: SourceFile, node: ast.AST) -> bool:
    """Whether `node` may be skipped: it stands in a branch or in a try that has handlers."""
    return any(
        isinstance(parent, (ast.If, ast.IfExp, ast.ExceptHandler)) or (isinstance(parent, ast.Try) and bool(parent.handlers))
        for parent in file.syntax.ancestors(node)
    )
