"""What a rule is, and the registry through which the engine finds rules without importing one."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mplint.findings import Applicability, Confidence, Finding, Fix, Location, Related, Severity, Span, numbered

if TYPE_CHECKING:
    import ast
    from types import ModuleType

    from mplint.configs.trainers.config_file import ConfigFile
    from mplint.graph.facts import GraphFacts
    from mplint.graph.model import Node, Tensor
    from mplint.program.conditions import Path
    from mplint.program.event import Event
    from mplint.program.trace import Entry, Source, Trace
    from mplint.program.values import Chain, Place
    from mplint.program.verdict import Verdict
    from mplint.python.file import SourceFile
    from mplint.python.neighbors import Neighbors
    from mplint.targets import Targets

DOCS_URL = "https://github.com/mplint/mplint/blob/main/docs/rules/{name}.md"
PLUGINS = "mplint.plugins"  # the group of entry points
SECTIONS = ("What it does", "Why is this bad?", "Example", "Use instead", "Fix safety", "Evidence", "References")


class Consequence(NamedTuple):
    """What it means for the adoption of mixed precision that it brings a mistake about.

    `note` is what was done where the fix was made (""; the fix's title); `mends`: the fix belongs to a new policy, where others change what
    the user wrote for other reasons. `fatal`: the program would raise or train wrongly, and must not be written (None: as errors are).
    `scaling`: it comes of loss scaling, which bfloat16 does not need; `speed`: it only costs speed; `resumes`: it shows
    when training is resumed, and stops nothing. `torch`: what the rule advises is
    there since this version.
    """

    note: str = ""
    mends: bool = False
    fatal: bool | None = None
    scaling: bool = False
    resumes: bool = False
    speed: bool = False
    torch: str | None = None


class Option(NamedTuple):
    """A number that a rule leaves to the user: its name in the configuration, its default, the least it may be, and what it means."""

    name: str
    default: int
    least: int
    about: str


class Surroundings(NamedTuple):
    """What lies around one file: the versions and the hardware that it is for, and the modules of its project."""

    targets: Targets
    modules: Neighbors


MAX_SETTLED = 8  # verdicts of one rule at one place in a program


class Rule:
    """One mistake. The class docstring is its documentation, in the sections of `SECTIONS`.

    A rule defines `check_source` and/or the other `check_*` methods as generators of findings; a
    method it does not define is not called. `tokens` are plain strings (no regular expressions): a file
    in which none of them occurs is never shown to the rule. `needs_target`: it can only fire for a named hardware target.
    `program`: it defines `check_program`; `configs`: it defines `check_config`; `graphs`: it defines `check_graph`
    (such a rule is shown programs only where it has tokens), `weights`: which judges files of weights without operations as well.
    `adoption`: what its findings mean to adoption (`mplint convert train.py`). `consequence_of`: rules whose finding at the `cause` of one
    of this rule's says it all; that one is not told then. `options` are the numbers that it leaves to the user.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    fix: ClassVar[Applicability | None] = None
    frameworks: ClassVar[tuple[str, ...]] = ()
    tokens: ClassVar[tuple[str, ...]] = ()
    needs_target: ClassVar[bool] = False
    program: ClassVar[bool] = False
    configs: ClassVar[bool] = False
    graphs: ClassVar[bool] = False
    weights: ClassVar[bool] = False
    adoption: ClassVar[Consequence] = Consequence()
    consequence_of: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option, ...]] = ()
    _weighed: tuple[Verdict, ...] = ()  # the verdicts that it has asked for since the finding before

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Yield the mistakes of this kind that one source file spells out."""
        yield from ()

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the mistakes of this kind in what happens in a whole program."""
        yield from ()

    def check_config(self, file: ConfigFile) -> Iterator[Finding]:
        """Yield the mistakes of this kind in one configuration file (JSON or YAML)."""
        yield from ()

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield the mistakes of this kind in one model."""
        yield from ()

    def graph_finding(
        self,
        graph: GraphFacts,
        item: Node | Tensor | None,
        message: str,
        *,
        why: str = "",
        help: str = "",
        severity: Severity | None = None,
        confidence: Confidence = Confidence.HIGH,
        related: tuple[tuple[Node | Tensor, str], ...] = (),
        fix: Fix | None = None,
    ) -> Finding:
        """Make a finding of this rule at a node or a tensor (None: the whole model); `related` pairs others with what happens there."""
        place = Location(graph.path, None, None, None, None)
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            confidence=confidence,
            message=message,
            location=place,
            why=sentence(why),
            help=sentence(help),
            related=tuple(Related(place, f"{other.name}: {text}") for other, text in related),
            fix=fix and fix._replace(title=sentence(fix.title).removesuffix(".")),
            node=None if item is None else item.name,
        )

    def finding(
        self,
        file: SourceFile | ConfigFile,
        node: ast.AST | Span,
        message: str,
        *,
        why: str = "",
        help: str = "",
        severity: Severity | None = None,
        confidence: Confidence = Confidence.HIGH,
        related: tuple[tuple[ast.AST | Span | Location, str], ...] = (),
        fix: Fix | None = None,
    ) -> Finding:
        """Make a finding of this rule at `node` (or span); `related` pairs other nodes of the file, or places, with what happens there."""
        made = Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            confidence=confidence,
            message=message,
            location=file.location(node),
            why=sentence(why),
            help=sentence(help),
            related=tuple(Related(o if isinstance(o, Location) else file.location(o), text) for o, text in related),
            fix=fix and fix._replace(title=sentence(fix.title).removesuffix(".")),
        )
        return told(made, file.document)

    def at(
        self,
        trace: Trace,
        place: Place,
        message: str,
        *,
        why: str = "",
        help: str = "",
        severity: Severity | None = None,
        confidence: Confidence = Confidence.HIGH,
        steps: Chain = (),
        fix: Fix | None = None,
        cause: Place | None = None,
        assumed: str = "",
    ) -> Finding:
        """Make a finding of this rule at a place of a program; `steps` are the places that lead there, with what happens at each.

        `cause`: the place of what brings it about, which a finding of `consequence_of` may stand at. `assumed`: what the rule takes for
        granted; beside a guess about what runs it makes the finding unsure.
        """
        made = Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            confidence=confidence,
            message=message,
            location=trace.location(place),
            why=sentence(why),
            help=sentence(help),
            related=numbered(trace.steps(steps)),
            fix=fix and fix._replace(title=sentence(fix.title).removesuffix(".")),
            cause=trace.location(cause) if cause is not None else None,
            assumed=assumed,
        )
        return told(made, trace.source(place.path))

    def __init__(self) -> None:
        self._settled: Counter[Place] = Counter()  # how often it has asked at a place which switches have no part
        self._supposed: dict[int, tuple[Entry, dict[Place, list[Verdict]]]] = {}  # what it finds in an entry alone, by the identity of that

    def verdict(self, trace: Trace, entry: Entry, path: Path, place: Place, *evidence: Event | None) -> Verdict:
        """How sure it is that this mistake is made at a place: switches that have no part in it are left out.

        `evidence`: events that must happen as well, beside the one whose path this is; where they can't together, nothing is proven.
        """
        from mplint.program.conditions import extend
        from mplint.program.supposed import settled
        from mplint.program.verdict import Verdict

        for event in evidence:
            both = extend(path, event.path) if event is not None else path
            if both is None:
                verdict = Verdict(entry.script, (), dead=True, path=path)
                self._weighed = (*self._weighed, verdict)
                return verdict
            path = both
        if trace.told is not None:
            verdict = trace.verdict(entry, path)
            trace.told.append((place, verdict))
        else:
            self._settled[place] += 1
            alone = self._settled[place] > MAX_SETTLED  # the first tell what has no part in it; many more only take time
            verdict = trace.verdict(entry, path) if alone else settled(trace, entry, path, lambda run: self.verdicts(trace, run, place))
        self._weighed = (*self._weighed, verdict)
        return verdict

    def in_program(self, trace: Trace) -> Iterator[Finding]:
        """The mistakes of this kind in what happens in a whole program, without those that no settings lead to.

        Of several at one place the one that asks least of a user comes first.
        """
        found: dict[Location, list[tuple[int, Finding]]] = {}
        self._settled = Counter()
        self._supposed.clear()
        for finding in self.check_program(trace):
            asked, self._weighed = self._weighed, ()
            if not asked or not all(verdict.dead for verdict in asked):
                demands = max((len(verdict.switches) for verdict in asked), default=0)
                found.setdefault(finding.location, []).append((demands, finding))
        self._supposed.clear()
        for ways in found.values():
            yield from (finding for _, finding in sorted(ways, key=lambda way: way[0]))

    def verdicts(self, trace: Trace, entry: Entry, place: Place) -> list[Verdict]:
        """The verdicts of what this rule finds at a place where nothing but this entry happens."""
        from mplint.program.supposed import MAX_SUPPOSITIONS

        known = self._supposed.get(id(entry))
        if known is None:
            if len(self._supposed) >= MAX_SUPPOSITIONS:
                self._supposed.clear()
            alone = trace.alone(entry)
            locations = {finding.location for finding in type(self)().in_program(alone)}
            told: dict[Place, list[Verdict]] = {}
            for where, verdict in alone.told or ():
                if alone.location(where) in locations:
                    told.setdefault(where, []).append(verdict)
            known = self._supposed[id(entry)] = entry, told
        return known[1].get(place, [])

    @classmethod
    def option(cls, name: str, targets: Targets) -> int:
        """One of `options`, as the configuration for these targets has it."""
        return targets.options.get((cls.code, name)) or next(option.default for option in cls.options if option.name == name)

    @classmethod
    def checks(cls, method: str) -> bool:
        """Whether this rule defines the detector `method` ("check_source", …)."""
        return getattr(cls, method, None) is not getattr(Rule, method, None)

    @classmethod
    def documentation(cls) -> str:
        """The class docstring, dedented."""
        from inspect import cleandoc

        return cleandoc(cls.__doc__ or "")

    @classmethod
    def section(cls, title: str) -> str:
        """The text of one `## title` section of the documentation, or "" where it is missing."""
        match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", cls.documentation(), re.M | re.S)
        return match.group(1).strip() if match else ""

    @classmethod
    def summary(cls) -> str:
        """One line about the mistake: what stands before the sections, else the first sentence of "What it does"."""
        text = cls.documentation().split("## ", 1)[0].strip() or re.split(r"(?<=[.!?])\s", cls.section("What it does"), maxsplit=1)[0]
        return " ".join(text.split("\n\n", 1)[0].split()) or cls.name

    @classmethod
    def url(cls) -> str:
        """Where the documentation of this rule stands on the web; "" for a rule of a plugin that does not say."""
        return DOCS_URL.format(name=cls.name) if cls.__module__.startswith("mplint.") else ""


def sentence(text: str) -> str:
    """`text` with a capital letter (names of code keep theirs) and a full stop."""
    first = text.split(" ", 1)[0]
    if first.isalpha():
        text = text[0].upper() + text[1:]
    return text if not text or text[-1] in ".!?" else text + "."


def told(finding: Finding, source: Source) -> Finding:
    """A finding in the words of the language that the program is written in."""
    if source.language == "python":
        return finding
    from mplint.python.r.spelling import spelling

    return spelling(source.text).finding(finding)


def rules_package() -> ModuleType:
    """The package `mplint.rules`: in a source tree the folder `rules` beside this `mplint`, otherwise the installed one.

    A clone's own rules count for its own `mplint`, also where another clone is installed for editing.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.join(os.path.dirname(here), "rules")
    place = os.path.join(folder, "__init__.py")
    if "mplint.rules" in sys.modules or os.path.isdir(os.path.join(here, "rules")) or not os.path.isfile(place):
        return importlib.import_module("mplint.rules")
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("mplint.rules", place, submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["mplint.rules"] = package
    spec.loader.exec_module(package)
    return package


def plugin_modules(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """The modules with the rules of plugins, which are named as their packages register them (entry points), or are modules themselves."""
    if not plugins:
        return ()
    from importlib.metadata import entry_points

    registered = {point.name: point.module for point in entry_points(group=PLUGINS)}
    return tuple(dict.fromkeys(registered.get(plugin, plugin) for plugin in plugins))


@cache
def registry(plugins: tuple[str, ...] = ()) -> dict[str, type[Rule]]:
    """Every rule by code, in the order of codes, found in the package `mplint.rules`, the engine and the `plugins`."""
    import pkgutil

    package = rules_package()
    rules: dict[str, type[Rule]] = {}
    for family in pkgutil.iter_modules(package.__path__, "mplint.rules."):
        if not family.ispkg:
            continue
        folder = importlib.import_module(family.name)
        for module in pkgutil.iter_modules(folder.__path__, family.name + "."):
            for rule in rules_in(module.name):
                add(rules, rule)
    for plugin in ("mplint.engine.builtin_rules", *plugin_modules(plugins)):
        for rule in rules_in(plugin):
            add(rules, rule)
    return dict(sorted(rules.items()))


def rules_in(module: str) -> Iterator[type[Rule]]:
    """The rules that a module defines."""
    for rule in vars(importlib.import_module(module)).values():
        if isinstance(rule, type) and issubclass(rule, Rule) and rule.__module__ == module and "code" in vars(rule):
            yield rule


def add(rules: dict[str, type[Rule]], rule: type[Rule]) -> None:
    """Register `rule`; raises ValueError where its code or name is taken."""
    if any(rule.code == other.code or rule.name == other.name for other in rules.values()):
        raise ValueError(f"two rules are called {rule.code} or {rule.name}")
    rules[rule.code] = rule
