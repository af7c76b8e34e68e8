"""The dtypes that an expression may have, and what arithmetic makes of them."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.source.values import UNKNOWN

# Dtypes beside the floating ones. A FOLLOWS tensor was cast to another tensor's dtype or to the layer's compute dtype, so that
# half arrives wherever the program runs in half; an INPUT tensor is the argument of a layer's call.
INTEGER, SCALAR, FOLLOWS, INPUT = "integer", "scalar", "follows", "input"


class Precision(NamedTuple):
    """The dtypes that an expression may have, and the node that shows it (a cast, an autocast, a policy)."""

    dtypes: frozenset[str]
    because: ast.AST | None = None

    @property
    def only(self) -> str:
        """The one dtype, or "?" where it is open."""
        return next(iter(self.dtypes)) if len(self.dtypes) == 1 else UNKNOWN


NOTHING = Precision(frozenset({UNKNOWN}))


def known(dtype: str, because: ast.AST | None = None) -> Precision:
    """A precision with one dtype."""
    return Precision(frozenset({dtype}), because)


def promote(operands: list[Precision]) -> Precision:
    """The dtype of arithmetic between tensors: the widest; scalars and integer tensors follow, an unknown makes it unknown."""
    strong = [p for p in operands if p.only not in (SCALAR, INTEGER)]
    if not strong:
        return operands[0] if operands and all(p.only == SCALAR for p in operands) else known(INTEGER) if operands else NOTHING
    if any(p.only == "float32" for p in strong):
        return known("float32")
    first = strong[0]
    return first if all(p.dtypes == first.dtypes for p in strong) else NOTHING


def join(found: list[Precision]) -> Precision:
    """What is common to several definitions: all of them, or unknown."""
    if not found:
        return NOTHING
    dtypes = frozenset(d for p in found for d in p.dtypes)
    because = next((p.because for p in found if p.because is not None), None)
    return Precision(dtypes, because)
