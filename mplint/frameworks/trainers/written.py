"""What a program sets for a trainer, as rules read it: one `Setup` for each way that the program may take, with places and changes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mplint.configs.trainers.kinds import is_deepspeed
from mplint.configs.trainers.setup import OPEN, Open, Option, Setup
from mplint.configs.trainers.setup import Constant as Plain
from mplint.findings import Change, Replace, Span
from mplint.frameworks.trainers.settings import Held, Made, Section, Setting
from mplint.program.conditions import Path, allowed_values, extend
from mplint.program.machine import IDENTITY, Event
from mplint.program.supposed import settled
from mplint.program.trace import Entry, Trace, shown_symbol
from mplint.program.values import Constant, Place, Test, Unknown
from mplint.program.verdict import Verdict, constant_of, speaks_of_precision
from mplint.python.arguments import drop_argument, drop_entry

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

MAX_WAYS = 32
MAX_DEPTH = 3


class Configured(NamedTuple):
    """The settings of one trainer on one way through the program, in the file that makes it, and what that way takes."""

    setup: Setup
    file: SourceFile
    entry: Entry
    event: Event
    path: Path
    verdict: Verdict


def setups(trace: Trace) -> Iterator[Configured]:
    """Every trainer that the program configures, on every way that its settings tell apart."""
    for entry, event in trace.of("trainer configured"):
        section, place = event.data["settings"], event.place
        if not isinstance(section, Section) or stands_in_files(event.path, section):
            continue
        if event.data["trainer"] == "deepspeed":
            place = section.holder
        file = trace.file(place.path)
        base = extend(event.path, event.data.get("guards", frozenset()))  # type: ignore[arg-type]
        for path in worlds(base, section) if file is not None and base is not None else ():
            assert file is not None
            options = WrittenOptions(trace, file, section, path)
            key, title = str(event.data["trainer"]), str(event.data["title"])
            verdict = trace.verdict(entry, path)
            if not verdict.dead and (event.data["told"] or is_deepspeed(options)):
                setup = Setup(key, title, options, "lightning" if key == "fabric" else key)
                yield Configured(setup, file, entry, event, path, verdict)


def verdict_of(trace: Trace, found: Configured, holds: Callable[[Configured], bool]) -> Verdict:
    """What has to be turned so that something `holds` of a trainer's settings, without the switches that have no part in it."""
    if trace.is_supposed:
        return found.verdict

    def happens(run: Entry) -> Iterator[Verdict]:
        return (other.verdict for other in setups(trace.alone(run)) if other.event.place == found.event.place and holds(other))

    return settled(trace, found.entry, found.path, happens)


def stands_in_files(path: Path, section: Section) -> bool:
    """Whether a configuration file describes a trainer with all of its settings (`_target_`): the file is read by itself."""
    described = any(key[0] == "in" and sense and f"_target_{IDENTITY}file:" in str(key[1]) for key, sense in path)
    held = [value for setting in section.settings for _, value in setting.ways]
    return described and all(type(value) is Unknown and f"{IDENTITY}file:" in value.symbol for value in held)


def worlds(path: Path, section: Section, depth: int = 0) -> list[Path]:
    """The ways through the program that settings tell apart."""
    found = [path]
    for setting in section.settings:
        if len(setting.ways) == 1 and not setting.ways[0][0] and isinstance(setting.ways[0][1], Constant | Unknown | Made):
            continue
        after: list[Path] = []
        for before in found:
            for guards, held in setting.ways:
                both = extend(before, guards)
                if both is None:
                    continue
                if isinstance(held, Test):
                    after += [p for sense in (True, False) if (p := extend(both, [(held.key, sense)])) is not None]
                elif isinstance(held, Section) and depth < MAX_DEPTH:
                    after += worlds(both, held, depth + 1)
                else:
                    after.append(both)
        found = list(dict.fromkeys(after)) if after and len(after) <= MAX_WAYS else found
    return found


class Written(NamedTuple):
    """Where a setting is written: what holds its name, its value, and the call, dict or class around it."""

    key: ast.AST
    value: ast.expr
    owner: ast.AST


class WrittenOptions:
    """The settings of one section on one way through the program."""

    def __init__(self, trace: Trace, file: SourceFile, section: Section, path: Path) -> None:
        self.trace = trace
        self.file = file
        self.section = section
        self.path = path

    @property
    def place(self) -> Span:
        """Where the call or dict stands."""
        return self.span_of(self.section.holder)

    def span_of(self, place: Place) -> Span:
        """A place in this file; the beginning of the file for one in another."""
        return self.trace.span(place) if self.trace.file(place.path) is self.file else Span(1, 0, 1, 0)

    @property
    def complete(self) -> bool:
        """Whether all of the settings are known."""
        return self.section.complete

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the settings."""
        return tuple(dict.fromkeys(s.name for s in self.section.settings))

    def option(self, name: str) -> Option | None:
        """The setting of a name; None where it is not given."""
        setting = self.section.get(name)
        if setting is None:
            return None
        possible = [held for guards, held in setting.ways if extend(self.path, guards) is not None]
        held = possible[0] if len(possible) == 1 else None
        value, switch = self.value_of(held)
        written = self.written(setting)
        key = self.key_span(written.key, name) if written is not None else self.place
        made = held if isinstance(held, Made) else None
        return Option(
            name,
            key,
            value,
            self.entry_span(written, key) if written is not None else key,
            fixed=written is None,
            sure=not switch,
            made=made.names[0] if made is not None and not made.listed and made.names else "",
            held=made.names if made is not None and made.listed else (),
            setting=f"`{switch}`" if switch else "",
            varies=len(setting.ways) > 1,
            asked=self.asked_of(held),
        )

    def decided_at(self, name: str) -> Place | None:
        """Where the default is written that gives a setting its value; None where the setting has its own, or a file gives it."""
        setting = self.section.get(name)
        possible = [held for guards, held in setting.ways if extend(self.path, guards) is not None] if setting is not None else []
        held = possible[0] if len(possible) == 1 else None
        switch = self.trace.switches.get(held.symbol) if isinstance(held, Unknown) else None
        file, node = (self.trace.node(switch.place) or (None, None)) if switch is not None and switch.place is not None else (None, None)
        if switch is None or file is None or node is None:
            return None
        around = next((part for part in (node, *file.syntax.ancestors(node)) if isinstance(part, ast.stmt)), node)
        default = constant_of(switch.default)
        texts = [part.value for part in ast.walk(around) if isinstance(part, ast.Constant)]
        return switch.place if default is not None and default[0] in texts else None

    def asked_of(self, held: Held | None) -> str:
        """The expression that decides a setting when the program runs, unless this way through the program says that it is off."""
        if not isinstance(held, Unknown) or extend(self.path, [(("true", held.symbol), True)]) is None:
            return ""
        return shown_symbol(held.symbol)

    def value_of(self, held: Held | None) -> tuple[Plain | WrittenOptions | Open, str]:
        """What a setting is, and the switch by whose default it is that."""
        if isinstance(held, Constant):
            plain = held.value is None or isinstance(held.value, bool | int | float | str)
            return (held.value if plain else OPEN), ""  # type: ignore[return-value]
        if isinstance(held, Test):
            senses = {sense for key, sense in self.path if key == held.key}
            return ((held.sense in senses) if len(senses) == 1 and self.is_decided(held) else OPEN), ""
        if isinstance(held, Section):
            return WrittenOptions(self.trace, self.file, held, self.path), ""
        switch = self.trace.switches.get(held.symbol) if isinstance(held, Unknown) else None
        if switch is None or not isinstance(held, Unknown):
            return OPEN, ""
        allowed = allowed_values(self.path, held.symbol)
        default = constant_of(switch.default)
        chosen = (next(iter(allowed)),) if allowed is not None and len(allowed) == 1 else default
        if chosen is None or extend(self.path, [(("in", held.symbol, frozenset(chosen)), True)]) is None:
            return OPEN, ""
        value = chosen[0]
        return (value, switch.name) if isinstance(value, bool | int | float | str) else (OPEN, "")

    def is_decided(self, test: Test) -> bool:
        """Whether a default decides a test, or a setting that speaks of precision, which its condition then names."""
        switch = self.trace.switch(test.key[1]) if test.key[0] in ("true", "in") else None
        return switch is not None and (switch.default is not None or speaks_of_precision(switch.name, ()))

    def written(self, setting: Setting) -> Written | None:
        """Where a setting is written in this file, by its name."""
        node = self.trace.node(setting.holder)
        if node is None or node[0] is not self.file:
            return None
        match node[1]:
            case ast.Call() as call:
                return next((Written(k, k.value, call) for k in call.keywords if k.arg == setting.name), None)
            case ast.Dict() as owner:
                pairs = [(k, v) for k, v in zip(owner.keys, owner.values, strict=True) if isinstance(k, ast.Constant)]
                return next((Written(k, v, owner) for k, v in reversed(pairs) if k.value == setting.name), None)
            case ast.ClassDef() as owner:
                fields = [s for s in owner.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
                return next((Written(s.target, s.value, owner) for s in fields if s.value and ast.unparse(s.target) == setting.name), None)
        return None

    def key_span(self, key: ast.AST, name: str) -> Span:
        """The range of a setting's name."""
        span = self.file.span(key)
        return span._replace(end_line=span.line, end_column=span.column + len(name)) if isinstance(key, ast.keyword) else span

    def entry_span(self, written: Written, key: Span) -> Span:
        """The range of a setting with its value, where that is short."""
        end = self.file.span(written.value)
        short = isinstance(written.value, ast.Constant | ast.Name | ast.Attribute)
        return Span(key.line, key.column, end.end_line, end.end_column) if short else key

    def editable(self, option: Option) -> Written | None:
        """Where a setting is written, if it may be changed there."""
        setting = self.section.get(option.name)
        return self.written(setting) if setting is not None and not option.fixed else None

    def set(self, option: Option, value: Plain) -> Change | None:
        """Another value; only where the old one is written there, and the program does not compare with it."""
        written = self.editable(option)
        if written is None or option.setting or option.varies or self.is_compared(option):
            return None
        given = default_of(written.value)
        if not (isinstance(given, ast.Constant) and given.value == option.value):
            return None
        return Replace(self.file.span(given), self.spelled(value, written))

    def is_compared(self, option: Option) -> bool:
        """Whether the program compares the setting with its old value, so that a new one would change what it does."""
        values = {str(option.value)}
        for test in self.file.syntax.all(ast.Compare):
            sides = [test.left, *test.comparators]
            items = [item for side in sides for item in (side.elts if isinstance(side, ast.List | ast.Tuple | ast.Set) else [side])]
            named = any(option.name in self.file.text(side) for side in sides if not isinstance(side, ast.Constant))
            if named and any(isinstance(i, ast.Constant) and str(i.value) in values for i in items):
                return True
        return False

    def is_read(self, option: Option, written: Written) -> bool:
        """Whether the program reads the setting again by its name: `arguments.fp16_backend`, `config["fp16_backend"]`."""
        if isinstance(written.owner, ast.Dict):
            keys = [n.slice for n in self.file.syntax.all(ast.Subscript) if isinstance(n.ctx, ast.Load)]
            asked = [n.args[0] for n in self.file.syntax.all(ast.Call) if isinstance(n.func, ast.Attribute) and n.args]
            return any(isinstance(key, ast.Constant) and key.value == option.name for key in (*keys, *asked))
        statement = self.file.syntax.statement(written.owner)
        made = {ast.unparse(target) for target in statement.targets} if isinstance(statement, ast.Assign) else set()
        return any(n.attr == option.name and ast.unparse(n.value) in made for n in self.file.syntax.all(ast.Attribute))

    def rename(self, option: Option, name: str) -> Change | None:
        """Another keyword or key; none where that is given, too, or the name of a field would change."""
        written = self.editable(option)
        if written is None or self.section.get(name) is not None or isinstance(written.owner, ast.ClassDef):
            return None
        if self.is_read(option, written):
            return None
        quote = "" if isinstance(written.key, ast.keyword) else self.file.text(written.key)[:1]
        return Replace(option.key, f"{quote}{name}{quote}") if quote in ("", "'", '"') else None

    def remove(self, option: Option) -> Change | None:
        """Take out a keyword argument or a dict entry."""
        written = self.editable(option)
        if written is None or self.is_read(option, written):
            return None
        if isinstance(written.owner, ast.Call):
            return drop_argument(self.file, written.owner, written.value)
        return drop_entry(self.file, written.owner, written.key, written.value) if isinstance(written.owner, ast.Dict) else None

    def spelled(self, value: Plain, written: Written) -> str:
        """A value as source, in the quotes that stand there."""
        if not isinstance(value, str):
            return repr(value)
        quote = "'" if "'" in self.file.text(written.value) or "'" in self.file.text(written.key) else '"'
        return f"{quote}{value}{quote}"


def default_of(value: ast.expr) -> ast.expr:
    """The default in `field(default=…)`, else the value itself."""
    if isinstance(value, ast.Call):
        return next((k.value for k in value.keywords if k.arg == "default"), value)
    return value
