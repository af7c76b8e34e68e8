"""What a watched run says: each symptom as a rule's code, a place and numbers, and a verdict on every finding of `check`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mplint.findings import Finding
from mplint.graph.model import HALF
from mplint.runs.record import Event, Run

NEAR = 3  # lines that a finding and what is seen of it may lie apart: a call over several lines
ENOUGH = 10  # steps after which what was not seen at a place counts against a finding
MANY_SKIPPED = 0.2
LOST = 0.05  # part of the gradients of a layer that float16 makes zero
FULL = 0.5  # part of the range that is used, from which a value is near to overflow

# What happens in a loop: the rule that it breaks, and the sentence that tells it, with the numbers of the event.
PROTOCOL: Mapping[str, tuple[str, str]] = {
    "clip-before-unscale": (
        "MP304",
        "gradients are clipped while they are scaled: their norm was {norm:.3g}, {real:.3g} without the scale of {scale:g};"
        " the limit is {limit:g}",
    ),
    "unscaled-step": ("MP302", "the optimizer steps on gradients that are still multiplied by {scale:g}"),
    "step-past-scaler": ("MP302", "the optimizer steps past the scaler, which would skip a step whose gradients are not finite"),
    "missing-loss-scaling": ("MP301", "the optimizer steps after a backward pass through float16 without a loss scale"),
    "backward-inside-autocast": ("MP305", "the backward pass runs inside a region of autocast"),
    "step-inside-autocast": ("MP311", "the optimizer steps inside a region of autocast"),
    "backward-after-unscale": ("MP310", "gradients multiplied by {scale:g} are added to those that were unscaled before"),
    "backward-without-scale": ("MP301", "a loss goes backward without the scale of {scale:g} that the step will divide by"),
    "scaler-recreated": (
        "MP312",
        "a scaler is made anew while training goes on ({times:g} times so far): it forgets its scale of {scale:g}",
    ),
    "scaler-with-bfloat16": ("MP306", "a GradScaler scales losses of bfloat16 regions, which need none"),
    "scaler-without-autocast": ("MP309", "a GradScaler scales by {scale:g}, and nothing ran under autocast"),
    "scaler-not-saved": ("MP307", "a checkpoint holds the optimizer and not the scaler, whose scale is {scale:g}"),
    "scaled-loss-overflows": ("MP202", "a float16 loss of {loss:.4g} times the scale of {scale:g} is more than float16 holds"),
    "every-step-skipped": ("MP303", "ten steps in a row were skipped, at last with a scale of {scale:g}"),
    "constant-becomes-zero": ("MP205", "{value:g} is 0 in {dtype}"),
    "constant-becomes-infinite": ("MP204", "{value:g} is infinite in {dtype}"),
}
SINGULAR = ("log", "log2", "log10", "div", "reciprocal", "rsqrt")  # operations that zero makes infinite
# Errors of torch that tell a mistake: what they say, and the rule.
ERRORS: tuple[tuple[str, str], ...] = (
    ("step() has already been called since the last update", "MP303"),
    ("unscale_() has already been called", "MP310"),
    ("unscale_() is being called after step", "MP303"),
    ("No inf checks were recorded", "MP302"),
    ("Attempted step but _scale is None", "MP301"),
    ("Attempted unscale_ but _scale is None", "MP301"),
    ("Attempted update but _scale is None", "MP301"),
    ("Attempting to unscale FP16 gradients", "MP210"),
    ("cannot be converted to type at::Half without overflow", "MP204"),
    ("cannot be converted to type c10::Half without overflow", "MP204"),
    ("are unsafe to autocast", "MP206"),
    ("load_state_dict", "MP307"),
)
# Rules whose findings stand at another line than that where a run shows the mistake.
ELSEWHERE = ("MP303", "MP306", "MP307", "MP309", "MP312")
# The rules on which a run can decide: where their line ran and nothing was seen, nothing is wrong there.
DECIDED = frozenset(code for code, _ in PROTOCOL.values()) - {"MP202", "MP204", "MP205"}


class Diagnosis(NamedTuple):
    """Something wrong that a run has shown; `code` is "" where no rule tells it, `path` and `line` are None where the place is unknown."""

    kind: str
    code: str
    path: str | None
    line: int | None
    message: str
    details: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """A finding of `check` and what the run says of it: "confirmed", "refuted", "not reached" or "undecided"."""

    finding: Finding
    verdict: str
    evidence: str


class Report(NamedTuple):
    """Everything that a watched run has told."""

    run: Run
    diagnoses: tuple[Diagnosis, ...]
    verdicts: tuple[Verdict, ...]


def diagnose(run: Run, findings: Sequence[Finding]) -> Report:
    """What is wrong in a run, the gravest first, and what it says of the findings of `check` on the same program."""
    found = [*_broken(run), *_protocol(run), *_stopped(run), *_scaler(run), *_gradients(run), *_headroom(run)]
    reached = {(os.path.abspath(path), line) for path, line in _places(run.facts.get("reached"))}
    verdicts = tuple(_verdict(finding, found, reached, run) for finding in findings)
    return Report(run, tuple(dict.fromkeys(found)), verdicts)


def _broken(run: Run) -> Iterator[Diagnosis]:
    """Values that are no numbers, or infinite, where they first came about.

    What a scaler deals with is no mistake, what follows from one that is told is not told again, nor what a constant explains.
    """
    told = {(event.text("operation"), _place(event)) for event in run.events if event.kind == "constant-becomes-infinite"}
    for event in run.events:
        handled = event.text("phase") != "forward" and event.details.get("scaled") is True
        if event.kind not in ("nan", "inf") or handled:
            continue
        before = {(each.get("operation"), _place_in(each)) for each in _items(event, "chain")}
        here = event.text("operation"), _place(event)
        follows = here in told or bool(told & before)
        told.add(here)
        if not follows:
            what = "not a number" if event.kind == "nan" else "infinite"
            where = f" in {event.text('module')}" if event.text("module") else ""
            phase = "" if event.text("phase") == "forward" else " of the backward pass"
            message = (
                f"`{event.text('operation')}`{phase}{where} makes a {event.text('dtype')} value {what} (step {event.number('step'):g})"
            )
            yield Diagnosis(event.kind, _code_of(event), *_place(event), message, tuple(_history(event)))


def _code_of(event: Event) -> str:
    """The rule on an operation whose result leaves the range of a half dtype, "" where the dtype is not half or no rule is on it."""
    inputs = _items(event, "inputs")
    if event.kind == "nan" or (event.text("dtype") not in HALF and not any(each.get("dtype") in HALF for each in inputs)):
        return ""
    return "MP205" if any(each.get("least") == 0 for each in inputs) and event.text("operation") in SINGULAR else "MP211"


def _history(event: Event) -> Iterator[str]:
    for each in _items(event, "inputs"):
        yield f"from {each.get('dtype')}{each.get('shape')}, {_magnitudes(each)}"
    for each in _items(event, "chain"):
        place = each.get("place")
        at = f" at {os.path.relpath(str(place[0]))}:{place[1]}" if isinstance(place, list) else ""
        module = f" in {each['module']}" if each.get("module") else ""
        yield f"after `{each.get('operation')}`{module}{at}: {each.get('dtype')}, {_magnitudes(each)}"


def _magnitudes(each: Mapping[str, object]) -> str:
    return f"magnitudes {_number(each.get('least'))} to {_number(each.get('most'))}"


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def _items(event: Event, name: str) -> list[Mapping[str, object]]:
    value = event.details.get(name)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _place(event: Event) -> tuple[str | None, int | None]:
    return _place_in(event.details)


def _place_in(details: Mapping[str, object]) -> tuple[str | None, int | None]:
    place = details.get("place")
    return (str(place[0]), int(place[1])) if isinstance(place, list) and len(place) == 2 else (None, None)


def _protocol(run: Run) -> Iterator[Diagnosis]:
    for event in run.events:
        known = PROTOCOL.get(event.kind)
        if known is not None:
            yield Diagnosis(event.kind, known[0], *_place(event), known[1].format(**event.details))


def _stopped(run: Run) -> Iterator[Diagnosis]:
    error = run.text("error")
    if not error:
        return
    code = next((code for words, code in ERRORS if words in error), "")
    place, _, message = error.partition(": ")
    path, _, line = place.rpartition(":")
    known = line.isdecimal()
    yield Diagnosis("error", code, os.path.abspath(path) if known else None, int(line) if known else None, message if known else error)


def _scaler(run: Run) -> Iterator[Diagnosis]:
    later = run.steps[len(run.steps) // 2 :]  # a scale finds its size by skipping
    skipped = sum(1 for step in later if step.skipped)
    if len(later) >= ENOUGH and skipped > MANY_SKIPPED * len(later) and not any(e.kind == "every-step-skipped" for e in run.events):
        yield Diagnosis("skipped", "", None, None, f"the scaler skipped {skipped} of the last {len(later)} steps")


def _gradients(run: Run) -> Iterator[Diagnosis]:
    rows = run.facts.get("gradients")
    has_scale = any(step.scale is not None for step in run.steps)
    for row in rows if isinstance(rows, list) else ():
        name, number = str(row["name"]), max(1, int(row["number"]))
        if row["still"] > LOST * number:
            message = f"{row['still'] / number:.0%} of the updates of {name} are lost to rounding: its weights are kept in half precision"
            yield Diagnosis("update-lost", "MP210", None, None, message)
        elif row["lost"] > LOST * number and not has_scale and run.facts.get("operations", {}).get("float16"):  # type: ignore[attr-defined]
            message = f"{row['lost'] / number:.0%} of the gradients of {name} are too small for float16, and no loss scale lifts them"
            yield Diagnosis("gradient-lost", "MP301", None, None, message)
    unmoved, of = run.facts.get("unmoved"), run.facts.get("unmoved_of")
    if isinstance(unmoved, list) and isinstance(of, list) and unmoved and len(run.steps) > 1 and 0 < of[0] < of[1]:
        yield Diagnosis("unmoved", "", None, None, f"{of[0]} of {of[1]} parameters never move: {', '.join(map(str, unmoved[:4]))}")


def _headroom(run: Run) -> Iterator[Diagnosis]:
    rows = run.facts.get("headroom")
    for name, part in rows if isinstance(rows, list) else ():
        if FULL <= part <= 1:
            yield Diagnosis(
                "headroom", "", None, None, f"values of {name or 'the program'} reach {part:.0%} of what their half dtype holds"
            )


def _places(value: object) -> Iterator[tuple[str, int]]:
    for each in value if isinstance(value, list) else ():
        yield str(each[0]), int(each[1])


def _verdict(finding: Finding, found: Sequence[Diagnosis], reached: set[tuple[str, int]], run: Run) -> Verdict:
    at = os.path.abspath(finding.location.path), finding.location.line or 0
    for each in found:
        near = each.path is not None and os.path.abspath(each.path) == at[0] and abs((each.line or 0) - at[1]) <= NEAR
        if each.code == finding.code and (near or each.path is None or finding.code in ELSEWHERE):
            return Verdict(finding, "confirmed", each.message)
    files = run.facts.get("files")
    if isinstance(files, list) and at[0] not in files:
        return Verdict(finding, "not reached", "the run did not read this file")
    if at not in reached:
        return Verdict(finding, "not reached", "the run did not come by this line")
    if finding.code in DECIDED and len(run.steps) >= ENOUGH and not run.text("error"):
        return Verdict(finding, "refuted", f"the line ran, and {len(run.steps)} steps showed nothing of it")
    return Verdict(finding, "undecided", "the line ran; a run of this length can't tell")
