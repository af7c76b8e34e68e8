"""MP305: the backward pass runs inside an autocast region."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity, Span
from mplint.frameworks.torch import steps
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace
from mplint.program.values import BFLOAT, HALF, Autocast, Place, Step
from mplint.rule import Rule

# what comes after the forward pass
AFTERWARDS = (
    "backward",
    "trainer backward",
    "trainer clip",
    "trainer step",
    "unscale",
    "scaler step",
    "optimizer step",
    "scaler update",
    "gradients zeroed",
    "clip",
    "gradients read",
)


class BackwardInsideAutocast(Rule):
    """loss.backward() inside autocast

    ## What it does
    Finds `loss.backward()`, or a trainer's (`accelerator.backward(loss)`), inside an autocast region.

    ## Why is this bad?
    Backward operations run in the dtype that autocast chose for their forward; the region is for the forward pass and the loss.
    What backward computes anew (custom functions, checkpointed parts, a forward in float32) is cast down inside it: gradients
    that a float32 forward deserves come out with a relative error of about 0.3 %. PyTorch advises against it.

    ## Example
    ```python
    import torch

    def step(model, x, y, optimizer, scaler):
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    ```

    ## Use instead
    ```python
    import torch

    def step(model, x, y, optimizer, scaler):
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    ```

    ## Fix safety
    Safe: the backward moves behind the `with` block, together with the steps and updates that follow it there. There is no fix
    where other statements follow, or where the `with` enters something else too.

    ## Evidence
    Shown on the CPU by tests/witness/test_mp305.py

    ## References
    - <https://docs.pytorch.org/docs/stable/amp.html#autocasting>
    """

    code = "MP305"
    name = "backward-inside-autocast"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    frameworks = ("torch",)
    tokens = ("autocast",)
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each backward while an autocast region is open."""
        for entry in trace.entries:
            if entry.context:
                continue  # the region is taken for granted: what runs a backward is no model that others run in theirs
            for event in entry.of("backward", "trainer backward"):
                for path, region in steps.in_half(event.data["autocast"], event.path)[:1]:
                    if not region.chain or spans(entry, event, region):
                        continue
                    if not steps.is_entered(entry, region) or recomputes(trace, event) or is_thrown_away(trace, entry, event):
                        continue  # a trainer runs the step in a region of its own, or the region is the forward's, run anew
                    place = called_inside(entry, event, region) or event.place
                    verdict = self.verdict(trace, entry, path, place)
                    beside = (Step(event.place, "this runs the backward pass"),) if place != event.place else ()
                    yield self.at(
                        trace,
                        place,
                        f"{told(trace, event._replace(place=place))} inside an autocast region{verdict.condition()}",
                        confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                        why=f"{RECOMPUTED}, with errors of about {ERRORS.get(region.dtype or HALF, ERRORS[HALF])}",
                        help="end the region before the backward",
                        steps=(Step(beginning(entry, event, region), "the region begins here"), *beside),
                        fix=None if place != event.place or trace.is_supposed else move_behind(trace, entry, event),
                    )


RECOMPUTED = "the region is for the forward pass: what backward computes anew is cast to half precision"
STEPPED = frozenset({"optimizer step", "scaler step", "trainer step", "optimizer managed", "gradients read", "gradients changed", "clip"})
ERRORS = {HALF: "0.05 %", BFLOAT: "0.3 %"}


def spans(entry: Entry, event: Event, region: Autocast) -> bool:
    """Whether the region was entered outside a loop in which the optimizer steps: that is the larger mistake, and told of as such."""
    start = entered_before(entry, event, region)
    if start is None:
        return False
    for other in entry.events[start:]:
        if other.kind == "autocast left" and steps.is_of(other, region):
            return False
        stepped = other.kind in ("optimizer step", "scaler step") and len(other.loops) > len(entry.events[start].loops)
        if stepped and steps.in_half(other.data["autocast"], other.path):
            return True
    return False


def called_inside(entry: Entry, event: Event, region: Autocast) -> Place | None:
    """The call within a region that leads to a backward pass in another file: a helper there, which other calls use outside of regions."""
    start = entered_before(entry, event, region)
    entered = entry.events[start] if start is not None else None
    if entered is None or entered.place.path == event.place.path or event.calls[: len(entered.calls)] != entered.calls:
        return None
    call = event.calls[len(entered.calls) :][:1]
    return call[0] if call and call[0].path == entered.place.path else None


def beginning(entry: Entry, event: Event, region: Autocast) -> Place:
    """Where a region begins: a trainer's where it is entered, any other where it is made."""
    start = entered_before(entry, event, region) if event.kind == "trainer backward" else None
    return entry.events[start].place if start is not None else region.chain[0].place


def entered_before(entry: Entry, event: Event, region: Autocast) -> int | None:
    """The number of the event by which a region was last entered before another event."""
    number = next(n for n, other in enumerate(entry.events) if other is event)
    before = (n for n in range(number, -1, -1) if entry.events[n].kind == "autocast entered" and steps.is_of(entry.events[n], region))
    return next(before, None)


def is_thrown_away(trace: Trace, entry: Entry, event: Event) -> bool:
    """Whether the function of a backward pass zeroes the gradients before anything steps with them: it measures memory, or time.

    One that takes a gradient in between, `noise.grad`, is after that of an input.
    """
    number = next(n for n, other in enumerate(entry.events) if other is event)
    for later in entry.events[number:]:
        if later.kind in STEPPED:
            return False
        if later.kind == "gradients zeroed" and later.frame == event.frame:
            return not takes_gradient(trace, event.place, later.place)
    return False


def takes_gradient(trace: Trace, place: Place, until: Place) -> bool:
    """Whether a function reads the gradient of something between two of its lines."""
    (file, node), first, last = trace.node(place) or (None, None), trace.span(place).end_line, trace.span(until).line
    function = file.syntax.function(node) if file is not None and node is not None else None
    read = (n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr == "grad") if function is not None else ()
    return any(isinstance(n.ctx, ast.Load) and first < n.lineno < last for n in read)


def recomputes(trace: Trace, event: Event) -> bool:
    """Whether a backward pass stands in the `backward` of an autograd Function, which restores the state of its forward pass first."""
    found = trace.node(event.place)
    function = found[0].syntax.function(found[1]) if found is not None else None
    owner = found[0].syntax.enclosing_class(found[1]) if found is not None else None
    if owner is None or getattr(function, "name", "") != "backward":
        return False
    return any(ast.unparse(base).rpartition(".")[2] == "Function" for base in owner.bases)


def told(trace: Trace, event: Event) -> str:
    """What runs a backward pass, as it is written."""
    text = trace.text(event.place)
    return f"`{text}` runs" if "backward(" in text else f"`{text.partition('(')[0]}(…)` runs the backward pass"


def move_behind(trace: Trace, entry: Entry, event: Event) -> Fix | None:
    """Move the backward and what follows it behind the `with`, where only steps, updates and the like follow it."""
    found = trace.node(event.place)
    if found is None:
        return None
    file, node = found
    statement = file.syntax.statement(node)
    block = file.syntax.parents.get(statement)
    if not isinstance(block, ast.With) or len(block.items) != 1 or not any(s is statement for s in block.body):
        return None
    entered = (e for e in entry.of("autocast entered") if e.frame == event.frame)
    if file.span(block.items[0].context_expr) not in {trace.span(e.place) for e in entered if e.place.path == event.place.path}:
        return None
    at = next(i for i, s in enumerate(block.body) if s is statement)
    tail = block.body[at:]
    previous = block.body[at - 1] if at else None
    later = {trace.span(e.place) for e in entry.of(*AFTERWARDS) if e.place.path == event.place.path}
    calls = {call for part in tail for call in ast.walk(part) if isinstance(call, ast.Call) and file.span(call) in later}
    if previous is None or (previous.end_lineno or 0) >= statement.lineno or not all(only_afterwards(calls, s) for s in tail):
        return None
    first, last = (previous.end_lineno or 0) + 1, tail[-1].end_lineno or 0
    lines = file.lines[first - 1 : last]
    margin, indent = block.col_offset, statement.col_offset
    moved = [line[:margin] + line[indent:] if not line[:indent].strip() else line for line in lines]
    return Fix("Move it behind the autocast region", Applicability.SAFE, (Replace(Span(first, 0, last, len(lines[-1])), "\n".join(moved)),))


def only_afterwards(calls: set[ast.Call], statement: ast.stmt) -> bool:
    """Whether a statement makes none but these calls, which come after the forward pass, and steps of schedules."""
    match statement:
        case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
            return call in calls or (isinstance(call.func, ast.Attribute) and call.func.attr == "step")
        case ast.If(body=body, orelse=orelse):
            return all(only_afterwards(calls, s) for s in (*body, *orelse))
    return False
