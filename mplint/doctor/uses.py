"""How often a program did at a line what a finding is about, and how often where it would be a mistake: what refutes one needs numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mplint.doctor.values import Place
from mplint.runs.record import Recorder, Run

PROBABILITIES = "binary cross entropy of probabilities"
FUNCTION = "autograd function"
BACKWARD = "its backward pass"
SCALED = "loss given to a scaler"
READ = "scaled loss that is read"
OPTIMIZER = "step of an optimizer"
SHOWN = 500


class Uses:
    """Counts what was done, by its kind and its place; `wrong`: where it would be a mistake."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: dict[tuple[str, Place], list[int]] = {}

    def add(self, kind: str, place: Place | None, *, wrong: bool) -> None:
        """Something was done."""
        if place is not None:
            count = self._counts.setdefault((kind, place), [0, 0])
            count[0] += 1
            count[1] += wrong

    def end(self) -> None:
        """Tell the counts."""
        counts = self._counts.items()
        rows = [{"kind": kind, "place": list(place), "times": times, "wrong": wrong} for (kind, place), (times, wrong) in counts]
        self._recorder.fact("uses", rows[:SHOWN])


class Count(NamedTuple):
    """How often something was done, and how often where it would be a mistake."""

    times: int
    wrong: int


def counted_in(run: Run, kind: str, at: Place | None = None, near: int = 0) -> Count | None:
    """What a run has counted at a place or at most `near` lines beside it, everywhere without one; None for a run that has not counted."""
    rows = run.facts.get("uses")
    if not isinstance(rows, list):
        return None
    found = [row for row in rows if row["kind"] == kind and (at is None or _beside(row["place"], at, near))]
    return Count(sum(row["times"] for row in found), sum(row["wrong"] for row in found))


def _beside(place: Sequence[Any], at: Place, near: int) -> bool:
    return bool(place[0] == at[0] and abs(place[1] - at[1]) <= near)


def refuted_loss(run: Run, at: Place, near: int) -> str:
    """Why a loss on probabilities at a line is none of autocast's, "" where the run does not say."""
    ran = counted_in(run, PROBABILITIES, at, near)
    if ran is None or not ran.times or ran.wrong:
        return ""
    return f"the loss was computed here {often(ran.times)}, never inside a region of autocast that is on"


def refuted_function(run: Run, at: Place, near: int) -> str:
    """Why an autograd function works as it stands, "" where the run does not say."""
    applied, back = counted_in(run, FUNCTION, at, near), counted_in(run, BACKWARD, at, near)
    if applied is None or back is None or not applied.times:
        return ""
    if not applied.wrong:
        return f"the function was applied {often(applied.times)}, never inside a region of autocast that is on"
    if not back.times:
        return ""
    return (
        f"the function was applied {often(applied.wrong)} inside a region of autocast,"
        f" and its backward pass ran {often(back.times)} without an error"
    )


def refuted_reading(run: Run, at: Place, near: int) -> str:
    """Why a loss that is read at a line is told as it is, "" where the run does not say."""
    scaled, read = counted_in(run, SCALED), counted_in(run, READ, at, near)
    if scaled is None or read is None:
        return ""
    if not scaled.wrong:
        given = f"{scaled.times} losses were given to a scaler that is disabled" if scaled.times else "no loss was given to a scaler"
        return f"{given}: none was multiplied by a scale in {len(run.steps)} steps"
    if read.times and not read.wrong:
        return f"the number was read here {often(read.times)}, each time beside the scale that it is divided by"
    return ""


class Judgment(NamedTuple):
    """What was counted at a line says of a finding: a verdict, and why."""

    verdict: str
    evidence: str


def judged_optimizer(run: Run, at: Place, *, enough: bool) -> Judgment | None:
    """What a run says of a finding on an optimizer over half parameters that is made at a line; None where none made there stepped."""
    ran = counted_in(run, OPTIMIZER, at)
    if ran is None or not ran.times:
        return None
    if ran.wrong:
        return Judgment("confirmed", f"the optimizer that is made here stepped {often(ran.wrong)} over parameters in float16")
    return Judgment("refuted" if enough else "undecided", f"the optimizer that is made here stepped {often(ran.times)}, never over float16")


def often(number: int) -> str:
    """A count in words: "once", "12 times"."""
    return "once" if number == 1 else f"{number} times"


# What tells from a run that a finding of a rule is wrong there: a function of the run, the place, and how far what is seen may lie from it.
REFUTING: Mapping[str, Callable[[Run, Place, int], str]] = {"MP206": refuted_loss, "MP208": refuted_function, "MP315": refuted_reading}
