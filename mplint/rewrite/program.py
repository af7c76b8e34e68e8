"""A program taken apart into blocks of statements that can be rearranged: LibCST's nodes at `ast`'s positions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst

from mplint.findings import Span
from mplint.python.document import Document, InputError
from mplint.python.parse import parse_text
from mplint.rewrite.errors import FixError
from mplint.rewrite.lines import place

MAX_DEPTH = 1000  # LibCST's native parser and its code generator are recursive
_FIRST_LINES = re.compile(r"#!|#[^\n]*coding[:=]")
_NOWHERE = (1 << 40, 0)

Suite = cst.IndentedBlock | cst.SimpleStatementSuite


@dataclass(eq=False, slots=True)
class Small:
    """A simple statement: an assignment, an import, `return` …; `line` holds it, with others where semicolons separate them."""

    node: cst.BaseSmallStatement
    line: Statement


@dataclass(eq=False, slots=True)
class Statement:
    """A line of simple statements (`smalls`) or a compound statement (`node`, `blocks`), with the blank and comment lines above it.

    `number` is its line in the program, 0 for what a fix brought in or moved. `tail` is the last statement that a fix put after it.
    `separator` marks the line between two cells of a notebook, and the one that was put after the end.
    """

    leading: list[cst.EmptyLine]
    number: int = 0
    node: cst.BaseCompoundStatement | None = None
    blocks: list[Block] = field(default_factory=list)
    smalls: list[Small] = field(default_factory=list)
    trailing: cst.TrailingWhitespace = field(default_factory=cst.TrailingWhitespace)
    owner: Block | None = None
    tail: Statement | None = None
    separator: bool = False
    dirty: bool = False


@dataclass(eq=False, slots=True)
class Block:
    """The statements of the module (`suite` None) or of one suite of a compound statement, and the comments that end it."""

    suite: Suite | None
    items: list[Statement]
    footer: list[cst.EmptyLine]
    owner: Statement | None = None
    dirty: bool = False

    @property
    def indent(self) -> str | None:
        """The indentation of this suite where it is not the module's usual one."""
        return self.suite.indent if isinstance(self.suite, cst.IndentedBlock) else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a statement starts (decorators included) and ends, and where the first statement inside it starts; (line, column) each.

    `target` is None for an `elif`, which is no statement of its own.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    inner: tuple[int, int]
    target: Statement | Small | None


@dataclass(frozen=True, slots=True)
class Program:
    """A document taken apart. `tops` are the module's statements with the line on which each began, comments included.

    `unfaithful` are lines that LibCST would not write as they are; what holds one is not rewritten.
    """

    document: Document
    lines: list[str]
    tree: ast.Module
    module: cst.Module
    body: Block
    tops: dict[Statement, int]
    first_line: int
    places: list[Place]
    unfaithful: frozenset[int]

    def at(self, span: Span) -> Statement | Small:
        """The statement that a change names: the innermost one that begins at, or goes on over, the start of `span`."""
        where = self.where(span)
        start, end = (span.line, span.column), (span.end_line, span.end_column)
        if 1 <= span.line <= len(self.lines) and not self.lines[span.line - 1][: span.column].strip():
            text = self.lines[span.line - 1]
            start = (span.line, len(text) - len(text.lstrip()))
        best = max((p for p in self.places if p.start <= start <= p.end), key=lambda p: p.start, default=None)
        if best is None or start >= best.inner or (isinstance(best.target, Statement) and best.target.separator):
            raise FixError(f"{where}: no statement begins here")
        if best.target is None:
            raise FixError(f"{where}: an `elif` is a part of its `if`, not a statement")
        if end > (best.end[0] + 1, 0):
            raise FixError(f"{where}: the place named is longer than its statement")
        line = best.target.line if isinstance(best.target, Small) else best.target
        if line.owner is None or (isinstance(best.target, Small) and best.target not in line.smalls):
            raise FixError(f"{where}: another change of the same fix removes this statement")
        return best.target

    def where(self, span: Span) -> str:
        """`path:line` of a span, for messages."""
        return place(self.document, min(max(span.line, 1), len(self.lines)))


def take_apart(document: Document) -> Program:
    """The program of `document`; FixError where LibCST can't take it apart."""
    lines = document.text.split("\n")
    separators = {cell.first_line - 1 for cell in document.cells[1:]}
    marked = [line or "pass" if number in separators else line for number, line in enumerate(lines, 1)] if separators else lines
    # LibCST loses blank lines above an indented comment at the end of a file: let something follow.
    marked = [*(marked if marked[-1] else marked[:-1]), "pass", ""]
    separators.add(len(marked) - 1)
    try:
        tree, module, unfaithful = _parse("\n".join(marked))
    except cst.ParserSyntaxError as error:
        raise FixError(f"{document.path}: LibCST does not parse the program: {error.message}") from None
    except (InputError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FixError(f"{document.path}: the program can't be taken apart: {error}") from None
    reader = _Reader(marked, separators)
    try:
        body = reader.block(None, module.body, tree.body, None)
    except ValueError as error:
        raise FixError(f"{document.path}: LibCST and Python read the program differently: {error}") from None
    header = list(module.header)
    top = 0
    while top < min(2, len(header)) and (comment := header[top].comment) and _FIRST_LINES.match(comment.value):
        top += 1
    body.items[0].leading[:0] = header[top:]
    tops = {item: item.number - len(item.leading) for item in body.items}
    return Program(document, lines, tree, module, body, tops, top + 1, reader.places, unfaithful)


@lru_cache(maxsize=2)
def _parse(text: str) -> tuple[ast.Module, cst.Module, frozenset[int]]:
    """Both trees of a program, and the lines that LibCST changes by itself; form feeds, which it drops, are put back elsewhere."""
    tree = parse_text(text)
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
        if depth > MAX_DEPTH:
            raise RecursionError("nested too deeply")
    module = cst.parse_module(text)
    lines, written = text.replace("\f", "").split("\n"), module.code.replace("\f", "").split("\n")
    if len(lines) != len(written):
        raise ValueError("LibCST does not keep all of its lines")
    return tree, module, frozenset(number for number, (line, other) in enumerate(zip(lines, written, strict=True), 1) if line != other)


class _Reader:
    """Pairs the statements of the two trees and notes where each one stands."""

    def __init__(self, lines: list[str], separators: set[int]) -> None:
        self.lines = lines
        self.separators = separators
        self.places: list[Place] = []

    def block(self, suite: Suite | None, nodes: Sequence[cst.CSTNode], trees: Sequence[ast.stmt], owner: Statement | None) -> Block:
        """The block of one suite; ValueError where the trees differ."""
        block = Block(suite, [], list(suite.footer) if isinstance(suite, cst.IndentedBlock) else [], owner)
        rest = iter(trees)
        if isinstance(suite, cst.SimpleStatementSuite):
            block.items.append(self.line(suite, [], rest))
        else:
            for node in nodes:
                if isinstance(node, cst.SimpleStatementLine):
                    block.items.append(self.line(node, list(node.leading_lines), rest))
                elif isinstance(node, cst.BaseCompoundStatement):
                    block.items.append(self.compound(node, _next(rest)))
        if next(rest, None) is not None:
            raise ValueError("a statement is missing")
        for item in block.items:
            item.owner = block
        return block

    def line(
        self, node: cst.SimpleStatementLine | cst.SimpleStatementSuite, leading: list[cst.EmptyLine], trees: Iterator[ast.stmt]
    ) -> Statement:
        statement = Statement(leading, trailing=node.trailing_whitespace)
        for small in node.body:
            tree = _next(trees)
            statement.number = statement.number or tree.lineno
            statement.smalls.append(Small(small, statement))
            self.places.append(Place(self.start(tree), self.end(tree), _NOWHERE, statement.smalls[-1]))
        statement.separator = statement.number in self.separators
        if statement.separator:
            self.places[-1] = Place((statement.number, 0), (statement.number, 0), (0, 0), None)
        return statement

    def compound(self, node: cst.BaseCompoundStatement, tree: ast.stmt) -> Statement:
        start = self.start(tree)
        statement = Statement(list(getattr(node, "leading_lines", ())), start[0], node, separator=start[0] in self.separators)
        for suite, trees in self.suites(node, tree):
            statement.blocks.append(self.block(suite, suite.body, trees, statement))
        inner = self.start(_first_inside(tree))
        self.places.append(Place(start, self.end(tree), inner, statement))
        return statement

    def suites(self, node: cst.CSTNode, tree: ast.AST) -> Iterator[tuple[Suite, list[ast.stmt]]]:
        match node, tree:
            case (
                cst.If(body=body, orelse=orelse),
                ast.If(body=inside, orelse=otherwise),
            ) | (
                cst.For(body=body, orelse=orelse) | cst.While(body=body, orelse=orelse),
                ast.For(body=inside, orelse=otherwise)
                | ast.AsyncFor(body=inside, orelse=otherwise)
                | ast.While(body=inside, orelse=otherwise),
            ):
                yield _suite(body), inside
                if isinstance(orelse, cst.If):
                    branch = _next(iter(otherwise))
                    self.places.append(Place(self.start(branch), self.end(branch), self.start(_first_inside(branch)), None))
                    yield from self.suites(orelse, branch)
                elif orelse is not None:
                    yield _suite(orelse.body), otherwise
            case (
                cst.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody)
                | cst.TryStar(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody),
                ast.Try() | ast.TryStar() as attempt,
            ):
                yield _suite(body), attempt.body
                for handler, caught in zip(handlers, attempt.handlers, strict=True):
                    assert isinstance(handler, cst.ExceptHandler | cst.ExceptStarHandler)
                    yield _suite(handler.body), caught.body
                if orelse is not None:
                    yield _suite(orelse.body), attempt.orelse
                if finalbody is not None:
                    yield _suite(finalbody.body), attempt.finalbody
            case cst.Match(cases=cases), ast.Match(cases=choices):
                for case, choice in zip(cases, choices, strict=True):
                    yield _suite(case.body), choice.body
            case (
                cst.With(body=body) | cst.FunctionDef(body=body) | cst.ClassDef(body=body),
                ast.With(body=inside)
                | ast.AsyncWith(body=inside)
                | ast.FunctionDef(body=inside)
                | ast.AsyncFunctionDef(body=inside)
                | ast.ClassDef(body=inside),
            ):
                yield _suite(body), inside
            case _:
                raise ValueError(f"{type(node).__name__} stands for {type(tree).__name__}")

    def start(self, tree: ast.stmt) -> tuple[int, int]:
        if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and tree.decorator_list:
            line = self.lines[tree.decorator_list[0].lineno - 1]
            return tree.decorator_list[0].lineno, len(line) - len(line.lstrip())
        return tree.lineno, self.column(tree.lineno, tree.col_offset)

    def end(self, tree: ast.stmt) -> tuple[int, int]:
        line = tree.end_lineno or tree.lineno
        return line, self.column(line, tree.end_col_offset or 0)

    def column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1]
        return offset if text.isascii() else len(text.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "replace"))


def _next(trees: Iterator[ast.stmt]) -> ast.stmt:
    tree = next(trees, None)
    if tree is None:
        raise ValueError("a statement too many")
    return tree


def _suite(suite: cst.BaseSuite) -> Suite:
    assert isinstance(suite, cst.IndentedBlock | cst.SimpleStatementSuite)
    return suite


def _first_inside(tree: ast.stmt) -> ast.stmt:
    body: list[ast.stmt] = tree.cases[0].body if isinstance(tree, ast.Match) else getattr(tree, "body", [])
    return body[0]
