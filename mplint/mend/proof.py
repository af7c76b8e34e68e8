"""What a mended model is proven by, and the way in which a fix fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mplint.findings import Fix
from mplint.graph.model import ModelGraph

STAYS_BROKEN = "the original gives infinite or NaN outputs, and they stay so: mend that first, or give other inputs with --calibration"


class MendError(Exception):
    """A fix that this model does not allow, or that can't be proven on it: `str(error)` says why."""


class Proof(NamedTuple):
    """How far the outputs are from the original's, relative to their largest value, by what that was shown, and what is wrong.

    `broken`: where the original gives no numbers, or is further from float32 itself, they were held against what it gives in float32.
    """

    error: float
    verified: tuple[str, ...]
    problems: tuple[str, ...]
    broken: bool = False

    def __str__(self) -> str:
        whose = "what the original gives in float32, from which half leads it away" if self.broken else "the original's"
        far = f"outputs within {self.error:.2g} of {whose}" if self.error else f"outputs equal to {whose}"
        return f"{', '.join(self.verified)}: {far}"


class Candidate(Protocol):
    """A mended copy of a model that is not written."""

    def graph(self) -> ModelGraph:
        """The copy as rules see it, as if it lay in the place of the original."""
        ...

    def prove(self, *, exact: bool) -> Proof:
        """Hold it against the original, `exact`: bit for bit; raises MendError where nothing can be proven."""
        ...

    def save(self) -> None:
        """Put it in the place of the original; raises WriteError."""
        ...


class Original(Protocol):
    """A model that is to be mended."""

    def mended(self, passes: Sequence[Sequence[Fix]]) -> Candidate:
        """A copy with all the fixes, one pass after the other; raises MendError where one can't be carried out."""
        ...

    def close(self) -> None:
        """Take temporary files away."""
        ...
