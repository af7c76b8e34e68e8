"""What a rule's documentation looks like in a terminal, and the table of all rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from mplint.report.style import Style
from mplint.rule import Rule

_BULLET = re.compile(r"(\s*)([-*]|\d+\.)\s+")
_ADDRESS = re.compile(r"<(https?://[^>\s]+)>")
_LINK = re.compile(r"\[([^\]]+)\]\((https?://[^)\s]+)\)")


def explain(rule: type[Rule], style: Style) -> str:
    """The documentation of a rule: what it is, then its sections, then where it stands on the web."""
    fix = f"fix: {rule.fix.value}" if rule.fix is not None else "no fix"
    facts = [rule.severity.value, fix, *([", ".join(rule.frameworks)] if rule.frameworks else [])]
    lines = [f"{style.paint(rule.code, rule.severity.value)} {style.paint(rule.name, 'bold')}", style.paint(" · ".join(facts), "quiet"), ""]
    lines += render(rule.documentation(), style)
    lines += ["", rule.url()] if rule.url() else []
    return "".join(f"{line}\n" for line in lines)


def render(markdown: str, style: Style) -> list[str]:
    """Markdown as wrapped lines: bold headings, indented code, paragraphs and lists within the width."""
    lines: list[str] = []
    paragraph: list[str] = []
    code = False

    def flush() -> None:
        if paragraph:
            lines.extend(_wrapped(paragraph, style))
            paragraph.clear()

    for line in markdown.split("\n"):
        if line.lstrip().startswith("```"):
            flush()
            code = not code
        elif code:
            lines.append(f"    {line}".rstrip())
        elif line.startswith("#"):
            flush()
            lines.append(style.paint(line.lstrip("#").strip(), "bold"))
        elif not line.strip():
            flush()
            if lines and lines[-1]:
                lines.append("")
        elif line.lstrip().startswith("|"):
            flush()
            lines.append(line)
        else:
            if _BULLET.match(line):
                flush()
            paragraph.append(line)
    flush()
    return lines


def _wrapped(paragraph: Sequence[str], style: Style) -> list[str]:
    text = _ADDRESS.sub(r"\1", " ".join(part.strip() for part in paragraph))
    text = _LINK.sub(lambda match: match[1] if match[1] == match[2] else f"{match[1]} ({match[2]})", text)
    bullet = _BULLET.match(paragraph[0])
    if bullet is None:
        return style.wrap(text)
    first = f"{bullet[1]}{bullet[2]} "
    return style.wrap(text[len(bullet[0].lstrip()) :], first, " " * len(first))


def rules_table(rules: Iterable[type[Rule]], style: Style) -> str:
    """Code, name, severity, fix and frameworks of each rule on a line, and what it finds below it."""
    table = [(rule, rule.fix.value if rule.fix is not None else "-") for rule in rules]
    widths = [
        max((len(text) for text in column), default=0)
        for column in zip(*((r.code, r.name, r.severity.value, fix) for r, fix in table), strict=True)
    ]
    lines = []
    for rule, fix in table:
        severity = rule.severity.value
        cells = [
            style.paint(f"{rule.code:<{widths[0]}}", severity),
            style.paint(f"{rule.name:<{widths[1]}}", "bold"),
            style.paint(f"{severity:<{widths[2]}}", severity),
            f"{fix:<{widths[3]}}",
            ", ".join(rule.frameworks),
        ]
        lines.append("  ".join(cells).rstrip())
        indent = " " * (widths[0] + 2)
        lines += style.wrap(rule.summary(), indent, indent)
    return "".join(f"{line}\n" for line in lines)


def rules_json(rules: Iterable[type[Rule]]) -> str:
    """The rules as a JSON list."""
    entries = [
        {
            "code": rule.code,
            "name": rule.name,
            "severity": rule.severity.value,
            "fix": rule.fix.value if rule.fix is not None else None,
            "frameworks": list(rule.frameworks),
            "summary": rule.summary(),
            "url": rule.url(),
        }
        for rule in rules
    ]
    return json.dumps(entries, indent=2) + "\n"
