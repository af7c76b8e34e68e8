"""The page of a check: the verdict, what was found by file and by rule, and the precision maps of models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from markupsafe import Markup

from mplint.catalog import Entry
from mplint.engine.select import known_rules
from mplint.engine.targets import TargetResolver
from mplint.errors import describe
from mplint.findings import Applicability, Edit, Finding, Location
from mplint.graph.facts import GraphFacts
from mplint.graph.model import GraphError, ModelGraph
from mplint.graph.names import is_address
from mplint.graph.profile import profile
from mplint.python.document import InputError
from mplint.report.formats import Reported
from mplint.report.page.code import Excerpt, excerpt
from mplint.report.page.diffs import DiffLine, fix_lines
from mplint.report.page.precision_map import PrecisionMap, precision_map
from mplint.report.page.prose import markdown
from mplint.report.page.render import render
from mplint.report.page.shares import Shares, shares_of
from mplint.report.page.units import counted
from mplint.report.sources import Sources
from mplint.report.summary import Summary, place, spot, summarize
from mplint.report.text import blocks

MANY = 300  # findings; of more than these the browser draws only what is near
MOST_MODELS = 20  # that are drawn on one page
_NUMBER = re.compile(r"\(\d+\) ")
_HOW = {
    Applicability.SAFE: "`mplint fix --apply` does it",
    Applicability.UNSAFE: "`mplint fix --apply --unsafe-fixes` does it; review the result",
    Applicability.DISPLAY: "to be done by hand",
}


class Step(NamedTuple):
    """A place that leads to a finding, and what happens there."""

    text: str
    place: str
    excerpt: Excerpt | None


class FixShown(NamedTuple):
    """What mends a finding: how it is done, and the changes of each file or cell; `at` is the finding that shows the same fix before."""

    title: str
    how: str
    safe: bool
    changes: tuple[tuple[str, tuple[DiffLine, ...]], ...]
    at: int | None = None


class Like(NamedTuple):
    """A finding that another of its file speaks for."""

    number: int
    finding: Finding
    spot: str
    excerpt: Excerpt | None


class Card(NamedTuple):
    """A finding as the page shows it, with those like it, and the number of `files` that lead to it.

    `map` is the number of the map that shows its node.
    """

    number: int
    finding: Finding
    spot: str
    excerpt: Excerpt | None
    steps: tuple[Step, ...]
    fix: FixShown | None
    words: str
    files: int
    map: int | None
    like: tuple[Like, ...]

    @property
    def total(self) -> int:
        """How many findings it stands for."""
        return 1 + len(self.like)


class RuleShown(NamedTuple):
    """A rule, how often it found something, and what is said of it."""

    code: str
    name: str
    severity: str
    total: int
    files: int
    documentation: Markup
    url: str


class ModelShown(NamedTuple):
    """A model that was checked: its map, and in which dtypes its work and its memory are."""

    path: str
    format: str
    map: PrecisionMap | None
    shares: tuple[Shares, ...]


def page(reported: Reported, models: Sequence[ModelGraph] = ()) -> tuple[str, list[str]]:
    """The page, and what failed while it was made."""
    result = reported.result
    sources = Sources(reported.given)
    shown, left, broken = _models(reported, models)
    maps = {model.path: number for number, model in enumerate(shown) if model.map is not None}
    cards = list(_cards(result.findings, sources, maps))
    by_path: dict[str, list[Card]] = {}
    for card in cards:
        by_path.setdefault(card.finding.location.path, []).append(card)
    summary = summarize(result.findings, result.files)
    rules = _rules(result.findings, known_rules(reported.config))
    html = render(
        "check.html",
        ("findings.js", "map.js") if shown else ("findings.js",),
        {"maps": [model.map.drawn if model.map is not None else None for model in shown]},
        summary=summary,
        total=len(result.findings),
        many=MANY,
        level=_level(summary),
        headline=_headline(summary),
        sentences=list(_sentences(reported, summary, len(by_path))),
        by_path=by_path,
        rules=rules,
        ranks={rule.code: rank for rank, rule in enumerate(rules)},
        rules_most=max((rule.total for rule in rules), default=1),
        models=shown,
        unjudged=[*result.unjudged, *((path, "its precision map was left out") for path in left)],
        notes=result.notes,
        faults=[*reported.faults, *sources.faults, *broken],
    )
    return html, [*sources.faults, *broken]


def _level(summary: Summary) -> str:
    if summary.errors:
        return "bad"
    return "warn" if summary.warnings or not summary.files else "good"


def _headline(summary: Summary) -> str:
    if not summary.files:
        return "Nothing to check"
    kinds = ((summary.errors, "error"), (summary.warnings, "warning"), (summary.infos, "note"))
    found = [counted(count, noun) for count, noun in kinds if count]
    if not found:
        return "No mixed-precision mistakes found"
    *others, last = found
    return f"{', '.join(others)} and {last}" if others else last


def _sentences(reported: Reported, summary: Summary, affected: int) -> Iterator[str]:
    result = reported.result
    if not summary.files:
        yield "No Python files, notebooks or models found."
    elif result.findings:
        yield f"In {affected} of {counted(summary.files, 'file')}." if affected < summary.files else f"In {counted(affected, 'file')}."
    else:
        judged = "All that could be judged of " if result.unjudged else ""
        yield f"{judged}{counted(summary.files, 'file')} {'was' if summary.files == 1 else 'were'} checked."
    if summary.safe:
        yield f"{summary.safe} can be fixed by `mplint fix --apply`."
    if summary.unsafe:
        yield f"{summary.unsafe}{' more' if summary.safe else ' can be fixed'} with `mplint fix --apply --unsafe-fixes`."
    if result.known:
        yield f"{counted(result.known, 'known finding')} in the baseline {'is' if result.known == 1 else 'are'} not shown."
    if result.older:
        yield f"{counted(result.older, 'finding')} from before the change {'is' if result.older == 1 else 'are'} not shown."


def _cards(findings: Sequence[Finding], sources: Sources, maps: dict[str, int]) -> Iterator[Card]:
    """A card for each finding, or one for several that are alike."""
    numbers = {id(finding): number for number, finding in enumerate(findings)}
    fixed: dict[int, int] = {}  # fixes that were shown, by identity, and with which finding
    for finding, others in blocks(findings):
        location = finding.location
        number = numbers[id(finding)]
        words = [location.path]
        for one in (finding, *others):
            words += [one.code, one.name, one.message, one.node or "", *(related.message for related in one.related)]
        yield Card(
            number,
            finding,
            spot(finding),
            excerpt(location, sources.lines(location.path, location.cell)),
            tuple(_steps(finding, sources)),
            _fix(finding, sources, number, fixed.setdefault(id(finding.fix), number)),
            " ".join(words).lower(),
            len({location.path, *(related.location.path for related in finding.related)}),
            maps.get(location.path) if finding.node is not None else None,
            tuple(_like(numbers[id(other)], other, sources) for other in others),
        )


def _like(number: int, finding: Finding, sources: Sources) -> Like:
    location = finding.location
    return Like(number, finding, spot(finding), excerpt(location, sources.lines(location.path, location.cell), around=0))


def _steps(finding: Finding, sources: Sources) -> Iterator[Step]:
    """The places that lead to a finding, each shown once."""
    seen = {finding.location}
    for related in finding.related:
        location = related.location
        lines = sources.lines(location.path, location.cell) if location not in seen else []
        seen.add(location)
        yield Step(_NUMBER.sub("", related.message, count=1), place(location), excerpt(location, lines, around=1))


def _fix(finding: Finding, sources: Sources, number: int, first: int) -> FixShown | None:
    """The fix of a finding; `first` is the number of the finding that shows it first."""
    fix = finding.fix
    if fix is None:
        return None
    title, how, safe = fix.title.rstrip("."), _HOW[fix.applicability], fix.applicability is Applicability.SAFE
    if first != number:
        return FixShown(title, how, safe, (), first)
    edits: dict[tuple[str, int | None], list[Edit]] = {}
    for edit in sources.edits(finding):
        edits.setdefault((edit.location.path, edit.location.cell), []).append(edit)
    changes = []
    for (path, cell), found in edits.items():
        lines = tuple(fix_lines(path, sources.lines(path, cell), found))
        if lines:
            changes.append((place(Location(path, None, None, None, None, cell)), lines))
    return FixShown(title, how, safe, tuple(changes))


def _rules(findings: Sequence[Finding], known: dict[str, Entry]) -> list[RuleShown]:
    """The rules that found something, the most severe and the most frequent first."""
    counts = Counter(finding.code for finding in findings)
    files: dict[str, set[str]] = {}
    first: dict[str, Finding] = {}
    for finding in findings:
        files.setdefault(finding.code, set()).add(finding.location.path)
        first.setdefault(finding.code, finding)
    found = []
    for code, count in counts.items():
        entry = known.get(code)
        documentation = markdown(entry.load().documentation()) if entry is not None else Markup("")
        severity = first[code].severity
        shown = RuleShown(code, first[code].name, severity.value, count, len(files[code]), documentation, entry.url() if entry else "")
        found.append((-severity.rank, -count, code, shown))
    return [shown for *_, shown in sorted(found, key=lambda item: item[:3])]


def _models(reported: Reported, live: Sequence[ModelGraph]) -> tuple[list[ModelShown], list[str], list[str]]:
    """The models that were checked, read once more where they lie in files; the paths of those that are left out; what failed."""
    resolver = TargetResolver(reported.config)
    paths = [found.path for found in reported.result.profiles]
    graphs = {graph.path: graph for graph in live}
    shown: list[ModelShown] = []
    left: list[str] = []
    faults: list[str] = []
    for path in paths:
        if len(shown) == MOST_MODELS:
            left.append(path)
            continue
        try:
            with _graph(path, graphs) as graph:
                facts = GraphFacts(graph, resolver.targets(path))
                if facts.nodes:
                    drawn = precision_map(facts, {}, reported.result.findings)
                    shown.append(ModelShown(path, facts.model.format, drawn, shares_of(profile(facts))))
        except (GraphError, InputError):  # it was readable a moment ago
            left.append(path)
        except Exception as error:  # one map's fault must not cost the findings
            faults.append(f"the map of {path} failed: {describe(error)}")
    return shown, left, faults


@contextmanager
def _graph(path: str, graphs: dict[str, ModelGraph]) -> Iterator[ModelGraph]:
    """The graph at a path or an address, whose weights can be read meanwhile."""
    from mplint.engine.addresses import at_hand
    from mplint.graph.load import load_graph

    with at_hand(path) if is_address(path) and path not in graphs else nullcontext(path) as here:
        graph = graphs[path] if path in graphs else load_graph(here)
        graph.path = path
        yield graph
