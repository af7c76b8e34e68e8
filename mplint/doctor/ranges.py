"""In which dtype the operations of a line ran, on which magnitudes, and what came of it: what a finding on numbers is judged by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mplint.doctor.uses import Judgment, often
from mplint.doctor.values import CASTING, FILLING, Ends, Place
from mplint.limits import HALF_MAX
from mplint.runs.record import Recorder, Run

SHOWN = 1000
BOUNDS = ("add", "addn", "sub", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "div", "reciprocal", "rsqrt")
LOGARITHMS = ("log", "log2", "log10", "log1p")
WRITTEN = ("scalar_tensor", "full", "lift_fresh", "new_full")  # operations that make a tensor of a number in the program
NUMBERS = ("mul", "masked_fill", "addcmul", *BOUNDS, *FILLING)
# Operations of which a finding of these rules may speak, by the beginnings of their names; where a line has none of them, all it has.
SPOKEN_OF: Mapping[str, tuple[str, ...]] = {
    "MP202": (
        *("softmax", "log_softmax", "exp", "logsumexp", "pow", "square", "norm", "linalg", "nll_loss", "mse_loss", "l1_loss", "smooth_l1"),
        *("huber", "binary_cross_entropy", "kl_div", "xlogy", "sigmoid", "quantile", "fft", "sparsesoftmax", "svd", "qr", *LOGARITHMS),
    ),
    "MP204": NUMBERS,
    "MP205": (*BOUNDS, *LOGARITHMS, "sqrt", "norm", "linalg", "normalize"),
}


class Range:
    """What an operation did at a line in a dtype: how often, and the ends of what it was given and gave.

    `infinite`, `undefined` and `zero` count the times that a result had an element that is infinite, no number, or zero; the first two
    only where all that is known of what it was given is finite.
    """

    __slots__ = ("infinite", "least", "most", "times", "undefined", "zero")

    def __init__(self) -> None:
        self.times = self.infinite = self.undefined = self.zero = 0
        self.least, self.most = math.inf, 0.0

    def add(self, given: Sequence[Ends], made: Ends) -> None:
        """The operation has run once more."""
        self.times += 1
        self.zero += made[0] == 0
        if all(math.isfinite(most) for _, most in given):
            self.infinite += math.isinf(made[1])
            self.undefined += math.isnan(made[1])
        for least, most in given:
            if math.isfinite(most):
                self.least, self.most = min(self.least, least), max(self.most, most)


class Ranges:
    """Counts the operations of the forward pass by line, name and dtype."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._found: dict[tuple[Place, str, str], Range] = {}

    def add(self, operation: str, dtype: str, place: Place | None, given: Sequence[Ends], made: Ends) -> None:
        """An operation has run."""
        name = operation.strip("_")
        if place is None or operation.rstrip("_") in CASTING or (len(self._found) >= SHOWN and (place, name, dtype) not in self._found):
            return
        found = self._found.get((place, name, dtype))
        if found is None:
            found = self._found[place, name, dtype] = Range()
        found.add(given, made)

    def end(self) -> None:
        """Tell what was counted."""
        rows = []
        for (place, name, dtype), found in self._found.items():
            ends = [found.least, found.most] if found.least <= found.most else None
            row = {"place": list(place), "operation": name, "dtype": dtype, "times": found.times, "given": ends}
            rows.append(row | {"infinite": found.infinite, "undefined": found.undefined, "zero": found.zero})
        self._recorder.fact("ranges", rows)


def judged(code: str, run: Run, path: str, lines: range, *, enough: bool, named: bool = False) -> Judgment | None:
    """What a run says of a finding on numbers at some lines; None where it has counted nothing there.

    `enough`: the run was long enough for what was not seen to count. `named`: only operations that the rule speaks of count.
    """
    counted = run.facts.get("ranges")
    found = [row for row in counted if row["place"][0] == path and row["place"][1] in lines] if isinstance(counted, list) else []
    spoken_of = [row for row in found if row["operation"].startswith(SPOKEN_OF[code])]
    rows = spoken_of if spoken_of or named else found
    half = [row for row in rows if row["dtype"] in HALF_MAX]
    if not rows:
        return None
    if not half:
        verdict = "refuted" if enough else "undecided"
        return Judgment(verdict, f"{_ran(rows)} here, {'each time ' if _times(rows) > 1 else ''}in {_dtypes(rows)}")
    broken = [row for row in half if row["infinite"] or row["undefined"]]
    written = next((row for row in broken if row["operation"].startswith(WRITTEN) and row["infinite"]), None)
    if written is not None:
        return Judgment("confirmed", f"a number that is written here became infinite in {written['dtype']}, {often(written['infinite'])}")
    if broken:
        return Judgment("confirmed", f"{_described(broken[0])}; {_outcome(broken[0])}")
    row = max(half, key=lambda row: row["times"])
    # What MP202 says is that this computes in half precision; the others say what becomes of a number there.
    verdict = "confirmed" if code == "MP202" else "undecided"
    return Judgment(verdict, f"{_described(row)}; nothing finite became infinite or not a number in these steps{_zeros(row)}")


def _times(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(row["times"] for row in rows)


def _ran(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(f"`{row['operation']}`" for row in rows))
    return f"{' and '.join(names[:2])}{f' and {len(names) - 2} more' if len(names) > 2 else ''} ran {often(_times(rows))}"


def _dtypes(rows: Sequence[Mapping[str, Any]]) -> str:
    return " or ".join(dict.fromkeys(row["dtype"] for row in rows))


def _described(row: Mapping[str, Any]) -> str:
    on = f", on magnitudes from {row['given'][0]:.3g} to {row['given'][1]:.3g}" if row["given"] else ""
    return f"{_ran([row])} here in {row['dtype']}{on}"


def _outcome(row: Mapping[str, Any]) -> str:
    found = [f"{each} {row[key]} of them" for key, each in (("infinite", "infinite in"), ("undefined", "not a number in")) if row[key]]
    return f"a result was {' and '.join(found)}{_zeros(row)}"


def _zeros(row: Mapping[str, Any]) -> str:
    return f", and held zeros in {row['zero']}" if row["zero"] and row["operation"].startswith(("exp", "softmax", "log_softmax")) else ""
