"""What has to be turned for a path to be taken, in the words of a message."""

from __future__ import annotations

import pytest

from mplint.program.conditions import Condition, Path
from mplint.program.machine import Switch
from mplint.program.values import FALSE, NONE, TRUE, Constant
from mplint.program.verdict import Verdict, judged

CHOICES = ("amp", "amp_bf16", "bf16", "fp16", "fp32")
SWITCHES = {
    "amp": Switch("--amp", FALSE, None, "option"),
    "clip": Switch("--clip", FALSE, None, "option"),
    "fast": Switch("--fast", TRUE, None, "option", off="--slow"),
    "precision": Switch("--precision", Constant("amp"), None, "option", CHOICES),
    "precision.startswith('amp')": Switch(
        "--precision.startswith('amp')", TRUE, None, "option", test=True, base="precision", of=lambda value: value.startswith("amp")
    ),
    "every": Switch("--every", Constant(1), None, "option"),
    "i % every": Switch("i % --every", Constant(0), None, "option", base="every", of=lambda value: {1: 0}[value]),
    "data": Switch("--data", NONE, None, "option"),
    "closed": Switch("closed", FALSE, None, "parameter"),
    "attention": Switch("attention", None, None, "entry"),
    "amp_dtype": Switch("amp_dtype", None, None, "setting"),
}


def on(name: str, sense: bool = True) -> Condition:
    return ("true", name), sense


def among(name: str, *values: object, sense: bool = True) -> Condition:
    return ("in", name, frozenset(values)), sense


def unless(*literals: Condition) -> Condition:
    """Not all of some conditions."""
    return ("all", frozenset(literals)), False


def ways(*paths: list[Condition]) -> Condition:
    return ("place", "ways", frozenset(map(frozenset, paths))), True


def verdict(*literals: Condition) -> Verdict:
    path: Path = frozenset(literals)
    return judged(SWITCHES, frozenset({"closed"}), True, path)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ([on("fast")], ""),
        ([on("amp"), on("clip")], " when `--amp` and `--clip` are given"),
        ([on("fast", False), on("amp")], " when `--amp` and `--slow` are given"),
        # a clause that the defaults meet needs nothing, one that they don't names both
        ([unless(on("amp"), on("clip"))], ""),
        ([unless(on("amp", False), on("clip", False))], " when `--amp` is given or `--clip` is given"),
        # the ways of a test: one that the defaults take, one that is left where a setting is turned, and two
        ([ways([on("amp")], [on("fast")])], ""),
        ([ways([on("amp"), on("clip")], [on("fast", False), on("clip")]), on("fast")], " when `--amp` and `--clip` are given"),
        # the values that are left of those that it takes, by what follows from them, too
        ([among("precision", "amp", sense=False)], " when `--precision` is not `amp`"),
        ([on("precision.startswith('amp')", False), among("precision", "fp32", "bf16", sense=False)], " when `--precision` is `fp16`"),
        ([among("i % every", 0, sense=False)], " when `--every` is not `1`"),
        ([among("i % every", 0)], ""),
        ([among("attention", "tiled")], " when `attention` is `tiled`"),
        # what is tested for full precision asks for half where it is anything else
        ([among("amp_dtype", "fp32", sense=False)], " when `amp_dtype` is not `fp32`"),
    ],
)
def test_what_has_to_be_turned_is_named_and_nothing_else(path: list[Condition], words: str) -> None:
    found = verdict(*path)
    assert (found.condition(), found.dead) == (words, False)


@pytest.mark.parametrize(
    "path",
    [
        [on("closed")],  # which nobody turns
        [among("precision", "int8")],  # which it does not take
        [on("precision.startswith('amp')"), among("precision", "fp16")],
        [on("amp"), ways([on("amp", False)], [on("clip"), on("amp", False)])],
    ],
)
def test_a_path_that_no_settings_lead_to_proves_nothing(path: list[Condition]) -> None:
    assert verdict(*path).dead


def test_what_nobody_turns_is_left_where_something_else_can_be_turned() -> None:
    found = verdict(unless(on("closed", False), on("amp", False)))
    assert (found.condition(), found.dead) == (" when `--amp` is given", False)
