"""Settings of a trainer that a program writes as keywords, dict entries or class fields."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mplint.configs.trainers.setup import OPEN, Constant, Open, Option, Options
from mplint.findings import Change, Replace, Span
from mplint.python.arguments import drop_argument, drop_entry
from mplint.python.folding import NotConstant
from mplint.python.names import position
from mplint.source.torch.autocast import last_name

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

CHANGING = ("update", "pop", "setdefault", "clear", "popitem", "__setitem__")


class Given(NamedTuple):
    """One setting as the program writes it: its name ("" for settings out of sight), what holds the name, the value, and the owner."""

    name: str
    key: ast.expr | ast.keyword
    value: ast.expr
    owner: ast.AST


class SourceOptions:
    """The settings of one call, dict or class; a later one replaces an earlier one of the same name."""

    def __init__(self, file: SourceFile, node: ast.AST, entries: list[Given]) -> None:
        self.file = file
        self.node = node
        self._given = {entry.name: entry for entry in entries if entry.name}
        self._hidden = [entry for entry in entries if not entry.name]
        # In a dict what stands after it replaces a setting; a call refuses to be given one twice.
        late = max((self._start(e.value) for e in self._hidden), default=(0, 0)) if isinstance(node, ast.Dict) else (0, 0)
        self._replaced = {name for name, entry in self._given.items() if self._start(entry.value) < late}

    @staticmethod
    def _start(node: ast.expr) -> tuple[int, int]:
        return node.lineno, node.col_offset

    @cached_property
    def place(self) -> Span:
        """Where the call, dict or class stands."""
        return self.file.span(self.node)

    @property
    def complete(self) -> bool:
        """Whether all of its settings are in sight."""
        return not self._hidden

    @property
    def names(self) -> tuple[str, ...]:
        """The settings in sight."""
        return tuple(self._given)

    def option(self, name: str) -> Option | None:
        """The setting called `name`."""
        entry = self._given.get(name)
        if entry is None:
            return None
        value, sure = self._value(entry)
        return Option(
            name,
            self._key_span(entry),
            value,
            self._entry_span(entry),
            sure=sure,
            made=self._made(entry.value),
            held=self._held(entry.value),
            setting="" if sure or isinstance(value, Open) else self._setting(entry.value),
        )

    def calls(self, name: str) -> list[ast.Call]:
        """The calls that a setting, or an item of its list, may be the result of."""
        found: list[ast.Call] = []
        for definition in self.file.values.definitions(self._given[name].value) if name in self._given else ():
            items = definition.elts if isinstance(definition, ast.List | ast.Tuple) else [definition]
            for item in items:
                found += [d for d in (self.file.values.definitions(item) if item is not definition else [item]) if isinstance(d, ast.Call)]
        return found

    def beside(self, name: str, other: ast.AST) -> list[ast.expr]:
        """What a setting may be where `other` has run, such as the branch that gives another setting its value."""
        value = self._given[name].value
        if not isinstance(value, ast.Name):
            return [value]
        names = self.file.names
        feasible = [b for b in names.reaching(value) if not names.exclusive(b.node, other)]
        sure = [position(b.node) for b in feasible if names.runs_with(b.node, other)]
        last = max(sure, default=(0, 0))
        return [b.value if b.value is not None and b.element is None else value for b in feasible if position(b.node) >= last]

    def set(self, option: Option, value: Constant) -> Change | None:
        """Write another value in the place of the expression that gives the old one; not where that is a flag or a setting."""
        entry = self._given[option.name]
        return None if option.setting or self._is_compared(option) else Replace(self.file.span(entry.value), self._written(value, entry))

    def _is_compared(self, option: Option) -> bool:
        """Whether the program compares the setting with its old value, so that a new one would change what it does."""
        values = {str(option.value)}
        for test in self.file.syntax.all(ast.Compare):
            sides = [test.left, *test.comparators]
            items = [item for side in sides for item in (side.elts if isinstance(side, ast.List | ast.Tuple | ast.Set) else [side])]
            named = any(option.name in self.file.text(side) for side in sides if not isinstance(side, ast.Constant))
            if named and any(isinstance(i, ast.Constant) and str(i.value) in values for i in items):
                return True
        return False

    def rename(self, option: Option, name: str) -> Change | None:
        """Write another keyword or key; none where that name is given, too, or the name of a field would change."""
        entry = self._given[option.name]
        if name in self._given or isinstance(entry.owner, ast.ClassDef):
            return None
        span = self._key_span(entry)
        quote = "" if isinstance(entry.key, ast.keyword) else self.file.text(entry.key)[:1]
        return Replace(span, f"{quote}{name}{quote}") if quote in ("", "'", '"') else None

    def remove(self, option: Option) -> Change | None:
        """Take out a keyword argument or a dict entry."""
        entry = self._given[option.name]
        if isinstance(entry.owner, ast.Call):
            return drop_argument(self.file, entry.owner, entry.value)
        return drop_entry(self.file, entry.owner, entry.key, entry.value) if isinstance(entry.owner, ast.Dict) else None

    def _value(self, entry: Given) -> tuple[Constant | Options | Open, bool]:
        if entry.name in self._replaced or entry.name in self._changed or "" in self._changed:
            return OPEN, True
        definitions = self.file.values.definitions(entry.value)
        if len(definitions) == 1 and is_dict(self.file, definitions[0]) and isinstance(definitions[0], ast.expr):
            return SourceOptions(self.file, definitions[0], given(self.file, definitions[0])), True
        try:
            value = self.file.values.constant(entry.value)
        except NotConstant:
            default = self._default(entry.value)
            return (OPEN, True) if default is None else (default, False)
        if isinstance(value, bytes | complex):
            return OPEN, True
        return value, True

    def _made(self, value: ast.expr) -> str:
        made = {last_name(d.func) for d in self.file.values.definitions(value) if isinstance(d, ast.Call)}
        return made.pop() if len(made) == 1 else ""

    def _held(self, value: ast.expr) -> tuple[str, ...]:
        lists = [d for d in self.file.values.definitions(value) if isinstance(d, ast.List | ast.Tuple)]
        return tuple(self._made(item) for item in lists[0].elts) if len(lists) == 1 else ()

    def _setting(self, node: ast.expr) -> str:
        """The flag or setting that the expression reads, with its default, as messages name it."""
        configuration = self.file.values.configuration
        setting = configuration.setting(self.file.values.definitions(node)[0])
        return configuration.described(setting) if setting is not None else ""

    def _default(self, node: ast.expr) -> Constant:
        """What the flag or the setting that the expression reads is by default; None where the program does not say."""
        configuration = self.file.values.configuration
        definitions = self.file.values.definitions(node)
        setting = configuration.setting(definitions[0]) if len(definitions) == 1 else None
        value = configuration.default(setting) if setting is not None else None
        return value if isinstance(value, bool | int | float | str) else None

    @cached_property
    def _changed(self) -> frozenset[str]:
        """The settings that the program changes after this dict was made; "" stands for any."""
        if not isinstance(self.node, ast.Dict | ast.Call):
            return frozenset()
        return frozenset(changes(self.file).get(self.node, ()))

    def _key_span(self, entry: Given) -> Span:
        span = self.file.span(entry.key)
        if isinstance(entry.key, ast.keyword):
            return span._replace(end_line=span.line, end_column=span.column + len(entry.name))
        return span

    def _entry_span(self, entry: Given) -> Span:
        start, end = self.file.span(entry.key), self.file.span(entry.value)
        one = isinstance(entry.value, ast.Constant | ast.Name | ast.Attribute)
        return Span(start.line, start.column, end.end_line, end.end_column) if one else self._key_span(entry)

    def _written(self, value: Constant, entry: Given) -> str:
        if not isinstance(value, str):
            return repr(value)
        quote = "'" if "'" in self.file.text(entry.value) or "'" in self.file.text(entry.key) else '"'
        return f"{quote}{value}{quote}"


def changes(file: SourceFile) -> dict[ast.AST, set[str]]:
    """The keys that the program sets or drops in each dict after it was made; "" where the key can't be told."""
    known = file.__dict__.get("_dict_changes")
    if known is not None:
        return known  # type: ignore[no-any-return]
    table: dict[ast.AST, set[str]] = {}
    file.__dict__["_dict_changes"] = table
    for node in file.syntax.all(ast.Subscript):
        if isinstance(node.ctx, ast.Store | ast.Del):
            keys = []
            base: ast.expr = node
            while isinstance(base, ast.Subscript):
                key = file.values.constant_or(base.slice)
                keys.append(key if isinstance(key, str) else "")
                base = base.value
            _note(file, table, base, keys[::-1])
    for call in file.syntax.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in CHANGING:
            base = call.func.value
            keys = []
            while isinstance(base, ast.Subscript):
                key = file.values.constant_or(base.slice)
                keys.append(key if isinstance(key, str) else "")
                base = base.value
            _note(file, table, base, [*keys[::-1], ""])
    return table


def _note(file: SourceFile, table: dict[ast.AST, set[str]], base: ast.expr, keys: list[str]) -> None:
    for definition in file.values.definitions(base):
        if isinstance(definition, ast.Dict | ast.Call):
            table.setdefault(definition, set()).add(keys[0])


def given(file: SourceFile, node: ast.expr, depth: int = 0) -> list[Given]:
    """The settings that a call's keywords, a dict or `dict(…)` give, through `**` of dicts in sight; one without a name: what is not."""
    found: list[Given] = []
    pairs: list[tuple[ast.expr | ast.keyword | None, str | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            name = file.values.constant_or(key) if key is not None else None
            pairs.append((key, name if isinstance(name, str) else None, value))
    elif isinstance(node, ast.Call):
        pairs = [(keyword, keyword.arg, keyword.value) for keyword in node.keywords]
    for place, name, value in pairs:
        if name is not None and place is not None:
            found.append(Given(name, place, value, node))
            continue
        definitions = file.values.definitions(value) if depth < 3 else []
        spread = place is None or isinstance(place, ast.keyword)
        if spread and len(definitions) == 1 and is_dict(file, definitions[0]) and isinstance(definitions[0], ast.expr):
            found += given(file, definitions[0], depth + 1)
        else:
            found.append(Given("", value, value, node))
    return found


def is_dict(file: SourceFile, node: ast.AST) -> bool:
    """Whether an expression is a dict display or a call of `dict` with keywords."""
    return isinstance(node, ast.Dict) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args
    )
