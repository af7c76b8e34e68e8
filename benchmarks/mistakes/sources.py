"""Right code as the makers of mistakes see it: texts, trees, places, and what the syntax of a whole project says."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from mistakes.project import DEFINITIONS, Project

SCALER = re.compile(r"scal", re.I)
NO_SCALER = re.compile(r"standard|minmax|image|autoscal|sched|label", re.I)
TOKENS = re.compile(
    r"caler|autocast|[aA]ccelerator|LossScaleOptimizer|get_scaled_loss|mixed_float16|mixed_bfloat16|compute_dtype|add_weight"
    r"|nn\.Module|precision=|fp16|floatx|Layer\b"
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """Right code made wrong: the whole text, the lines at which a finding is right, and the lines that were put in before others.

    Where what was taken away stood in a helper, a finding is right at the calls of `calls` in every file as well.
    """

    text: str
    lines: frozenset[int]
    inserted: int = 0
    count: int = 0
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the syntax of a project says: the classes whose forward a float16 region runs, and who says that half precision is used.

    `scaling` and `casting` hold the files in which a loss scaler is made and a region is entered that can be on, `policed` says whether a
    mixed policy is set where something reaches it, `saved` and `restored` whether the state of a scaler is.
    """

    half: frozenset[str] = frozenset()
    scaled: bool = False
    stepped: bool = False
    regions: frozenset[str] = frozenset()
    old_torch: bool = False
    unscaled: bool = False
    keras_half: frozenset[tuple[str, str]] = frozenset()
    wrapped: bool = False
    accelerated: bool = False
    project: Project = field(default_factory=Project)
    scaling: frozenset[str] = frozenset()
    casting: frozenset[str] = frozenset()
    policed: bool = False
    saved: bool = False
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """A source file: its text, its lines with where each begins, and its tree with the parents of all nodes."""

    path: str
    text: str
    lines: tuple[str, ...]
    begins: tuple[int, ...]
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    parents: dict[ast.AST, ast.AST]
    calls: dict[str, list[ast.Call]]
    facts: Facts = field(default_factory=Facts)

    @property
    def mixed(self) -> bool:
        """Whether some of it computes in float16 by the policy of the program."""
        return any(path == self.path for path, _ in self.facts.keras_half)

    def in_half(self, node: ast.AST) -> bool:
        """Whether the definition that holds a node, or the body of the file, runs under such a policy."""
        at = node
        while not isinstance(self.parents[at], ast.Module):
            at = self.parents[at]
        name = at.name if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else ""
        return (self.path, name) in self.facts.keras_half

    def replace(self, node: ast.AST, text: str, at: Iterable[int] = ()) -> Mutant:
        """Another text in the place of a node; the lines behind stay where they are."""
        return self.replace_all([(node, text)], at or span(node))

    def replace_all(self, changes: Iterable[tuple[ast.AST, str]], at: Iterable[int]) -> Mutant:
        """Other texts in the places of nodes that don't overlap."""
        whole = self.text
        for node, text in sorted(changes, key=lambda change: self.start(change[0]), reverse=True):
            start, end = self.start(node), self.end(node)
            rest, newline, others = whole[end:].partition("\n")
            filler = "\n" * (self.text[start:end].count("\n") - text.count("\n"))
            whole = f"{whole[:start]}{text}{rest}{filler}{newline}{others}"
        return Mutant(whole, frozenset(at))

    def insert(self, before: ast.stmt, text: str, at: Iterable[int] = ()) -> Mutant:
        """Lines before a statement."""
        return self.put(first_line(before), before, text, at)

    def append(self, after: ast.stmt, text: str, at: Iterable[int] = ()) -> Mutant:
        """Lines after a statement."""
        return self.put((after.end_lineno or after.lineno) + 1, after, text, at)

    def put(self, line: int, beside: ast.stmt, text: str, at: Iterable[int]) -> Mutant:
        """Lines at a line, indented like the statement beside them."""
        new = text.split("\n")
        lines = list(self.lines)
        indent = self.indent(beside)
        lines[line - 1 : line - 1] = [indent + each for each in new]
        return Mutant("\n".join(lines), frozenset(at) or frozenset(range(line, line + len(new))), line, len(new))

    def indent(self, statement: ast.stmt) -> str:
        """The indentation of a statement."""
        found = re.match(r"\s*", self.lines[statement.lineno - 1])
        return found.group() if found else ""

    def swap(self, one: ast.stmt, other: ast.stmt) -> Mutant:
        """Two statements that follow each other, the other way round; a finding is right at both."""
        first, last = one.lineno - 1, (other.end_lineno or other.lineno)
        middle = other.lineno - 1
        lines = [*self.lines[:first], *self.lines[middle:last], *self.lines[first:middle], *self.lines[last:]]
        return Mutant("\n".join(lines), frozenset(range(first + 1, last + 1)))

    def start(self, node: ast.AST) -> int:
        """Where a node begins in the text."""
        return self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Where a node ends in the text."""
        return self.offset(node.end_lineno or 0, node.end_col_offset or 0)  # type: ignore[attr-defined]

    def offset(self, line: int, column: int) -> int:
        """Where a place of the tree is in the text."""
        text = self.lines[line - 1]
        return self.begins[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode(errors="ignore")))


Maker = Callable[[Program], Iterator[Mutant]]
Decided = Callable[[Program], bool]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of mistake: the codes that speak of it, those that may speak of its consequences, and how it is put in.

    `alone` says whether the file with the mistake decides that it is one, or others do; `needs` what has to be switched on for it: a
    "scaler" with its region, a "policy", the "state" of a scaler that is saved and restored, or nothing.
    """

    name: str
    family: str
    codes: frozenset[str]
    also: frozenset[str]
    alone: Decided
    make: Maker
    needs: str = ""


KINDS: dict[str, Kind] = {}


def kinds_of(family: str, alone: Decided, needs: str = "") -> Callable[..., Callable[[Maker], Maker]]:
    """The decorator that enters the kinds of a family into the table."""

    def kind(name: str, codes: str, also: str = "", alone: Decided = alone, needs: str = needs) -> Callable[[Maker], Maker]:
        def enter(make: Maker) -> Maker:
            KINDS[name] = Kind(name, family, frozenset(codes.split()), frozenset(also.split()), alone, make, needs)
            return make

        return enter

    return kind


def read(path: str) -> Program | None:
    """A file that may hold a place for a mistake."""
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            text = stream.read()
        if not TOKENS.search(text) or "\r" in text or "\f" in text:
            return None
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    nodes = tuple(ast.walk(tree))
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    calls: dict[str, list[ast.Call]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Call):
            calls[last_name(node.func)].append(node)
    lines = tuple(text.split("\n"))
    begins = tuple(accumulate((len(line) + 1 for line in lines), initial=0))
    return Program(path, text, lines, begins, tree, nodes, parents, dict(calls))


# what the kinds ask of a program


def span(node: ast.AST) -> frozenset[int]:
    """The lines of a node."""
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]


def spans(nodes: Iterable[ast.AST]) -> frozenset[int]:
    """The lines of nodes."""
    return frozenset(line for node in nodes for line in span(node))


def first_line(statement: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def blocks(program: Program) -> Iterator[list[ast.stmt]]:
    """Every block of statements, in the order of the source."""
    for node in program.nodes:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def statements(program: Program) -> Iterator[ast.stmt]:
    """Every statement."""
    return (statement for block in blocks(program) for statement in block)


def method_of(statement: ast.AST, name: str) -> ast.Call | None:
    """The call of a method that is a statement's whole."""
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == name:
        return value
    return None


def is_scaler(node: ast.AST) -> bool:
    """Whether an expression is named like a loss scaler."""
    name = last_name(node)
    return bool(SCALER.search(name)) and not NO_SCALER.search(name)


def of_scaler(statement: ast.AST, name: str) -> ast.Call | None:
    """The call of a scaler's method that is a statement's whole."""
    call = method_of(statement, name)
    return call if call is not None and isinstance(call.func, ast.Attribute) and is_scaler(call.func.value) else None


def scaler_calls(where: ast.AST | Program, name: str) -> list[ast.Call]:
    """The calls of a scaler's method."""
    return [call for call in calls_of(where, name) if isinstance(call.func, ast.Attribute) and is_scaler(call.func.value)]


def calls_of(where: ast.AST | Program, *names: str) -> list[ast.Call]:
    """The calls of functions by their last name."""
    if isinstance(where, Program):
        return [call for name in names for call in where.calls.get(name, ())]
    return [node for node in ast.walk(where) if isinstance(node, ast.Call) and last_name(node.func) in names]


def last_name(node: ast.AST) -> str:
    """The last identifier of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """A dotted name; empty where an expression is something else."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def statement_of(program: Program, node: ast.AST) -> ast.stmt:
    """The statement around an expression."""
    while not isinstance(node, ast.stmt):
        node = program.parents[node]
    return node


def function_of(program: Program, node: ast.AST) -> ast.AST:
    """The function around a node, or the module."""
    while not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        node = program.parents[node]
    return node


def class_of(program: Program, node: ast.AST) -> ast.ClassDef | None:
    """The class around a node."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.ClassDef):
        at = program.parents.get(at)
    return at


def loops_of(program: Program, node: ast.AST) -> list[ast.For | ast.While]:
    """The loops of the function around a node, innermost first."""
    found: list[ast.For | ast.While] = []
    while not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        node = program.parents[node]
        if isinstance(node, (ast.For, ast.While)):
            found.append(node)
    return found


def tests_of(program: Program, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests under which a node runs, with how each has to come out."""
    while (at := program.parents.get(node)) is not None:
        if isinstance(at, (ast.If, ast.IfExp)) and node is not at.test:
            body = at.body if isinstance(at.body, list) else [at.body]
            yield at.test, any(node is statement for statement in body)
        node = at


def runs(program: Program, node: ast.AST) -> bool:
    """Whether something reaches the definitions around a node, and every test around it may come out right."""
    project, at = program.facts.project, node
    while at in program.parents:
        at = program.parents[at]
        if isinstance(at, DEFINITIONS) and not project.is_reached(program.path, at):
            return False
    return all(project.possible(test, wanted, function_of(program, test)) for test, wanted in tests_of(program, node))


def guarded(program: Program, node: ast.AST) -> bool:
    """Whether a node stands under an `if` or `try`, whose other arms may be the right ones."""
    at: ast.AST | None = node
    while at is not None:
        if isinstance(at, (ast.If, ast.Try, ast.IfExp)):
            return True
        at = program.parents.get(at)
    return False


def text_of(program: Program, node: ast.AST) -> str:
    """The source of a node, on one line."""
    return " ".join(program.text[program.start(node) : program.end(node)].split())


def imports_torch(program: Program) -> bool:
    """Whether `torch` is a name of the file."""
    return re.search(r"^import torch$", program.text, re.M) is not None


def live(program: Program) -> bool:
    """Whether a file steps through a scaler, so that what is changed around it matters."""
    return bool(scaler_calls(program, "step"))


def whole_loop(program: Program) -> bool:
    """Whether region, scaler and step stand in one file."""
    return "autocast" in program.text and "GradScaler(" in program.text and live(program)


def always(program: Program) -> bool:
    """A spelling is decided in its file."""
    return True
