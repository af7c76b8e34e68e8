"""Conflicts between a trainer's settings and the file of another trainer that they name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mplint.configs.trainers.setup import Option, Setup, get, is_on
from mplint.findings import Applicability, Fix, Location, Span
from mplint.targets import Targets

from .conflict import Conflict

CHECKED_SINCE = "0.16"  # before this release of accelerate the DeepSpeed file won without a word
MODES = ("no", "fp16", "bf16", "fp8")


def deepspeed_beside(setup: Setup, targets: Targets) -> Iterator[Conflict]:
    """A precision in an accelerate configuration whose DeepSpeed settings are in a file of their own, which has to say it."""
    options, pinned = setup.options, targets.trainer("accelerate")
    kind, mode = get(options, "distributed_type"), get(options, "mixed_precision")
    named = get(options, "deepspeed_config", "deepspeed_config_file")
    if kind is None or kind.text != "DEEPSPEED" or mode is None or named is None or named.text is None or mode.text not in MODES:
        return
    if pinned is not None and pinned.below(CHECKED_SINCE):
        return
    enabled = enabled_in(setup)
    there, place = enabled if enabled is not None else ("", None)
    related: list[tuple[ast.AST | Span | Location, str]] = [(named.place, "the DeepSpeed file is named here")]
    if place is not None:
        related.append((place, f"`{there}` is enabled here"))
    change = options.remove(mode) if there and not mode.fixed else None
    same = there == mode.text
    yield Conflict(
        mode.place,
        f"`mixed_precision` {mode.text} stands beside a DeepSpeed file"
        + (f", which enables `{there}`" if there and not same else ", which has to set the precision"),
        'accelerate raises ValueError: "When using `deepspeed_config_file`, the following accelerate config variables will be ignored: '
        "[… 'mixed_precision']\".",
        f"Leave `mixed_precision` out{'' if same else f', and enable `{mode.text}` in the DeepSpeed file' if mode.text != 'no' else ''}.",
        tuple(related),
        Fix("leave `mixed_precision` out", Applicability.SAFE if same else Applicability.UNSAFE, (change,)) if change is not None else None,
    )


def enabled_in(setup: Setup) -> tuple[str, Location] | None:
    """The one precision that the named DeepSpeed file enables, and where."""
    found: list[tuple[str, Option]] = []
    if setup.beside is None or setup.locate is None:
        return None
    for mode, section in (("fp16", "fp16"), ("bf16", "bf16"), ("bf16", "bfloat16")):
        option = is_on(setup.beside, section, "enabled")
        if option is not None:
            found.append((mode, option))
    return (found[0][0], setup.locate(found[0][1].place)) if len(found) == 1 else None
