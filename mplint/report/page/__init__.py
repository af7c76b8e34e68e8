"""Reports as one page of HTML that needs nothing else: no network, no other file; for people who look at findings, models,
adoptions and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mplint.adopt.program import Adoption
    from mplint.compare.comparison import Comparison
    from mplint.conversion.result import Conversion
    from mplint.graph.model import ModelGraph
    from mplint.report.formats import Reported


def check_page(reported: Reported, models: Sequence[ModelGraph] = ()) -> tuple[str, list[str]]:
    """What was found, and the precision maps of the models that were checked; and what failed on the way.

    `models` are those that do not lie in files.
    """
    from mplint.report.page.check import page

    return page(reported, models)


def conversion_page(result: Conversion, source: str, target: str, *, written: bool) -> str:
    """What a conversion did to a model: the verdict, the figures, the proof, the precision map, and what stays float32 and why.

    `written` says that the result lies at `target`.
    """
    from mplint.report.page.conversion import page

    return page(result, source, target, written=written)


def adoption_page(adoption: Adoption, written: str | None) -> str:
    """What an adoption did to a program: the diff, what was done and why, and what is left."""
    from mplint.report.page.adoption import page

    return page(adoption, written)


def comparison_page(comparison: Comparison, script: str, *, interrupted: bool) -> str:
    """What runs of a script under several policies measured: verdicts, times, memory, and curves side by side.

    `interrupted` where the user stopped before the last run.
    """
    from mplint.report.page.comparison import page

    return page(comparison, script, interrupted=interrupted)
