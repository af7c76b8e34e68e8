"""What the page of a rule says beside its documentation: what the witness saw, and how often the rule was right on public code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parent
MOST = 8  # tests of a witness that a page shows
# The tables of the field report that count by rule: how each begins, what it is of, and what its columns are.
TABLES = (
    ("| code | findings | wrong | precision |", "124 PyTorch repositories", ("findings", "wrong")),
    (
        "| code | findings | wrong now | debatable | precision | wrong when met |",
        "101 Keras and TensorFlow repositories",
        ("findings", "wrong", "debatable", "", "met"),
    ),
)


@cache
def evidence() -> dict[str, object]:
    """What docs/evidence.py wrote."""
    path = DOCS / "evidence.json"
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"frameworks": {}, "rules": {}}
    return found


def witness(code: str) -> str:
    """The section on what the witness of a rule saw; "" where it has none."""
    rules, frameworks = evidence()["rules"], evidence()["frameworks"]
    assert isinstance(rules, dict) and isinstance(frameworks, dict)
    tests = rules.get(code)
    if not tests:
        return ""
    ran = ", ".join(f"{name} {number}" for name, number in frameworks.items())
    lines = [
        "## What the witness saw",
        "",
        f"Run on the CPU under {ran}: each claim with what was asserted and the values that were met.",
        "",
    ]
    for test in tests[:MOST]:
        lines.append(f"- {test['claim']}.")
        lines += [f"    - {code_of(asserted)}: {code_of(value)}" for asserted, value in test["asserted"] if asserted != value]
    if len(tests) > MOST:
        lines.append(f"- {len(tests) - MOST} more in tests/witness.")
    return "\n".join(lines) + "\n"


def code_of(text: str) -> str:
    """Text as code of Markdown, whatever marks are in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    edge = " " if longest else ""
    return f"{fence}{edge}{text}{edge}{fence}"


def field(code: str) -> str:
    """The section on how often a rule was right on public code; "" where the report does not count it."""
    told = [sentence for heading, what, columns in TABLES for sentence in counted(code, heading, what, columns)]
    if not told:
        return ""
    before = "Every finding was read in its source; what was wrong when it was met has been mended since, so that these numbers flatter."
    link = "the [field report](../field-report.md) has the repositories, and the first contacts, which are the better guess"
    return f"## In the field\n\n{' '.join(told)} {before} They are of rules that looked at one file at a time: {link}.\n"


def counted(code: str, heading: str, what: str, columns: tuple[str, ...]) -> Iterator[str]:
    """What one table says of a rule."""
    text = (DOCS / "field-report.md").read_text(encoding="utf-8")
    rows = text.partition(heading)[2].partition("\n\n")[0].splitlines()
    for row in rows:
        cells = [cell.strip() for cell in row.strip("| ").split("|")]
        if cells[0] != code:
            continue
        numbers = dict(zip(columns, cells[1:], strict=False))
        if numbers["findings"] == "0":
            return
        said = [f"{numbers['wrong'] if numbers['wrong'] != '0' else 'none'} wrong"]
        said += [f"{numbers['debatable']} debatable"] if numbers.get("debatable", "0") != "0" else []
        met = numbers.get("met", "0")
        said += [f"{met} wrong when first met"] if met != "0" else []
        yield f"On {what}: {numbers['findings']} findings, {', '.join(said)}."
