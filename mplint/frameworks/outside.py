"""What users outside a project may choose: the precision in which they run what it offers, and the arguments of that.

The callers within the project are not all that there are where it is a library (`mplint/frameworks/libraries.py`). Three things have to
hold before something is said that only other callers meet: the code is offered to them; the project has half precision in mind, which a
`Sign` tells that findings show; and what is said is certain where they run it so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mplint.program.values import Place, Step

if TYPE_CHECKING:
    from mplint.program.project import Project

# what texts for users say of half precision, and words by which they say that there is none
SAID = re.compile(r"\b(?:float16|fp16|(?i:half|mixed)[- _]precision|mixed_float16|autocast|torch\.half|AMP)\b")
DENIED = re.compile(r"\b(?:no|not|without|never|avoid|disable\w*|n't|todo|planned|future|fp32 only)\b|\[ \]", re.I)
TEXTS = (".md", ".rst", ".txt")
FOLDERS = ("doc", "docs")
DATA = "fixtures"  # programs that tests read: what is said around them is about others
LONGEST_TEXT = 200_000
MOST_TEXTS = 100


class Sign(NamedTuple):
    """What tells that a project means its code to be run in half precision: a place in a program, or a text that says so."""

    path: str
    position: int  # a packed range; 0 in a text

    @property
    def steps(self) -> tuple[Step, ...]:
        """How a finding shows it; nothing of texts, which are no programs."""
        return (Step(Place(self.path, self.position), "half precision is meant here"),) if self.position else ()

    @property
    def words(self) -> str:
        """How it is said beside that something is run so; "" of programs, which are shown."""
        return "" if self.position else f", of which {self.path} speaks"


def place_in(data: bytes, words: re.Pattern[bytes]) -> int:
    """The packed range of the first words of a kind in a text; 0 where there are none."""
    found = words.search(data)
    if found is None:
        return 0
    end = found.start() + len(found[0].rstrip().partition(b"\n")[0])
    start = data.rfind(b"\n", 0, found.start()) + 1
    line = data.count(b"\n", 0, found.start()) + 1
    return line | min(found.start() - start, 0xFFFF) << 20 | min(end - start, 0xFFFF) << 36


def lines_of(match: re.Match[bytes]) -> bytes:
    """The line ends in what is left out of a text, so that all else stays in its lines."""
    return b"\n" * match[0].count(b"\n")


def said_in_texts(project: Project, root: str) -> Sign | None:
    """The text for users at the root of a library that says something of half precision, where the root holds no more than the library."""
    if any(DATA in os.path.relpath(path, root or ".").split(os.sep) for path in project.paths[:1]):
        return None
    texts = TextsForUsers(root)
    project.heard.update(texts.places())
    found = project.asked.setdefault(texts, {})
    found |= texts.answers(["half precision"])
    place = found["half precision"]
    return Sign(str(place), 0) if place is not None else None


@dataclass(frozen=True, slots=True)
class TextsForUsers:
    """The texts for users at the root of a project; the question is which of them speaks of half precision."""

    root: str

    def answers(self, questions: Iterable[Hashable]) -> dict[Hashable, Hashable]:
        """The first that does now, None where none does."""
        return {question: next(filter(speaks, self.places()), None) for question in questions}

    def places(self) -> list[str]:
        """The files that there are now."""
        found = [(self.root, name) for name in names_in(self.root) if name.lower().startswith("readme")]
        found += [(below, name) for below in self.folders()[1:] for name in names_in(below)]
        return [os.path.join(folder, name) for folder, name in found[:MOST_TEXTS] if name.lower().endswith(TEXTS)]

    def folders(self) -> list[str]:
        """The folders in which another one would be found."""
        return [self.root, *(os.path.join(self.root, folder) for folder in FOLDERS)]


def names_in(folder: str) -> list[str]:
    """The names of what a folder holds, in order."""
    with suppress(OSError):
        return sorted(os.listdir(folder or "."))
    return []


def speaks(place: str) -> bool:
    """Whether a text says something of half precision, in a line that does not deny it."""
    with suppress(OSError), open(place, encoding="utf-8", errors="replace") as file:
        return any(SAID.search(line) is not None and DENIED.search(line) is None for line in file.read(LONGEST_TEXT).splitlines())
    return False
