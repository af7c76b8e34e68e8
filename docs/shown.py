"""What the page of a rule says beside its documentation: what the witness saw, and how often the rule was right on public code."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import counted

DOCS = Path(__file__).resolve().parent
MOST = 8  # tests of a witness that a page shows
DECIDED = {"file": "one file decides", "project": "need other files", "library": "a user of a library decides"}


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
    """The section on how often a rule was right where it had never been before, or that nothing of its kind was met there."""
    met, read = counted.bugs(code), counted.readings().get(code)
    said = [f"{found} of {all_} that {DECIDED[kind]}" for kind, (found, all_) in met.items()]
    lines = []
    if said:
        lines.append(f"Of the mistakes of this kind that maintainers confirmed, it found, when it met them: {', '.join(said)}.")
    if read is not None:
        verdicts = [f"{read[verdict] or 'none'} {verdict}" for verdict in ("wrong", "debatable")]
        lines.append(f"Of what it said of public repositories, {read['findings']} were read in their source: {', '.join(verdicts)}.")
    if not lines:
        unmet = (
            "maintainers confirmed no mistake of its kind, and of what it said of public repositories nothing was read"
        )
        return f"## In the field\n\nNothing is known of it in the field: at first contacts {unmet} ([field report](../field-report.md)).\n"
    link = "the [field report](../field-report.md) has the repositories and what was missed"
    return f"## In the field\n\n{' '.join(lines)} All of it is from first contacts, before anything was mended for them: {link}.\n"
