"""MP316: gradients that a penalty is made of are taken of float16 work without a scale."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Fix, InsertStatements, Replace, Severity, Span
from mplint.frameworks.choices import ways_on
from mplint.frameworks.torch import steps
from mplint.frameworks.torch.protocol import taken_at
from mplint.frameworks.trainers.managed import COMPUTES
from mplint.program.conditions import Path, extend
from mplint.program.machine import Args, Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import BFLOAT, HALF, NONE, Autocast, Constant, Place, Step, Tensor
from mplint.program.verdict import Verdict
from mplint.rule import Rule


class GradientPenaltyUnscaled(Rule):
    """A gradient penalty on gradients of float16 work that nobody scaled

    ## What it does
    Finds `torch.autograd.grad(…, create_graph=True)` of what a float16 region of autocast has computed, in training whose loss a
    `GradScaler` or the trainer (Lightning, accelerate) scales, where the outputs are not scaled for this call. Silent for bfloat16 and for
    islands of float32.

    ## Why is this bad?
    The scaler protects only the backward of the loss. The gradients that the penalty is made of come from a backward of their own,
    in float16: those below 6e-8 are zero, and those below 6e-5 keep a few bits. The penalty then pulls on what is left of them.

    ## Example
    ```python
    import torch

    def penalized(critic, optimizer, real, scaler):
        optimizer.zero_grad()
        real.requires_grad_(True)
        with torch.autocast("cuda", dtype=torch.float16):
            score = critic(real).mean()
        (gradient,) = torch.autograd.grad(score, real, create_graph=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = -score + 10.0 * gradient.square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    ```

    ## Use instead
    ```python
    import torch

    def penalized(critic, optimizer, real, scaler):
        optimizer.zero_grad()
        real.requires_grad_(True)
        with torch.autocast("cuda", dtype=torch.float16):
            score = critic(real).mean()
        (gradient,) = torch.autograd.grad(scaler.scale(score), real, create_graph=True)
        gradient = gradient / scaler.get_scale()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = -score + 10.0 * gradient.square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    ```

    ## Fix safety
    Unsafe: gradients that were zero become what they are, so the penalty grows, and its weight may have to be chosen again. An overflow
    of the scaled gradients makes the penalty infinite; the scaler sees that and skips the step. There is no fix where the scaler is not
    at hand in the same function, or where the gradients are not given a name.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp316.py

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-penalty>
    """

    code = "MP316"
    name = "gradient-penalty-unscaled"
    severity = Severity.WARNING
    fix = Applicability.UNSAFE
    frameworks = ("torch",)
    tokens = ("create_graph",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each place once, from the entry where the least has to be turned."""
        best: dict[Place, tuple[tuple[object, ...], Penalty]] = {}
        for number, entry in enumerate(trace.entries):
            for event in entry.of("gradients taken"):
                penalty = unscaled(self, trace, entry, event)
                if penalty is not None:
                    rank = (len(penalty.verdict.switches), bool(entry.context), not entry.script, number)
                    if event.place not in best or rank < best[event.place][0]:
                        best[event.place] = (rank, penalty)
        for _, penalty in best.values():
            yield self._told(trace, penalty)

    def _told(self, trace: Trace, penalty: Penalty) -> Finding:
        certain = penalty.verdict.proven and not penalty.entry.context
        return self.at(
            trace,
            penalty.event.place,
            f"the gradients of a penalty are taken of float16 work without the loss scale{penalty.verdict.condition()}",
            why="this backward runs in float16 too, where gradients below 6e-8 are zero: the scale of the loss comes too late for them",
            help=HELP[penalty.scaled.kind],
            confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
            steps=(*penalty.outputs.half[:1], Step(penalty.scaled.place, "only the loss is scaled, here")),
            fix=scale_and_divide(trace, penalty),
        )


HELP = {
    "loss scaled": "take the gradients of `scaler.scale(…)`, and divide them by `scaler.get_scale()` before the penalty",
    "trainer backward": "run the forward pass of the penalty in float32, `with torch.autocast(device, enabled=False)`",
}


class Penalty(NamedTuple):
    """Gradients taken of float16 work, and the scaling of the loss that follows."""

    entry: Entry
    event: Event
    outputs: Tensor
    scaled: Event
    verdict: Verdict


def unscaled(rule: Rule, trace: Trace, entry: Entry, event: Event) -> Penalty | None:
    """The penalty that an event speaks of, where its outputs were computed in float16 and are not scaled, and the loss is."""
    graph = event.data.get("create_graph")
    outputs = event.data.get("outputs")
    if not (type(graph) is Constant and graph.value) or outputs is None:
        return None
    for path, atom in possible(outputs, event.path):  # type: ignore[arg-type]
        if type(atom) is not Tensor or atom.scaled is not None or HALF not in atom.forward or BFLOAT in atom.forward:
            continue
        for scaled, _ in steps.following(entry, event, path):
            on = next(scaling(entry, scaled, path, atom), None)
            still = on is not None and any(other is atom or other == atom for _, other in possible(outputs, on))  # type: ignore[arg-type]
            if on is not None and still and not in_island(entry, event, on) and is_penalty(entry, event, scaled):
                return Penalty(entry, event, atom, scaled, rule.verdict(trace, entry, on, event.place))
    return None


def is_penalty(entry: Entry, event: Event, scaled: Event) -> bool:
    """Whether the loss is made of the gradients, or anything measures them: a normal that is only drawn needs no scale."""
    tag = taken_at(event.place)
    losses = possible(scaled.data["loss"] or NONE, scaled.path)  # type: ignore[arg-type]
    measured = (other.data["tensor"] for other in entry.of("gradients measured"))
    return any(type(atom) is Tensor and tag in atom.tags for atom in (*(atom for _, atom in losses), *measured))


def scaling(entry: Entry, event: Event, path: Path, outputs: Tensor) -> Iterator[Path]:
    """The ways on which an event is the scaling of a loss by a scaler that is on, or may be: that of a trainer scales what this has run."""
    if event.kind == "trainer backward":
        yield from scaling_of_trainer(entry, event, path, outputs)
    if event.kind != "loss scaled":
        return
    made = next((other for other in entry.of("scaler made") if other.data["scaler"] == event.data["scaler"]), None)
    yield from ways_on(made.data["enabled"], path) if made is not None else (path,)


def scaling_of_trainer(entry: Entry, event: Event, path: Path, outputs: Tensor) -> Iterator[Path]:
    """The ways on which a trainer scales a loss: where it computes in float16, as it was made here, or as what it has computed tells."""
    made = next((other for other in entry.of("trainer precision") if other.data["trainer"] == event.data["trainer"]), None)
    dtypes = made.data["dtypes"] if made is not None else ()
    for guards, letter in dtypes if isinstance(dtypes, tuple) else ():
        if letter == HALF and (both := extend(path, guards)) is not None:
            yield both
    if made is None and outputs.half and outputs.half[0].words.startswith(COMPUTES):
        yield path


def in_island(entry: Entry, event: Event, path: Path) -> bool:
    """Whether the gradients are taken where the program has turned autocast off, or behind such a region of the same function."""
    regions = possible(event.get("autocast"), path)  # type: ignore[arg-type]
    if any(isinstance(region, Autocast) and region.dtype is None and region.identity is not None for _, region in regions):
        return True
    before = entry.events[: next(n for n, other in enumerate(entry.events) if other is event)]
    entered = [other.data["autocast"] for other in before if other.kind == "autocast entered" and other.frame == event.frame]
    found = [region for region in entered if isinstance(region, Autocast) and region.identity is not None]
    on = {region.identity for region in found if region.dtype is not None}
    return any(region.dtype is None and region.identity not in on for region in found) or is_last_one_off(before, event, path)


def is_last_one_off(before: Sequence[Event], event: Event, path: Path) -> bool:
    """Whether the last region before an event, of its function or of one that has called it, was entered in half only on other paths."""
    around = [e for e in before if e.kind == "autocast entered" and e.calls == event.calls[: len(e.calls)]]
    last = [e for e in around if e.place == around[-1].place and e.loops == around[-1].loops]
    taken = [e.data["autocast"] for e in last if extend(path, e.path) is not None]
    return bool(taken) and all(isinstance(region, Autocast) and region.dtype is None for region in taken)


def scale_and_divide(trace: Trace, penalty: Penalty) -> Fix | None:
    """Scale the outputs and divide what comes, where the scaler is a name of the same function and the gradients get names."""
    event, args = penalty.event, penalty.event.get("args")
    if penalty.scaled.frame != event.frame or penalty.scaled.place.path != event.place.path or not isinstance(args, Args):
        return None
    scaler = trace.text(penalty.scaled.place).rpartition(".scale(")[0]
    position = args.place(0, "outputs")
    call = trace.span(event.place)
    statement = assignment_at(trace, event.place.path, call)
    if position is None or statement is None or not all(part.isidentifier() for part in scaler.split(".")):
        return None
    names = divided(statement, f"{scaler}.get_scale()")
    if not names:
        return None
    outputs = trace.span(Place(event.place.path, position))
    text = trace.text(Place(event.place.path, position))
    return Fix(
        f"scale the outputs and divide the gradients by `{scaler}.get_scale()`",
        Applicability.UNSAFE,
        (Replace(outputs, f"{scaler}.scale({text})"), InsertStatements(call, names, after=True)),
    )


def assignment_at(trace: Trace, path: str, call: Span) -> ast.Assign | None:
    """The assignment whose value begins with the call at a span, alone on its lines."""
    file = trace.file(path)
    for node in file.syntax.all(ast.Assign) if file is not None else ():
        if len(node.targets) == 1 and node.value.lineno == call.line and node.end_lineno == call.end_line:
            return node
    return None


def divided(statement: ast.Assign, scale: str) -> tuple[str, ...]:
    """Statements that divide the gradients which an assignment names."""
    match statement.targets[0], statement.value:
        case ast.Name(id=name), ast.Subscript(value=ast.Call(), slice=ast.Constant()):
            return (f"{name} = {name} / {scale}",)
        case ast.Name(id=name), ast.Call():
            return (f"{name} = [gradient / {scale} for gradient in {name}]",)
        case ast.Tuple(elts=targets) | ast.List(elts=targets), ast.Call() if all(isinstance(t, ast.Name) for t in targets):
            return tuple(f"{t.id} = {t.id} / {scale}" for t in targets if isinstance(t, ast.Name))
    return ()
