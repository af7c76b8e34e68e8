"""What one file gives to a setting: configurations by their format, and the command lines of scripts, instructions and notebooks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from mplint.configs.json_text import parse_json
from mplint.configs.nodes import Constant, Mapping, Node, Scalar, Sequence
from mplint.configs.yaml_text import parse_yaml, resolve
from mplint.python.document import InputError

OPEN = "${}"  # stands for a value that a file leaves to somebody else
TREES = (".yaml", ".yml", ".json", ".toml")
LINES = (".gin", ".ini", ".cfg", ".conf")
OUT_OF_SIGHT = re.compile(r"[][$<>{}|]|\?\?\?|\.\.\.")
RUNS = re.compile(r"\b[\w./-]*\w\.py\b|\bpython[\d.]*\s+-m\s+[\w.]+|\b(?:accelerate\s+launch|torchrun|deepspeed)\b")
SCRIPT, MODULE = re.compile(r"([\w-]+)\.py\b"), re.compile(r"-m\s+(?:\w+\.)*(\w+)")
ASSIGNED = re.compile(r"^\s*([\w./@]+)\s*[=:]\s*([^#\n]*)", re.M)
CONTINUED = re.compile(r"\\[ \t]*\n|\^[ \t]*\n")
VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"'`;|&)]+)"""
MODEL_KEYS = frozenset({"architectures", "transformers_version", "_class_name", "_diffusers_version", "tokenizer_class"})
SWEPT = frozenset({"value", "values"})  # keys of a sweep's parameter, which stand for the setting itself


class Given(NamedTuple):
    """A value that a file gives to a setting, by its dotted name there; `program`: which one a command line runs."""

    dotted: str
    value: Constant
    program: str = ""


def given_in(place: str, text: str, name: str, parsed: dict[str, tuple[Given, ...]]) -> Iterator[Given]:
    """What a file gives to the settings of a name; `parsed` keeps what is read of a file as a whole."""
    if place.endswith((*TREES, *LINES)):
        if place not in parsed:
            parsed[place] = tuple(of_tree(place, text) if place.endswith(TREES) else of_lines(text))
        yield from (given for given in parsed[place] if given.dotted.rpartition(".")[2].replace("-", "_") == name)
    else:
        yield from of_commands(text, name)


def of_tree(place: str, text: str) -> Iterator[Given]:
    """The settings of a YAML, JSON or TOML file; none of one that can't be read."""
    try:
        if place.endswith(".toml"):
            yield from of_dict(tomllib.loads(text), "")
            return
        for node in parse_yaml(text) if not place.endswith(".json") else [parse_json(text)]:
            if not describes_model(node):
                yield from of_node(node, "")
    except (InputError, tomllib.TOMLDecodeError, RecursionError):
        return


def describes_model(node: Node) -> bool:
    """Whether a file is what transformers or diffusers keep beside a model's weights: it says what the model is, and nobody's settings."""
    return isinstance(node, Mapping) and any(str(entry.key.value) in MODEL_KEYS for entry in node.entries)


def of_node(node: Node, dotted: str) -> Iterator[Given]:
    """The settings below a node."""
    match node:
        case Scalar(value=value):
            yield Given(dotted, shown(value))
        case Sequence(items=items):
            yield Given(dotted, OPEN)
            for item in items:
                if isinstance(item, Mapping):
                    yield from of_node(item, dotted)
        case Mapping(entries=entries):
            for entry in entries:
                key = str(entry.key.value)
                if key in SWEPT and dotted:
                    held = entry.value.items if isinstance(entry.value, Sequence) else (entry.value,)
                    yield from (given for item in held for given in of_node(item, dotted))
                yield from of_node(entry.value, f"{dotted}.{key}" if dotted else key)


def of_dict(held: dict[str, object], dotted: str) -> Iterator[Given]:
    """The settings of a TOML file's table."""
    for key, value in held.items():
        name = f"{dotted}.{key}" if dotted else key
        if isinstance(value, dict):
            yield from of_dict(value, name)
        else:
            yield Given(name, shown(value) if isinstance(value, (bool, int, float, str)) else OPEN)


def of_lines(text: str) -> Iterator[Given]:
    """The settings of a file that gives one on each line: gin, INI."""
    for key, value in ASSIGNED.findall(text):
        yield Given(key.replace("/", "."), read(value.strip()))


def of_commands(text: str, name: str) -> Iterator[Given]:
    """What command lines give to an option or to a setting of hydra's, and that those leave it out which run the same program."""
    spelled = name.replace("_", "[-_]")
    option = re.compile(rf"(?<![\w-])--?(no[-_])?{spelled}(?![\w-])(?:\s*=\s*|\s+)?({VALUE})?")
    override = re.compile(rf"(?:(?<=\s)|^)[+~]*((?:\w+\.)*{spelled})=({VALUE})")
    runs: list[tuple[str, list[Given]]] = []
    for line in CONTINUED.sub(" ", text).splitlines():
        start = RUNS.search(line)
        if start is None:
            continue
        named = SCRIPT.search(line) or MODULE.search(line)
        program = named[1] if named is not None else ""
        found = [Given(name, of_option(match[1], match[2]), program) for match in option.finditer(line, start.start())]
        found += [Given(match[1], read(match[2]), program) for match in override.finditer(line, start.start())]
        runs.append((program, found))
    giving = {program for program, found in runs if found}
    for program, found in runs:
        yield from found or ([Given("", None, program)] if program in giving else [])


def of_option(off: str, value: str) -> Constant:
    """What an option gets on a command line; one without a value is turned on."""
    if off:
        return False
    return True if not value or value.startswith(("-", "#")) else read(value)


def read(text: str) -> Constant:
    """A value as it is written, or that nobody sees it here."""
    plain = text.strip().strip("\"'")
    return shown(resolve(plain))


def shown(value: Constant) -> Constant:
    """A value, or that a file leaves it to somebody else."""
    return OPEN if isinstance(value, str) and OUT_OF_SIGHT.search(value) is not None else value
