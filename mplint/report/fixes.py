"""What `mplint fix` prints: a diff that `git apply` takes, or what was changed and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mplint.findings import Applicability, Finding
from mplint.report.sources import Sources
from mplint.report.style import Style
from mplint.report.summary import counted, place
from mplint.report.text import listed


def diff_report(diffs: Iterable[str], style: Style) -> str:
    """The unified diffs, colored line by line."""
    if not style.color:
        return "".join(diffs)
    return "".join(_colored(line, style) for diff in diffs for line in diff.splitlines(keepends=True))


def models_report(reports: Iterable[str], style: Style) -> str:
    """What changes in models, the nodes that go and come colored as in a diff."""
    if not style.color:
        return "".join(f"{report}\n" for report in reports)
    lines = (line for report in reports for line in f"{report}\n".splitlines(keepends=True))
    return "".join(_colored_node(line, style) for line in lines)


def shown_report(shown: Iterable[tuple[Finding, str]], style: Style) -> str:
    """The fixes that are only shown: where, what, and the lines that change, indented, so that no tool takes them for a diff to apply."""
    lines = []
    for finding, diff in shown:
        title = finding.fix.title if finding.fix is not None else ""
        lines.append(f"To be done by hand: {finding.code} {place(finding.location)}: {title}\n")
        lines += [f"    {_colored(line, style)}".rstrip() + "\n" for line in diff.splitlines()[2:]]
    return "".join(lines)


def remaining_report(remaining: Sequence[Finding], sources: Sources, style: Style) -> str:
    """The findings that are left, with their source as it is now."""
    return listed(remaining, sources, style)


def mended_report(mended: Iterable[tuple[str, str, int]]) -> str:
    """A line for each program that was fixed: what was mended in it, by rule."""
    by_path: dict[str, list[str]] = {}
    for path, code, number in mended:
        by_path.setdefault(path, []).append(code if number == 1 else f"{code} ({number})")
    return "".join(f"Fixed {path}: {', '.join(codes)}\n" for path, codes in by_path.items()) + "\n" * bool(by_path)


def fix_summary(fixed: int, changed: int, remaining: Sequence[Finding], *, command: str = "", unsafe: bool) -> str:
    """How many findings were mended in how many files, or would be by `command`; how many are left, and what would mend more."""
    if not fixed:
        lines = ["Nothing was fixed." if remaining and not command else "No fix to apply." if remaining else "Nothing to fix."]
    elif not command:
        lines = [f"Fixed {counted(fixed, 'finding')} in {counted(changed, 'file')}."]
    else:
        lines = [f"Would fix {counted(fixed, 'finding')} in {counted(changed, 'file')}; `{command}` writes it."]
    if remaining:
        withheld = sum(1 for f in remaining if not unsafe and f.fix is not None and f.fix.applicability is Applicability.UNSAFE)
        more = f"; `--unsafe-fixes` fixes {withheld} more, review the result" if withheld else ""
        lines.append(f"{counted(len(remaining), 'finding')} {'remains' if len(remaining) == 1 else 'remain'}{more}.")
    return "".join(f"{line}\n" for line in lines)


def _colored_node(line: str, style: Style) -> str:
    text = line.strip()
    if line.startswith("    ") and text[:2] in ("- ", "+ "):
        return f"    {style.paint(text, 'added' if text[0] == '+' else 'removed')}\n"
    return line


def _colored(line: str, style: Style) -> str:
    text = line.rstrip("\n")
    end = line[len(text) :]
    if text.startswith(("---", "+++")):
        return style.paint(text, "bold") + end
    if text.startswith("@@"):
        return style.paint(text, "gutter") + end
    if text.startswith(("+", "-")):
        return style.paint(text, "added" if text[0] == "+" else "removed") + end
    return line
