"""What speaks for float16 in a training loop, and for the Keras that the loop is written for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal, NamedTuple

from mplint.source.keras.policy import KerasPolicy
from mplint.source.values import UNKNOWN

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

MIXED = "mixed_float16"


class Float16(NamedTuple):
    """Whether layers compute in float16 under a mixed policy.

    `level` is "certain", "maybe" (a condition decides), "open" (nothing here says; another file may) or "no".
    `setters` are the calls that set the policy.
    """

    level: Literal["certain", "maybe", "open", "no"]
    setters: tuple[ast.Call, ...] = ()


def float16_at(file: SourceFile, node: ast.AST) -> Float16:
    """What the program says about float16 where `node` runs."""
    state = file.fact(KerasPolicy).policy_at(node)
    if state.certain:
        return Float16("certain", state.setters) if state.names == {MIXED} else Float16("no")
    if UNKNOWN in state.names:
        return Float16("no")
    if MIXED in state.names:
        return Float16("maybe", tuple(s for s in state.setters if MIXED in file.fact(KerasPolicy).setters[s].names))
    return Float16("open") if not state.setters else Float16("no")
