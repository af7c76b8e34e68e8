"""The page of an adoption: the verdict, the diff with what was done at each line and why, and what is left to the user."""

from __future__ import annotations

import re
from typing import NamedTuple

from mplint.adopt.program import Adoption, Note
from mplint.python.document import Document
from mplint.python.load import load
from mplint.report.page.code import Excerpt, excerpt
from mplint.report.page.diffs import DiffLine, diff_lines
from mplint.report.page.render import render
from mplint.report.page.units import counted
from mplint.report.sources import Sources
from mplint.report.summary import place

# What the lines that an adoption writes are for, by what stands in them.
PURPOSES = (
    ("autocast(", "runs matmuls and convolutions in the half dtype, and what needs the range of float32 in float32."),
    ("GradScaler(", "keeps the factor that losses are multiplied by, 65536 at first, so that small gradients do not become 0 in float16."),
    (".scale(", "multiplies the loss, and so every gradient, by that factor before they are computed."),
    (".unscale_(", "divides the gradients by it again before anything looks at them: a clipping limit is meant for true gradients."),
    ("caler.step(", "steps the optimizer, unless a gradient is infinite or NaN: then this step is left out."),
    ("caler.update(", "makes the factor smaller after such a step, and larger after many good ones."),
    ("caler.state_dict(", "saves the factor with the checkpoint, so that a restart goes on as the run would have."),
    ("caler.load_state_dict(", "restores the factor from the checkpoint."),
    ("set_global_policy(", "lets the layers that are made from here on compute in half, with variables in float32."),
    ("LossScaleOptimizer(", "multiplies the loss by a factor and divides the gradients by it, so that small gradients do not become 0."),
    ('dtype="float32"', "keeps this layer in float32: what it gives goes into a loss, or out of the model."),
    (".float()", "goes on in float32 from here, where half would lose range or digits."),
)


class Part(NamedTuple):
    """A file, or a cell of a notebook, with what changes in it."""

    title: str
    cell: int | None
    lines: tuple[DiffLine, ...]


class NoteShown(NamedTuple):
    """What was done at a place, or why nothing was. `anchor` is the line of the diff that shows the place, "" where none does."""

    text: str
    place: str
    excerpt: Excerpt | None
    anchor: str


def page(adoption: Adoption, written: str | None) -> str:
    """The page; `written` is the file that holds the result, if one was written."""
    sources = Sources({adoption.path: adoption.before})
    parts = _parts(adoption)
    added = sum(line.kind == "new" for part in parts for line in part.lines)
    gone = sum(line.kind == "gone" for part in parts for line in part.lines)
    shown = {(at, line.old) for at, part in enumerate(parts) for line in part.lines if line.old is not None}
    cells = {part.cell: at for at, part in enumerate(parts)}

    def noted(note: Note) -> NoteShown:
        at = cells.get(note.location.cell) if note.location.path == adoption.path else None
        anchor = f"p{at}l{note.location.line}" if (at, note.location.line) in shown else ""
        lines = sources.lines(note.location.path, note.location.cell)
        return NoteShown(note.text, place(note.location), excerpt(note.location, lines, around=1), anchor)

    level, headline, sentence = _verdict(adoption, added, gone)
    return render(
        "adoption.html",
        adoption=adoption,
        level=level,
        headline=headline,
        sentence=sentence,
        written=written,
        parts_of=parts,
        added=added,
        gone=gone,
        purposes=_purposes(adoption),
        made=[noted(note) for note in adoption.made],
        left=[noted(note) for note in adoption.left],
    )


def _purposes(adoption: Adoption) -> list[tuple[str, str]]:
    """What is there more often than before, and what it is for."""
    before, after = (load(adoption.path, data).source for data in (adoption.before, adoption.after))
    old = set(before.splitlines())
    new = "\n".join(line for line in after.splitlines() if line not in old)
    return [(_spelled(word, new), why) for word, why in PURPOSES if after.count(word) > before.count(word)]


def _spelled(word: str, text: str) -> str:
    """A word of `PURPOSES` as a text has it first, with the names before it."""
    found = re.search(rf"[\w.]*{re.escape(word)}", text)
    whole = found.group() if found is not None else word
    return f"{whole}…)" if whole.endswith("(") else whole


def _verdict(adoption: Adoption, added: int, gone: int) -> tuple[str, str, str]:
    changed = adoption.after != adoption.before
    what = f"{counted(added, 'line')} added, {gone} removed."
    if changed and adoption.left:
        return "warn", f"Adopts {adoption.policy} in part", f"{what} {counted(len(adoption.left), 'place')} left to you."
    if changed:
        return "good", f"Adopts {adoption.policy}", f"{what} Nothing is left to you."
    if adoption.left:
        return "warn", "Nothing was changed", f"{counted(len(adoption.left), 'place')} left to you, each with its reason."
    if not adoption.trains:
        return "warn", "Nothing to adopt", "Nothing here trains a model."
    return "good", "Adopted already", "It trains in mixed precision; nothing to change."


def _parts(adoption: Adoption) -> list[Part]:
    """What changes, cell by cell in a notebook."""
    before, after = _texts(load(adoption.path, adoption.before)), _texts(load(adoption.path, adoption.after))
    parts = []
    for cell, lines in before.items():
        changes = tuple(diff_lines(lines, after.get(cell, [])))
        if changes:
            parts.append(Part(adoption.path if cell is None else f"{adoption.path}, cell {cell}", cell, changes))
    return parts


def _texts(document: Document) -> dict[int | None, list[str]]:
    """The lines of each cell; of a plain file under None."""
    lines = document.source.split("\n")
    if not document.cells:
        return {None: lines}
    starts = [cell.first_line - 1 for cell in document.cells] + [len(lines)]
    return {cell.index: lines[starts[at] : starts[at + 1]] for at, cell in enumerate(document.cells)}
