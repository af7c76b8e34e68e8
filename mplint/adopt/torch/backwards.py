"""The backward passes of a program, by their order, which no step of adoption changes."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from mplint.adopt.execution import Execution
from mplint.program.conditions import extend
from mplint.program.machine import Event
from mplint.program.trace import tensors_of
from mplint.program.values import HALF, Atom, External, Object, Place, State, Tensor, atoms
from mplint.python.definitions import Definitions
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import argument

SCALER = re.compile(r"scaler|autocast|\bamp\b", re.I)
TRAINERS = ("trainer backward", "optimizer managed", "apex initialized", "loss scaled by a trainer")


class Backward(NamedTuple):
    """A backward pass: its place in the order of all, and how far it has come.

    `open`: something is still to be adopted. `covered`: its forward pass runs under autocast.
    """

    number: int
    call: ast.Call
    open: bool
    covered: bool


def backwards(execution: Execution) -> list[Backward]:
    """Every backward pass of the program."""
    scaled_by = any(True for _ in execution.events(*TRAINERS)) or scales_here(execution)
    found = []
    for number, call in enumerate(numbered(execution.file)):
        events = execution.at(call, "backward")
        if not events:
            elsewhere = execution.leaves(call) and execution.leads_to(call, "backward")
            if execution.at(call, "trainer backward"):
                found.append(Backward(number, call, False, True))
            elif elsewhere or not execution.callees(call) or any(is_remote(atom) for atom, _ in execution.callees(call)):
                found.append(Backward(number, call, True, False))
            continue
        plain = [event for event in events if not is_scaled(event)]
        if not plain:
            found.append(Backward(number, call, False, True))
            continue
        covered = is_covered(execution, call)
        twin = all(has_twin(execution, event) for event in plain) or has_managed_twin(execution.file, call)
        done = (covered and not wants_scaler(execution, call)) or twin or scaled_by or trains_no_model(execution, call)
        found.append(Backward(number, call, not done, covered))
    return found


def scales_here(execution: Execution) -> bool:
    """Whether a scaler of the program may serve the passes of this file: one that it makes, or speaks of."""
    made = [event.place.path for _, event in execution.events("scaler made")]
    return bool(made) and (execution.path in made or SCALER.search(execution.file.document.text) is not None)


def trains_no_model(execution: Execution, call: ast.Call) -> bool:
    """Whether the gradients of a backward pass only change single numbers that were handed to their optimizer by name."""
    stepped = steps_of(execution, [call])
    makers = [execution.node(optimizer.made) for optimizer in map(optimizer_of, stepped) if optimizer is not None and optimizer.made]
    return bool(stepped) and len(makers) == len(stepped) and all(isinstance(made, ast.Call) and takes_names(made) for made in makers)


def optimizer_of(event: Event) -> Object | None:
    """The optimizer that steps."""
    optimizer = event.data["optimizer"]
    return optimizer if type(optimizer) is Object else None


def takes_names(made: ast.Call) -> bool:
    """Whether an optimizer is given a list of tensors by their names, and no model's parameters."""
    given = argument(made, "params", 0)
    own = (ast.Name, ast.Attribute)
    named = isinstance(given, (ast.List, ast.Tuple)) and all(
        isinstance(part, own) and ast.unparse(part).removeprefix("self.").isidentifier() for part in given.elts
    )
    return named and bool(given.elts)  # type: ignore[union-attr]


def is_remote(atom: Atom) -> bool:
    """Whether a value is the module whose backward pass goes through several processes."""
    return type(atom) is External and atom.name.startswith("torch.distributed.autograd")


def numbered(file: SourceFile) -> list[ast.Call]:
    """The calls of something called `backward`, in source order."""
    found = [c for c in file.syntax.all(ast.Call) if isinstance(c.func, ast.Attribute) and c.func.attr == "backward"]
    return sorted(found, key=position)


def losses_of(event: Event) -> list[Tensor]:
    """The losses whose gradients a backward pass computes."""
    return [tensor for _, tensor in tensors_of(event.data["loss"], event.path)]  # type: ignore[arg-type]


def is_scaled(event: Event) -> bool:
    """Whether a scaler has multiplied the loss."""
    return any(loss.scaled is not None for loss in losses_of(event))


def has_twin(execution: Execution, event: Event) -> bool:
    """Whether a scaled backward pass of the same function, or that it calls, runs where this one does not, and the other way round."""
    home = home_of(execution, event.place)
    for entry in execution.trace.entries:
        if any(other is event for other in entry.events):
            scaled = [other for other in entry.of("backward", "trainer backward") if other.kind != "backward" or is_scaled(other)]
            apart = [other for other in scaled if extend(event.path, other.path) is None]
            return any(home_of(execution, place) is home for other in apart for place in (other.place, *other.calls))
    return False


def home_of(execution: Execution, place: Place) -> object:
    """The function of the file in which a place is; the place itself where it is in another file."""
    node = execution.node(place) if place.path == execution.path else None
    return execution.file.syntax.function(node) if node is not None else place


def has_managed_twin(file: SourceFile, call: ast.Call) -> bool:
    """Whether another arm of a condition takes the loss from `with amp.scale_loss(loss, optimizer) as scaled`."""
    for block in file.syntax.all(ast.With):
        for item in block.items:
            match item.context_expr:
                case ast.Call(func=ast.Attribute(attr="scale_loss"), args=[_, *_]) if file.names.exclusive(block, call):
                    return True
    return False


def is_covered(execution: Execution, call: ast.Call) -> bool:
    """Whether autocast has computed the loss of a backward pass."""
    losses = [loss for event in execution.at(call, "backward") for loss in losses_of(event)]
    return any(loss.forward for loss in losses)


def wants_scaler(execution: Execution, call: ast.Call) -> bool:
    """Whether float16 has computed the loss, and no scaler is in the program."""
    losses = [loss for event in execution.at(call, "backward") for loss in losses_of(event)]
    return not any(True for _ in execution.events("scaler made")) and all(loss.forward <= {HALF} for loss in losses)


def steps_of(execution: Execution, calls: list[ast.Call]) -> list[Event]:
    """The steps of optimizers that apply the gradients of these backward passes."""
    found = []
    for _, event in execution.events("optimizer step"):
        states = [atom.data for atom in atoms(event.data["gradients"]) if type(atom) is State]  # type: ignore[arg-type]
        places = [data[2] for data in states if isinstance(data, tuple) and data[0] == "plain"]
        if any(isinstance(place, Place) and execution.node(place) in calls for place in places):
            found.append(event)
    return found


def groups(execution: Execution, calls: list[ast.Call]) -> list[list[ast.Call]]:
    """The backward passes that need one scaler: those of one function or class, and those that lead to the same steps."""
    found: list[tuple[set[object], list[ast.Call]]] = []
    for call in calls:
        own = marks(execution, call)
        joined = [group for group in found if group[0] & own]
        found = [group for group in found if not group[0] & own]
        found.append((own.union(*(group[0] for group in joined)), [*(c for group in joined for c in group[1]), call]))
    return [sorted(group, key=position) for _, group in found]


def marks(execution: Execution, call: ast.Call) -> set[object]:
    """What tells which scaler a backward pass needs."""
    syntax = execution.file.syntax
    found: set[object] = {syntax.function(call), syntax.enclosing_class(call) or syntax.function(call)}
    for event in steps_of(execution, [call]):
        node = execution.node(event.place)
        found |= {event.place, event.data["key"] or event.place, syntax.function(node) if node is not None else event.place}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Attribute):
            found |= holders(execution.file, node.func.value)
    return found


def holders(file: SourceFile, optimizer: ast.Attribute) -> set[ast.ClassDef]:
    """The class of this file that keeps an optimizer as `self.optimizer`: the one around it, or the nearest of its bases."""
    known = Definitions(file.syntax, file.names)
    keeping = [owner for owner in known.classes(optimizer) if (owner, optimizer.attr) in known.attributes]
    return set(keeping[:1])
