"""What a policy asks for: the half dtype, what it can hold, and how far outputs may move."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from mplint.limits import BFLOAT16_MAX, FLOAT16_MAX

ASKED = "asked to stay float32"


class ConversionError(Exception):
    """A model that can't be converted: `str(error)` says why and what to do."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A precision policy for a model graph.

    `half` is "float16" or "bfloat16". `tolerance` is the largest error of an output that is accepted: max |y - y32| divided by max |y32|.
    """

    name: str
    half: str
    tolerance: float

    @property
    def largest(self) -> float:
        """The largest finite number of the half dtype."""
        return FLOAT16_MAX if self.half == "float16" else BFLOAT16_MAX


# bfloat16 keeps 8 bits of a number where float16 keeps 11, so its rounding errors are eight times as large.
POLICIES = {"mixed_float16": Policy("mixed_float16", "float16", 0.02), "mixed_bfloat16": Policy("mixed_bfloat16", "bfloat16", 0.08)}


def policy(name: str, tolerance: float | None = None) -> Policy:
    """The policy called `name`; raises ConversionError for an unknown one."""
    known = POLICIES.get(name)
    if known is None:
        raise ConversionError(f"unknown policy {name!r}: choose {' or '.join(POLICIES)}")
    return known if tolerance is None else Policy(known.name, known.half, tolerance)


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked of a conversion besides its policy.

    `keep` are names of nodes, op types or patterns of either that stay float32, `reasons` say of nodes by name why they stay so whatever
    was asked; `met` collects the names of nodes that were asked about. `ranges` are declared input ranges by name. `tell` is called with a
    few words whenever a new stage of the work begins.
    """

    keep: tuple[str, ...] = ()
    half_io: bool = False
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    tell: Callable[[str], None] = field(default=lambda _: None)
    reasons: Mapping[str, str] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)

    def stays(self, names: Collection[str]) -> str:
        """Why a node with these `names` is to stay float32; "" where nothing says so."""
        if self.keep:
            self.met.update(filter(None, names))
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.keep for name in names if name):
            return ASKED
        return next((self.reasons[name] for name in names if name in self.reasons), "")

    def check_keep(self) -> None:
        """Raise ConversionError for a pattern of `keep` that none of the nodes met has matched."""
        for pattern in self.keep:
            if not fnmatch.filter(self.met, pattern):
                raise ConversionError(f"--keep {pattern} names nothing in the model{nearest(pattern, self.met)}")


def nearest(name: str, known: Collection[str]) -> str:
    """What to add to a complaint about a name that is not known: the one that was probably meant."""
    found = get_close_matches(name, sorted(known), 1, 0.4)
    return f"; did you mean {found[0]}?" if found else ""
