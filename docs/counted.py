"""What the first contacts with public code say of each rule: docs/field/bugs.csv and docs/field/readings.csv, counted.

A row of `bugs.csv` is a mistake that its maintainers confirmed, labeled before mplint met it: `round`, `repository`, `commit`, `place`,
`code`, `decided by` (the file, other files of the project, or a user of the library), `label` (what its miner doubts), `found` (yes, no,
no answer). A row of `readings.csv` is a repository whose findings above info were read at first contact: `findings`, and which of them
were `wrong` or `debatable`, as in "MP204 3, MP306"; a code without a number stands for all of its findings there.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FIELD = Path(__file__).resolve().parent / "field"
DECIDED = ("file", "project", "library")
CODE = re.compile(r"(MP\d{3})(?: (\d+))?")


@cache
def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of first contacts."""
    with (FIELD / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def bugs(code: str) -> dict[str, tuple[int, int]]:
    """How many mistakes that a rule names were found, of how many, by what decides them."""
    met = [row for row in rows("bugs") if row["code"] == code and row["found"] != "no answer"]
    by_kind = {kind: [row["found"] for row in met if row["decided by"] == kind] for kind in DECIDED}
    return {kind: (found.count("yes"), len(found)) for kind, found in by_kind.items() if found}


@cache
def readings() -> dict[str, Counter[str]]:
    """How many findings of each code were read, and how many of them were wrong or debatable."""
    told: dict[str, Counter[str]] = {}
    for row in rows("readings"):
        findings = dict(numbered(row["findings"], {}))
        for code, number in findings.items():
            told.setdefault(code, Counter())["findings"] += number
        for verdict in ("wrong", "debatable"):
            for code, number in numbered(row[verdict], findings):
                told[code][verdict] += number
    return told


def numbered(cell: str, findings: dict[str, int]) -> Iterator[tuple[str, int]]:
    """The codes of a cell with their numbers; without one, all findings of the code."""
    for code, number in CODE.findall(cell):
        yield code, int(number) if number else findings[code]


def table() -> str:
    """The table of all rules that a first contact says something of."""
    codes = sorted({row["code"] for row in rows("bugs") if row["code"]} | readings().keys())
    lines = [
        "| rule | one file decides | other files do | a user decides (libraries) | findings read | debatable | wrong |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for code in codes:
        found = bugs(code)
        read = readings().get(code, Counter())
        if not found and not read:
            continue  # no tree gave an answer
        shares = [f"{found[kind][0]} of {found[kind][1]}" if kind in found else "" for kind in DECIDED]
        verdicts = [str(read[key] or "") for key in ("findings", "debatable", "wrong")]
        lines.append(f"| {' | '.join((code, *shares, *verdicts))} |")
    return "\n".join(lines) + "\n"
