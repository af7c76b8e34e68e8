"""What happens when a Keras program runs, as its adoption asks: events with the syntax of the program's own file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.adopt.program import Program
from mplint.program.machine import Event
from mplint.program.trace import Entry
from mplint.program.values import Place
from mplint.python.load import read_file


class Scene:
    """One state of a program, run."""

    def __init__(self, program: Program) -> None:
        self.program, self.file = program, program.file
        self.trace, self.path = program.execution.trace, program.execution.path

    def events(self, *kinds: str) -> Iterator[tuple[Entry, Event]]:
        """The events of some kinds, with their entries."""
        return self.program.execution.events(*kinds)

    def node(self, place: Place | None) -> ast.AST | None:
        """The syntax of this file at a place; None for another file's."""
        return self.program.execution.node(place) if place is not None else None

    def chain(self, event: Event) -> list[ast.expr]:
        """The syntax of this file that leads to an event, outermost first, and at which it happens."""
        nodes = [self.node(place) for place in (*event.calls, event.place)]
        return [node for node in nodes if isinstance(node, ast.expr)]  # an entry begins at a definition

    def here(self, event: Event) -> ast.expr | None:
        """The innermost syntax of this file that leads to an event, or at which it happens."""
        return next(iter(reversed(self.chain(event))), None)

    def text(self, node: ast.AST) -> str:
        """The text of a node on one line, cut where it is long; of a call only what is called."""
        shown = " ".join(self.file.text(node.func if isinstance(node, ast.Call) else node).split())
        return shown if len(shown) <= 60 else f"{shown[:57]}..."


def scene_of(program: Program) -> Scene:
    """What happens when a state of a program runs, found out once."""
    return program.kept(Scene)


def bytes_of(program: Program, path: str) -> bytes:
    """The text of a file: the program's as it is now, others' from the disk."""
    return program.data if path == program.path else read_file(path)
