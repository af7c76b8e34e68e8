"""MP315: the scaled loss goes to a metric, a log or a return value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.findings import Confidence, Finding, Severity
from mplint.frameworks.keras.tensors import GRADIENTS
from mplint.frameworks.torch.tensors import BY_HAND
from mplint.program.conditions import Path
from mplint.program.machine import Event
from mplint.program.trace import Entry, Trace, possible
from mplint.program.values import Items, Object, Step, Tensor, Value
from mplint.rule import Rule


class ScaledLossReported(Rule):
    """A scaled loss that is logged or returned

    ## What it does
    Finds a scaled loss (`scaler.scale(loss)`, `optimizer.get_scaled_loss(loss)`, `optimizer.scale_loss(loss)`, apex's `scale_loss`) that is
    recorded, printed, added up or returned.

    ## Why is this bad?
    The number is the loss times the scale: 65536 to begin with in PyTorch, 32768 in Keras. It halves after each overflow and doubles
    after 2000 steps without one, so a curve of it shows the scale and not the training, and early stopping decides by it.

    ## Example
    ```python
    def step(model, criterion, optimizer, scaler, x, y):
        optimizer.zero_grad()
        loss = scaler.scale(criterion(model(x), y))
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()
    ```

    ## Use instead
    ```python
    def step(model, criterion, optimizer, scaler, x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()
    ```

    ## Evidence
    Shown on the CPU by tests/witness/test_mp315.py

    ## References
    - <https://docs.pytorch.org/docs/stable/notes/amp_examples.html>
    - <https://www.tensorflow.org/guide/mixed_precision#training_the_model_with_a_custom_training_loop>
    """

    code = "MP315"
    name = "scaled-loss-reported"
    severity = Severity.INFO
    frameworks = ("torch", "keras")
    tokens = (".scale(", ".get_scaled_loss(", ".scale_loss(")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report each statement in which a scaled loss leaves the step."""
        for entry, event in trace.of("shown", "tensor read", "scaled loss returned", "scaled loss added"):
            for path, loss, node in losses_of(trace, event):
                scaling = scaling_of(entry, event, loss)
                if scaling is None or is_wanted(entry, event, loss) or divides(trace, event):
                    continue
                verdict = self.verdict(trace, entry, path, event.place)
                yield self.at(
                    trace,
                    event.place,
                    f"`{node}` is still multiplied by the loss scale here{verdict.condition()}",
                    why="it is tens of thousands of times the loss, and jumps whenever the scale changes",
                    help="keep the loss under a name of its own and report that",
                    confidence=Confidence.HIGH if verdict.proven else Confidence.MEDIUM,
                    steps=(Step(scaling.place, "the loss is scaled here"),),
                )
                break


RATIOS = ("get_scale", "loss_scale", "dynamic_scale", "inv_scale", "initial_scale", "unscale")


def losses_of(trace: Trace, event: Event) -> Iterator[tuple[Path, Tensor, str]]:
    """The scaled losses that something is given, each with its path and its text."""
    values = event.data.get("values") or (event.data.get("tensor") or event.data.get("value"),)
    assert isinstance(values, tuple)
    texts = texts_of(trace, event)
    for number, value in enumerate(values):
        for path, atom in scaled_within(value, event.path):
            yield path, atom, texts[number] if len(texts) == len(values) else "the loss"


def scaled_within(value: Value, path: Path) -> Iterator[tuple[Path, Tensor]]:
    """The losses among what a value may be that are still multiplied by a scale."""
    for both, atom in possible(value, path):
        if type(atom) is Items:
            for item in atom.items:
                yield from scaled_within(item, both)
        elif type(atom) is Tensor and atom.scaled is not None and atom.tags.isdisjoint(OTHERS):
            yield both, atom


OTHERS = frozenset({GRADIENTS, "gradients taken", BY_HAND})  # what is no loss, or scaled by the program's own number


def texts_of(trace: Trace, event: Event) -> list[str]:
    """How the source writes what is given."""
    match trace.node(event.place):
        case file, ast.JoinedStr(values=values):
            return [file.text(v.value) if isinstance(v, ast.FormattedValue) else "" for v in values]
        case file, ast.Call(func=ast.Attribute(value=receiver)) if event.kind == "tensor read":
            return [file.text(receiver)]
        case file, ast.Call(args=args, keywords=keywords):
            return [*(file.text(a) for a in args), *(file.text(k.value) for k in keywords)]
        case file, ast.Name() | ast.Attribute() as node:
            return [file.text(node)]
        case file, ast.AugAssign(value=value):
            return [file.text(value)]
    return []


def scaling_of(entry: Entry, event: Event, loss: Tensor) -> Event | None:
    """What has scaled a loss, last before an event."""
    found = None
    for other in entry.events:
        if other is event:
            break
        if other.kind == "loss scaled by a trainer" and loss.scaled == "apex":
            found = other
        elif other.kind in ("loss scaled", "keras loss scaled"):
            by = other.data["scaler" if other.kind == "loss scaled" else "optimizer"]
            if loss.scaled == (by.id if type(by) is Object else by):
                found = other
    return found


def is_wanted(entry: Entry, event: Event, loss: Tensor) -> bool:
    """Whether who gets a loss may still differentiate it: it is handed back, or added up, before that is done here."""
    if event.kind not in ("scaled loss returned", "scaled loss added"):
        return False
    for other in entry.of("backward", "tape gradients taken"):
        value = other.data["loss"]
        taken = any(atom.scaled == loss.scaled for _, atom in scaled_within(value, other.path)) if value is not None else False  # type: ignore[arg-type]
        if taken and other.frame == event.frame and other.loops == event.loops:
            return entry.events.index(other) > entry.events.index(event)
    return True


def divides(trace: Trace, event: Event) -> bool:
    """Whether the statement speaks of the scale, and so may divide by it."""
    found = trace.node(event.place)
    if found is None:
        return False
    return any(word in ast.unparse(own_part(found[0].syntax.statement(found[1]))) for word in RATIOS)


def own_part(statement: ast.stmt) -> ast.AST:
    """The part of a statement that is not the block of another: the header of a compound one."""
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return test
        case ast.For(iter=iterable) | ast.AsyncFor(iter=iterable):
            return iterable
    return statement
