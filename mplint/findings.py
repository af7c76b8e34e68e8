"""The values that every stage of mplint passes on: spans, findings, fixes and edits.

A leaf module: it imports nothing of mplint. Everything here is frozen and pickles, so that worker
processes, the cache, the editor server and the reports share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import NamedTuple


class Severity(str, Enum):
    """How bad a finding is, as rules/ and the reports use it."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Order for comparisons: info 0, warning 1, error 2."""
        return _SEVERITY_RANK[self.value]


class Confidence(str, Enum):
    """How sure the evidence makes us."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @property
    def rank(self) -> int:
        """Order for comparisons: low 0, medium 1, high 2."""
        return _CONFIDENCE_RANK[self.value]

    def at_most(self, most: Confidence) -> Confidence:
        """This confidence, or another one that is less."""
        return min(self, most, key=lambda confidence: confidence.rank)


class Applicability(str, Enum):
    """Whether `mplint fix` may apply a fix."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    DISPLAY = "display"


_SEVERITY_RANK = {"info": 0, "warning": 1, "error": 2}
_CONFIDENCE_RANK = {"low": 0, "medium": 1, "high": 2}


class Span(NamedTuple):
    """A half-open range of a document's program text.

    Lines count from 1, columns from 0, in characters. In a notebook the program is all code cells
    joined, so a span is turned into a cell's own lines only when it becomes a `Location`.
    """

    line: int
    column: int
    end_line: int
    end_column: int


class Location(NamedTuple):
    """A place as a report shows it: lines and columns count from 1, columns in characters.

    `cell` is the 0-based index among all the cells of a notebook and `line` counts within that cell.
    """

    path: str
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    cell: int | None = None


class Related(NamedTuple):
    """Another place that makes a finding understandable, and what happens there."""

    location: Location
    message: str


@cache
def numbered(steps: Sequence[tuple[Location, str]]) -> tuple[Related, ...]:
    """Places in order; several show it, since reports may sort places by file and line."""
    return tuple(Related(place, f"({n}) {words}" if len(steps) > 1 else words) for n, (place, words) in enumerate(steps, 1))


class Edit(NamedTuple):
    """Replace the text of a location by `content`; locations are in the file's (or cell's) own lines."""

    location: Location
    content: str


class Replace(NamedTuple):
    """Replace the text of `span` (empty span: insert)."""

    span: Span
    text: str


class InsertStatements(NamedTuple):
    """Insert `lines` before or after the whole statement at `anchor`, at its indentation.

    `lines` are relative to that indentation (nested lines carry their own four-space indentation,
    which is turned into the file's).
    """

    anchor: Span
    lines: tuple[str, ...]
    after: bool = False


class RemoveStatement(NamedTuple):
    """Remove the whole statement at `span`; an emptied block keeps a `pass`."""

    span: Span


class WrapStatements(NamedTuple):
    """Put the consecutive statements from `first` to `last` (same block) under `header`, a line that ends with a colon."""

    first: Span
    last: Span
    header: str


class UnwrapBlock(NamedTuple):
    """Remove the header of the compound statement at `span` and dedent its body in place."""

    span: Span


class MoveStatement(NamedTuple):
    """Move the whole statement at `span` before (or after) the statement at `anchor`, taking its indentation."""

    span: Span
    anchor: Span
    after: bool = False


class AddImport(NamedTuple):
    """Make `import module` (name None) or `from module import name [as asname]` available at module level, once."""

    module: str
    name: str | None = None
    asname: str | None = None


class RemoveImport(NamedTuple):
    """Remove one alias of an import statement at `span`; the statement goes when nothing of it is left."""

    span: Span
    name: str


class NodePlace(NamedTuple):
    """A node of a model: the function and the bodies that it lies in, none for the graph itself, and the name of its first output."""

    scope: tuple[str, ...]
    name: str


class RemoveCast(NamedTuple):
    """Take a cast out of a model: what read its result reads what it read."""

    node: NodePlace


class ComputeIn(NamedTuple):
    """Let nodes of a model compute in `dtype`; what they read and give is cast where others need another dtype."""

    nodes: tuple[NodePlace, ...]
    dtype: str


class WriteNumber(NamedTuple):
    """Write `number` into the constants that nodes read at these positions; `beyond`: with its sign, and only over what is larger."""

    operands: tuple[tuple[NodePlace, int], ...]
    number: float
    beyond: float | None = None


Change = Replace | InsertStatements | RemoveStatement | WrapStatements | UnwrapBlock | MoveStatement | AddImport | RemoveImport
ModelChange = RemoveCast | ComputeIn | WriteNumber


class Fix(NamedTuple):
    """What to change, in the terms of the program, or of the `model`; `mplint.rewrite` and `mplint.mend` carry it out on request.

    `exact`: the model gives the same bits after it.
    """

    title: str
    applicability: Applicability
    changes: tuple[Change, ...] = ()
    model: tuple[ModelChange, ...] = ()
    exact: bool = False


class Evidence(NamedTuple):
    """What a watched run says of a finding: "confirmed", "refuted", "not reached" or "undecided", and the sentence with the numbers."""

    verdict: str
    text: str


class Finding(NamedTuple):
    """One mistake at one place.

    `message` says what is wrong; `why` says in a sentence, with the number that matters, why it
    harms; `help` says what to do. `cause`: the place of what brings it about, where mending that mends this too.
    `evidence`: what a run of the program has shown of it, where one was watched. `assumed`: what the rule takes for granted, in words
    that follow "that".
    """

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    message: str
    location: Location
    why: str = ""
    help: str = ""
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    node: str | None = None
    cause: Location | None = None
    evidence: Evidence | None = None
    assumed: str = ""

    def __hash__(self) -> int:
        return hash((self.code, self.location, self.message))  # all the changes of a long fix would take too long

    @property
    def sort_key(self) -> tuple[str, int, int, int, str, str, str]:
        """Path, cell, line, column, code: the order of every report."""
        place = self.location
        cell = -1 if place.cell is None else place.cell
        return (place.path, cell, place.line or 0, place.column or 0, self.code, self.message, self.node or "")
