"""MP310: unscale_, step and update of a loss scaler come in an order, or as often, as the scaler forbids."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from mplint.findings import Applicability, Confidence, Finding, Fix, Severity
from mplint.frameworks.parts import is_chosen
from mplint.frameworks.torch import steps
from mplint.program.conditions import Condition, Path, extend
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import Place, State, Step
from mplint.rule import Rule

from .calls_in_order import left_out, moved_behind, moved_to_the_step
from .needless_scalers import or_left_out
from .taken_twice import of_other_scalers, plain_after_scaled
from .unscaled_step import bypassing, stepped_by_another


class ScalerMisordered(Rule):
    """unscale_, step and update of a scaler in the wrong order

    ## What it does
    Finds `unscale_` or `step` called a second time, or after `step`, before `update`; `update` between the steps of two optimizers, or
    while the gradients of another one accumulate; and `update` before any step, or where a batch was given up before its loss was
    scaled; a plain step of an optimizer that the scaler has just stepped; and calls of one of two scalers for what the other one has
    scaled or stepped. With gradient accumulation: `unscale_` on every micro-batch while the step or `update` runs only every few.

    ## Why is this bad?
    Between two updates each optimizer may be unscaled once and stepped once: the second call raises RuntimeError, an `update` without
    a step AssertionError. An `update` between two steps raises nothing: the second optimizer's gradients are divided by the new
    scale instead of the one they were multiplied by, wrong by a factor of 2 whenever the scale changes.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer, scaler, accumulate):
        for index, batch in enumerate(loader):
            with torch.autocast("cuda"):
                loss = model(batch) / accumulate
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if (index + 1) % accumulate == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer, scaler, accumulate):
        for index, batch in enumerate(loader):
            with torch.autocast("cuda"):
                loss = model(batch) / accumulate
            scaler.scale(loss).backward()
            if (index + 1) % accumulate == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    ```

    ## Fix safety
    The edits are shown and not applied: where the call belongs, or that it is one too many, within one function.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp310.py

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation>
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers>
    """

    code = "MP310"
    name = "scaler-misordered"
    severity = Severity.ERROR
    fix = Applicability.DISPLAY
    frameworks = ("torch",)
    tokens = (".scale(",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report calls that come twice between two updates, and updates between the steps of two optimizers."""
        for entry in trace.entries:
            for event in entry.of("unscale", "scaler step"):
                disorder = repeated(event)
                if disorder is None:
                    continue
                what, before, path = disorder
                earlier = entry.events[: next(n for n, e in enumerate(entry.events) if e is event)]
                same_round = any(e.place == before and e.loops == event.loops for e in earlier if e.kind == "scaler step")
                if what != "unscaled again" and not same_round:
                    continue  # the update that is missing is what is wrong
                if before == event.place and is_for_each(trace, event, earlier):
                    continue  # of optimizers that one line makes
                if event.data["several"] and given_to(trace, before) != given_to(trace, event.place):
                    continue  # the one and the other of them
                if is_chosen(path) and not is_of_one_backward(earlier, before):
                    continue  # what updates in between may be another part
                verdict = self.verdict(trace, entry, path, event.place)
                text = trace.text(event.place)
                message, why, help_text = REPEATED[what]
                yield self.at(
                    trace,
                    event.place,
                    message.format(call=text) + verdict.condition(),
                    why=why,
                    help=or_left_out(entry, event, help_text),
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    steps=(Step(before, "it was called here, and nothing has updated the scaler since"),) if before != event.place else (),
                    fix=once(trace, entry, event, before),
                )
            yield from self._updates(trace, entry)
            yield from self._in_each_round(trace, entry)
            yield from self._for_nothing(trace, entry)
            yield from self._taken_twice(trace, entry)

    def _updates(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """Updates between the steps of two optimizers, before the step that they belong to, and twice in a round."""
        for event, late, scaled in updates_between(entry):
            message, why, help_text = BETWEEN if has_checked(event) else TOO_EARLY
            after = updated_after(entry, late)
            yield self.at(
                trace,
                event.place,
                message.format(call=trace.text(event.place)),
                why=why,
                help=or_left_out(entry, event, help_text),
                steps=(
                    Step(scaled, "gradients are multiplied by the scale here"),
                    Step(late.place, "they are applied here, after the update"),
                ),
                fix=moved_behind(trace, event.place, late.place) if after is None else dropped(trace, event, after),
            )
        for event, late, before in updates_after_unscale(entry):
            verdict = self.verdict(trace, entry, late.path | event.path, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place)}` comes between `unscale_` and the step{verdict.condition()}",
                why="behind an update the step divides the gradients by the scale a second time, and nothing looks for infinities",
                help=or_left_out(entry, event, "call `update()` once, after the step"),
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(before, "the gradients are unscaled here"), Step(late.place, "they are applied here, after the update")),
                fix=moved_behind(trace, event.place, late.place),
            )
        for first, second in updates_twice(entry):
            verdict = self.verdict(trace, entry, second.path | first.path, first.place)
            yield self.at(
                trace,
                first.place,
                f"`{trace.text(first.place)}` updates a scale that another optimizer's step in this round still uses" + verdict.condition(),
                severity=Severity.WARNING,
                why="the scale grows and backs off once for each update: two in a round count every batch twice, and gradients that "
                "accumulate over rounds mix two scales",
                help=or_left_out(entry, first, "call `update()` once a round, after the last optimizer's step"),
                confidence=Confidence.MEDIUM,
                steps=(Step(second.place, "the same scaler is updated again here"),),
                fix=dropped(trace, first, second.place),
            )

    def _in_each_round(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """What comes with every micro-batch, where the step comes with every few."""
        for event, other in too_often(entry):
            update = event.kind == "scaler update"
            verdict = self.verdict(trace, entry, event.path, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place)}` runs in every round, but `{trace.text(other.place)}` does not{verdict.condition()}",
                why="the first round without a step raises AssertionError: No inf checks were recorded prior to update"
                if update
                else "the next round raises RuntimeError: unscale_() has already been called on this optimizer since the last update()",
                help="update the scaler after the step, under the same condition"
                if update
                else "unscale and clip under the condition of the step; where a step is skipped after unscale_, call update() all the same",
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(other.place, "the optimizer is stepped only here" if update else "the scaler is updated only here"),),
                fix=moved_behind(trace, event.place, other.place) if update else to_its_step(trace, entry, event),
            )
        for event, other, zeroed in mixed(entry):
            verdict = trace.verdict(entry, event.path)
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place)}` runs in every round, but `{trace.text(other.place)}` does not{verdict.condition()}",
                why="the next backward adds gradients that carry the scale to those that no longer do; unscaled together, the earlier ones "
                "are divided by the scale twice and count for nothing",
                help=or_left_out(entry, event, "unscale, clip and update under the condition of the step"),
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(
                    Step(other.place, "the optimizer is stepped only here"),
                    Step(zeroed.place, "the gradients are zeroed only here: until then they accumulate"),
                ),
            )

    def _taken_twice(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """Steps with gradients that were taken already, and calls of one scaler for what another has scaled, but for what MP302 tells."""
        told = {step.place for step, _ in stepped_by_another(entry)}
        for event, before, path in plain_after_scaled(trace, entry):
            if bypassing(trace, entry, event) is not None:
                continue
            verdict = self.verdict(trace, entry, path, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place)}` applies again the gradients that the scaler's step has applied{verdict.condition()}",
                why="each batch counts twice, and infinite gradients, for which the scaler leaves its step out, are applied after all",
                help="leave it to the scaler: step plainly only where no scaler does",
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(before.place, "the scaler has stepped this optimizer here"),),
            )
        for event, before, path in of_other_scalers(trace, entry):
            if event.place in told:
                continue
            verdict = self.verdict(trace, entry, path, event.place)
            stepped = before.kind == "scaler step"
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place)}` "
                + ("steps an optimizer that another scaler has stepped" if stepped else "takes gradients that another scaler has scaled")
                + verdict.condition(),
                why="each scaler has a scale of its own: gradients that one of them has multiplied are divided by that of the other",
                help="give each optimizer to the scaler that scales its loss",
                confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                steps=(Step(before.place, "another scaler steps it here" if stepped else "another scaler scales the loss here"),),
            )

    def _for_nothing(self, trace: Trace, entry: Entry) -> Iterator[Finding]:
        """Updates that come also where the batch was given up before anything was scaled."""
        for event, step, path in nothing_stepped(entry):
            verdict = self.verdict(trace, entry, path, event.place)
            yield self.at(
                trace,
                event.place,
                f"`{trace.text(event.place)}` runs also for a batch for which nothing is scaled or stepped{verdict.condition()}",
                why="such a batch raises AssertionError: No inf checks were recorded prior to update",
                help="update the scaler after the step, under the same condition",
                confidence=Confidence.MEDIUM,
                steps=(Step(step.place, "the optimizer is stepped only here, under a test of the batch's values"),),
                fix=moved_behind(trace, event.place, step.place),
            )


BETWEEN = (
    "`{call}` changes the scale between the steps of two optimizers",
    "the gradients of the second are divided by the new scale, and were multiplied by the old one",
    "call `update()` once, after the last optimizer's step",
)
TOO_EARLY = (
    "`{call}` runs where no optimizer has been stepped",
    "it raises AssertionError: No inf checks were recorded prior to update",
    "update the scaler after the step, under the same condition",
)
REPEATED = {
    "unscaled again": (
        "`{call}` comes again before an update of the scaler",
        "between two updates each optimizer may be unscaled once: the second call raises RuntimeError",
        "call it once for each step, in the branch that steps and updates",
    ),
    "unscaled after step": (
        "`{call}` comes after the scaler's step",
        "`step` has unscaled the gradients already: the call raises RuntimeError",
        "call it between the backward and the step",
    ),
    "stepped again": (
        "`{call}` comes again before an update of the scaler",
        "the second step() between two updates raises RuntimeError",
        "call `update()` once after the last step of each round",
    ),
}


def once(trace: Trace, entry: Entry, event: Event, before: Place) -> Fix | None:
    """Where a call that comes again belongs: nowhere, or, where it is the same call in another round, to the step."""
    if event.kind == "scaler step":
        return None
    if before == event.place:
        return to_its_step(trace, entry, event)
    return left_out(trace, event.place, before if is_call_of(trace, before, "unscale_") else None)


def dropped(trace: Trace, update: Event, other: Place) -> Fix | None:
    """Leave out one of two updates, but not the line that runs both: the scaler needs the last of them."""
    return left_out(trace, update.place, other) if other != update.place else None


def is_call_of(trace: Trace, place: Place, method: str) -> bool:
    """Whether a method of a name is called at a place."""
    node = (trace.node(place) or (None, None))[1]
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method


def to_its_step(trace: Trace, entry: Entry, event: Event) -> Fix | None:
    """An unscaling and the clipping behind it, moved to the next step of its scaler."""
    later = entry.events[next(n for n, other in enumerate(entry.events) if other is event) :]
    step = next((e for e in later if e.kind == "scaler step" and e.data["scaler"] == event.data["scaler"] and e.frame == event.frame), None)
    return moved_to_the_step(trace, entry, event, step) if step is not None else None


def updated_after(entry: Entry, step: Event) -> Place | None:
    """Where the scaler is updated after a step, in the same round."""
    later = entry.events[next(n for n, other in enumerate(entry.events) if other is step) :]
    updates = (e for e in later if e.kind == "scaler update" and e.data["scaler"] == step.data["scaler"] and is_beside(e, step))
    return next((event.place for event in updates), None)


def repeated(event: Event) -> tuple[str, Place, Path] | None:
    """What is wrong with a call in view of what the scaler has done for this optimizer since its last update."""
    for path, state in possible(event.data["before"], event.path):  # type: ignore[arg-type]
        if type(state) is not State or not isinstance(state.data, tuple) or state.data[0] == "ready" or steps.is_for_a_tpu(path):
            continue
        kind, place = state.data
        if event.kind == "unscale":
            return ("unscaled again" if kind == "unscaled" else "unscaled after step"), place, path
        if kind == "stepped" and place != event.place and steps.states_of(event.data["before"], event.path) == [(kind, place)]:
            return "stepped again", place, path
    return None


def is_for_each(trace: Trace, event: Event, earlier: Sequence[Event]) -> bool:
    """Whether a call is made for each of what its loop goes over, and came before for another one of them: `unscale_(optimizers[key])`."""
    match trace.node(event.place), trace.node(event.loops[-1][0]) if event.loops else None:
        case (_, ast.Call(args=[given, *_])), (_, ast.For(target=target)):
            named = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            last = event.loops[-1]
            rounds = [(*event.loops[:-1], (last[0], number)) for number in range(last[1])]
            passed = any(e.place == event.place and e.frame == event.frame and e.loops in rounds for e in earlier)
            return passed and any(isinstance(n, ast.Name) and n.id in named for n in ast.walk(given))
    return False


def given_to(trace: Trace, place: Place) -> str:
    """What a call at a place is given first, as it is written."""
    node = (trace.node(place) or (None, None))[1]
    return ast.unparse(node.args[0]) if isinstance(node, ast.Call) and node.args else ""


def is_of_one_backward(earlier: Sequence[Event], before: Place) -> bool:
    """Whether no backward pass lies between what happened at a place and now."""
    seen = (e for e in reversed(earlier) if e.kind == "backward" or (e.place == before and e.kind in ("unscale", "scaler step")))
    last = next(seen, None)
    return last is not None and last.kind != "backward"


def updates_twice(entry: Entry) -> list[tuple[Event, Event]]:
    """Pairs of updates of one scaler in one round, each after the step of its own optimizer; the second's gradients accumulate."""
    found: dict[Place, tuple[Event, Event]] = {}
    happened = entry.of("scaler step", "scaler update", "backward")
    for number, event in enumerate(happened):
        if event.kind != "scaler update" or event.place in found:
            continue
        before = [e for e in happened[:number] if e.kind == "scaler step" and e.loops == event.loops and e.frame == event.frame]
        stepped = {e.data["key"] for e in before}
        keys: set[object] = set()
        backward: Event | None = None
        for later in happened[number + 1 :]:
            if later.kind == "backward":
                backward = later
                continue
            if later.loops != event.loops or later.frame != event.frame or later.data["scaler"] != event.data["scaler"]:
                break
            if extend(event.path, later.path) is None:
                continue
            if later.kind == "scaler step":
                if backward is not None and accumulates(backward, later):
                    keys.add(later.data["key"])
            elif later.place != event.place and stepped and keys and keys.isdisjoint(stepped):
                found[event.place] = (event, later)
                break
    return list(found.values())


def accumulates(backward: Event, step: Event) -> bool:
    """Whether a step waits for a condition that the backward before it doesn't: gradients of several rounds add up."""
    return any(key[0] in ("true", "in", "all") for key, _ in step.path - backward.path) and len(backward.loops) <= len(step.loops) + 1


def updates_between(entry: Entry) -> list[tuple[Event, Event, Place]]:
    """Updates after which an optimizer is stepped with gradients that were scaled before: the update, that step, the scaling."""
    found = []
    for number, event in enumerate(entry.events):
        if event.kind != "scaler update":
            continue
        for later in entry.events[number + 1 :]:
            again = is_next_round(event, later)
            if later.kind in ("backward", "gradients zeroed", "loss scaled") or not (later.loops == event.loops or again):
                break
            if later.kind == "scaler step" and extend(event.path, later.path) is not None:
                ways = (s for s in steps.scaled_at(later) if s.certain and extend(event.path, s.path) is not None)
                another = again and later.data["several"]  # the loop goes over optimizers that one line makes
                scaled = [s for s in ways if another or str(later.data["key"]) not in s.unscaled]
                if scaled and later.data["scaler"] == event.data["scaler"]:
                    found.append((event, later, scaled[0].place))
                break
    return found


def is_next_round(event: Event, later: Event) -> bool:
    """Whether something happens in the round after that of an event, in the same run of a function."""
    if event.frame != later.frame or not event.loops or len(event.loops) != len(later.loops):
        return False
    (place, number), (after, count) = event.loops[-1], later.loops[-1]
    return event.loops[:-1] == later.loops[:-1] and place == after and count == number + 1


def updates_after_unscale(entry: Entry) -> Iterator[tuple[Event, Event, Place]]:
    """Updates between the unscaling of gradients and the step that takes them: the update, the step, the unscaling."""
    for number, event in enumerate(entry.events):
        if event.kind != "scaler update":
            continue
        states = event.data["states"]
        for later in entry.events[number + 1 :]:
            if later.kind in ("backward", "gradients zeroed", "loss scaled", "unscale", "scaler update") or later.loops != event.loops:
                break
            if later.kind != "scaler step" or later.data["scaler"] != event.data["scaler"] or extend(event.path, later.path) is None:
                continue
            held = states.get(later.data["key"]) if isinstance(states, dict) else None
            unscaled = between(held, later, extend(event.path, later.path) or event.path) if held is not None else None
            if unscaled is not None:
                yield event, later, unscaled
            break


def between(held: object, step: Event, path: Path) -> Place | None:
    """Where an optimizer was unscaled that an update finds unscaled and a step then finds ready, on some path or on every one.

    `held` is what the scaler knows of it at the update. Where it is not unscaled on some of the paths, nothing else may be known there.
    """
    ways: list[tuple[Path, str, Place | None]] = [
        (way, *state.data)
        for way, state in possible(held, path)  # type: ignore[arg-type]
        if type(state) is State and isinstance(state.data, tuple)
    ]
    if any(kind not in ("unscaled", "ready") for _, kind, _ in ways):
        return None
    for way, kind, place in ways:
        if kind == "unscaled" and place is not None and any(known == "ready" for known, _ in steps.states_of(step.data["before"], way)):
            return place
    return None


def has_checked(update: Event) -> bool:
    """Whether an optimizer may have been stepped or unscaled before an update, so that there is something to update by."""
    states = update.data["states"]
    held = [kind for state in states.values() for kind, _ in steps.states_of(state, update.path)] if isinstance(states, dict) else []
    return any(kind != "ready" for kind in held)


def too_often(entry: Entry) -> Iterator[tuple[Event, Event]]:
    """Calls that come in each round, and the call that comes only in every few of them.

    A function that computes gradients in none of its own loops is called for each round.
    """
    happened = entry.of("unscale", "scaler step", "scaler update")
    made = {repr(e.data["scaler"]): e for e in entry.of("scaler made")}
    for number, event in enumerate(happened):
        own = made.get(repr(event.data["scaler"]))
        if event.kind == "scaler step" or counts(event.path) or (own is not None and is_beside(own, event)):
            continue  # a scaler for each round, too, is new to what it does
        wanted, others = ("scaler update", happened[number + 1 :]) if event.kind == "unscale" else ("scaler step", happened[:number])
        same = [o for o in others if o.kind == wanted and o.data["scaler"] == event.data["scaler"] and is_beside(o, event)]
        if event.kind == "scaler update" and any(o.kind == "unscale" and is_beside(o, event) for o in others):
            continue
        if same and all(counts(o.path - event.path) for o in same) and any(b.frame == event.frame for b in entry.of("loss scaled")):
            yield event, same[0]


def mixed(entry: Entry) -> Iterator[tuple[Event, Event, Event]]:
    """What unscales and updates in each round, the step that comes only in every few, and the zeroing that does.

    Nothing raises, since each update follows its unscaling; the gradients that accumulate carry different scales.
    """
    zeroings = entry.of("gradients zeroed")
    for event in entry.of("unscale"):
        if counts(event.path):
            continue
        stepped, updates = (
            [o for o in entry.of(kind) if o.data["scaler"] == event.data["scaler"] and is_beside(o, event)]
            for kind in ("scaler step", "scaler update")
        )
        updated = any(not counts(o.path - event.path) for o in updates)
        zeroed = [o for o in zeroings if o.loops == event.loops and o.calls[: len(event.calls)] == event.calls]
        rare = all(counts(o.path - event.path) for o in (*stepped, *zeroed))
        if stepped and updated and zeroed and rare and any(b.frame == event.frame for b in entry.of("loss scaled")):
            yield event, stepped[0], zeroed[0]


def nothing_stepped(entry: Entry) -> Iterator[tuple[Event, Event, Path]]:
    """Updates that are reached although a test of values let nothing be stepped or unscaled: the update, the step, the path."""
    happened = entry.of("unscale", "scaler step", "scaler update", "loss scaled")
    for number, event in enumerate(happened):
        states = event.data.get("states") if event.kind == "scaler update" else None
        if not isinstance(states, dict):
            continue
        round_ = [o for o in since_update(happened[:number], event.data["scaler"]) if o.loops[: len(event.loops)] == event.loops]
        stepped = [o for o in round_ if o.kind == "scaler step"]
        tests = frozenset.intersection(*(o.path for o in round_)) - event.path if stepped else frozenset()
        for key, sense in sorted((literal for literal in tests if is_of_values(literal)), key=repr):
            path = extend(event.path, [(key, not sense)])
            if path is not None and all(kind == "ready" for held in states.values() for kind, _ in steps.states_of(held, path)):
                yield event, stepped[-1], path
                break


def since_update(before: Sequence[Event], scaler: object) -> list[Event]:
    """What a scaler has done since its last update."""
    own = [o for o in before if o.data["scaler"] == scaler]
    last = max((n for n, o in enumerate(own) if o.kind == "scaler update"), default=-1)
    return own[last + 1 :]


VALUES = re.compile(r"\b(?:is_?nan|is_?inf|is_?finite|item)\(")


def is_of_values(literal: Condition) -> bool:
    """Whether a condition asks for the values that a batch gives: of a tensor, or of a number that was read from one."""
    key, sense = literal
    if key[0] == "all":
        return not sense and all(is_of_values(inner) for inner in key[1])
    return key[:2] == ("place", "tensor") or (key[0] in ("true", "in") and VALUES.search(str(key[1]).partition(IDENTITY)[0]) is not None)


def is_beside(one: Event, other: Event) -> bool:
    """Whether two events happen in the same round of the same run of a function."""
    return one.frame == other.frame and one.loops == other.loops


def counts(path: Path) -> bool:
    """Whether a path is taken only every few rounds."""
    return any(
        counts(key[1]) if key[0] == "all" else key[0] in ("true", "in") and " % " in str(key[1]).partition(IDENTITY)[0] for key, _ in path
    )
