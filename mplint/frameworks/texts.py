"""The files of settings and of instructions beside the programs of a project: which words stand in them, and what they give to settings."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from mplint.frameworks.settings import TREES, Given, given_in, of_tree
from mplint.program.project import Project
from mplint.python.document import is_test_path

DOTTED = re.compile(r"\b([A-Za-z_]\w*)\.(?=([A-Za-z_]\w*))")
TEXTS = (
    *(".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".gin", ".conf"),
    *(".sh", ".bash", ".slurm", ".sbatch", ".bat", ".mk", ".md", ".rst", ".txt", "Makefile", "Dockerfile", "justfile"),
)
MOST_TEXTS, LONGEST_TEXT = 1_000, 100_000
OWN = re.compile(r'\{\s*"version": (?:\d+|"\d+"),\s*"(?:findings|tool)": \{')  # how a baseline or a report of mplint's begins


def asked(project: Project, question: tuple[str, str]) -> Hashable:
    """What the files of settings and of instructions beside the programs of a project say, as far as they are short."""
    if Texts not in project.kept:
        folders = sorted({os.path.dirname(path) for path in project.paths})
        texts = Texts(os.path.commonpath(folders) if folders and all(folders) else "")
        said = texts.said()
        project.heard.update(said.places)
        project.kept[Texts] = (said, project.asked.setdefault(texts, {}))
    kept: tuple[Said, dict[Hashable, Hashable]] = project.kept[Texts]  # type: ignore[assignment]
    said, answers = kept
    if question not in answers:
        answers[question] = said.answer(*question)
    return answers[question]


@dataclass(frozen=True, slots=True)
class Texts:
    """The files of settings and of instructions below a folder, which may name classes and modules."""

    top: str

    def answers(self, questions: Iterable[Hashable]) -> dict[Hashable, Hashable]:
        """What they say now to each question."""
        said = self.said()
        return {question: said.answer(*question) for question in questions}  # type: ignore[misc]

    def said(self) -> Said:
        """What stands in them; nothing of what mplint itself reads or has written, which says nothing of the project."""
        found = Said([], [])
        for place in self.places():
            with suppress(OSError), open(place, encoding="utf-8", errors="replace") as file:
                text = file.read() if os.fstat(file.fileno()).st_size <= LONGEST_TEXT else ""
                found.places.append(place)
                found.texts.append(text if OWN.match(text) is None else "")
        return found

    def places(self) -> list[str]:
        """The files that there are now, as far as there are not too many."""
        return [place for _, places in self.walk() for place in places][:MOST_TEXTS]

    def folders(self) -> list[str]:
        """The folders in which another one would be found."""
        return [folder for folder, _ in self.walk()]

    def walk(self) -> Iterator[tuple[str, list[str]]]:
        """The folders, each with the files in it."""
        for folder, inner, names in os.walk(self.top or "."):
            inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "__pycache__")
            yield folder, [os.path.join(folder, name) for name in sorted(names) if name.endswith(TEXTS) and not name.startswith("mplint")]


@dataclass(slots=True)
class Said:
    """The contents of such files, and where they lie."""

    places: list[str]
    texts: list[str]
    index: dict[str, set[str]] = field(default_factory=dict)
    settings: dict[str, tuple[Given, ...]] = field(default_factory=dict)  # of a file that is parsed as a whole

    def answer(self, kind: str, name: str) -> Hashable:
        """Whether a word stands in one of them, which members of a module they name together with it, or what they give to a setting."""
        if kind == "given":
            return self.given(name)
        if kind == "section":
            return self.has_section(name)
        if kind == "word":
            anywhere = re.compile(rf"\b{re.escape(name)}\b")
            return any(name in text and anywhere.search(text) is not None for text in self.texts)
        if not self.index:
            for stem, member in (pair for text in self.texts for pair in DOTTED.findall(text)):
                self.index.setdefault(stem, set()).add(member)
        return frozenset(self.index.get(name, ()))

    def has_section(self, name: str) -> bool:
        """Whether a configuration gives settings below a name."""
        for place, text in zip(self.places, self.texts, strict=True):
            if name in text and place.endswith(TREES) and not is_test_path(place):
                if place not in self.settings:
                    self.settings[place] = tuple(of_tree(place, text))
                if any(given.dotted.split(".")[-2:-1] == [name] for given in self.settings[place]):
                    return True
        return False

    def given(self, name: str) -> tuple[Given, ...]:
        """What they give to the settings of a name, each once; nothing of what tests are run with."""
        spellings = (name, name.replace("_", "-"))
        found: dict[Given, None] = {}
        for place, text in zip(self.places, self.texts, strict=True):
            if any(spelling in text for spelling in spellings) and not is_test_path(place):
                found.update(dict.fromkeys(given_in(place, text, name, self.settings)))
        return tuple(found)
