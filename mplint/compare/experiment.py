"""Runs a script once per policy and repeat, each in a process of its own; in turns, so that a busy machine slows all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mplint.compare.lightning_probe import MODULES
from mplint.runs.child import Settings
from mplint.runs.devices import environment
from mplint.runs.process import INTERRUPTED, make_run
from mplint.runs.record import Run

REFERENCE = "float32"


class Experiment(NamedTuple):
    """What is run: a script, the source that stands for it in every run, its arguments, and how often and how long.

    `limit` is the number of seconds that one run may take, `device` the one that was asked for.
    """

    script: str
    source: str
    arguments: tuple[str, ...]
    policies: tuple[str, ...]
    steps: int
    repeats: int
    seed: int
    limit: float
    device: str | None = None


class Outcome(NamedTuple):
    """The runs in the order they were made; `interrupted` where the user stopped before the last."""

    runs: tuple[Run, ...]
    interrupted: bool


def carry_out(experiment: Experiment, progress: Callable[[str], None]) -> Outcome:
    """Make every run. A run that fails is among the runs with its error; Ctrl-C ends the one that goes on and all that would follow."""
    runs: list[Run] = []
    shown = environment(experiment.device)
    settings = Settings(
        "compare",
        ("torch", "keras", "accelerate", *MODULES),
        experiment.script,
        experiment.source,
        list(experiment.arguments),
        "",
        experiment.steps,
        experiment.seed,
    )
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        for repeat in range(experiment.repeats):
            for policy in experiment.policies:
                progress(f"run {len(runs) + 1} of {experiment.repeats * len(experiment.policies)}: {policy}")
                found = make_run(settings._replace(policy=policy), Path(folder, f"{policy}-{repeat}"), experiment.limit, repeat, shown)
                runs.append(found)
                if found.text("error") == INTERRUPTED:
                    return Outcome(tuple(runs), True)
                if policy == REFERENCE and found.text("error") and not found.steps:
                    return Outcome(tuple(runs), False)  # the script itself does not run
    return Outcome(tuple(runs), False)
