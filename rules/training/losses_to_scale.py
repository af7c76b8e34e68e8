"""What MP301 tells the recipe that puts a scaler into a program: its backward passes, steps and regions, as the trace has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from mplint.findings import Fix
from mplint.frameworks.torch.protocol import dtype_of
from mplint.program.machine import Event
from mplint.program.trace import Trace, possible
from mplint.program.values import HALF, Constant, Object, Place, State, Step, Value, atoms
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.python.syntax import FUNCTIONS, Function, argument
from mplint.recipes.scaler.insertion import Forward, Training, scale_the_losses
from mplint.recipes.scaler.looks import gradients_read

from .calls_in_order import LOOKS

OF_DEVICE = re.compile(r"cuda|cpu|gpu|device", re.I)


def scalers_put_in(trace: Trace, cases: Sequence[tuple[Event, Step]]) -> dict[Place, Fix | None]:
    """The fixes by the backward passes: `cases` are those, and where the regions of their forward passes are made.

    One fix mends a program. Where there is none, one mends what a function does: another's loss that can't be scaled does not matter to it.
    """
    by_path: dict[str, list[tuple[Event, Step]]] = {}
    by_function: dict[tuple[str, str], list[tuple[Event, Step]]] = {}
    for event, region in cases:
        by_path.setdefault(event.place.path, []).append((event, region))
        by_function.setdefault((event.place.path, event.function), []).append((event, region))
    whole = {path: scaler_put_in(trace, path, found) for path, found in by_path.items()}
    parts = {(path, name): scaler_put_in(trace, path, found) for (path, name), found in by_function.items() if whole[path] is None}
    return {event.place: whole[event.place.path] or parts.get((event.place.path, event.function)) for event, _ in cases}


def scaler_put_in(trace: Trace, path: str, cases: Sequence[tuple[Event, Step]]) -> Fix | None:
    """The fix of one program; None where its steps or regions stand in another one."""
    places = {event.place for event, _ in cases}
    stepped = steps_of(trace, places)
    regions = {region.place for _, region in cases}
    file = trace.file(path)
    if file is None or any(place.path != path for place in (*regions, *(event.place for event in stepped))):
        return None
    happened = [event for entry in trace.entries for event in entry.events if event.place.path == path]
    made: dict[str, dict[ast.AST, None]] = {}
    for event in stepped:
        for call in calls_at(trace, [event.place]):
            if isinstance(call.func, ast.Attribute):
                made.setdefault(ast.unparse(call.func.value), {}).update(dict.fromkeys(makers(trace, path, event.data["optimizer"])))  # type: ignore[arg-type]
    backwards, steps = calls_at(trace, places), calls_at(trace, (event.place for event in stepped))
    forwards = [forward for place in sorted(regions) for forward in forwards_at(trace, file, place, happened, backwards)]
    others = calls_at(trace, (e.place for e in happened if e.kind == "backward" and e.place not in places))
    looks = [*calls_at(trace, (e.place for e in happened if e.kind in LOOKS)), *gradients_read(file)]
    own, apart = [{file.syntax.function(call) for call in calls} for calls in ([*backwards, *steps], others)]
    training = Training(
        backwards=backwards,
        others=others,
        steps=steps,
        looks=[node for node in looks if file.syntax.function(node) not in apart - own],  # the others are of another training
        made=lambda node: [*made.get(ast.unparse(node), {})] or [node],
        forwards=forwards,
        repeated={function for event in stepped if (function := called_in_a_loop(trace, file, event)) is not None},
    )
    return scale_the_losses(file, training, trace.targets(path)) if forwards else None


def called_in_a_loop(trace: Trace, file: SourceFile, step: Event) -> Function | None:
    """The function of a step, where a loop outside of it calls it."""
    found = trace.node(step.place)
    function = file.syntax.function(found[1]) if found is not None and found[0] is file else None
    around = [trace.node(place) for place, _ in step.loops]
    outside = any(node is None or node[0] is not file or file.syntax.function(node[1]) is not function for node in around)
    return function if outside else None


def steps_of(trace: Trace, places: set[Place]) -> list[Event]:
    """The steps of optimizers that apply the gradients of these backward passes."""
    found = []
    for _, event in trace.of("optimizer step"):
        states = [atom.data for _, atom in possible(event.data["gradients"], event.path) if type(atom) is State]  # type: ignore[arg-type]
        if any(isinstance(data, tuple) and data[0] == "plain" and data[2] in places for data in states):
            found.append(event)
    return found


def calls_at(trace: Trace, places: Iterable[Place]) -> list[ast.Call]:
    """The calls at places, each once, in source order."""
    found = [node[1] for place in dict.fromkeys(places) if (node := trace.node(place)) is not None]
    return sorted((node for node in found if isinstance(node, ast.Call)), key=position)


def makers(trace: Trace, path: str, optimizer: Value) -> Iterator[ast.AST]:
    """What makes an optimizer: its constructor, or the call of the function that gives it, whichever a statement names."""
    for atom in atoms(optimizer):
        if type(atom) is not Object or atom.made is None:
            continue
        identity = atom.id[1] if isinstance(atom.id, tuple) and len(atom.id) > 1 else ()
        callers = identity[1] if isinstance(identity, tuple) and len(identity) > 1 and isinstance(identity[1], tuple) else ()
        for place in (atom.made, *reversed(callers)):
            node = trace.node(place) if isinstance(place, Place) and place.path == path else None
            if node is not None and isinstance(node[0].syntax.parents.get(node[1]), ast.Assign | ast.AnnAssign):
                yield node[1]
                break


def forwards_at(trace: Trace, file: SourceFile, place: Place, happened: Sequence[Event], backwards: Sequence[ast.AST]) -> Iterator[Forward]:
    """The region that a place makes, in each way in which the program makes it."""
    for call in calls_at(trace, [place]):
        for event in happened:
            if event.kind == "autocast made" and event.place == place:
                old = event.data["name"] != "torch.amp.autocast"
                of_cuda = event.data["name"] == "torch.cuda.amp.autocast"
                told = "cuda" if of_cuda else text_of(event.data["device"])
                given = argument(call, "device_type", 0)
                device = f'"{told}"' if told else " ".join(file.text(given).split()) if given is not None else ""
                flag = "" if is_on(event.data["enabled"]) else named(file, argument(call, "enabled", 0 if old else 2))
                flag = switched_by(file, call, backwards) if flag == "" else flag
                dtype = "" if is_float16(event.data["dtype"]) else named(file, argument(call, "dtype", 1))
                yield Forward(call, device, flag, dtype)


def switched_by(file: SourceFile, region: ast.Call, backwards: Sequence[ast.AST]) -> str | None:
    """The option in whose branch alone a region is entered, while the backward passes run on either: "" none, None where it has no name."""
    child: ast.AST = region
    for parent in file.syntax.ancestors(region):
        if isinstance(parent, FUNCTIONS):
            break
        if isinstance(parent, ast.If) and child is not parent.test and not any(parent in file.syntax.ancestors(b) for b in backwards):
            is_option = OF_DEVICE.search(ast.unparse(parent.test)) is None  # without a GPU a scaler is off by itself
            if is_option:
                return named(file, parent.test) if child in parent.body else None
        child = parent
    return ""


def text_of(value: object) -> str:
    """A constant text, or "" for anything else."""
    return value.value if type(value) is Constant and isinstance(value.value, str) else ""


def is_on(enabled: object) -> bool:
    """Whether a region is on whatever happens."""
    return enabled is None or (type(enabled) is Constant and bool(enabled.value))


def is_float16(dtype: object) -> bool:
    """Whether a region on CUDA computes in float16 whatever happens."""
    return dtype is None or {letter for _, letter in dtype_of(dtype)} <= {HALF, None}  # type: ignore[arg-type]


def named(file: SourceFile, node: ast.expr | None) -> str | None:
    """The text of a name or an attribute, None for anything else."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None
