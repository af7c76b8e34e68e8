"""The tables of first contacts and what the field report says of them agree."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
DECIDED = ("file", "project", "library")


def rows(name: str) -> list[dict[str, str]]:
    with (DOCS / "field" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def told(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading of the report, by their first cell's number."""
    text = (DOCS / "field-report.md").read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    table = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in text.splitlines() if re.match(r"\| \d", line)]
    return {cells[0].partition(",")[0]: cells for cells in table}


def test_rounds_of_mistakes_are_counted_as_the_report_says() -> None:
    report = told("Mistakes found")
    rounds = {row["round"] for row in rows("bugs")}
    assert rounds == report.keys() - {"1", "2"}, "rounds 1 and 2 are not listed"
    for number in rounds:
        met = [row for row in rows("bugs") if row["round"] == number and row["found"] != "no answer"]
        for kind, cell in zip(DECIDED, report[number][3:6], strict=True):
            found = [row["found"] for row in met if row["decided by"] == kind]
            assert cell == (f"{found.count('yes')} of {len(found)}" if found else ""), (number, kind)


def test_readings_have_as_many_repositories_as_the_report_says() -> None:
    report = told("Readings")
    readings = [row["reading"] for row in rows("readings")]
    assert set(readings) == report.keys() - {"8"}, "the eighth is not listed"
    for number in set(readings):
        assert readings.count(number) == int(report[number][2])


@pytest.mark.parametrize("verdict", ["wrong", "debatable"])
def test_only_findings_are_judged(verdict: str) -> None:
    for row in rows("readings"):
        judged, found = (dict(re.findall(r"(MP\d{3})(?: (\d+))?", row[column])) for column in (verdict, "findings"))
        for code, number in judged.items():
            assert code in found, row
            assert not number or int(number) <= int(found[code]), row
