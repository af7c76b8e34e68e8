"""What mplint finds of mistakes that are put into right code: one at a time, at a known place.

    python benchmarks/mutations.py FOLDER... [--kinds a,b] [--most 4] [--files 300] [--seconds 5] [--seed 0] [--record FILE] [--show]
    python benchmarks/mutations.py --table FILE...

Each FOLDER is a project whose mixed precision is right. A kind of mistake is a small change of the source (an `unscale_` removed, a
scaler dropped from a checkpoint …) at the places that it finds by the syntax; of each project `--most` places are drawn, of as many kinds,
rare kinds first, and every mutant is checked as a project of its own. Found: the code, newly, at the place. Elsewhere: the code, newly,
at another place. Besides: what is reported newly and is no consequence of the mistake. A place about which the right code is reported
already is left out. `--record` keeps a line for each mutant, and goes on where it was; `--table` sums such files up.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from mistakes import keras_models, loops, numerics, spellings
from mistakes.project import project_of
from mistakes.reach import facts_of, is_on, is_run
from mistakes.sources import KINDS, Kind, Mutant, Program, read, span

import mplint
from mplint.config import Config
from mplint.findings import Finding, Severity

FAMILIES = (loops, numerics, keras_models, spellings)
PINS = re.compile(r"req.*\.txt$|setup\.(py|cfg)$|\.toml$|\.ya?ml$|Dockerfile|Pipfile$|\.md$", re.I)
TOLD = re.compile(r"\.(ya?ml|json|toml|cfg|ini|sh|bash|slurm|sbatch|md|rst|ipynb)$|^(Makefile|Dockerfile)$", re.I)
TESTED = re.compile(r"^test_|_tests?\.py$|^conftest\.py$")  # by the convention of test runners
SKIPPED = re.compile(r"(^|/)(\.git|tests?|node_modules|build|docs?)(/|$)")


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a mutant."""

    project: str
    kind: str
    family: str
    path: str
    line: int
    alone: bool
    verdict: str
    besides: int
    shown: str
    commit: str = ""


Report = Counter[tuple[str, str, int]]


def checked(folder: str) -> tuple[Finding, ...]:
    """The findings of a project."""
    return tuple(mplint.check(folder, Config(cache=False, isolated=True)).findings)


def report_of(findings: Iterable[Finding]) -> Report:
    """Findings by code, path and line."""
    return Counter((f.code, os.path.abspath(f.location.path), f.location.line or 0) for f in findings)


def programs(folder: str, limit: int) -> list[Program]:
    """The files of a project that mistakes can be put into; none where it has more than `limit` files."""
    paths = [
        os.path.join(at, name)
        for at, _, names in os.walk(folder)
        for name in names
        if name.endswith(".py") and not TESTED.search(name) and not SKIPPED.search(os.path.relpath(at, folder).replace(os.sep, "/"))
    ]
    if len(paths) > limit:
        return []
    found = [program for path in sorted(paths) if (program := read(path)) is not None]
    facts = facts_of(found, pins_of(folder), project_of(modules(found, paths), told_in(folder)))
    return [replace(program, facts=facts) for program in found]


def modules(found: Iterable[Program], paths: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
    """Every file that parses, by path; those of programs as they were read."""
    known = {program.path: program.tree for program in found}
    for path in paths:
        with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError):
            yield path, known[path] if path in known else ast.parse(text_in(path))


def told_in(folder: str) -> Iterator[tuple[str, str]]:
    """The settings, scripts of the shell, notebooks and instructions of a project, by path."""
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".git", "node_modules")]
        for path in (os.path.join(at, name) for name in sorted(names) if TOLD.search(name)):
            if os.path.getsize(path) < 400_000:
                yield path, text_in(path)


def text_in(path: str) -> str:
    """What stands in a file."""
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def pins_of(folder: str) -> str:
    """What a project says of the versions that it needs."""
    texts = []
    for name in sorted(os.listdir(folder)):
        if PINS.search(name) and os.path.isfile(os.path.join(folder, name)):
            texts.append(text_in(os.path.join(folder, name)))
    return "\n".join(texts)


def parses(mutant: Mutant) -> bool:
    """Whether a mutant is Python."""
    try:
        ast.parse(mutant.text)
    except (SyntaxError, ValueError):
        return False
    return True


def moved(report: Report, path: str, mutant: Mutant) -> Report:
    """The findings of the right code, at the lines where they are in the mutant."""
    if not mutant.count:
        return report
    return Counter({(c, p, n + mutant.count if p == path and n >= mutant.inserted else n): count for (c, p, n), count in report.items()})


def judge(program: Program, mutant: Mutant, chosen: Kind, before: Report, folder: str, others: frozenset[tuple[str, int]]) -> Row | None:
    """Check a mutant, and put the right code back; None where the place was reported before. `others`: places in helpers' callers."""
    path = os.path.abspath(program.path)
    known = moved(before, path, mutant)
    places = {(path, line) for line in mutant.lines} | others
    if any(code in chosen.codes and (p, line) in places for code, p, line in known):
        return None
    with open(path, "w", encoding="utf-8", newline="") as stream:
        stream.write(mutant.text)
    try:
        findings = checked(folder)
    finally:
        with open(path, "w", encoding="utf-8", newline="") as stream:
            stream.write(program.text)
    new = report_of(findings) - known
    named = {key(f) for f in findings if any((os.path.abspath(r.location.path), r.location.line) in places for r in f.related)}
    ours = [f for f in new if f[0] in chosen.codes]
    here = [f for f in ours if f[1:] in places or f in named]
    besides = [f for f in new if f[0] not in chosen.codes | chosen.also] + [f for f in ours if here and f not in here]
    verdict = "found" if here else "elsewhere" if ours else "missed"
    shown = ", ".join(f"{c} {os.path.relpath(p, folder)}:{n}" for c, p, n in sorted([*(ours if not here else ()), *besides])[:4])
    place = os.path.relpath(program.path, folder)
    name = os.path.basename(os.path.abspath(folder))
    return Row(name, chosen.name, chosen.family, place, min(mutant.lines), chosen.alone(program), verdict, len(besides), shown)


def key(finding: Finding) -> tuple[str, str, int]:
    """A finding as reports count it."""
    return finding.code, os.path.abspath(finding.location.path), finding.location.line or 0


def callers(mutant: Mutant, sources: Iterable[Program]) -> frozenset[tuple[str, int]]:
    """The calls in all files at which a finding is right as well."""
    named = ((p, call) for p in sources for name in mutant.calls for call in p.calls.get(name, ()))
    return frozenset((os.path.abspath(p.path), line) for p, call in named for line in span(call))


Places = dict[str, list[tuple[Program, Mutant]]]


def places_of(sources: list[Program], wanted: Iterable[Kind]) -> Places:
    """Where each kind of mistake can be put in a project."""
    found = {
        k.name: [(p, m) for p in sources for m in k.make(p) if m.text != p.text and parses(m) and is_on(p, k) and is_run(p, m)]
        for k in wanted
    }
    return {name: places for name, places in found.items() if places}


def drawn(places: Places, most: int, common: Counter[str], draw: random.Random) -> list[tuple[Kind, Program, Mutant]]:
    """A place of each of the kinds that are rarest so far."""
    names = sorted(places, key=lambda name: (common[name], draw.random()))[:most]
    common.update(names)
    return [(KINDS[name], *draw.choice(places[name])) for name in names]


def rows_of(files: Iterable[str]) -> list[Row]:
    """What was kept of earlier runs."""
    found = []
    for file in files:
        if os.path.exists(file):
            with open(file, encoding="utf-8") as stream:
                found += [Row(**json.loads(line)) for line in stream]
    return found


def run(options: argparse.Namespace) -> list[Row]:
    """Check mutants of the folders."""
    wanted = [k for k in KINDS.values() if any(part in k.name for part in options.kinds.split(","))]
    rows = rows_of([options.record] if options.record else [])
    done = {row.project for row in rows}
    common = Counter(row.kind for row in rows)
    for folder in options.folders:
        name = os.path.basename(os.path.abspath(folder))
        sources = programs(folder, options.files) if name not in done else []
        places = places_of(sources, wanted)
        if not places:
            continue
        start = time.process_time()
        right = checked(folder)
        before = report_of(right)
        if options.show:
            told = Counter(f.code for f in right if f.severity is not Severity.INFO)
            print(f"{name}: {sum(told.values())} findings above info in the right code {dict(told)}", file=sys.stderr, flush=True)
        if time.process_time() - start > options.seconds:
            print(f"{name}: left out, its check takes {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)
            continue
        for chosen, program, mutant in drawn(places, options.most, common, random.Random(f"{options.seed} {name}")):
            row = judge(program, mutant, chosen, before, folder, callers(mutant, sources))
            if row is not None:
                rows.append(row)
                keep(row, options)
    return rows


def keep(row: Row, options: argparse.Namespace) -> None:
    """Write a row where it is wanted."""
    if options.record:
        with open(options.record, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(row)) + "\n")
    if options.show:
        where = "one file" if row.alone else "several"
        print(f"{row.project} {row.kind}: {row.path}:{row.line} {where} {row.verdict} {row.shown}", file=sys.stderr, flush=True)


def show(rows: list[Row]) -> None:
    """The table of what was found."""
    print(f"{'kind':46}{'family':10}{'one file':>12}{'several':>12}{'elsewhere':>12}{'besides':>10}")
    for name in [*KINDS, ""]:
        of_kind = [row for row in rows if name in ("", row.kind)]
        if not of_kind:
            continue
        cells = []
        for alone in (True, False):
            tried = [row for row in of_kind if row.alone is alone]
            cells.append(f"{sum(row.verdict == 'found' for row in tried)} of {len(tried)}")
        elsewhere, besides = sum(row.verdict == "elsewhere" for row in of_kind), sum(row.besides for row in of_kind)
        family = KINDS[name].family if name else ""
        print(f"{name or 'all':46}{family:10}{cells[0]:>12}{cells[1]:>12}{elsewhere:>12}{besides:>10}")
    print(f"{len({row.project for row in rows})} projects, {len({row.kind for row in rows})} kinds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--kinds", default="", help="parts of the names of kinds, with commas")
    parser.add_argument("--most", type=int, default=4, help="mutants of each project")
    parser.add_argument("--files", type=int, default=300, help="projects with more Python files are left out")
    parser.add_argument("--seconds", type=float, default=1e9, help="projects whose check takes longer are left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", default="", help="a file of lines of JSON, one a mutant, that is gone on with")
    parser.add_argument("--table", nargs="+", default=[], metavar="FILE", help="sum up what was recorded")
    parser.add_argument("--places", action="store_true", help="count the places in each folder, and check nothing")
    parser.add_argument("--show", action="store_true", help="print every mutant")
    options = parser.parse_args()
    if options.places:
        for folder in options.folders:
            counts = {name: len(found) for name, found in places_of(programs(folder, options.files), KINDS.values()).items()}
            print(json.dumps([os.path.basename(os.path.abspath(folder)), counts]))
        return
    show(rows_of(options.table) if options.table else run(options))


if __name__ == "__main__":
    main()
