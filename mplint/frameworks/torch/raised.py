"""Casts to float32 that a region takes back: what it made half is cast, and goes into a product that it makes half again."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.frameworks.torch.promotion import HALVES
from mplint.program.machine import Machine
from mplint.program.values import ANY, BFLOAT, HALF, SINGLE, Autocast, Place, Tensor, Value, atoms

PARAMETER = "parameter"  # the tag of parameters
OF_LAYER = "parameter of a layer"  # the tag of those that torch's layers make
ASKED = "asked for in float32"  # tag: what nobody knows, cast so
RAISED = "raised at "  # beginning of a tag: where a tensor that a region made half was cast to float32, inside of it
MOVES = frozenset(
    [
        *("view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "contiguous", "expand", "movedim"),
        *("swapaxes", "repeat", "narrow", "select", "__getitem__", "chunk", "split", "unbind", "tensor_split"),
    ]
)
ARITHMETIC = frozenset({"sub", "div", "truediv"})  # of centered or scaled values, which a product takes next


def raised(m: Machine, before: Tensor, after: Value, place: Place) -> Value:
    """A cast tensor, with where it was cast if a region is entered whose half tensor is brought to float32."""
    if type(after) is not Tensor:
        return after
    kept = frozenset(tag for tag in after.tags if tag != ASKED and not tag.startswith(RAISED))
    entered = any(type(a) is Autocast and a.dtype in HALVES for a in atoms(m.state("autocast")))
    computed = bool(before.forward) and before.dtypes in (frozenset({HALF}), frozenset({BFLOAT}), frozenset({ANY}))
    if entered and after.dtypes == {SINGLE} and (computed or PARAMETER in before.tags):
        kept = kept | {f"{RAISED}{place.path}:{place.position}"}
    elif entered and after.dtypes == {SINGLE} and before.dtypes == {ANY}:
        kept = kept | {ASKED}
    return after.but(tags=kept)


def still_raised(short: str, tensors: Sequence[Tensor], letters: frozenset[str]) -> frozenset[str]:
    """The tags for such casts that the result of an operation still has."""
    if not tensors or letters != {SINGLE} or not (short in MOVES or short in ARITHMETIC):
        return frozenset()
    return frozenset(tag for tag in tensors[0].tags if tag == ASKED or tag.startswith(RAISED))


def all_raised(tensors: Sequence[Tensor]) -> bool:
    """Whether the first two factors of a product were cast so: what a region has computed, or what nobody knows beside a weight."""
    factors = tensors[:2]
    if len(factors) < 2:
        return False
    cast = [any(tag.startswith(RAISED) for tag in tensor.tags) for tensor in factors]
    weights = [PARAMETER in tensor.tags for tensor in factors]
    asked = any(ASKED in tensor.tags for tensor in factors) and any(map(all, zip(cast, weights, strict=True)))
    return asked or (all(cast) and not all(weights))
