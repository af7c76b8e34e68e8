"""What speaks for float16 in a training loop, and for the Keras that the loop is written for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal, NamedTuple

from mplint.source.keras.version import keras_major
from mplint.source.values import UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

MIXED = "mixed_float16"
KERAS2_MODULES = ("tensorflow_addons", "tf_keras", "tensorflow.contrib", "tensorflow.compat.v1")
KERAS2_METHODS = ("get_scaled_loss", "get_unscaled_gradients")
KERAS3_METHODS = ("scale_loss",)


class Float16(NamedTuple):
    """Whether layers compute in float16 under a mixed policy.

    `level` is "certain", "maybe" (a condition decides), "open" (nothing here says; another file may) or "no".
    `setters` are the calls that set the policy.
    """

    level: Literal["certain", "maybe", "open", "no"]
    setters: tuple[ast.Call, ...] = ()


def float16_at(file: SourceFile, node: ast.AST) -> Float16:
    """What the program says about float16 where `node` runs."""
    state = file.keras.policy.policy_at(node)
    if state.certain:
        return Float16("certain", state.setters) if state.names == {MIXED} else Float16("no")
    if UNKNOWN in state.names:
        return Float16("no")
    if MIXED in state.names:
        return Float16("maybe", tuple(s for s in state.setters if MIXED in file.keras.policy.setters[s].names))
    return Float16("open") if not state.setters else Float16("no")


def loop_major(file: SourceFile) -> int | None:
    """2 or 3 where the targets, API that only one Keras has, or the loss-scaling methods in use decide; else None."""
    known = keras_major(file)
    if known is not None:
        return known
    found: set[int] = set()
    modules = [a.name for statement in file.syntax.all(ast.Import) for a in statement.names]
    modules += [f"{statement.module}.{a.name}" for statement in file.syntax.all(ast.ImportFrom) for a in statement.names]
    found |= {2 for module in modules if module.startswith(KERAS2_MODULES)}
    methods = {node.attr for node in file.syntax.all(ast.Attribute)}
    found |= {2 for method in KERAS2_METHODS if method in methods} | {3 for method in KERAS3_METHODS if method in methods}
    found |= {3} if '"KERAS_BACKEND"' in file.document.text.replace("'", '"') else set()
    return found.pop() if len(found) == 1 else None
