"""What `mplint fix` prints: a diff that `git apply` takes, or what it has changed."""

from __future__ import annotations

from collections.abc import Iterable

from mplint.report.style import Style
from mplint.report.summary import counted


def diff_report(diffs: Iterable[str], style: Style) -> str:
    """The unified diffs, colored line by line."""
    if not style.color:
        return "".join(diffs)
    return "".join(_colored(line, style) for diff in diffs for line in diff.splitlines(keepends=True))


def fix_summary(fixed: int, changed: int, withheld: int, *, applied: bool) -> str:
    """How many findings were (or would be) mended in how many files, and how many more need --unsafe-fixes."""
    if applied:
        lines = [f"Fixed {counted(fixed, 'finding')} in {counted(changed, 'file')}." if fixed else "Nothing to fix."]
    else:
        what = f"Would fix {counted(fixed, 'finding')} in {counted(changed, 'file')}; `mplint fix --apply` writes it."
        lines = [what if fixed else "Nothing to fix."]
    if withheld:
        lines.append(f"{withheld} more with `--unsafe-fixes`.")
    return "".join(f"{line}\n" for line in lines)


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
