"""The table of what real_models.py, first_contacts.py and second_contacts.py wrote: `python benchmarks/contacts_table.py OUT.jsonl...`.

A win is a model on which mplint with data is right and has at least .05 more of the heavy operations in half than the best other converter
that is right (0 where none is), a loss the other way round, or where another converter is right and mplint is wrong.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

OURS, WITHOUT = "mplint, with data", "mplint, without data"
APART = 0.05
Found = Mapping[str, object]


def share(found: Found | None) -> float:
    """The share of heavy operations in half; 0 for a result that is missing or wrong."""
    if not found or not found.get("valid") or not found.get("accurate"):
        return 0.0
    heavy = number(found, "heavy")
    return number(found, "half") / heavy if heavy else 1.0


def number(found: Found, key: str) -> float:
    value = found.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def said(found: Found | None) -> str:
    """One cell: how much is in half, the error and the seconds of processor time; or what went wrong."""
    if found is None:
        return ""
    if "heavy" not in found:
        return "refused" if found.get("verdict") == "refused" else "no result"
    right = "" if found["accurate"] else ", invalid" if not found["valid"] else ", wrong"
    error = f", {number(found, 'error'):.2g}" if "error" in found else ""
    verdict = f", {found['verdict']}" if found["verdict"] in ("unproven", "wrong", "nothing converted") else ""
    return f"{found['half']} of {found['heavy']}{error}, {number(found, 'cpu'):.1f} s{verdict}{right}"


def table(lines: Sequence[Found]) -> str:
    """The models by the converters, and below it counts, wins and losses."""
    models: dict[tuple[str, str], dict[str, Found]] = {}
    for line in lines:
        if "file" in line:
            models.setdefault((str(line["package"]), str(line["file"])), {})[str(line["converter"])] = line
    who = list(dict.fromkeys(str(line["converter"]) for line in lines))
    told = [f"| model | {' | '.join(who)} |", "|---|" + "---|" * len(who)]
    for (package, file), by in models.items():
        name = file.rpartition("/")[2].removesuffix(".onnx")
        told.append(f"| {package} {name} | {' | '.join(said(by.get(one)) for one in who)} |")
    told.append("")
    for one in who:
        of = [by[one] for by in models.values() if one in by]
        right = sum(bool(found.get("valid") and found.get("accurate")) for found in of)
        spent = statistics.median([number(found, "cpu") for found in of])
        told.append(f"{one}: right on {right} of {len(of)}, coverage {statistics.mean(map(share, of)):.2f}, median {spent:.1f} s")
    judged = [by for by in models.values() if OURS in by]
    others = [[share(found) for one, found in by.items() if one not in (OURS, WITHOUT)] for by in judged]
    margins = [share(by[OURS]) - max(known, default=0.0) for by, known in zip(judged, others, strict=True)]
    wins, losses = sum(margin >= APART for margin in margins), sum(margin <= -APART for margin in margins)
    told.append(f"wins {wins}, losses {losses}, even {len(margins) - wins - losses}")
    return "\n".join(told)


if __name__ == "__main__":
    print(table([json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text(encoding="utf-8").splitlines()]))
