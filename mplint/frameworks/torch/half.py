"""What rules ask about half precision: events at places, each in the surest of the runs that reach it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from mplint.findings import Confidence, Span
from mplint.frameworks.texts import asked
from mplint.frameworks.torch.tensors import FOLLOWING, GUESSED
from mplint.program.conditions import Condition
from mplint.program.lower import place_of, span_of
from mplint.program.machine import Event
from mplint.program.supposed import settled
from mplint.program.trace import CALLERS, Entry, Trace, shown_symbol
from mplint.program.values import FALSE, TRUE, By, Chain, Place, Step, Tensor
from mplint.program.verdict import Verdict, speaks_of_precision
from mplint.python.document import InputError
from mplint.python.parse import parse_text

# what is told of a library's modules that nobody in the project runs in half precision
OF_CALLERS = frozenset(
    {"constant beyond range", "epsilon lost", "integers in half", "frequencies in half", "angles in half", "function breaks under autocast"}
)
TRAINS = re.compile(r"^(?:is_)?(?:train|test|eval)(?:ing)?$")
REGION = re.compile(r"autocast|amp|ctx|context|precision", re.I)


@dataclass(frozen=True, slots=True)
class Found:
    """An event, the entry that it happens in, and how sure it is."""

    entry: Entry
    event: Event
    verdict: Verdict

    @property
    def confidence(self) -> Confidence:
        """High where it holds as the program stands, medium where somebody has to turn a switch, or for a guess.

        Low where only users outside the project may run it in half precision, whose own trainers and tests run nothing so.
        """
        tensor = self.event.get("tensor")
        tags: frozenset[str] = tensor.tags if isinstance(tensor, Tensor) else frozenset()
        if FOLLOWING in tags or (self.entry.context == CALLERS and not self.entry.usual):
            return Confidence.LOW
        if GUESSED in tags:
            return Confidence.MEDIUM
        return Confidence.HIGH if self.verdict.proven and not self.entry.context else Confidence.MEDIUM

    @property
    def condition(self) -> str:
        """What has to be turned, in words."""
        condition = self.verdict.condition()
        if self.entry.context != CALLERS:
            return condition
        return f"{f'{condition} and' if condition else ' when'} a caller runs it in float16"

    def chain(self, tensor: Tensor | None = None) -> Chain:
        """Where half precision is put in force, the calls that lead from there to the event, and how the tensor became half."""
        half = tensor.half if tensor is not None else ()
        places = list(self.event.calls)
        inside = next((n for n, place in enumerate(places) if half and place.path == half[0].place.path), 0)
        calls = tuple(Step(place, "this call leads there") for place in places[inside:][-3:] if place.path != self.event.place.path)
        return (*self.entry.meant, *half[:1], *calls, *half[1:])


def found(
    trace: Trace,
    kind: str,
    wanted: Callable[[Event], bool] | None = None,
    callers: bool = False,
    where: Callable[[Event], Place] | None = None,
) -> Iterator[Found]:
    """The events of a kind that are `wanted`, one a place: the surest, training before what only runs a model.
    What it takes is what it takes at least on any of its ways: a run that ends early does not come to all of them.

    Those under a test of the dtype are left out, and those that no settings lead to; `callers`: those are not that only users of a
    library meet. `where`: the place that an event is told at, if it is not its own.
    """
    best: dict[tuple[Place, object], tuple[tuple[object, ...], Found]] = {}
    all_ways: dict[tuple[Place, object], list[Verdict]] = {}
    for number, entry in enumerate(trace.entries):
        events = entry.of(kind)
        ways = {other.calls for other in entry.of("backward", "trainer backward")} if events else set()
        for event in events:
            if any(key[0] == "dtype" for key, _ in event.path) or (wanted is not None and not wanted(event)):
                continue
            if entry.context == CALLERS and not (callers or kind in OF_CALLERS):
                continue
            if entry.context and any(is_left_off(trace, literal, entry.offered) for literal in event.path):
                continue
            if is_skipped_in_training(trace, entry, event):
                continue
            verdict = trace.verdict(entry, event.path)
            if verdict.dead:
                continue  # no settings lead there
            idle = not any(event.calls[: len(way)] == way for way in ways)
            given = bool(entry.context) + (entry.context == CALLERS)
            rank = (given, len(verdict.switches), not entry.script, idle, len(event.calls), number)
            key = (where(event) if where is not None else event.place, event.get("name"))
            if not entry.context:  # elsewhere nobody knows the settings
                all_ways.setdefault(key, []).append(verdict)
            if key not in best or rank < best[key][0]:
                best[key] = (rank, Found(entry, event, verdict))
    for key, (_, item) in best.items():
        verdict = settled(trace, item.entry, item.event.path, partial(verdicts, trace, kind, key, wanted, where))
        less = [other for other in all_ways.get(key, ()) if other.symbols < verdict.symbols and not other.dead]
        yield replace(item, verdict=min(less, key=lambda other: (len(other.symbols), other.switches), default=verdict))


def is_skipped_in_training(trace: Trace, entry: Entry, event: Event) -> bool:
    """Whether a module does something only where it does not train, and what called it is a step that always trains."""
    off = [key for key, sense in event.path if key[0] == "true" and not sense and shown_symbol(key[1]) == "training"]
    if not off:
        return False
    tensor = event.get("tensor")
    if not entry.script and isinstance(tensor, Tensor) and tensor.half and not entry.of("backward"):
        return always_trains(trace, tensor.half[0].place)  # which the region of another program runs
    for backward in entry.of("backward"):
        count = len(backward.calls)
        asked = {literal for literal in backward.path if literal[0][0] in ("true", "in") and literal[0] not in off}
        within = len(event.calls) > count and event.calls[:count] == backward.calls and asked <= event.path
        if within and always_trains(trace, event.calls[count]):
            return True
    return False


def always_trains(trace: Trace, place: Place) -> bool:
    """Whether the function around a place takes gradients, and neither evaluates nor is told whether to train."""
    file, node = trace.node(place) or (None, None)
    function = file.syntax.function(node) if file is not None and node is not None else None
    if file is None or function is None or EVALUATES.search(file.text(function)) is not None:
        return False
    named = (n.id if isinstance(n, ast.Name) else n.attr if isinstance(n, ast.Attribute) else "" for n in ast.walk(function))
    inside = list(named)
    return "backward" in inside and not any(TRAINS.search(name) for name in inside)


EVALUATES = re.compile(r"\.eval\(|\bno_grad\b|\binference_mode\b|\bset_grad_enabled\b")


def verdicts(
    trace: Trace,
    kind: str,
    key: tuple[Place, object],
    wanted: Callable[[Event], bool] | None,
    where: Callable[[Event], Place] | None,
    entry: Entry,
) -> list[Verdict]:
    """How sure an entry's events of a kind are that are `wanted`, at one place."""
    named = (event for event in entry.of(kind) if event.get("name") == key[1] and (wanted is None or wanted(event)))
    events = (event for event in named if (where(event) if where is not None else event.place) == key[0])
    return [trace.verdict(entry, event.path) for event in events]


def is_left_off(trace: Trace, literal: Condition, offered: bool = False) -> bool:
    """Whether a condition asks for a flag that a caller in library code would have to turn.

    Those who make a module that is `offered` choose what it is made with, in which precision it runs, and whether it is trained.
    """
    (kind, *rest), sense = literal
    if kind not in ("true", "in"):
        return False
    switch = trace.switches.get(rest[0])
    if switch is None or switch.kind != "parameter" or switch.default not in (TRUE, FALSE) or rest[0] in trace.turned:
        return False
    if offered and (speaks_of_precision(switch.name, ()) or TRAINS.search(switch.name) is not None or is_made_with(trace, switch.place)):
        return False
    default = switch.default == TRUE
    left = sense is not default if kind == "true" else (default in rest[1]) is not sense
    return left and not is_turned_by_files(trace, switch.name, not default)


def is_turned_by_files(trace: Trace, name: str, wanted: bool) -> bool:
    """Whether a file of the project's settings gives a flag the value that it does not have by default."""
    given = asked(trace.project, ("given", name)) if trace.project is not None else ()
    return isinstance(given, tuple) and any(one.value is wanted for one in given)


def is_made_with(trace: Trace, place: Place | None) -> bool:
    """Whether a default stands among the parameters of a constructor."""
    file, node = (trace.node(place) or (None, None)) if place is not None else (None, None)
    around = file.syntax.ancestors(node) if file is not None and node is not None else ()
    function = next((part for part in around if isinstance(part, ast.FunctionDef)), None)
    return function is not None and function.name == "__init__"


def in_float32(tensor: Tensor) -> str:
    """How to have something computed in float32, in the words of what has put half precision in force."""
    by = tensor.half[0].by if tensor.half else None
    if by is By.APEX:
        return "decorate its function with `apex.amp.float_function`, which has it compute in float32"
    if by is not None:
        return "give it `.float()`, and cast what it gives back where the model goes on with it"
    return "leave autocast for it, `with torch.autocast(device, enabled=False)`, and give it `.float()`"


def first_line(place: Place) -> Place:
    """The first line of a range, from its beginning."""
    line, column = place.position & 0xFFFFF, place.position >> 20 & 0xFFFF
    return Place(place.path, line | column << 20 | (column + 3) << 36)


@dataclass(slots=True)
class Numbers:
    """Where programs write the numbers that they compute with."""

    trace: Trace
    trees: dict[str, ast.Module | None] = field(default_factory=dict)
    known: dict[tuple[Place, tuple[Place, ...], float], Place] = field(default_factory=dict)

    def place(self, used: Place, value: float) -> Place:
        """The literal at a place, or the one that a name there stands for in the same function; else the place itself."""
        tree = self.tree(used.path)
        if tree is None:
            return used
        span = span_of(used.position)
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Constant, ast.UnaryOp, ast.Name)) and within(node, span):
                if is_number(node, value):
                    return Place(used.path, place_of(node))
                if isinstance(node, ast.Name):
                    names.add(node.id)
        function = function_around(tree, span.line)
        if function is None or not names:
            return used
        for target, node in (*assigned_numbers(function, value), *assigned_products(function, value)):
            if target in names and node.lineno <= span.line:
                return Place(used.path, place_of(node))
        return used

    def given(self, event: Event, value: float) -> Place:
        """The same; of a number that a function is given, the literal in the call that gives it."""
        key = (event.place, event.calls, value)
        if key not in self.known:
            place = self.place(event.place, value)
            calls = reversed(event.calls) if place == event.place and self.is_parameter(place, value) else ()
            self.known[key] = next((found for call in calls if (found := self.place(call, value)) != call), place)
        return self.known[key]

    def is_parameter(self, place: Place, value: float) -> bool:
        """Whether what stands at a place names a parameter that has no number of its own there, nor by default."""
        tree, span = self.tree(place.path), span_of(place.position)
        function = function_around(tree, span.line) if tree is not None else None
        if tree is None or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        parts = [node for node in ast.walk(function) if isinstance(node, ast.expr) and within(node, span)]
        given = function.args
        defaults = [default for default in (*given.defaults, *given.kw_defaults) if default is not None]
        names = {argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        named = any(isinstance(node, ast.Name) and node.id in names for node in parts)
        return named and not any(is_number(node, value) for node in (*parts, *defaults))

    def in_region(self, place: Place) -> bool:
        """Whether a place stands within a with-statement that may be a region of autocast, as its words tell."""
        tree = self.tree(place.path)
        span = span_of(place.position)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno < span.line <= (node.end_lineno or node.lineno):
                text = " ".join(ast.unparse(item.context_expr) for item in node.items)
                if REGION.search(text) and "enabled=False" not in text:
                    return True
        return False

    def tree(self, path: str) -> ast.Module | None:
        """The syntax tree of a program."""
        if path not in self.trees:
            try:
                self.trees[path] = parse_text(self.trace.source(path).text)
            except InputError:
                self.trees[path] = None
        return self.trees[path]


def within(node: ast.expr, span: Span) -> bool:
    """Whether a node lies in a range, in UTF-8 columns."""
    start, end = (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (span.line, span.column) <= start and end <= (span.end_line, span.end_column)


def is_number(node: ast.expr, value: float) -> bool:
    """Whether a node is the literal of a number, or of its negative."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as held)):
            return -held == value
        case ast.Constant(value=int() | float() as held):
            return held in (value, -value)
    return False


def function_around(tree: ast.Module, line: int) -> ast.AST | None:
    """The innermost function around a line."""
    found: ast.AST | None = None
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found = node
    return found


def assigned_numbers(function: ast.AST, value: float) -> Iterator[tuple[str, ast.expr]]:
    """The names to which a function assigns a number, alone or in a tuple."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        match node.targets[0], node.value:
            case ast.Name(id=name), held if is_number(held, value):
                yield name, held
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for target, held in zip(targets, values, strict=True):
                    if isinstance(target, ast.Name) and is_number(held, value):
                        yield target.id, held


def assigned_products(function: ast.AST, value: float) -> Iterator[tuple[str, ast.expr]]:
    """The names to which a function assigns a product with a number."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Mult(), left=left, right=right)):
                yield from ((name, side) for side in (left, right) if is_number(side, value))


def number_shown(text: str, value: float) -> str:
    """A number as the program writes it, or its value where it has a name."""
    try:
        float(text.replace(" ", ""))
    except ValueError:
        shown = f"{value:.7g}"
        return repr(value) if float(shown) == 1 != value else shown
    return text
