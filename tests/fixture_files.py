"""Reads the fixtures: programs with the expected findings written beside the line.

A line that must be reported ends with `# expect: MP304` (several codes separated by commas; `MP304 error` also pins
the severity, and `MP205 unsure` is a finding of low confidence, silent by default). `# expect-above:` on a line of its own speaks of
the line before it. The first line may hold `# fixture: target=Tesla T4, torch=2.3, keras=3, tensorflow=2.15` to set targets. JSON has
no comments: a file `NAME.json.expect` beside it holds lines such as `6 MP109 error`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
EXPECT = re.compile(r"[ \t]*#[ \t]*expect(?P<above>-above)?:[ \t]*(?P<codes>MP\d+(?: \w+)?(?:,[ ]*MP\d+(?: \w+)?)*)[^\n]*")


class Expected(NamedTuple):
    """A finding that must be there; severity None: any."""

    line: int
    code: str
    severity: str | None


def expectations(text: str) -> list[Expected]:
    """The findings that a program says it must give, in order."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for match in EXPECT.finditer(line):
            for item in match["codes"].split(","):
                code, _, severity = item.strip().partition(" ")
                found.append(Expected(number - 1 if match["above"] else number, code, severity or None))
    return sorted(found)


def config_expectations(path: Path) -> list[Expected]:
    """The findings that a JSON or YAML fixture must give, in order."""
    beside = path.with_name(path.name + ".expect")
    if path.suffix != ".json":
        return expectations(path.read_text())
    lines = [line.split() for line in beside.read_text().splitlines()] if beside.exists() else []
    return sorted(Expected(int(line), code, severity[0] if severity else None) for line, code, *severity in lines)


def without_expectations(text: str) -> str:
    """The program without its expectation comments, for comparing a fix's result."""
    lines = [EXPECT.sub("", line) for line in text.splitlines() if not line.strip().startswith("# expect-above:")]
    return "\n".join(lines) + "\n"


def targets(text: str) -> dict[str, str]:
    """The targets that the first line sets."""
    match = re.match(r"# fixture: (.*)", text)
    return dict(part.strip().split("=", 1) for part in match[1].split(",")) if match else {}  # type: ignore[misc]
