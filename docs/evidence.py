"""Run the witnesses under the real frameworks, and write what they saw to docs/evidence.json.

Run from the repository's root: `python docs/evidence.py`, or with codes of rules to renew only theirs. It takes minutes, and torch and
TensorFlow. docs/generate.py puts it into the pages of the rules.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WITNESSES = ROOT / "tests" / "witness"
EVIDENCE = ROOT / "docs" / "evidence.json"
LONGEST = 160  # characters of what is shown of one value
MOST = 4  # assertions of one test


class Seen(NamedTuple):
    """What a test of a witness claims, each assertion with the values that it saw, and the file."""

    file: str
    test: str
    asserted: list[tuple[str, str]]


def claim(test: str) -> str:
    """The name of a test, read as a sentence."""
    words = test.partition("[")[0].removeprefix("test_").replace("_", " ")
    case = test.partition("[")[2].rstrip("]")
    return words[0].upper() + words[1:] + (f" ({case})" if case else "")


def tests_of(path: Path) -> list[str]:
    """The tests that a file defines, by name."""
    functions = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))
    return [function.name for function in functions if function.name.startswith("test_")]


def witnesses() -> dict[str, list[Path]]:
    """The files of the witnesses by the code of their rule."""
    found: dict[str, list[Path]] = {}
    for path in sorted(WITNESSES.glob("test_mp*.py")):
        found.setdefault(path.stem.split("_")[1].upper(), []).append(path)
    return found


def values(explanation: str) -> str:
    """What an assertion saw, of pytest's explanation: the values without where they came from."""
    first = explanation.split("\n", 1)[0].removeprefix("assert ").strip()
    text = re.sub(r" at 0x[0-9a-f]+", "", " ".join(first.split()))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


class Recorder:
    """A plugin of pytest that keeps what passing assertions saw."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.failed: list[str] = []

    def pytest_assertion_pass(self, item: object, lineno: int, orig: str, expl: str) -> None:
        """Keep an assertion of a witness with its values."""
        node = str(getattr(item, "nodeid", ""))
        file, _, test = node.partition("::")
        kept = self.seen.setdefault((Path(file).name, test), [])
        if len(kept) < MOST and (pair := (" ".join(orig.partition("  # ")[0].split()), values(expl))) not in kept:
            kept.append(pair)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Keep the names of what failed or was skipped."""
        if getattr(report, "outcome", "passed") != "passed":
            self.failed.append(str(getattr(report, "nodeid", "")))
        elif getattr(report, "when", "") == "call":
            file, _, test = str(getattr(report, "nodeid", "")).partition("::")
            self.seen.setdefault((Path(file).name, test), [])


def run(paths: list[Path]) -> Iterator[Seen]:
    """What the witnesses in some files saw; ends the program where one fails."""
    import pytest

    recorder = Recorder()
    options = ["-q", "-p", "no:cacheprovider", "-o", "enable_assertion_pass_hook=true", *map(str, paths)]
    if pytest.main(options, plugins=[recorder]) or recorder.failed:
        sys.exit(f"not every witness passed: {', '.join(recorder.failed)}")
    for (file, test), asserted in sorted(recorder.seen.items()):
        yield Seen(file, test, asserted)


def versions() -> dict[str, str]:
    """The frameworks that the witnesses ran under."""
    found = {}
    for name in ("torch", "tensorflow", "tensorflow-cpu", "keras"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main(codes: list[str]) -> None:
    """Renew the evidence of some rules, or of all."""
    known: dict[str, object] = json.loads(EVIDENCE.read_text(encoding="utf-8"))["rules"] if EVIDENCE.exists() and codes else {}
    wanted = {code: paths for code, paths in witnesses().items() if not codes or code in codes}
    seen = list(run([path for paths in wanted.values() for path in paths]))
    for code, paths in wanted.items():
        names = {path.name for path in paths}
        known[code] = [{"file": s.file, "claim": claim(s.test), "asserted": s.asserted} for s in seen if s.file in names]
    document = {"frameworks": versions(), "rules": dict(sorted(known.items()))}
    EVIDENCE.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
