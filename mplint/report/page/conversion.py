"""The page of a conversion: the verdict, what changed in size, casts and work, the map, the error of each output, what stays float32."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from mplint.conversion.judged import reread
from mplint.conversion.result import Conversion, Trial, Verdict
from mplint.graph.facts import GraphFacts
from mplint.graph.load import load_graph
from mplint.graph.model import GraphError, ModelGraph
from mplint.graph.profile import profile
from mplint.report.page.precision_map import PrecisionMap, is_cast, precision_map
from mplint.report.page.render import render
from mplint.report.page.shares import Shares, shares_of
from mplint.targets import Targets

LEVELS = {Verdict.PROVEN: "good", Verdict.UNPROVEN: "warn", Verdict.WRONG: "bad", Verdict.UNCHANGED: "warn"}
HEADLINES = {Verdict.PROVEN: "Proven", Verdict.UNPROVEN: "Unproven", Verdict.WRONG: "Wrong", Verdict.UNCHANGED: "Nothing converted"}
MOST_NAMES = 2000
MOST_OUTPUTS = 12  # with a column of their own: those that moved the most


class Kept(NamedTuple):
    """Operations that stay float32 for one reason."""

    reason: str
    names: tuple[str, ...]


class Seen(NamedTuple):
    """What a model file shows: casts between floats, and the shares of its work and memory; the map of a result."""

    casts: int
    shares: tuple[Shares, ...]
    map: PrecisionMap | None = None


class Errors(NamedTuple):
    """The errors of outputs on samples: a row for each sample, with an error for each of `outputs`."""

    outputs: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...], str], ...]
    left: int


class Comparison(NamedTuple):
    """One measure of a model before and after; `scale` is how long the bar of each is."""

    title: str
    before: Shares
    after: Shares
    scale: tuple[float, float]


def page(result: Conversion, source: str, target: str, *, written: bool) -> str:
    """The page; `written` says that the result lies at `target`."""
    with _result(result, source, target if written else "") as after:
        seen = _seen(after, result) if after is not None else None
        before = _before(source)
        return render(
            "conversion.html",
            ("map.js",),
            {"maps": [seen.map.drawn if seen is not None and seen.map is not None else None]},
            result=result,
            source=source,
            target=target,
            written=written,
            level="warn" if _unrun(result) else LEVELS[result.verdict],
            headline="Converted, and not run" if _unrun(result) else HEADLINES[result.verdict],
            sentences=list(_sentences(result)),
            before=before,
            after=seen,
            compared=_compared(before, seen),
            sizes=_sizes(result, before, seen),
            kept=_kept(result),
            errors=_errors(result),
            whys=_whys(result),
            most_names=MOST_NAMES,
        )


def _unrun(result: Conversion) -> bool:
    """Whether nothing speaks against a result that was not compared with the original."""
    return result.verdict is Verdict.PROVEN and result.error is None


@contextmanager
def _result(result: Conversion, source: str, target: str) -> Iterator[ModelGraph | None]:
    """The result as a file of it is read."""
    if target:
        try:
            yield load_graph(target)
        except GraphError:
            yield None
    else:
        with reread(result, os.path.splitext(source)[1]) as graph:
            yield graph


def _before(source: str) -> Seen | None:
    try:
        facts = GraphFacts(load_graph(source), Targets())
    except GraphError:  # the converter could read it
        return None
    return Seen(sum(map(is_cast, facts.nodes)), shares_of(profile(facts)))


def _seen(graph: ModelGraph, result: Conversion) -> Seen:
    facts = GraphFacts(graph, Targets())
    drawn = precision_map(facts, _reasons(result), sizes=result.observe())
    return Seen(sum(map(is_cast, facts.nodes)), shares_of(profile(facts)), drawn)


def _reasons(result: Conversion) -> dict[str, str]:
    """Why operations stay float32, by every name that a result may have for them."""
    found: dict[str, str] = {}
    for name, reason in result.kept:
        for known in (name, name.partition(" (")[0], name.rpartition("/")[2]):
            found.setdefault(known, reason)
    return found


def _sentences(result: Conversion) -> Iterator[str]:
    half = result.policy.half
    match result.verdict:
        case Verdict.PROVEN if _unrun(result):
            yield "Nothing wrong was found, and nothing was run here: the notes on the proof say why."
        case Verdict.PROVEN:
            yield f"Wherever it was tried, the result gives what the original gives, within {result.policy.tolerance:g}."
        case Verdict.UNPROVEN:
            yield "Nothing wrong was found, and nothing that counts was tried:"
            yield from (f"{gap[:1].upper()}{gap[1:].rstrip('.')}." for gap in result.gaps)
        case Verdict.WRONG:
            yield from (f"{problem[:1].upper()}{problem[1:].rstrip('.')}." for problem in result.problems)
        case Verdict.UNCHANGED:
            yield "Nothing in it computes in half that did not before."
            yield from (f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in result.notes if note.startswith("nothing converted"))
    if result.heavy:
        yield f"{result.heavy_half} of {result.heavy} matmuls and convolutions compute in {half}."


def _whys(result: Conversion) -> tuple[str, str]:
    """Why an operation is in half, and in float32, where nothing else is said of it."""
    half = result.policy.half
    if not result.operations_half:
        return "", ""
    tried = result.error is not None and not result.problems
    moved = f": with all of these in {half} no output moved by more than {result.error:.2g} of its size" if tried else ""
    return f"It computes in {half}{moved}.", "It stays float32: the conversion does not count it among what may be half."


def _sizes(result: Conversion, before: Seen | None, after: Seen | None) -> tuple[float, float] | None:
    """Bytes before and after: those of the files, or of the weights where the conversion counts none."""
    if result.size_before:
        return result.size_before, result.size_after
    one, other = (
        next((shares.weight for shares in seen.shares if shares.title == "Weights"), 0.0) if seen is not None else 0.0
        for seen in (before, after)
    )
    return (one, other) if one and other else None


def _compared(before: Seen | None, after: Seen | None) -> list[Comparison]:
    if before is None or after is None:
        return []
    others = {shares.title: shares for shares in after.shares}
    found = []
    for shares in before.shares:
        other = others.get(shares.title)
        if other is not None:
            largest = max(shares.weight, other.weight)
            found.append(Comparison(shares.title, shares, other, (shares.weight / largest, other.weight / largest)))
    return found


def _kept(result: Conversion) -> list[Kept]:
    """What stays float32 by its reason, the most frequent first; reasons that only differ in names and numbers are one."""
    names = {name.partition(" (")[0] for name, _ in result.kept}
    by_reason: dict[str, list[str]] = {}
    for name, reason in result.kept:
        general = _general(reason, names)
        by_reason.setdefault(general, []).append(name if general == reason else f"{name}: {reason}")
    return [Kept(reason, tuple(names)) for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))]


def _general(reason: str, names: Collection[str]) -> str:
    """A reason without the tensor that it begins with, without names in it, and without the number of one measurement."""
    head, found, rest = reason.partition(": ")
    words = rest if found and " " not in head else reason
    before, moved, _ = words.partition(" it moves an output by ")
    words = f"{before} it moves an output too far" if moved else words
    return " ".join("…" if "/" in word or word in names else word for word in words.split(" "))


def _errors(result: Conversion) -> Errors | None:
    trials: Sequence[Trial] = result.trials
    width = max((len(trial.errors) for trial in trials), default=0)
    if not trials or not width:
        return None
    worst = [max((trial.errors[at] or 0.0 for trial in trials if at < len(trial.errors)), default=0.0) for at in range(width)]
    shown = sorted(sorted(range(width), key=lambda at: (-worst[at], at))[:MOST_OUTPUTS])
    named = result.outputs if len(result.outputs) == width else [f"output {at + 1}" for at in range(width)]
    rows = tuple(
        (trial.sample, tuple(trial.errors[at] if at < len(trial.errors) else None for at in shown), trial.broken) for trial in trials
    )
    return Errors(tuple(named[at] for at in shown), rows, width - len(shown))
