"""Changes that put loss scaling into a custom training loop."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mplint.findings import Change, InsertStatements, MoveStatement, Replace
from mplint.frameworks.names import keras_path
from mplint.program.event import Event
from mplint.program.trace import Trace
from mplint.program.values import Place
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, argument

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

BACKWARD = "backward"


class Applied(Protocol):
    """What is changed: the call that applies (or unscales) gradients, the optimizer's expression, and the calls that compute them."""

    @property
    def node(self) -> ast.Call:
        """The call that gets the gradients."""
        ...

    @property
    def receiver(self) -> ast.expr:
        """The optimizer's expression; where a helper only applies the gradients, the one that it is given."""
        ...

    @property
    def gradients(self) -> tuple[ast.Call, ...]:
        """The calls that compute the gradients."""
        ...


class Loop(NamedTuple):
    """One place where gradients reach an optimizer."""

    node: ast.Call
    receiver: ast.expr
    gradients: tuple[ast.Call, ...]


def loop_of(trace: Trace, event: Event, taken: Iterable[Event]) -> tuple[SourceFile, Loop] | None:
    """The syntax of what happens to gradients at an event that others took them at; None where several files share it."""
    held = trace.node(event.place)
    nodes = [trace.node(seen_beside(other, event)) for other in taken]
    if held is None or not isinstance(held[1], ast.Call) or not isinstance(held[1].func, ast.Attribute):
        return None
    file, node = held[0], held[1]
    gradients = [found[1] for found in nodes if found is not None and found[0] is file and isinstance(found[1], ast.Call)]
    if not gradients or len(gradients) != len(nodes):
        return None
    receiver = held[1].func.value
    if file.syntax.function(node) is not file.syntax.function(gradients[0]):
        receiver = given_for(trace, file, event, receiver)
    return file, Loop(node, receiver, tuple(gradients))


def seen_beside(event: Event, other: Event) -> Place:
    """Where an event happens, or of one in another file the call beside another event that leads there."""
    depth = len(other.calls)
    if event.place.path == other.place.path or len(event.calls) <= depth or event.calls[:depth] != other.calls:
        return event.place
    return event.calls[depth]


def given_for(trace: Trace, file: SourceFile, event: Event, receiver: ast.expr) -> ast.expr:
    """What the call that leads to an event gives for a parameter that stands for the optimizer there."""
    function = file.syntax.function(receiver)
    call = trace.node(event.calls[-1]) if event.calls else None
    if not isinstance(receiver, ast.Name) or not isinstance(function, FUNCTIONS) or call is None or not isinstance(call[1], ast.Call):
        return receiver
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    if receiver.id not in names or call[0] is not file:
        return receiver
    bound = int(names[0] == "self" and isinstance(call[1].func, ast.Attribute))
    return argument(call[1], receiver.id, names.index(receiver.id) - bound) or receiver


def loss_of(gradient: ast.Call) -> ast.expr | None:
    """The loss that a gradient computation is given."""
    if is_backward(gradient) and isinstance(gradient.func, ast.Attribute):
        return gradient.func.value
    return argument(gradient, "target", 0) or argument(gradient, "loss") or argument(gradient, "ys")


class Taking(NamedTuple):
    """Where one simple update stands: its gradient computation, the loss's name and the function around them."""

    gradient: ast.Call
    loss: ast.Name
    function: ast.AST | None


def place_of(file: SourceFile, update: Applied) -> Taking | None:
    """The place of an update whose loss is a simple name and whose gradients are taken once, with the optimizer in reach; else None."""
    if len(update.gradients) != 1 or update.gradients[0] is update.node:
        return None
    gradient = update.gradients[0]
    loss = loss_of(gradient)
    function = file.syntax.function(gradient)
    if not isinstance(loss, ast.Name) or not reaches(file, update.receiver, gradient):
        return None
    return Taking(gradient, loss, function)


def is_backward(gradient: ast.Call) -> bool:
    """Whether the gradients are those of `loss.backward()`, which records everything."""
    return isinstance(gradient.func, ast.Attribute) and gradient.func.attr == BACKWARD


def reaches(file: SourceFile, receiver: ast.expr, node: ast.AST) -> bool:
    """Whether the text of `receiver` means the same object at `node`: in one function, or through `self` in one class."""
    if file.syntax.function(receiver) is file.syntax.function(node):
        return True
    root = receiver
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id == "self" and file.syntax.enclosing_class(receiver) is file.syntax.enclosing_class(node)


def scale_in_tape(file: SourceFile, update: Applied, method: str, condition: str | None = None) -> tuple[Change, ...] | None:
    """Scale the loss by `method` as the last thing that the tape records; a loss that is used afterwards keeps its name.

    `condition` is the text of a condition under which to scale.
    """
    place = place_of(file, update)
    if place is None:
        return None
    block = recorded_by(file, place.gradient)
    statement = file.syntax.statement(place.gradient)
    if block is None and not is_backward(place.gradient):
        return None
    inside = block is None or any(parent is block for parent in file.syntax.ancestors(statement))
    anchor = statement if block is None or inside else block.body[-1]
    if isinstance(anchor, (ast.Return, ast.Raise, ast.Break, ast.Continue)) and not inside:
        return None
    if any(position(b.node) > position(anchor) and not inside for b in file.names.reaching(place.loss)):
        return None
    name, receiver = place.loss.id, file.text(update.receiver)
    changes: list[Change] = []
    if reported(file, place, anchor):
        name = f"scaled_{place.loss.id}"
        if any(node.id == name for node in names_within(file, place.function)):
            return None
        changes.append(Replace(file.span(place.loss), name))
    line = f"{name} = {receiver}.{method}({place.loss.id})"
    if condition is not None:
        line += f" if {condition} else {place.loss.id}"
    return (InsertStatements(file.span(anchor), (line,), after=not inside), *changes)


def recorded_by(file: SourceFile, gradient: ast.Call) -> ast.With | None:
    """The `with` statement of the same function that opens the tape of a gradient computation, the last before it."""
    tape = gradient.func.value if isinstance(gradient.func, ast.Attribute) else None
    function = file.syntax.function(gradient)
    found = [
        block
        for block in file.syntax.all(ast.With)
        if file.syntax.function(block) is function
        and any(isinstance(n, ast.Name) and isinstance(tape, ast.Name) and n.id == tape.id for n in opened_by(block))
    ]
    return max((block for block in found if position(block) < position(gradient)), key=position, default=None)


def opened_by(block: ast.With) -> list[ast.expr]:
    """The names by which a `with` statement opens what it opens."""
    return [expression for item in block.items for expression in (item.optional_vars, item.context_expr) if expression is not None]


def reported(file: SourceFile, place: Taking, anchor: ast.AST) -> bool:
    """Whether the loss is read after `anchor` by anything but the gradient computation (a metric, a log, a return)."""
    return any(
        node.id == place.loss.id and isinstance(node.ctx, ast.Load) and node is not place.loss and position(node) > position(anchor)
        for node in names_within(file, place.function)
    )


def names_within(file: SourceFile, function: ast.AST | None) -> list[ast.Name]:
    """The names in a function, or in the whole program."""
    names = file.syntax.all(ast.Name)
    return names if function is None else [n for n in names if any(parent is function for parent in file.syntax.ancestors(n))]


def unscale_after(file: SourceFile, update: Applied) -> tuple[Change, ...] | None:
    """Unscale the gradients right after they are computed (Keras 2), before anything else is done to them."""
    place = place_of(file, update)
    statement = file.syntax.statement(place.gradient) if place is not None else None
    if not isinstance(statement, ast.Assign) or place is None or statement.value is not place.gradient:
        return None
    target = statement.targets[0]
    if len(statement.targets) != 1 or not isinstance(target, ast.Name):
        return None
    text = f"{target.id} = {file.text(update.receiver)}.get_unscaled_gradients({target.id})"
    return (InsertStatements(file.span(statement), (text,), after=True),)


def wrap_optimizer(file: SourceFile, made: ast.Call, setter: tuple[SourceFile, ast.Call], option: str = "") -> tuple[Change, ...] | None:
    """Put a LossScaleOptimizer around the construction of an optimizer, in the spelling of the call that sets the policy.

    `option` is the text of one more argument of the optimizer itself.
    """
    home = mixed_precision_home(*setter) if setter[0] is file else None
    if home is None or any(keras_path(name) is None and not name.startswith(ALIASES) for name in file.names.candidates(made.func)):
        return None
    return (Replace(file.span(made), f"{home}.LossScaleOptimizer({with_option(file.text(made), option)})"),)


ALIASES = ("tensorflow.optimizers.", "tensorflow_addons.optimizers.")  # where Keras' optimizers go by another name


def with_option(text: str, option: str) -> str:
    """The text of a call with one more argument."""
    if not option:
        return text
    given = text[:-1].rstrip()
    return f"{given}{'' if given.endswith('(') else ' ' if given.endswith(',') else ', '}{option})"


def mixed_precision_home(file: SourceFile, setter: ast.Call) -> str | None:
    """How the program writes the module that holds LossScaleOptimizer, judged by how it sets the policy."""
    func = setter.func
    if not isinstance(func, ast.Attribute):
        return None
    path = keras_path(file.names.resolve(func.value))
    if path == "mixed_precision":
        return file.text(func.value)
    if path == "config" and isinstance(func.value, ast.Attribute):
        return f"{file.text(func.value.value)}.mixed_precision"
    return None


def late_scaling(file: SourceFile, update: Applied, scale: ast.AST) -> tuple[Change, ...] | None:
    """Move a scaling that directly follows the tape's `with` statement into it."""
    place = place_of(file, update)
    block = recorded_by(file, place.gradient) if place is not None else None
    statement = file.syntax.statement(scale)
    if block is None or not isinstance(statement, ast.Assign) or statement.value is not scale:
        return None
    around = file.syntax.block(block)
    at = next((i for i, item in enumerate(around) if item is block), 0)
    if at + 1 >= len(around) or around[at + 1] is not statement or isinstance(block.body[-1], (ast.Return, ast.Raise)):
        return None
    return (MoveStatement(file.span(statement), file.span(block.body[-1]), after=True),)
