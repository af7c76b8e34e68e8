"""Which settings decide that a path is taken: what somebody has to turn from its default, and how messages say it.

A path holds conditions on settings, on what follows from a setting (`precision.startswith("amp")`), and on several together (clauses, and
the ways of a test). Each setting is left at its default unless the path can't be taken so; what can't be left is what has to be turned.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from mplint.precisions import spellings
from mplint.program.conditions import COMPARISONS, EMPTY, OPPOSITE, Condition, Key, Path, extend
from mplint.program.machine import IDENTITY, Switch
from mplint.program.values import DTYPE_NAMES, JOINED, SINGLE, Constant, DType, Value

# words by which a switch tells that its user chooses the precision by it
PRECISION = re.compile(r"amp|fp16|bf16|fp8|half|float|mixed|precision|dtype|scaler|autocast|16\b(?! [-%*/+])", re.I)

# values of a setting that ask for float32: where programs test for these, half precision is what has to be asked for
FULL = frozenset[Hashable]([*spellings("float32"), 32, "32-true", "full", f"dtype:{SINGLE}"])
LAUNCHER = re.compile(r"(?:^|[\W_])(?:rank|world_?size)\b", re.I)  # in the names of what a launcher gives each process, and no user
TURNED = (" is set", " is given")  # how the words end for what is off by default
GIVEN = "is not `None`"  # how the words end for what has to be given at all, which says little
MOST_SHOWN = 3  # conditions of a message
MOST_LISTED = 3  # values of a setting that are listed, where others are left
MOST_INSTEAD = 4  # settings that are tried in the place of one


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sure something is: it holds on a path of the program, where `switches` are turned from their defaults.

    `switches` are what a user may set (options, settings, parameters), shown as code; empty: it holds as the program stands.
    `kinds`: which kinds of switches they are. `dead`: nobody can take the path, or one stays at its default whatever a user turns, so that
    nothing is proven. `symbols`: what conditions call the switches; `path`: what was asked.
    """

    script: bool
    switches: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    dead: bool = False
    symbols: frozenset[str] = frozenset()
    path: Path = field(default=EMPTY, repr=False, compare=False)

    @property
    def proven(self) -> bool:
        """Whether it holds as the program stands."""
        return not self.switches

    def condition(self) -> str:
        """ " when `--amp` is given", or "" where nothing has to be turned; of many what chooses the precision or turns a thing on."""
        if not self.switches:
            return ""
        telling = [words for words in self.switches if not words.endswith(GIVEN)] or list(self.switches)
        if len(telling) > 2:
            chosen = [words for words in telling if PRECISION.search(words)]
            turned = [words for words in telling if words not in chosen and words.endswith(TURNED)][: max(0, MOST_SHOWN - len(chosen))]
            telling = [words for words in telling if words in chosen or words in turned] or telling[:2]
        return f" when {' and '.join(together(telling))}"


def together(words: Sequence[str]) -> list[str]:
    """Conditions of which those that say the same of several settings are one: "`--amp` and `--clip` are given"."""
    found: dict[str, list[str]] = {}
    for condition in words:
        name, end = next(((condition.removesuffix(end), end) for end in TURNED if condition.endswith(end)), (condition, ""))
        found.setdefault(end if end and " " not in name else condition, []).append(name)
    return [
        group if group not in TURNED else names[0] + group if len(names) == 1 else f"{' and '.join(names)} are{group.removeprefix(' is')}"
        for group, names in found.items()
    ]


class Setting:
    """A setting that a path speaks of, and what its conditions become with a value of it.

    `keys`: the conditions on it and on what follows from it, wherever they stand in the path.
    """

    __slots__ = ("at_default", "keys", "switch", "symbol")

    def __init__(self, symbol: str, switch: Switch, keys: Sequence[Key], switches: Mapping[str, Switch]) -> None:
        self.symbol, self.switch, self.keys = symbol, switch, keys
        default = constant_of(switch.default)
        self.at_default = self.at(default[0], switches) if default is not None else self.left_off(switches)

    def at(self, value: Hashable, switches: Mapping[str, Switch]) -> Path:
        """What the conditions are where it has a value."""
        found = [(key, sense) for key in self.keys if (sense := self.truth(key, value, switches)) is not None]
        return frozenset(found)

    def truth(self, key: Key, value: Hashable, switches: Mapping[str, Switch]) -> bool | None:
        """What one of them is there; None where nobody knows."""
        held = value
        if is_compared(switches, key):
            return COMPARISONS[key[2].op](value, key[2].number) if isinstance(value, (int, float)) else None
        if key[1] != self.symbol:
            followed = following(key[1], self.symbol, value, switches)
            if followed is None:
                return None
            (held,) = followed
        try:
            return bool(held) if key[0] == "true" else held in key[2]
        except TypeError:
            return None

    def left_off(self, switches: Mapping[str, Switch]) -> Path:
        """What the conditions are where nobody knows its default: what chooses the precision, or files give, has to be asked for."""
        found = set[Condition]()
        for key in self.keys:
            switch = switch_of(switches, key[1])
            wanted = key[2] if key[0] == "in" else None
            if len(key) > 2 and wanted is None:
                continue
            if wanted is not None and (wanted <= {None} or (switch is not None and switch.offered and wanted.issuperset(switch.offered))):
                continue
            chosen = switch is not None and switch.kind == "entry" and wanted is not None and all(isinstance(w, str) for w in wanted)
            if switch is not None and (chosen or speaks_of_precision(switch.name, wanted) or switch.offered):
                found.add((key, wanted is not None and not FULL.isdisjoint(wanted)))
        return frozenset(found)


def following(symbol: Hashable, base: str, value: Hashable, switches: Mapping[str, Switch]) -> tuple[Hashable] | None:
    """The value, in a tuple, of what follows from a setting that has a value; None where nobody knows it."""
    steps = []
    while symbol != base:
        switch = switches.get(symbol) if isinstance(symbol, str) else None
        if switch is None or switch.of is None:
            return None
        steps.append(switch.of)
        symbol = switch.base
    held: object = value
    for step in reversed(steps):
        try:
            held = step(held)
        except Exception:
            return None
    return (held,) if isinstance(held, Hashable) else None


def switch_of(switches: Mapping[str, Switch], symbol: Hashable) -> Switch | None:
    """The switch that a symbol stands for, alone or as one of several unknowns that were joined to one."""
    return (switches.get(symbol) or switches.get(symbol.rstrip(JOINED))) if isinstance(symbol, str) else None


def base_of(switches: Mapping[str, Switch], symbol: Hashable) -> str | None:
    """The setting that a symbol stands for or follows from; None where it is no setting's."""
    if switch_of(switches, symbol) is None:
        return None
    assert isinstance(symbol, str)
    while (switch := switches.get(symbol)) is not None and switch.base and switch.base in switches:
        symbol = switch.base
    return symbol


def is_compared(switches: Mapping[str, Switch], key: Key) -> bool:
    """Whether a condition is the comparison of a setting with a number, for which there is no switch: that of several joined to one."""
    return len(key) > 2 and key[0] == "true" and switch_of(switches, key[1]) is None


def base_asked(switches: Mapping[str, Switch], key: Key) -> str | None:
    """The setting that a condition asks of; None where it is of something else."""
    return base_of(switches, key[2].symbol if is_compared(switches, key) else key[1])


def keys_in(literals: Iterable[Condition]) -> Iterator[Key]:
    """The conditions on one unknown each, those within conditions on several as well."""
    for key, _ in literals:
        if key[0] in ("true", "in"):
            yield key
        else:
            for part in parts_of(key):
                yield from keys_in(part)


def parts_of(key: Key) -> Iterable[Path]:
    """The sets of conditions that a condition on several is made of: one of a clause, the ways of a test."""
    if key[0] == "all":
        return (key[1],)
    if key[0] == "place" and key[1] == "test" and type(key[2]) is frozenset:
        return (key[2],)
    return key[2] if key[0] == "place" and key[1] == "ways" else ()


def truth_of(literal: Condition, path: Path) -> bool | None:
    """Whether a condition holds on a path; None where that leaves it open."""
    key, sense = literal
    if literal in path:
        return True
    if (key, not sense) in path:
        return False
    told = told_by(key, path)
    return None if told is None else told is sense


def told_by(key: Key, path: Path) -> bool | None:
    """Whether a condition on several comes out by what a path says of each."""
    parts = parts_of(key)
    if not parts:
        return None
    truths = []
    for part in parts:
        told = [truth_of(literal, path) for literal in part]
        truths.append(False if False in told else None if None in told else True)
    if key[0] == "place" and key[1] == "ways":
        return True if True in truths else None if None in truths else False
    return truths[0]


def joined(path: Path, literals: Path) -> Path | None:
    """A path with further conditions, or None where it can't be taken with them, by what each condition on several comes to."""
    both = extend(path, literals) if literals else path
    if both is None or any(told_by(key, both) is (not sense) for key, sense in both if key[0] in ("all", "place")):
        return None
    return both


def settings_of(switches: Mapping[str, Switch], unset: frozenset[str], path: Path) -> list[Setting]:
    """The settings that a path speaks of: those that nobody turns first, those that choose the precision last."""
    keys: dict[str, dict[Key, None]] = {}
    for key in keys_in(path):
        base = base_asked(switches, key)
        if base is not None:
            keys.setdefault(base, {})[key] = None
    found = []
    for symbol, about in keys.items():
        switch = switch_of(switches, symbol)
        assert switch is not None
        found.append(Setting(symbol, switch, sorted(about, key=repr), switches))
    return sorted(found, key=lambda s: (s.symbol not in unset, speaks_of_precision(s.switch.name, ()), s.switch.name, s.symbol))


class Judge:
    """What has to be turned for one path to be taken."""

    def __init__(self, switches: Mapping[str, Switch], unset: frozenset[str], path: Path) -> None:
        self.switches, self.unset, self.path = switches, unset, path
        self.settings = settings_of(switches, unset, path)
        self.left, self.turned = self.at_defaults()

    def at_defaults(self, others: Path = EMPTY, free: Iterable[Setting] = ()) -> tuple[Path | None, list[Setting]]:
        """The path with as many settings as can be at their defaults, and those that can't; None where it can't be taken at all."""
        rest: Path | None = joined(self.path, others)
        if rest is None:
            return None, []
        kept = [setting for setting in self.settings if setting not in free]
        every = joined(rest, frozenset().union(*(setting.at_default for setting in kept)))
        if every is not None and not free:
            return every, []
        turned = []
        for setting in kept:
            with_it = joined(rest, setting.at_default)
            if with_it is not None:
                rest = with_it
            else:
                turned.append(setting)
        return rest, turned

    def verdict(self, script: bool) -> Verdict:
        """Who has to turn what."""
        if self.left is None:
            return Verdict(script, (), dead=True, path=self.path)
        words: dict[str, None] = {}
        kinds: dict[str, None] = {}
        symbols: set[str] = set()
        dead = False
        for setting in sorted(self.turned, key=lambda s: (s.switch.name, s.symbol)):
            if LAUNCHER.search(setting.switch.name) is not None:
                continue
            said = self.words(setting, self.left)
            if said is None:
                return Verdict(script, (), dead=True, path=self.path)
            instead = self.instead(setting)
            symbols.add(setting.symbol)
            symbols.update(other.symbol for other, _ in instead)
            kinds.update(dict.fromkeys([setting.switch.kind, *(other.switch.kind for other, _ in instead)]))
            words[" or ".join(sorted(dict.fromkeys([said, *(other for _, other in instead)])))] = None
            dead = dead or (setting.symbol in self.unset and not instead)
        return Verdict(script, tuple(words), tuple(sorted(kinds)), dead, frozenset(symbols), self.path)

    def instead(self, setting: Setting) -> list[tuple[Setting, str]]:
        """The settings of which each can be turned in the place of one, with the words for it."""
        found = []
        together = self.beside(setting)
        rest = [turned.at_default for turned in self.settings if turned not in self.turned]
        for other in islice((s for s in self.settings if s.symbol in together and s not in self.turned), MOST_INSTEAD):
            fixed = frozenset().union(*(told for told in rest if told is not other.at_default), setting.at_default)
            path = joined(self.path, fixed)
            said = self.words(other, path) if path is not None and other.symbol not in self.unset else None
            if said is not None:
                found.append((other, said))
        return found

    def beside(self, setting: Setting) -> frozenset[str]:
        """The settings that stand in a condition on several together with one."""
        found: set[str] = set()
        for key, _ in self.path:
            if key[0] in ("all", "place"):
                bases = {base_asked(self.switches, inner) for part in parts_of(key) for inner in keys_in(part)}
                if setting.symbol in bases:
                    found.update(base for base in bases if base is not None)
        return frozenset(found - {setting.symbol})

    def words(self, setting: Setting, path: Path) -> str | None:
        """What a user has to do with a setting so that a path is taken; None where no value of it leads there."""
        switch = setting.switch
        if switch.choices and not all(isinstance(choice, bool) for choice in switch.choices):
            fit = [value for value in switch.choices if joined(path, setting.at(value, self.switches)) is not None]
            others = [value for value in switch.choices if value not in fit]
            if not fit:
                return None
            if others and (len(fit) <= MOST_LISTED or len(fit) <= len(others)):
                return words_of(switch, None, frozenset(fit), frozenset(), file_of(setting.symbol))
        said = self.said(setting, path)
        if said is not None:
            return said
        ways = [way for key, sense in sorted(path, key=repr) if sense and key[0] == "place" and key[1] == "ways" for way in key[2]]
        words = []
        for way in sorted(ways, key=repr):
            further = joined(path, way) if any(key in setting.keys for key, _ in way) else None
            said = self.said(setting, further) if further is not None else None
            if said is not None:
                words.append(said)
        return " or ".join(dict.fromkeys(words)) or f"`{switch.name}` differs from its default"

    def said(self, setting: Setting, path: Path) -> str | None:
        """What a path itself says of a setting, or of what follows from it, that its default does not do."""
        for symbol in dict.fromkeys((setting.symbol, *(key[1] for key in setting.keys))):
            switch = switch_of(self.switches, symbol)
            said = needs(switch, path, symbol)
            if said is not None and switch is not None:
                default = constant_of(setting.switch.default)
                told = symbol == setting.symbol or switch.test or switch.name == setting.switch.name or default is None
                return said if told else f"`{setting.switch.name}` is not {shown_values(default or ())}"
        for key, sense in sorted(path, key=repr):
            if key in setting.keys and is_compared(self.switches, key) and (key, sense) not in setting.at_default:
                return f"`{setting.switch.name} {key[2].op if sense else OPPOSITE[key[2].op]} {key[2].number:g}`"
        return None


def judged(switches: Mapping[str, Switch], unset: frozenset[str], script: bool, path: Path) -> Verdict:
    """What has to be turned for a path to be taken."""
    return Judge(switches, unset, path).verdict(script)


def needs(switch: Switch | None, literals: Path, symbol: str) -> str | None:
    """What a user has to do with a switch so that the literals on it hold; None where its default does."""
    if switch is None:
        return None
    truth, allowed, excluded = demands(literals, symbol)
    default = constant_of(switch.default)
    if default is None:
        if allowed is not None and switch.offered and allowed.issuperset(switch.offered):
            return None
        chosen = switch.kind == "entry" and allowed is not None and all(isinstance(value, str) for value in allowed)
        if (truth or allowed) and (chosen or speaks_of_precision(switch.name, allowed) or switch.offered):
            return words_of(switch, truth, allowed, excluded, file_of(symbol))
        return words_of(switch, None, None, excluded, file_of(symbol)) if not FULL.isdisjoint(excluded) else None
    (value,) = default
    if (truth is None or bool(value) is truth) and (allowed is None or value in allowed) and value not in excluded:
        return None
    return words_of(switch, truth, allowed, excluded, file_of(symbol))


def file_of(symbol: str) -> str:
    """The configuration file that says a setting; "" where none does, or one of several."""
    path = symbol.partition(f"{IDENTITY}file:")[2]
    return path if path.endswith((".yaml", ".yml", ".json", ".toml")) else ""


def demands(literals: Path, symbol: str) -> tuple[bool | None, frozenset[Hashable] | None, frozenset[Hashable]]:
    """What literals say of an unknown: its truth, the constants that it may be (None: any), and those that it is not."""
    truth: bool | None = None
    allowed: frozenset[Hashable] | None = None
    excluded: frozenset[Hashable] = frozenset()
    for key, sense in literals:
        if key[1] != symbol or key[0] not in ("true", "in"):
            continue
        if key[0] == "true":
            truth = sense
        elif sense:
            allowed = key[2] if allowed is None else allowed & key[2]
        else:
            excluded |= key[2]
    return truth, None if allowed is None else allowed - excluded, excluded


def constant_of(default: Value | None) -> tuple[Hashable] | None:
    """A default as conditions speak of it, in a tuple; None where it is not known."""
    if type(default) is Constant:
        return (default.value,)
    if type(default) is DType:
        return (f"dtype:{default.letter}",)
    return None


def speaks_of_precision(name: str, values: Iterable[Hashable] | None) -> bool:
    """Whether a setting whose default nobody knows is one that its user chooses the precision by."""
    return any(PRECISION.search(str(text)) for text in (name, *(values or ())))


def words_of(switch: Switch, truth: bool | None, allowed: Iterable[Hashable] | None, excluded: Iterable[Hashable], file: str = "") -> str:
    """What a user has to do with a switch, as a line of the file that says it where one does."""
    name = f"`{switch.name}`"
    values = [str(truth).lower()] if allowed is None and truth is not None else [shown_values([v]).strip("`") for v in allowed or ()]
    if file and len(values) == 1 and not switch.test:
        default = constant_of(switch.default)
        shown = shown_values(default).strip("`") if default is not None else ""
        now = f" (now `{shown.lower() if isinstance(default[0], bool) else shown}`)" if default is not None and shown else ""
        return f"{file} says `{switch.name}: {values[0]}`{now}"
    if switch.test:
        return name if truth else f"not {name}"
    if allowed is not None:
        return f"{name} is {shown_values(allowed)}"
    default = constant_of(switch.default)
    every = dict.fromkeys((*switch.choices, *(default or ()))) if switch.choices else {}
    left = [c for c in every if c not in set(excluded)]
    if truth is None and 0 < len(left) <= 2:
        return f"{name} is {shown_values(left)}"
    if truth is None:
        return f"{name} is not {shown_values([v for v in excluded if default is None or v == default[0]])}"
    if switch.kind == "option" and (default is None or isinstance(default[0], bool)):
        if switch.off and (not truth or switch.off == switch.name):
            return f"`{switch.off}` is {'not ' if truth else ''}given"
        return f"{name} is given" if truth else f"{name} is not given"
    if default is not None and default[0] is True and not truth:
        return f"{name} is false"
    return f"{name} is set" if truth else f"{name} is not set"


def shown_values(values: Iterable[Hashable]) -> str:
    """Constants as messages list them."""
    names = sorted({DTYPE_NAMES.get(str(v).removeprefix("dtype:"), "?") if str(v).startswith("dtype:") else str(v) for v in values})
    return " or ".join(f"`{name}`" for name in names)
