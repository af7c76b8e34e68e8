"""Settings that no parser or class declares, known by what the project's files say: `cfg.clip.enable` of an object that nobody sees.

Whether such a setting is on decides what happens as an option does, so that it has to be said where a mistake takes another value than
files give, or where it turns half precision on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from mplint.frameworks.given import last_name
from mplint.frameworks.settings import OPEN, Given
from mplint.frameworks.texts import asked
from mplint.precisions import spellings
from mplint.program.conditions import Key
from mplint.program.machine import Switch
from mplint.program.trace import Ask, Trace, shown_symbol
from mplint.program.values import Constant
from mplint.program.verdict import FULL, keys_in, switch_of
from mplint.python.document import is_test_path
from mplint.python.syntax import words_of

DOTTED = re.compile(r"[A-Za-z]\w*(?:\.[A-Za-z_]\w*)*$")
PRECISE = frozenset({"amp", "fp16", "half", "mixed", "autocast", "float16"})  # words of a setting that turns half precision on
CHOSEN = frozenset({"precision", "dtype"})  # and of one by whose values it is chosen
COMPARED = re.compile(r"^([\w.]+) (==|!=) ['\"](\w+)['\"]$")
HALF = frozenset[Hashable]([*spellings("float16"), *spellings("bfloat16")])
HOLDS_SETTINGS = re.compile(r"(?:^|/)(?:configs?|conf|cfgs?|options|hparams|recipes|experiments)(?:/|_|\.py$)|config\.py$")


@dataclass(frozen=True, slots=True)
class Tree:
    """The question what a program that only holds settings gives to those of a name, with the sections that they stand in."""

    name: str

    def __call__(self, data: bytes) -> tuple[Given, ...]:
        if self.name.encode() not in data:
            return ()
        try:
            body = ast.parse(data).body
        except (SyntaxError, ValueError, RecursionError):
            return ()
        if not all(isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.Expr)) for statement in body):
            return ()
        found: list[Given] = []
        for statement in body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Name, ast.Attribute)):
                found += given_by(statement.value, ast.unparse(statement.targets[0]))
        return tuple(given for given in found if given.dotted.rpartition(".")[2] == self.name)


def given_by(node: ast.expr, dotted: str) -> Iterator[Given]:
    """The settings that an expression of dicts and constants holds."""
    if isinstance(node, ast.Constant):
        held = node.value
        yield Given(dotted, held if held is None or isinstance(held, (bool, int, float, str)) else OPEN)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from given_by(value, f"{dotted}.{key.value}")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield from given_by(keyword.value, f"{dotted}.{keyword.arg}")
    else:
        yield Given(dotted, OPEN)


def name_settings(trace: Trace, ask: Ask) -> None:
    """Give a switch to what conditions read by name and files set, or what turns half precision on, and a default where all files agree."""
    keys: dict[Hashable, set[Key]] = {}
    for path in {event.path for entry in trace.entries for event in entry.events}:
        for key in keys_in(path):
            keys.setdefault(key[1], set()).add(key)
    for symbol in sorted(symbol for symbol in keys if isinstance(symbol, str)):
        switch = switch_of(trace.switches, symbol)
        if switch is None:
            made = stated(trace, ask, symbol, keys[symbol])
            if made is not None:
                trace.switches[symbol] = made
        elif switch.kind == "setting" and switch.default is None and not (switch.offered or switch.base or switch.choices or switch.test):
            name = last_name(symbol)
            is_option = any(other.kind == "option" and called(other) == name for other in trace.switches.values())
            value = agreed(trace, ask, switch.name, name) if not is_option else None  # commands only say what turns an option
            if value is not None and symbol in trace.switches:
                trace.switches[symbol] = switch._replace(default=Constant(value))


def called(option: Switch) -> str:
    """The name under which a program reads an option."""
    return option.name.lstrip("-").replace("-", "_")


def stated(trace: Trace, ask: Ask, symbol: str, keys: set[Key]) -> Switch | None:
    """The switch that something unknown is, by its name and what is asked of it; None where that tells nothing."""
    shown = shown_symbol(symbol)
    compared = COMPARED.match(shown)
    if compared is not None:
        return of_comparison(compared[1], compared[2], compared[3].lower())
    name, found = last_name(symbol), DOTTED.search(shown.rpartition(")")[2].rpartition("]")[2].lstrip("._"))
    if not name or found is None:
        return None
    dotted = found[0] if found[0] in shown.split("._")[0] else found[0].partition(".")[2] or found[0]
    is_tested = any(key[0] == "true" and len(key) == 2 for key in keys)
    value = agreed(trace, ask, dotted, name) if is_tested and "." in dotted else None
    if value is not None:
        return Switch(dotted, Constant(value), None, "setting")
    if is_tested and words_of(name) & PRECISE and (declared := declared_as(trace, ask, name)) is not None:
        return Switch(dotted, Constant(declared), None, "setting")
    is_named = any(key[0] == "in" and all(isinstance(one, str) and not one.startswith("dtype:") for one in key[2]) for key in keys)
    words = words_of(name)
    chooses = (is_tested and words & PRECISE) or (is_named and words & (PRECISE | CHOSEN))
    return Switch(dotted, None, None, "setting") if chooses else None


@dataclass(frozen=True, slots=True)
class Declared:
    """The question which defaults of a name stand in a program: of fields, parameters, and options that are on or off."""

    name: str

    def __call__(self, data: bytes) -> frozenset[bool]:
        if self.name.encode() not in data:
            return frozenset()
        found = re.findall(rb"(?<![\w.-])" + self.name.encode() + rb"\s*(?::\s*bool)?\s*=\s*(True|False)\b", data)
        return frozenset(value == b"True" for value in found)


def declared_as(trace: Trace, ask: Ask, name: str) -> bool | None:
    """Whether what turns half precision on is on by every default of its name in the project; None where none is or they differ."""
    assert trace.project is not None
    found = frozenset[bool]().union(*(ask(path, Declared(name)) for path in trace.project.paths if not is_test_path(path)))
    return next(iter(found)) if len(found) == 1 else None


def of_comparison(left: str, sign: str, value: str) -> Switch | None:
    """The switch that `cfg.precision != "fp32"` is, of something that chooses the precision: half has to be asked for."""
    found = DOTTED.search(left)
    if found is None or not words_of(left.rpartition(".")[2]) & (PRECISE | CHOSEN) or value not in (FULL | HALF):
        return None
    is_half = (sign == "==") is (value in HALF)
    return Switch(f"{found[0]} {sign} '{value}'", Constant(not is_half), None, "setting", test=True)


def agreed(trace: Trace, ask: Ask, dotted: str, name: str) -> bool | None:
    """Whether a setting is on by all files of the project that give it a value; None where they don't, or not alike."""
    words = words_of(name)
    section = dotted.split(".")[-2:-1]
    if not name or (len(words) < 2 and not section):
        return None
    assert trace.project is not None
    told: tuple[Given, ...] = asked(trace.project, ("given", name))  # type: ignore[assignment]
    for path in trace.project.paths:
        if HOLDS_SETTINGS.search(path) is not None and not is_test_path(path):
            told += ask(path, Tree(name))
    near = [given for given in told if given.dotted.split(".")[-2:-1] == section] if section else []
    if len(words) < 2 and not near:
        return None
    values = {given.value for given in (near or told) if given.dotted}
    (value,) = values if len(values) == 1 else (None,)
    return value if isinstance(value, bool) else None
