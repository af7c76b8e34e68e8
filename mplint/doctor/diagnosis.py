"""What a watched run says: each symptom as a rule's code, a place and numbers, and a verdict on every finding of `check`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mplint.doctor.ranges import SPOKEN_OF, judged
from mplint.doctor.uses import REFUTING, Judgment, judged_optimizer
from mplint.doctor.values import CASTING
from mplint.findings import Finding, Location
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
    "scaled-twice": ("MP308", "a loss is multiplied by the scale of {scale:g} a second time"),
    "penalty-without-scale": (
        "MP316",
        "gradients of a float16 pass are taken, to go backward through them, without the scale of {scale:g}",
    ),
    "scaled-gradients-changed": ("MP314", "`{operation}` joins gradients multiplied by {scale:g} with values that are not"),
    "integers-rounded": ("MP212", "integers up to {value:g} become {dtype}, which holds each only up to {exact:g}"),
    "shared-unscaled-twice": (
        "MP308",
        "gradients of {number:g} parameters that two optimizers share are divided by the scale of {scale:g} a second time",
    ),
    "scaled-outside-tape": ("MP302", "a loss is multiplied by the scale of {scale:g} where no tape sees it: it has no gradient"),
    "unscaled-loss-divided": ("MP313", "the optimizer divides gradients by {scale:g}, and the loss was not multiplied by it"),
    "unscaled-twice": ("MP308", "gradients that were divided by the scale of {scale:g} are divided by it once more when they are applied"),
    "scaled-gradients-clipped": ("MP314", "gradients multiplied by {scale:g} are clipped to a limit for gradients that are not"),
    "optimizer-scales-bfloat16": ("MP306", "the optimizer scales losses of layers that compute in bfloat16, which need none"),
    "output-in-half": ("MP201", "the output of the model, of layer {layer}, is {dtype}"),
    "input-in-half": ("MP203", "the model takes its input in {dtype}"),
    "scaled-loss-overflows": ("MP202", "a float16 loss of {loss:.4g} times the scale of {scale:g} is more than float16 holds"),
    "every-step-skipped": ("MP303", "ten steps in a row were skipped, at last with a scale of {scale:g}"),
    "constant-becomes-zero": ("MP205", "{value:g} is 0 in {dtype}"),
    "number-is-infinite": ("MP204", "a number of the program is more than {dtype} holds, and infinite there"),
    "constant-becomes-infinite": ("MP204", "{value:g} is infinite in {dtype}"),
}
# What a run shows that is no mistake by itself, but tells what a finding is about.
REMARKS: Mapping[str, tuple[str, str]] = {
    "scaled-value-read": ("MP304", "a value that is multiplied by the scale of {scale:g} is read by the program"),
    "scaled-loss-read": ("MP315", "the loss that is read is multiplied by the scale of {scale:g}"),
    "loss-on-probabilities": (
        "MP206",
        "binary cross entropy takes probabilities under autocast, {exact:g} of {number:g} of them exactly 0 or 1: on a GPU this raises",
    ),
}
# Mistakes that two rules tell, each in its way.
ALIKE = {
    "MP304": ("MP314",),
    "MP314": ("MP304",),
    "MP315": ("MP304",),
    "MP202": ("MP205", "MP211"),
    "MP205": ("MP202",),
    "MP105": ("MP210",),
    "MP211": ("MP202",),
}
SIZES = ("MP401", "MP402", "MP403")  # rules on sizes of products: a run sees the product, not whose size it is
SINGULAR = ("log", "log2", "log10", "div", "reciprocal", "rsqrt")  # operations that zero makes infinite
NUMBERS = ("MP204", "MP205")  # rules on a number, which may stand elsewhere than what computes with it
INFINITE = ("constant-becomes-infinite", "number-is-infinite")
GROWING = ("exp", "expm1", "exp2", "cosh", "sinh", "softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp", "pow")
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
    ("No gradients provided for any variable", "MP302"),
    ("has type float32 that does not match type float16", "MP209"),
    ("has type float16 that does not match type float32", "MP209"),
    ("to be a half tensor but is a float tensor", "MP209"),
    ("to be a float tensor but is a half tensor", "MP209"),
    ("load_state_dict", "MP307"),
)
DTYPES_MEET = re.compile(r"have the same dtype|expected scalar type")
OF_A_FUNCTION = "torch/autograd/function.py:apply"  # what calls the backward pass of an autograd function
API, HARDWARE = "MP1", ("MP404", "MP406", "MP5")  # families: how libraries are called, and on what devices a program runs
# Rules whose findings stand at another line than that where a run shows the mistake.
ELSEWHERE = ("MP208", "MP303", "MP306", "MP307", "MP309", "MP312", "MP315")
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
    """Everything that a watched run has told; `remarks` are no mistakes, but worth knowing."""

    run: Run
    diagnoses: tuple[Diagnosis, ...]
    verdicts: tuple[Verdict, ...]
    remarks: tuple[Diagnosis, ...] = ()


def diagnose(run: Run, findings: Sequence[Finding]) -> Report:
    """What is wrong in a run, the gravest first, and what it says of the findings of `check` on the same program."""
    found = [*_broken(run), *_protocol(run), *_stopped(run), *_scaler(run), *_gradients(run), *_headroom(run)]
    reached = {(os.path.abspath(path), line) for path, line in _places(run.facts.get("reached"))}
    remarks = [*_remarks(run), *_products(run)]
    spoken_of = {(each.code, os.path.abspath(each.location.path), each.location.line) for each in findings}
    verdicts = tuple(_verdict(each, _beside_others([*found, *remarks], each, spoken_of), reached, run) for each in findings)
    return Report(run, tuple(dict.fromkeys(found)), verdicts, tuple(dict.fromkeys(remarks)))


def _broken(run: Run) -> Iterator[Diagnosis]:
    """Values that are no numbers, or infinite, where they first came about.

    What a scaler deals with is no mistake, what follows from one that is told is not told again, nor what a constant explains.
    """
    told = {(event.text("operation"), _place(event)) for event in run.events if event.kind in INFINITE}
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
    name = event.text("operation").rstrip("_")
    if name in SINGULAR and any(each.get("least") == 0 for each in inputs):
        return "MP205"
    if name in CASTING:
        return "" if event.details.get("chain") else "MP203"
    square = name == "pow" and event.details.get("numbers") == [2.0]
    return "MP202" if name in GROWING and not square else "MP211"


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
    yield from _told(run, PROTOCOL)


def _remarks(run: Run) -> Iterator[Diagnosis]:
    yield from _told(run, REMARKS)


def _products(run: Run) -> Iterator[Diagnosis]:
    """Products in half precision whose sizes miss the Tensor Cores, each layer once, with its part of the work."""
    layers: dict[tuple[str, str | None, int | None], tuple[float, dict[str, None]]] = {}
    for row in _rows(run, "products"):
        if row["missed"]:
            made = row["made"] or row["place"] or (None, None)
            layer = (str(row["module"]), made[0], made[1])
            share, sizes = layers.get(layer, (0.0, {}))
            sizes[_sizes_of(row)] = None
            layers[layer] = share + row["share"], sizes
    for (module, path, line), (share, sizes) in sorted(layers.items(), key=lambda item: -item[1][0]):
        where = f" in {module}" if module else ""
        message = f"products of {', '.join(list(sizes)[:3])}{where}, {share:.0%} of the work: not all sizes are multiples of 8"
        yield Diagnosis("product-missed", SIZES[0], path, line, message)


def _rows(run: Run, name: str) -> list[Mapping[str, Any]]:
    value = run.facts.get(name)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _sizes_of(row: Mapping[str, Any]) -> str:
    return " x ".join(map(str, row["sizes"]))


def _told(run: Run, sentences: Mapping[str, tuple[str, str]]) -> Iterator[Diagnosis]:
    for event in run.events:
        known = sentences.get(event.kind)
        if known is not None:
            yield Diagnosis(event.kind, known[0], *_place(event), known[1].format(**event.details))


def _stopped(run: Run) -> Iterator[Diagnosis]:
    error = run.text("error")
    if not error:
        return
    whole = f"{error}\n{run.text('error_text')}"
    words, code = next(((words, code) for words, code in ERRORS if words in whole), ("", ""))
    calls = run.facts.get("error_calls")
    if not code and DTYPES_MEET.search(whole) and isinstance(calls, list) and any(str(call).endswith(OF_A_FUNCTION) for call in calls):
        code = "MP208"
    place, _, message = error.partition(": ")
    path, _, line = place.rpartition(":")
    if words and words not in message:
        message = next(told.strip() for told in whole.splitlines() if words in told)
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
    made = sum(1 for step in run.steps if not step.skipped)
    unmoved, of = run.facts.get("unmoved"), run.facts.get("unmoved_of")
    if isinstance(unmoved, list) and isinstance(of, list) and unmoved and of[0] and made >= (2 if of[0] < of[1] else ENOUGH):
        yield Diagnosis("unmoved", "", None, None, f"{of[0]} of {of[1]} parameters never move", tuple(_unmoved(unmoved)))


def _unmoved(rows: Sequence[object]) -> Iterator[str]:
    """Parameters that never move, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row, list):
            reasons.setdefault(str(row[1]), []).append(str(row[0]))
    for reason, names in reasons.items():
        yield f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}: {reason}"


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


def _beside_others(found: Sequence[Diagnosis], finding: Finding, spoken_of: set[tuple[str, str, int | None]]) -> list[Diagnosis]:
    """What may be told of a finding: not what the finding of another line says already."""
    line = finding.location.line or 0
    own = range(line, max(line, finding.location.end_line or 0) + 1)
    return [
        each
        for each in found
        if each.path is None or each.line in own or (each.code, os.path.abspath(each.path), each.line) not in spoken_of
    ]


def _verdict(finding: Finding, found: Sequence[Diagnosis], reached: set[tuple[str, int]], run: Run) -> Verdict:
    at = os.path.abspath(finding.location.path), finding.location.line or 0
    for each in found:
        near = each.path is not None and os.path.abspath(each.path) == at[0] and abs((each.line or 0) - at[1]) <= NEAR
        same = each.code == finding.code or (finding.code in SIZES and each.code == SIZES[0])
        if same and (near or each.path is None or finding.code in ELSEWHERE):
            return Verdict(finding, "confirmed", each.message)
    for each in found:
        near = each.path is not None and os.path.abspath(each.path) == at[0] and abs((each.line or 0) - at[1]) <= NEAR
        if near and each.code in ALIKE.get(finding.code, ()):
            return Verdict(finding, "confirmed", each.message)
    if finding.code.startswith(API) and (told := _told_by_libraries(found, run, at, finding.location.end_line or at[1])):
        return Verdict(finding, "confirmed", told)
    files = run.facts.get("files")
    if isinstance(files, list) and at[0] not in files:
        return Verdict(finding, "not reached", "the run did not read this file")
    if at not in reached:
        return Verdict(finding, "not reached", "the run did not come by this line")
    if finding.code in DECIDED and len(run.steps) >= ENOUGH and not run.text("error"):
        return Verdict(finding, "refuted", f"the line ran, and {len(run.steps)} steps showed nothing of it")
    refuting = REFUTING.get(finding.code)
    if refuting is not None and len(run.steps) >= ENOUGH and not run.text("error") and (why := refuting(run, at, NEAR)):
        return Verdict(finding, "refuted", why)
    if finding.code in SPOKEN_OF:
        return _number_at_a_line(finding, run)
    if finding.code in SIZES:
        return _sizes(finding, at, run)
    if finding.code == "MP207":
        return _cast(finding, at, run)
    return Verdict(finding, "undecided", _undecided(finding.code, run))


def _told_by_libraries(found: Sequence[Diagnosis], run: Run, at: tuple[str, int], end: int) -> str:
    """What a library said at the lines of a finding on how it is called: an error, or a warning; "" where it said nothing."""
    lines = range(at[1], max(at[1], end) + 1)
    for each in found:
        if each.kind == "error" and each.path is not None and os.path.abspath(each.path) == at[0] and each.line in lines:
            return each.message
    warned = (event for event in run.events if event.kind == "warned")
    here = (event for event in warned if (place := _place(event))[0] == at[0] and place[1] in lines)
    return next((event.text("message") for event in here), "")


def _undecided(code: str, run: Run) -> str:
    if code.startswith(API):
        return "the line ran, and the versions that are installed neither warned nor failed at it"
    if code.startswith(HARDWARE):
        return f"the line ran; what it says is of other devices than the {run.text('device') or 'CPU'} of this run"
    return "the line ran; a run of this length can't tell"


def _number_at_a_line(finding: Finding, run: Run) -> Verdict:
    """The verdict on a finding on numbers, by the operations at its lines, or at those that it names besides."""
    enough = len(run.steps) >= ENOUGH and not run.text("error")
    own, *besides = [place for place in (finding.location, *(each.location for each in finding.related)) if place.line is not None]
    told = _judged(finding.code, run, own, enough=enough)
    if told is not None:
        return Verdict(finding, *told)
    others = [told for place in besides if (told := _judged(finding.code, run, place, enough=enough, named=True)) is not None]
    confirmed = next((each for each in others if each.verdict == "confirmed"), None)
    if confirmed is not None:
        return Verdict(finding, *confirmed)
    if others and finding.code in NUMBERS and all(each.verdict == "refuted" for each in others):
        return Verdict(finding, *others[0])
    return Verdict(finding, "undecided", "the line ran, and no operation on numbers was seen at it in the steps that were looked at")


def _judged(code: str, run: Run, place: Location, *, enough: bool, named: bool = False) -> Judgment | None:
    path, line = os.path.abspath(place.path), place.line or 0
    told = judged(code, run, path, range(line, max(line, place.end_line or 0) + 1), enough=enough, named=named)
    return told if told is not None or code != "MP205" else judged_optimizer(run, (path, line), enough=enough)


def _sizes(finding: Finding, at: tuple[str, int], run: Run) -> Verdict:
    """The verdict on a size whose layer was seen in no product that misses the Tensor Cores."""
    ran = [row for row in _rows(run, "products") if isinstance(made := row.get("made"), list) and tuple(made) == at]
    if ran and all(row["dtype"] in HALF for row in ran):
        return Verdict(finding, "refuted", f"all products of this layer have sizes that are multiples of 8: {_shown(ran)}")
    if ran:
        return Verdict(finding, "undecided", f"the layer ran in {ran[0]['dtype']}: {_shown(ran)}")
    return Verdict(finding, "undecided", "the line ran, and no product of the layer was seen")


def _cast(finding: Finding, at: tuple[str, int], run: Run) -> Verdict:
    """The verdict on a cast by hand, by what the casts at its line gave to whom."""
    rows = [row for row in _rows(run, "casts") if tuple(row["place"]) == at]
    inside = [row for row in rows if row["inside"]]
    products = list(dict.fromkeys(name for row in inside for name in row["products"]))
    if products:
        taken = " and ".join(f"`{name}`" for name in products[:3])
        return Verdict(
            finding, "confirmed", f"{inside[0]['dtype']} that is made here goes into {taken}, which autocast gives that dtype itself"
        )
    if rows and not inside:
        return Verdict(finding, "refuted", f"the line made {rows[0]['dtype']} where no region of autocast of that dtype is on")
    return Verdict(finding, "undecided", "the line ran, and no product was seen to take what it casts")


def _shown(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(map(_sizes_of, rows[:4])))
