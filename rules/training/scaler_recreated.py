"""MP312: a loss scaler is built anew for every batch or epoch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.torch.protocol import key_of
from mplint.frameworks.torch.steps import seen_from
from mplint.program.conditions import Condition, Path, extend
from mplint.program.lower import span_of
from mplint.program.machine import IDENTITY, Event
from mplint.program.trace import Entry, Trace, shown_symbol
from mplint.program.values import Atom, Constant, Object, Place, Step, Unknown, atoms
from mplint.python.document import is_test_path
from mplint.python.syntax import words_of
from mplint.rule import Rule

from .scalers_built_once import built_before

WHY = "each new scaler starts at 65536 and has to find the scale that the model allows again, by overflows and skipped steps"

GIVEN_AT = re.compile(rf"{IDENTITY}(?P<path>[^{IDENTITY}:]+):(?P<position>\d+)")  # the call that an unknown value comes from


class ScalerRecreated(Rule):
    """A GradScaler rebuilt in every batch or epoch

    ## What it does
    Finds a GradScaler that is built inside the loop, or inside the function, that runs once per batch or epoch, while the optimizer that
    it steps lives on.

    ## Why is this bad?
    A scaler learns the scale: it halves it after each overflow and doubles it after 2000 steps without one. A new scaler starts at
    65536 again and repeats the overflows, and their skipped steps, that the old one had learned to avoid. Built for every batch, it never
    learns: where 65536 is too much for the model, every step is skipped and nothing trains (then this is an error, else a warning).

    ## Example
    ```python
    import torch

    def train(model, loader, optimizer):
        for x, y in loader:
            scaler = torch.amp.GradScaler("cuda")
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Use instead
    ```python
    import torch

    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    ```

    ## Fix safety
    The edits are shown and not applied: the scaler built before the loop, and handed to the function that steps by it where one loop of
    the same file calls that.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp312.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling>
    """

    code = "MP312"
    name = "scaler-recreated"
    severity = Severity.ERROR
    fix = Applicability.DISPLAY
    frameworks = ("torch",)
    tokens = ("Scaler(",)
    program = True
    consequence_of = ("MP309",)  # what has no half precision to scale for does not overflow

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each scaler that is built more often than the optimizer that it steps, where loops or calls show it."""
        found: dict[Place, Finding] = {}
        for entry in trace.entries:
            for new in renewed(trace, entry):
                place = seen_from(new.made, new.step) if new.made.place.path != new.step.place.path else new.made.place
                verdict = self.verdict(trace, entry, new.path, place)
                if place in found or is_test_path(place.path) or verdict.dead:
                    continue
                certain = verdict.proven and new.again is not None
                again = (Step(new.again, "this runs it again"),) if new.again is not None else ()
                found[place] = self.at(
                    trace,
                    place,
                    f"`{trace.text(new.made.place).partition('(')[0]}` is built anew for every {new.period}{verdict.condition()}",
                    severity=Severity.ERROR if new.period == "batch" else Severity.WARNING,
                    confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
                    why=WHY,
                    help="build it once, where the optimizer is built, and pass it on",
                    steps=(*again, Step(new.step.place, "the optimizer that it steps lives on")),
                    fix=built_before(trace, new.made.place, new.again),
                    cause=new.made.place,
                )
        yield from found.values()


class Renewed(NamedTuple):
    """A scaler that is made again for an optimizer that lives on: by what loop (None: by every call), how often, and its step."""

    made: Event
    step: Event
    period: str
    again: Place | None
    path: Path


def renewed(trace: Trace, entry: Entry) -> Iterator[Renewed]:
    """The scalers of an entry that are made again while their optimizer lives on."""
    optimizers = {key_of(e.data["optimizer"]): e for e in entry.of("optimizer made")}  # type: ignore[arg-type]
    restored = {key_of(e.data["object"]) for e in entry.of("state loaded") if e.data["what"] == "scaler"}  # type: ignore[arg-type]
    for step in entry.of("scaler step"):
        key = key_of(step.data["scaler"])  # type: ignore[arg-type]
        made = making(entry, key, step)
        if made is None or key in restored or is_conditional(trace, entry, made, step) or is_apart(entry, made, step):
            continue
        path = extend(step.path, [literal for literal in made.path if literal[0][0] in ("true", "in")])
        owners = [o for o in atoms(step.data["optimizer"]) if type(o) is not Constant]  # type: ignore[arg-type]  # None can't be stepped
        if path is None or not owners:
            continue
        built = [birth_of(o, optimizers.get(key_of(o))) for o in owners]
        known = [b for b in built if b is not None]
        if any(b is None and type(o) is not Unknown for b, o in zip(built, owners, strict=True)):
            continue
        if any(b is None and "[" in shown_symbol(o.symbol) for b, o in zip(built, owners, strict=True) if type(o) is Unknown):
            continue  # one of several that a loop goes over
        if any(made_by_element(trace, made, place) for place, _ in made.loops):
            continue
        outer = [place for place, _ in made.loops]
        inside = {place for b in known for place, _ in b.loops}
        again = next((place for place in reversed(outer) if place not in inside), None)
        lives_on = again is not None and (bool(known) or not entry.script or all(is_given_before(trace, o, again) for o in owners))
        if again is not None and lives_on and seen_again(entry, made, again):
            yield Renewed(made, step, "batch" if len(step.loops) == len(made.loops) else "epoch", again, path)
        elif outer or entry.script or is_constructed(trace, entry, made) or is_set_beside(trace, made.place, step.place):
            continue
        elif all(b.calls[:1] != made.calls[:1] for b in known) and not is_called_once(entry, made, known):
            if not known and is_called_once_by_all(trace, entry, made, step):
                continue
            lasting = bool(known) or any("." in shown_symbol(o.symbol) for o in owners if type(o) is Unknown)
            period = period_of(made, step, lasting)
            if period is not None:
                yield Renewed(made, step, period, None, path)


def making(entry: Entry, key: object, step: Event) -> Event | None:
    """The making of a scaler, in the round of its step where it is made in each."""
    made = [e for e in entry.of("scaler made") if key_of(e.data["scaler"]) == key]  # type: ignore[arg-type]
    return next((e for e in reversed(made) if e.loops == step.loops[: len(e.loops)]), made[-1] if made else None)


def is_constructed(trace: Trace, entry: Entry, made: Event) -> bool:
    """Whether a scaler is made by a constructor, or by what one calls: once in an object's life."""
    here = [event for event in entry.of("scaler made") if event.place == made.place]
    if any(event.function == "__init__" for event in here):
        return True
    callers = (found for event in here for place in event.calls if (found := trace.node(place)) is not None)
    functions = (file.syntax.function(node) for file, node in callers if isinstance(node, ast.Call))
    return any(function is not None and function.name == "__init__" for function in functions)


def made_by_element(trace: Trace, made: Event, loop: Place) -> bool:
    """Whether a loop goes over what makes scalers: `for hook in hooks: hook.before_training(self)` makes none again."""
    match trace.node(loop):
        case file, ast.For(target=ast.Name(id=name)) as around:
            calls = [found[1] for place in made.calls if (found := trace.node(place)) is not None and found[0] is file]
            inside = [call for call in calls if isinstance(call, ast.Call) and around in file.syntax.ancestors(call)]
            return any(isinstance(n, ast.Name) and n.id == name for call in inside for n in ast.walk(call.func))
    return False


class Birth(NamedTuple):
    """When an object is made: within which loops, and by which calls."""

    loops: tuple[tuple[Place, int], ...]
    calls: tuple[Place, ...]


def birth_of(optimizer: Atom, made: Event | None) -> Birth | None:
    """When an optimizer is made: by its event or, for an object of a class of the project that is made in no loop, by its identity."""
    if made is not None:
        return Birth(made.loops, made.calls)
    made_as = optimizer.id if type(optimizer) is Object and optimizer.kind == "instance" else None
    identity = made_as[-1] if isinstance(made_as, tuple) else None
    return Birth((), identity[1]) if isinstance(identity, tuple) and len(identity) == 4 and not identity[2] else None


def is_called_once(entry: Entry, made: Event, births: Sequence[Birth]) -> bool:
    """Whether the function that makes the optimizer calls once, and in no loop, what makes the scaler: both are made together."""
    if not births or not all(b.loops == made.loops and b.calls == made.calls[: len(b.calls)] for b in births):
        return False
    return len({event.calls for event in entry.of("scaler made") if event.place == made.place}) == 1


def is_called_once_by_all(trace: Trace, entry: Entry, made: Event, step: Event) -> bool:
    """Whether all of the program that comes to a scaler's making by calls makes the optimizer, and calls once."""
    if len(made.calls) > 1:
        return False
    found = False
    made_there = [(o, e) for o, e in trace.of("scaler made") if e.place == made.place and e.calls[-1:] != made.calls[-1:]]
    first = {id(other): (other, event) for other, event in reversed(made_there) if not is_test_path(other.path)}
    for other, there in first.values():
        optimizers = {key_of(e.data["optimizer"]): e for e in other.of("optimizer made")}  # type: ignore[arg-type]
        stepped = [e.data["optimizer"] for e in other.of("scaler step") if e.place == step.place]
        births = [birth_of(o, optimizers.get(key_of(o))) for value in stepped for o in atoms(value) if type(o) is not Constant]  # type: ignore[arg-type]
        if not all(birth is not None for birth in births) or not is_called_once(other, there, [b for b in births if b is not None]):
            return False
        found = True
    return found


def is_given_before(trace: Trace, optimizer: Atom, loop: Place) -> bool:
    """Whether an optimizer of another package comes from a call above a loop, in the function that the loop stands in."""
    called = GIVEN_AT.search(optimizer.symbol) if type(optimizer) is Unknown else None
    found = trace.node(loop)
    if called is None or found is None or called["path"] != loop.path:
        return False
    file, node = found
    line = span_of(int(called["position"])).line
    home = file.syntax.function(node)
    return (home.lineno if home is not None else 0) < line < span_of(loop.position).line


def is_set_beside(trace: Trace, made: Place, step: Place) -> bool:
    """Whether the function that makes a scaler sets what the scaler is to step as well."""
    match trace.node(step), trace.node(made):
        case (stepping, ast.Call(args=[given, *_])), (file, node):
            name, home = stepping.text(given), file.syntax.function(node)
            targets = (target for n in ast.walk(home) if isinstance(n, ast.Assign) for target in n.targets) if home is not None else ()
            return any(file.text(target) == name for target in targets)
    return False


def seen_again(entry: Entry, made: Event, loop: Place) -> bool:
    """Whether a scaler is made in the later rounds of a loop too (or nothing is known of them)."""
    rounds = {number for e in entry.events for place, number in e.loops if place == loop}
    return max(rounds, default=0) == 0 or any(e.place == made.place and (loop, 1) in e.loops for e in entry.of("scaler made"))


def is_conditional(trace: Trace, entry: Entry, made: Event, step: Event) -> bool:
    """Whether the scaler is made under a condition that no setting decides: on the round, on what is there already, or on an error.

    A condition of a round whose contrary ends the program, like an assertion's, is none of the scaler's.
    """
    own = {literal for literal in made.path - step.path if is_open(trace, literal) or is_of_handler(literal)}
    others = [e for e in entry.of("scaler made") if e.place == made.place and e.loops != made.loops]
    reached = {id(e): condition_of_round(entry, e) for e in (made, *others)}
    other = [(e.path - reached[id(e)]) ^ (made.path - reached[id(made)]) for e in others]
    of_rounds = {literal for found in other for literal in found if is_open(trace, literal)}
    contrary = {(key, not held) for key, held in of_rounds}
    around = [place for place, _ in made.loops]
    beside = [e.path for e in entry.of("scaler made") if [place for place, _ in e.loops] == around]
    contrary -= {literal for path in beside for literal in contrary & path}  # a scaler is made there, too
    return bool(own) or any(not contrary.isdisjoint(e.path) for e in entry.events if e.loops and e.kind != "scaler refused")


def is_apart(entry: Entry, made: Event, step: Event) -> bool:
    """Whether a round that makes the scaler never takes the step: an exception's handler does, or another branch."""
    beside = [e for e in entry.of("scaler step") if e.place == step.place and e.loops[: len(made.loops)] == made.loops]
    return bool(beside) and all(extend(e.path, made.path) is None for e in beside)


def condition_of_round(entry: Entry, made: Event) -> Path:
    """What holds when a round begins: the conditions of the last event before it."""
    depth = len(made.loops)
    before = reversed(entry.events[: next(n for n, e in enumerate(entry.events) if e is made)])
    last = next((e for e in before if e.loops[:depth] != made.loops), None)
    return last.path if last is not None and last.loops[: depth - 1] == made.loops[: depth - 1] else frozenset()


def is_of_handler(literal: Condition) -> bool:
    """Whether a literal says that an error has been caught."""
    return literal[0][0] == "place" and "try" in literal[0] and not literal[1]


def is_open(trace: Trace, literal: Condition) -> bool:
    """Whether a literal is a condition that no setting decides."""
    return literal[0][0] in ("true", "in") and literal[0][1] not in trace.switches


def period_of(made: Event, step: Event, lasting: bool) -> str | None:
    """How often a function that makes a scaler is called, by its name or that of the one around it, or by the single step of the scaler.

    `lasting`: the optimizer is known to live longer than the call.
    """
    helps = len(made.calls) > len(step.calls) and made.calls[: len(step.calls)] == step.calls
    words = words_of(made.function) | (words_of(step.function) if helps or made.frame == step.frame else frozenset())
    if "epoch" in words:
        return "epoch"
    if step.loops:
        return None
    return "batch" if (lasting and made.frame == step.frame) or words & {"step", "batch", "iteration"} else None
