"""What a policy asks for: the half dtype, what it can hold, and how far outputs may move."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from mplint.limits import BFLOAT16_MAX, FLOAT16_MAX

ASKED = "asked to stay float32"
QUANTIZERS = "NVIDIA modelopt or torchao do that, and what they leave in float32 can be converted here"


class ConversionError(Exception):
    """A model that can't be converted: `str(error)` says why and what to do."""


Metric = Callable[[dict[str, Any], dict[str, Any]], float]  # the error of a sample from the original's outputs and the result's


class Allowed(NamedTuple):
    """How far an output may move: by the `relative` part of its size or by `absolute`, whichever is more."""

    relative: float
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class Policy:
    """A precision policy for a model graph.

    `half` is "float16" or "bfloat16". `tolerance` is the largest error of an output that is accepted: max |y - y32| divided by max |y32|,
    or what a user's `metric` says. `allowed` says it of all outputs otherwise, `outputs` of some by their names; errors are then
    counted such that `tolerance` is the limit.
    """

    name: str
    half: str
    tolerance: float
    allowed: Allowed | None = None
    outputs: Mapping[str, Allowed] = field(default_factory=dict)
    metric: Metric | None = None

    @property
    def largest(self) -> float:
        """The largest finite number of the half dtype."""
        return FLOAT16_MAX if self.half == "float16" else BFLOAT16_MAX

    def of(self, output: str) -> Allowed:
        """How far an output may move."""
        return self.outputs.get(output) or self.allowed or Allowed(self.tolerance)


# bfloat16 keeps 8 bits of a number where float16 keeps 11, so its rounding errors are eight times as large.
POLICIES = {"mixed_float16": Policy("mixed_float16", "float16", 0.02), "mixed_bfloat16": Policy("mixed_bfloat16", "bfloat16", 0.08)}
Tolerance = float | str | Sequence[str] | None


class Asked(NamedTuple):
    """The policy that was asked for, if any, the half dtypes of layers by patterns, and the patterns of what stays float32."""

    name: str | None
    halves: tuple[tuple[str, str], ...] = ()
    keep: tuple[str, ...] = ()


def asked(words: Sequence[str]) -> Asked:
    """What `words` ask for: the name of a policy, and any number of patterns with a dtype ("*/head/*=bfloat16").

    Raises ConversionError for what is neither.
    """
    names, halves, keep = [], [], []
    for word in words:
        pattern, equals, dtype = word.rpartition("=")
        if word in POLICIES:
            names.append(word)
        elif equals and pattern and f"mixed_{dtype}" in POLICIES:
            halves.append((pattern, dtype))
        elif equals and pattern and dtype == "float32":
            keep.append(pattern)
        elif "float8" in word:
            raise ConversionError(f"--policy {word}: float8 needs scales that are calibrated, which is quantization: {QUANTIZERS}")
        else:
            known = (*POLICIES, *(f"{pattern or 'PATTERN'}={dtype}" for dtype in ("bfloat16", "float16", "float32")))
            raise ConversionError(f"--policy {word}: say {', '.join(known[:-1])} or {known[-1]}")
    if len(set(names)) > 1:
        raise ConversionError(f"--policy {' and '.join(names)}: a model has one policy; say of some of its layers PATTERN=bfloat16")
    return Asked(names[0] if names else None, tuple(halves), tuple(keep))


def policy(name: str, tolerance: Tolerance = None, metric: Metric | None = None, halves: Sequence[tuple[str, str]] = ()) -> Policy:
    """The policy called `name`; raises ConversionError for an unknown one, and for a tolerance that can't be read.

    Where some layers are to be another half dtype (`halves`), the wider of both tolerances is the default.

    `tolerance` is the relative error of all outputs, or words: "0.01", "abs=0.5", "rel=0.01,abs=1e-3", each behind the name of an output
    and a colon ("boxes:abs=2") if it is for that one.
    """
    known = POLICIES.get(name)
    if known is None:
        raise ConversionError(f"unknown policy {name!r}: choose {' or '.join(POLICIES)}")
    widest = max(known.tolerance, *(POLICIES[f"mixed_{half}"].tolerance for _, half in halves)) if halves else known.tolerance
    known = replace(known, tolerance=widest)
    if isinstance(tolerance, float | int):
        return replace(known, tolerance=float(tolerance), metric=metric)
    everywhere: Allowed | None = None
    outputs: dict[str, Allowed] = {}
    for text in (tolerance,) if isinstance(tolerance, str) else tolerance or ():
        output, colon, said = text.rpartition(":")
        if colon:
            outputs[output] = _allowed(said, text)
        else:
            everywhere = _allowed(said, text)
    limit = everywhere.relative if everywhere is not None and everywhere.relative else known.tolerance
    plain = everywhere is None or not everywhere.absolute
    return replace(known, tolerance=limit, allowed=None if plain else everywhere, outputs=outputs, metric=metric)


def _allowed(said: str, text: str) -> Allowed:
    found = {"rel": 0.0, "abs": 0.0}
    for part in said.split(","):
        key, equals, number = part.strip().rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        key = key if equals else "rel"
        if key not in found or not value > 0:
            raise ConversionError(f"--tolerance {text}: say 0.01, rel=0.01, abs=0.5, or OUTPUT:abs=0.5")
        if key == "rel" and value >= 1:
            raise ConversionError(f"--tolerance {text}: {value:g} is not between 0 and 1")
        found[key] = value
    return Allowed(found["rel"], found["abs"])


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked of a conversion besides its policy.

    `keep` are names of nodes, op types or patterns of either that stay float32, `reasons` say of nodes by name why they stay so whatever
    was asked; `met` collects the names of nodes that were asked about. `halves` are the half dtypes of nodes by such patterns, where they
    are to have another than the policy's: the last that fits counts. `ranges` are declared input ranges by name. `tell` is called with a
    few words whenever a new stage of the work begins, `warn` what speaks against it before it does. `condemned` says of a result that was
    not tried yet which of its nodes must not stand in it, by name, and why.
    """

    keep: tuple[str, ...] = ()
    half_io: bool = False
    halves: tuple[tuple[str, str], ...] = ()
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    tell: Callable[[str], None] = field(default=lambda _: None)
    warn: Callable[[str], None] = field(default=lambda _: None)
    reasons: Mapping[str, str] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    condemned: Callable[[Any], Mapping[str, str]] = field(default=lambda _: {})

    def stays(self, names: Collection[str]) -> str:
        """Why a node with these `names` is to stay float32; "" where nothing says so."""
        if self.keep or self.halves:
            self.met.update(filter(None, names))
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.keep for name in names if name):
            return ASKED
        return next((self.reasons[name] for name in names if name in self.reasons), "")

    def half_of(self, names: Collection[str], half: str) -> str:
        """The half dtype of a node with these `names`, where the policy's is `half`."""
        for pattern, other in reversed(self.halves):
            if any(fnmatch.fnmatchcase(name, pattern) for name in names if name):
                return other
        return half

    def check_keep(self) -> None:
        """Raise ConversionError for a pattern of `keep` or `halves` that none of the nodes met has matched."""
        given = [(f"--keep {pattern}", pattern) for pattern in self.keep]
        for said, pattern in (*given, *((f"--policy {pattern}={half}", pattern) for pattern, half in self.halves)):
            if not fnmatch.filter(self.met, pattern):
                raise ConversionError(f"{said} names nothing in the model{nearest(pattern, self.met)}")


def nearest(name: str, known: Collection[str]) -> str:
    """What to add to a complaint about a name that is not known: the one that was probably meant."""
    found = get_close_matches(name, sorted(known), 1, 0.4)
    return f"; did you mean {found[0]}?" if found else ""
