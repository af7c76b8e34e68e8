"""What a project really runs: conditions that its own files decide, where all that set a setting agree.

A setting has a default in the code, and whoever runs the program may give it any value. Where files of the project (configurations,
scripts, instructions, notebooks) set it, and every one of them so that a mistake is not made, nobody has been seen to make it. What turns
mixed precision on stays open, since that is what users do; which of the two half dtypes it is, files decide like other things.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from mplint.frameworks.settings import OPEN, Given, of_commands, read
from mplint.frameworks.texts import asked
from mplint.precisions import spellings
from mplint.program.conditions import Condition, Path
from mplint.program.trace import Ask, Trace, shown_symbol
from mplint.program.values import BFLOAT, FALSE, HALF, NONE
from mplint.program.verdict import constant_of, speaks_of_precision
from mplint.python.document import is_test_path
from mplint.python.syntax import words_of

LAST = re.compile(r"""(?:\.get\(|\[)['"]([A-Za-z_]\w*)['"](?:, [^()]*)?[\])]$|([A-Za-z_][\w-]*)$""")
# words of what is decided anew for each run, whatever files say
OF_A_RUN = frozenset(
    [
        *(
            "resume",
            "resumed",
            "restart",
            "continue",
            "checkpoint",
            "checkpoints",
            "ckpt",
            "load",
            "init",
            "save",
            "pretrained",
            "finetune",
        ),
        *("train", "training", "eval", "evaluate", "evaluation", "test", "testing", "val", "validate", "validation", "infer", "inference"),
        *("predict", "sample", "sampling", "debug", "verbose", "wandb", "tensorboard", "profile", "dry", "distributed", "dist"),
        *("ddp", "fsdp", "gpu", "gpus", "cuda", "cpu", "device", "devices", "rank", "world", "local", "node", "nodes", "path", "dir"),
        *("file", "root", "name", "mode", "phase", "stage", "epoch", "epochs", "steps", "seed", "workers", "download", "compile"),
    ]
)
FLOAT16 = frozenset[Hashable]([*spellings("float16"), 16, f"dtype:{HALF}"])
BFLOAT16 = frozenset[Hashable]([*spellings("bfloat16"), f"dtype:{BFLOAT}"])
ASSIGNED = r"""(?<![\w-])%s["']?\]?\s*[=:]\s*("[^"\n]*"|'[^'\n]*'|True\b|False\b|None\b|-?\d[\w.+-]*)"""


@dataclass(frozen=True, slots=True)
class Written:
    """The question what a program itself, or the command lines in a notebook, give to a setting."""

    name: str

    def __call__(self, data: bytes) -> tuple[Given, ...]:
        if self.name.encode() not in data and self.name.replace("_", "-").encode() not in data:
            return ()
        text = data.decode("utf-8", "replace")
        literals = re.findall(ASSIGNED % self.name, text)
        commands = of_commands(text.replace("\\n", "\n"), self.name)
        return tuple(dict.fromkeys((*(Given(self.name, read(literal)) for literal in literals), *commands)))


@dataclass(slots=True)
class Usual:
    """Tells the conditions that a project's files decide for what is in a trace."""

    ask: Ask

    def __call__(self, trace: Trace) -> Path:
        """Conditions that hold wherever the project's own files run it."""
        keys = {key for path in {event.path for entry in trace.entries for event in entry.events} for key in keys_of(path)}
        found: set[Condition] = set()
        halves = {symbol for symbol in trace.switches if speaks_of_precision(last_name(symbol), ())}
        for symbol in sorted({str(key[1]) for key in keys} | halves):
            switch = trace.switch(symbol)
            name = last_name(symbol)
            if switch is not None and (switch.kind not in ("option", "setting") or switch.test):
                continue
            if name and is_telling(name):
                about = [key for key in keys if key[1] == symbol]
                found.update(self.decided(trace, symbol, name, about))
        return frozenset(found)

    def decided(self, trace: Trace, symbol: str, name: str, keys: Iterable[tuple[object, ...]]) -> Iterator[Condition]:
        """The conditions on one symbol that files decide."""
        values = self.values(trace, symbol, name)
        if not values and ("true", symbol) in keys and self.is_left_off(trace, symbol):
            yield ("true", symbol), False
        elif speaks_of_precision(name, ()):
            yield from self.half(trace, symbol, name, keys, values)
        elif values and OPEN not in values and all(type(value) is bool for value in values) and len(values) == 1:
            yield ("true", symbol), bool(next(iter(values)))
        elif values and OPEN not in values and all(isinstance(value, str) for value in values) and any(key[0] == "in" for key in keys):
            yield ("in", symbol, frozenset(values)), True

    def is_left_off(self, trace: Trace, symbol: str) -> bool:
        """Whether a setting is off unless a file turns it on, and files that give its section leave it out."""
        switch, sections = trace.switch(symbol), shown_symbol(symbol).split(".")[:-1]
        off = switch is not None and switch.kind == "setting" and switch.default in (FALSE, NONE)
        assert trace.project is not None
        return off and len(sections) > 1 and bool(asked(trace.project, ("section", sections[-1])))

    def half(
        self, trace: Trace, symbol: str, name: str, keys: Iterable[tuple[object, ...]], values: frozenset[Hashable]
    ) -> Iterator[Condition]:
        """That half precision is bfloat16 here, where files agree in that."""
        lower = {value.lower() if isinstance(value, str) else value for value in values}
        if OPEN in lower:
            return
        if lower & BFLOAT16 and not lower & FLOAT16:
            named = {value for key in keys if key[0] == "in" for value in key[2] if is_float16(value)}  # type: ignore[attr-defined]
            yield ("in", symbol, FLOAT16 | named), False
        other = re.sub(r"fp16|float16", lambda match: "bf16" if match[0] == "fp16" else "bfloat16", name)
        if other != name and True not in lower and "bf" not in name and self.values(trace, "", other) == {True}:
            yield ("true", symbol), False

    def values(self, trace: Trace, symbol: str, name: str) -> frozenset[Hashable]:
        """What files give to a setting; the default of the code, too, where command lines of one program leave it out at times."""
        project = trace.project
        assert project is not None
        told: tuple[Given, ...] = asked(project, ("given", name))  # type: ignore[assignment]
        if told:
            programs = (path for path in project.paths if not is_test_path(path))
            told += tuple(given for path in programs for given in self.ask(path, Written(name)))
        sections = shown_symbol(symbol).split(".")[:-1]
        near = [given for given in told if given.dotted.split(".")[-2:-1] == sections[-1:]] if sections else []
        switch = trace.switch(symbol)
        default = constant_of(switch.default) if switch is not None else None
        found: set[Hashable] = set()
        for given in near if near and not any(given.program for given in told) else told:
            left_out = not given.dotted
            found.add((default[0] if default is not None else OPEN) if left_out else as_default(given.value, default))
        return frozenset(found)


def as_default(value: Hashable, default: tuple[Hashable] | None) -> Hashable:
    """A value as an option takes it: one that is on or off takes what follows it on the command line for something else."""
    is_flag = default is not None and type(default[0]) is bool
    return True if is_flag and isinstance(value, str) and value != OPEN else value


def is_float16(value: Hashable) -> bool:
    """Whether a constant of a condition names float16."""
    return (value.lower() if isinstance(value, str) else value) in FLOAT16


def keys_of(path: Path) -> Iterator[tuple[object, ...]]:
    """The keys of conditions on one symbol, those within clauses as well."""
    for key, _ in path:
        if key[0] == "all":
            yield from keys_of(key[1])
        elif key[0] == "in" or (key[0] == "true" and len(key) == 2):
            yield key


def last_name(symbol: Hashable) -> str:
    """The name of what a symbol reads from its holder, as files spell it; "" where it reads nothing by name."""
    found = LAST.search(shown_symbol(symbol))
    return (found[1] or found[2]).replace("-", "_") if found is not None else ""


def is_telling(name: str) -> bool:
    """Whether a name is one that says the same wherever it stands, and no matter of a single run."""
    words = words_of(name)
    return (len(words) > 1 or name in ("dtype", "precision", "fp16")) and OF_A_RUN.isdisjoint(words)
