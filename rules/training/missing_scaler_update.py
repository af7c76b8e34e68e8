"""MP303: a loss scaler steps an optimizer and is not updated before the next step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mplint.findings import Applicability, Confidence, Finding, Fix, InsertStatements, MoveStatement, Severity
from mplint.frameworks.torch import steps
from mplint.frameworks.torch.protocol import by_index
from mplint.program.conditions import Path, extend
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import Place, Step, Unknown
from mplint.rule import Rule

from .needless_scalers import is_needless, or_left_out


class MissingScalerUpdate(Rule):
    """scaler.step without scaler.update

    ## What it does
    Finds `scaler.step(optimizer)` with no `scaler.update()` before the next step.

    ## Why is this bad?
    The second `scaler.step(optimizer)` raises `RuntimeError: step() has already been called since the last update()`. The scale
    stays at 65536 as well: after an overflow it is never halved, and every later step is skipped.

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer, scaler):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer, scaler):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Fix safety
    Safe: `update()` belongs once after the last optimizer's step, where the fix puts it. An
    `update()` that stands behind the loop is moved.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp303.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update>
    """

    code = "MP303"
    name = "missing-scaler-update"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = (".scale(",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report the last step of each round after which nothing updates the scaler."""
        for entry in trace.entries:
            told: set[object] = set()
            for step, path in (*steps_again(entry), *never_updated(entry)):
                seen = forgetful_call(trace, step)
                if (seen or step.place) in told or not is_last(entry, step):
                    continue
                told.add(seen or step.place)
                if seen is not None:
                    yield self._by_caller(trace, entry, step, path, seen)
                    continue
                verdict = self.verdict(trace, entry, path, step.place)
                text = trace.text(step.place)
                scaler = text.partition(".step(")[0]
                late = late_update(entry, step)
                yield self.at(
                    trace,
                    step.place,
                    f"`{text}` is not followed by `{scaler}.update()`{verdict.condition()}",
                    why="the next step() raises RuntimeError, and the scale, 65536 to begin with, never adapts",
                    help=or_left_out(entry, step, f"call `{scaler}.update()` once after the last step of each round"),
                    confidence=Confidence.HIGH if verdict.proven and not (late and is_counted(trace, step)) else Confidence.MEDIUM,
                    steps=(Step(late.place, "the scaler is updated only here"),) if late is not None else (),
                    fix=update_after(trace, entry, step, late) if not is_needless(entry, step) else None,
                )

    def _by_caller(self, trace: Trace, entry: Entry, step: Event, path: Path, seen: Place) -> Finding:
        """A step in a function of which other callers update the scaler themselves."""
        verdict = self.verdict(trace, entry, path, seen)
        text = trace.text(step.place)
        scaler = text.partition(".step(")[0]
        return self.at(
            trace,
            seen,
            f"`{called(trace, seen)}` calls `{text}`, and no `{scaler}.update()` follows here{verdict.condition()}",
            why="the next step() raises RuntimeError, and the scale, 65536 to begin with, never adapts",
            help=or_left_out(entry, step, f"call `{scaler}.update()` once after the last step of each round, as the other callers do"),
            confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
            steps=(Step(step.place, "the optimizer is stepped here"),),
            fix=update_after_call(trace, step, seen) if not is_needless(entry, step) else None,
        )


def called(trace: Trace, place: Place) -> str:
    """What a call calls, as it is written."""
    match trace.node(place):
        case _, ast.Call(func=callee):
            return ast.unparse(callee)
    return trace.text(place)


def forgetful_call(trace: Trace, step: Event) -> Place | None:
    """The call that leads to a step, where other callers of the same function update the scaler behind it: this one forgets to."""
    others = [
        other
        for entry, other in trace.of("scaler step")
        if other.place == step.place and other.calls != step.calls and is_updated_by_caller(entry, other)
    ]
    if not others:
        return None
    return next((place for place in reversed(step.calls) if not any(place in other.calls for other in others)), None)


def is_updated_by_caller(entry: Entry, step: Event) -> bool:
    """Whether one of the functions that lead to a step updates the scaler behind it."""
    for event, _ in steps.following(entry, step, step.path):
        if event.kind == "scaler update" and event.data["scaler"] == step.data["scaler"]:
            count = len(event.calls)
            return count < len(step.calls) and step.calls[:count] == event.calls
    return False


def steps_again(entry: Entry) -> Iterator[tuple[Event, Path]]:
    """The steps of a round that the next one finds not updated, and the path on which it does."""
    for number, event in enumerate(entry.events):
        if event.kind not in ("scaler step", "unscale"):
            continue
        states = steps.states_of(event.data["before"], event.path)
        places = {place for kind, place in states if kind == "stepped"}
        if len(places) != 1:
            continue
        before = (e for e in reversed(entry.events[:number]) if e.kind == "scaler step" and e.place in places)
        step = next((e for e in before if e.data["scaler"] == event.data["scaler"]), None)
        if step is not None and any(kind != "stepped" for kind, _ in states) and is_updated(entry.events[:number], step):
            continue  # where it was not stepped, it may have been updated
        if step is None or (step.place != event.place and step.loops == event.loops):
            continue  # in one round it is another mistake
        if not comes_early(entry, step) and not is_one_of_several(entry, step, event):
            yield step, event.path


def is_one_of_several(entry: Entry, step: Event, later: Event) -> bool:
    """Whether no backward pass is in sight between two rounds of a loop, which may go over optimizers: of the next, or its gradients."""
    between = entry.events[entry.events.index(step) : entry.events.index(later)]
    beside = step.place == later.place or later.kind == "unscale"
    return beside and not any(event.kind in ("loss scaled", "backward") for event in between)


def is_updated(events: Sequence[Event], step: Event) -> bool:
    """Whether anything updates the scaler after a step, on whatever path, or may do so out of sight."""
    later = events[events.index(step) :]
    return any(e.kind in ("scaler update", "scaler handed on") and e.data["scaler"] == step.data["scaler"] for e in later)


def comes_early(entry: Entry, step: Event) -> bool:
    """Whether the scaler is updated between the backward pass and its step, which is a mistake of the order."""
    for event in reversed(entry.events[: entry.events.index(step)]):
        if event.kind in ("backward", "loss scaled", "scaler step"):
            return False
        if event.kind == "scaler update" and event.data["scaler"] == step.data["scaler"] and event.loops == step.loops:
            return extend(event.path, step.path) is not None
    return False


def never_updated(entry: Entry) -> Iterator[tuple[Event, Path]]:
    """The steps of scalers whose whole life is in sight, and no update in it that goes with the step."""
    made = {event.data["scaler"] for event in entry.of("scaler made")}
    used = entry.of("scaler update", "scaler handed on")
    rounds = {(event.data["scaler"], event.frame) for event in entry.of("loss scaled")}
    for step in entry.of("scaler step") if entry.complete else ():
        scaler = step.data["scaler"]
        if any(e is step for e in entry.unfinished):
            continue
        if any(e.data["scaler"] == scaler and extend(step.path, e.path) is not None for e in used):
            continue
        if (scaler in made or is_unbound(entry, scaler)) and (scaler, step.frame) in rounds:
            yield step, step.path


def excludes(step: Event, update: Event) -> bool:
    """Whether another call of what steps a scaler updates it, on another path."""
    apart = update.calls != step.calls and extend(step.path, update.path) is None
    return apart and update.data["scaler"] == step.data["scaler"]


def is_unbound(entry: Entry, scaler: object) -> bool:
    """Whether a scaler is a name that the program never binds: code without its beginning."""
    return entry.script and type(scaler) is Unknown and scaler.symbol == scaler.symbol.partition(IDENTITY)[0] + IDENTITY + entry.path


def is_last(entry: Entry, step: Event) -> bool:
    """Whether the scaler steps no other optimizer behind a step in its round."""
    later = (e for e, _ in steps.following(entry, step, step.path) if e.kind == "scaler step" and e.loops == step.loops)
    return not any(e.data["scaler"] == step.data["scaler"] and e.place != step.place for e in later)


def late_update(entry: Entry, step: Event) -> Event | None:
    """The update behind a loop around a step."""
    updates = (e for e, _ in steps.following(entry, step, step.path) if e.kind == "scaler update" and len(e.loops) < len(step.loops))
    return next((e for e in updates if e.data["scaler"] == step.data["scaler"] and e.loops == step.loops[: len(e.loops)]), None)


def is_counted(trace: Trace, step: Event) -> bool:
    """Whether the loop around a step runs a number of times that the program leaves open, and that may be one: `for _ in range(n)`."""
    match trace.node(step.loops[-1][0]) if step.loops else None:
        case _, ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Name() | ast.Attribute()])):
            return True
    return False


def varies(entry: Entry, step: Event) -> bool:
    """Whether each round of the loop around a step is for another optimizer."""
    same = (e for e in entry.of("scaler step") if e.place == step.place and e.loops[:-1] == step.loops[:-1] and e.frame == step.frame)
    return by_index(step.data["optimizer"]) or len({e.data["key"] for e in same}) > 1


def update_after_call(trace: Trace, step: Event, seen: Place) -> Fix | None:
    """Update the scaler after a call that steps it, where both functions are methods of one object that holds the scaler."""
    match trace.node(seen), trace.node(step.place):
        case (file, ast.Call(func=ast.Attribute(value=owner)) as call), (_, ast.Call(func=ast.Attribute(value=scaler))):
            statement = file.syntax.statement(call)
        case _:
            return None
    own = ast.unparse(owner) in ("self", "super()") and ast.unparse(scaler).startswith("self.")
    if not own or step.calls[-1] != seen or not isinstance(statement, ast.Expr) or statement.value is not call:
        return None
    text = f"{ast.unparse(scaler)}.update()"
    return Fix(f"Insert `{text}` after it", Applicability.SAFE, (InsertStatements(file.span(statement), (text,), after=True),))


def update_after(trace: Trace, entry: Entry, step: Event, late: Event | None) -> Fix | None:
    """Update the scaler after the step, or after the loop over optimizers; an update that comes too late is moved there."""
    match trace.node(step.place):
        case file, ast.Call(func=ast.Attribute(value=owner)) as call:
            anchor: ast.stmt = file.syntax.statement(call)
        case _:
            return None
    if not isinstance(anchor, ast.Expr) or anchor.value is not call:
        return None
    if late is None and any(excludes(step, e) for e in entry.of("scaler update")):
        return None  # other calls update it here, and would do so twice
    if step.loops and varies(entry, step):
        around = trace.node(step.loops[-1][0])
        if around is None or not isinstance(around[1], ast.For) or around[1] not in file.syntax.ancestors(anchor):
            return None
        anchor = around[1]
    text = f"{file.text(owner)}.update()"
    if late is None or any(e.data["scaler"] == step.data["scaler"] and e.data["key"] != step.data["key"] for e in entry.of("scaler step")):
        return Fix(f"Insert `{text}` after it", Applicability.SAFE, (InsertStatements(file.span(anchor), (text,), after=True),))
    behind = trace.node(late.place)
    statement = file.syntax.statement(behind[1]) if behind is not None and behind[0] is file else None
    same = late.frame == step.frame and extend(step.path, late.path) == step.path
    if not isinstance(statement, ast.Expr) or not same:
        return None
    return Fix(f"Move `{text}` after it", Applicability.SAFE, (MoveStatement(file.span(statement), file.span(anchor), after=True),))
