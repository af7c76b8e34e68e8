"""A GradScaler for losses that run under autocast in float16, for the device of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mplint.adopt.execution import Execution
from mplint.adopt.torch.backwards import steps_of
from mplint.adopt.torch.passages import passed
from mplint.adopt.torch.spelling import Spelling, imports_torch, torch_name
from mplint.findings import AddImport, Applicability, Fix
from mplint.program.machine import Event
from mplint.program.values import Place
from mplint.python.definitions import Definitions
from mplint.python.file import SourceFile
from mplint.python.names import alternatives, position
from mplint.python.syntax import Function
from mplint.recipes.scaler.insertion import Insertion, Training
from mplint.recipes.scaler.looks import looks
from mplint.recipes.scaler.plan import NoFix, require

POLICY = "mixed_float16"
LOOKS = ("clip", "gradients read", "gradients changed")
UNSTEPPED = "the optimizer's step is not in sight"
READ = "no optimizer steps with its gradients, which its function reads: under a loss scale they would be scaled, too"
# What to do about the commonest reasons.
ADVICE = {
    "the optimizer is not made in one place": "its optimizer comes from elsewhere, and the scaler belongs beside it: build a "
    "`torch.amp.GradScaler` there, hand it in, and scale, step and update with it here",
    "the optimizer's step is not in sight": "the step of its optimizer is not in sight: scale the loss, step and update with a "
    "`torch.amp.GradScaler` there",
    "the optimizer is made in several places": "its optimizer is made in several places: build one `torch.amp.GradScaler` where the object "
    "is made, and scale, step and update with it",
    "the optimizer is made under a condition": "its optimizer is made under a condition: build a `torch.amp.GradScaler` once, and scale, "
    "step and update with it",
    "gradients are clipped or read in a function of their own": "a function of its own clips or reads the gradients: unscale them there "
    "first (`scaler.unscale_(optimizer)`)",
    "another loss is not scaled": "another loss of its function can't be scaled with it",
}


def scaled(execution: Execution, backwards: Sequence[ast.Call]) -> Fix:
    """The fix that scales the losses of these backward passes; raises NoFix where not all of it is in sight."""
    file = execution.file
    try:
        inserted = Insertion(file, training_of(execution, backwards), free_name(file), Spelling(execution, POLICY).scaler)
        changes = tuple(dict.fromkeys(inserted.changes()))
    except NoFix as reason:
        if str(reason) == UNSTEPPED and any(reads_gradients(file, backward) for backward in backwards):
            raise NoFix(READ) from None
        raise NoFix(ADVICE.get(str(reason), str(reason))) from None
    if torch_name(file) != "torch" or imports_torch(file):
        changes = tuple(change for change in changes if change != AddImport("torch"))
    return Fix("Scale the loss with a GradScaler", Applicability.UNSAFE, changes)


def reads_gradients(file: SourceFile, backward: ast.Call) -> bool:
    """Whether the function of a backward pass reads gradients by itself: `image.grad.sign()`."""
    function = file.syntax.function(backward)
    reads = (node for node in file.syntax.all(ast.Attribute) if node.attr == "grad" and isinstance(node.ctx, ast.Load))
    return any(file.syntax.function(node) is function and position(node) > position(backward) for node in reads)


def training_of(execution: Execution, backwards: Sequence[ast.Call]) -> Training:
    """What the losses of these backward passes are trained by."""
    stepped = steps_of(execution, list(backwards))
    steps = {execution.innermost(event): event for event in stepped}
    made: dict[str, dict[ast.AST, None]] = {}
    for event in stepped:
        node = execution.innermost(event)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            chain = event.calls if execution.node(event.place) is node else event.calls[: event.calls.index(execution.place_of(event))]
            made.setdefault(ast.unparse(node.func.value), {}).update(dict.fromkeys(origins(execution, node.func.value, chain)))
    calls = sorted((node for node in steps if isinstance(node, ast.Call)), key=position)
    for call in calls:
        stepped_here = isinstance(call.func, ast.Attribute) and call.func.attr == "step"
        require(stepped_here, "the optimizer's step is not in sight")
        elsewhere = steps[call].place.path != execution.path
        require(not elsewhere, f"`{execution.file.text(call)}` steps in another file: scale the loss, step and update with a scaler there")
    unseen = steps_beside(execution, calls)
    for call in unseen:
        made.setdefault(ast.unparse(call.func.value), next(iter(made.values()), {}))  # type: ignore[attr-defined]
    calls = sorted([*calls, *unseen], key=position)
    beside = [call for call in calls_at(execution, "backward") if call not in backwards]
    return Training(
        backwards=sorted(backwards, key=position),
        others=[call for call in beside if any(execution.innermost(event) in steps for event in steps_of(execution, [call]))],
        steps=calls,
        looks=lifted(execution.file, [*looks_beside(execution, calls), *looks(execution.file)], [*backwards, *calls]),
        made=lambda node: [*made.get(ast.unparse(node), {})] or [node],
        repeated=repeated(execution, stepped),
    )


def repeated(execution: Execution, stepped: Sequence[Event]) -> set[Function]:
    """The functions with these steps that loops of other files call again and again with the optimizers that they have made before."""
    anew = {loop for _, event in execution.events("optimizer made") for loop, _ in event.loops}
    found: set[Function] = set()
    for event in stepped:
        if any(loop.path != execution.path and loop not in anew for loop, _ in event.loops):
            node = execution.innermost(event)
            function = execution.file.syntax.function(node) if node is not None else None
            found |= {function} if function is not None else set()
    return found


def beside_unscaled(execution: Execution, backwards: Sequence[ast.Call]) -> dict[ast.Call, ast.Call]:
    """Those of some backward passes whose gradients may be applied with those of one that is not among them, and that one."""
    file = execution.file
    found: dict[ast.Call, ast.Call] = {}
    places = {call: {event.place for event in steps_of(execution, [call])} for call in calls_at(execution, "backward")}
    for call in backwards:
        for other, stepped in places.items():
            apart = other in backwards or file.names.exclusive(other, call) or file.syntax.function(other) is not file.syntax.function(call)
            own = places.get(call, set())
            if not apart and (not own or not stepped or own & stepped):
                found.setdefault(call, other)
    return found


def looks_beside(execution: Execution, steps: Sequence[ast.Call]) -> list[ast.Call]:
    """What clips or reads gradients: the calls that stand in a function with a step, whatever they lead to."""
    homes = {execution.file.syntax.function(step) for step in steps}
    found: dict[ast.Call, None] = {}
    for _, event in execution.events(*LOOKS):
        nodes = [node for place in (event.place, *reversed(event.calls)) if isinstance(node := execution.node(place), ast.Call)]
        beside = [node for node in nodes if execution.file.syntax.function(node) in homes]
        found.update(dict.fromkeys((beside or nodes)[:1]))
    return sorted(found, key=position)


def steps_beside(execution: Execution, calls: Sequence[ast.Call]) -> list[ast.Call]:
    """Steps of further optimizers in the same functions, in arms that the program does not take: they apply the same gradients."""
    file = execution.file
    homes = {file.syntax.function(call) for call in calls}
    methods = [c for c in file.syntax.all(ast.Call) if isinstance(c.func, ast.Attribute) and file.syntax.function(c) in homes]
    cleared = {ast.unparse(c.func.value) for c in methods if c.func.attr == "zero_grad"}  # type: ignore[attr-defined]
    stepped = {ast.unparse(c.func.value) for c in calls if isinstance(c.func, ast.Attribute)}
    found = [c for c in methods if c.func.attr == "step" and not c.args and not execution.callees(c)]  # type: ignore[attr-defined]
    return [c for c in found if ast.unparse(c.func.value) in cleared - stepped]  # type: ignore[attr-defined]


def lifted(file: SourceFile, found: Sequence[ast.expr], beside: Sequence[ast.AST]) -> list[ast.expr]:
    """Looks at gradients, those in functions of their own as the calls of these that stand beside backward passes and steps."""
    homes = {file.syntax.function(node) for node in beside}
    sites = Definitions(file.syntax, file.names).call_sites
    result: dict[ast.expr, None] = {}
    waiting, done = list(found), set[ast.expr]()
    while waiting:
        look = waiting.pop(0)
        if look in done:
            continue
        done.add(look)
        home = file.syntax.function(look)
        if home is None or home in homes or not sites.get(home):
            result[look] = None
        else:
            waiting += sites[home]
    return list(result)


def taken_as(value: ast.expr | None, name: str) -> ast.Name | None:
    """The argument of a call by which it takes what a name stands for."""
    given = value.args if isinstance(value, ast.Call) else []
    return next((argument for argument in given if isinstance(argument, ast.Name) and argument.id == name), None)


def origins(execution: Execution, node: ast.expr, chain: Sequence[Place], followed: tuple[ast.AST, ...] = ()) -> Iterator[ast.AST]:
    """What makes an optimizer, or hands it in: the call that gives it in this file, through the calls that lead there."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        kept = Definitions(execution.file.syntax, execution.file.names).kept_as(node)
        yield from (arm for value in kept for arm in alternatives(value) if isinstance(arm, ast.Call))
    if not isinstance(node, ast.Name):
        return
    for binding in execution.file.names.reaching(node):
        if isinstance(binding.node, ast.arg):
            call = execution.node(chain[-1]) if chain else None
            function = execution.file.syntax.function(binding.node)
            given = passed(call, function, node.id) if isinstance(call, ast.Call) and function is not None else None
            if given is None:
                yield binding.node
            elif isinstance(given, ast.Call):
                yield given
            else:
                yield from origins(execution, given, chain[:-1])
        elif isinstance(loop := execution.file.syntax.parents[binding.node], ast.For) and loop.target is binding.node:
            yield from origins(execution, loop.iter, chain)
        elif isinstance(binding.value, (ast.List, ast.Tuple)):
            for part in binding.value.elts:
                yield from [part] if isinstance(part, ast.Call) else origins(execution, part, chain)
        elif (own := taken_as(binding.value, node.id)) is not None:  # what changes an optimizer and gives it back
            yield from origins(execution, own, chain, (*followed, binding.node)) if binding.node not in followed else ()
        elif binding.value is not None:
            yield from (arm for arm in alternatives(binding.value) if isinstance(arm, ast.Call))


def calls_at(execution: Execution, *kinds: str) -> list[ast.Call]:
    """The calls of this file at which events of some kinds happen."""
    return calls_of(execution, (event.place for _, event in execution.events(*kinds)))


def calls_of(execution: Execution, places: Iterator[Place] | Sequence[Place]) -> list[ast.Call]:
    """The calls of this file at places, each once, in source order."""
    found = [execution.node(place) for place in dict.fromkeys(places)]
    return sorted({node for node in found if isinstance(node, ast.Call)}, key=position)


def free_name(file: SourceFile) -> str:
    """`scaler`, or another name where the program uses that one."""
    bound = {n.id for n in file.syntax.all(ast.Name)} | {n.arg for n in file.syntax.all(ast.arg)}
    bound |= {n.attr for n in file.syntax.all(ast.Attribute)}
    return next(name for name in ("scaler", "grad_scaler", "loss_scaler", "amp_scaler") if name not in bound)
