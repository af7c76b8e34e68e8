"""The table of what framework_models.py wrote: `python benchmarks/framework_table.py OUT.jsonl...`.

A win is a model of which mplint has something in half, and is right, where the framework's own way is wrong; a loss one on which mplint is
wrong, or converts nothing, and the framework is right. The framework's own way has all heavy operations in half.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

TOLERANCE = 0.02
Found = Mapping[str, object]


def number(found: Found, key: str) -> float:
    """A figure, infinite where there is none."""
    value = found.get(key)
    return float(value) if isinstance(value, int | float) else float("inf")


def other(found: Found) -> float:
    """The error of the framework's own way."""
    return number(found, "global" if found["kind"] == "keras" else "autocast")


def is_right(found: Found) -> bool:
    """Whether a result may stand."""
    return found["verdict"] in ("proven", "unproven", "nothing converted") and number(found, "error") <= TOLERANCE


def verdict_of(found: Found) -> str:
    """How a model came out beside the framework's own way."""
    if not is_right(found):
        return "loss" if other(found) <= TOLERANCE else "both wrong"
    wrong = other(found) > TOLERANCE
    if not number(found, "half"):
        return "even" if wrong else "loss"
    return "win" if wrong else "even"


def table(lines: Sequence[Found]) -> str:
    """A row for each model, and counts below."""
    told = ["| model | in half | error | seconds | the framework's own way | |", "|---|---|---|---|---|---|"]
    for found in lines:
        if "half" not in found:
            told.append(f"| {found['model']} | {found['verdict']}: {found.get('why', '')} | | | | loss |")
            continue
        unproven = "" if found["verdict"] == "proven" else f", {found['verdict']}"
        wrong = "" if number(found, "error") <= TOLERANCE else ", wrong"
        cells = [
            str(found["model"]),
            f"{found['half']} of {found['heavy']}{unproven}",
            f"{number(found, 'error'):.2g}{wrong}",
            f"{number(found, 'cpu'):.1f}",
            f"{other(found):.2g}{', wrong' if other(found) > TOLERANCE else ''}",
        ]
        told.append(f"| {' | '.join(cells)} | {verdict_of(found)} |")
    judged = [found for found in lines if "half" in found]
    verdicts = [verdict_of(found) for found in lines if "half" in found] + ["loss"] * (len(lines) - len(judged))
    told.append("")
    told.append(
        f"{len(lines)} models, {sum(map(is_right, judged))} right, median {statistics.median(number(one, 'cpu') for one in judged):.1f} s"
    )
    told.append(", ".join(f"{name} {verdicts.count(name)}" for name in ("win", "even", "loss", "both wrong")))
    return "\n".join(told)


if __name__ == "__main__":
    print(table([json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text(encoding="utf-8").splitlines()]))
