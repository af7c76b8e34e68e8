"""What a conversion gave: the figures, the proof, and what stays float32 and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from mplint.conversion.policy import Policy


class Verdict(str, Enum):
    """What is known of a result."""

    PROVEN = "proven"  # half somewhere, and within the tolerance wherever it was tried
    UNPROVEN = "unproven"  # nothing wrong was found, and nothing that counts was tried
    WRONG = "wrong"  # it fails
    UNCHANGED = "nothing converted"  # nothing computes in half that did not before


class Trial(NamedTuple):
    """What one sample showed: the error of each output, None where it was not compared, and what broke."""

    sample: str
    errors: tuple[float | None, ...]
    broken: str = ""


class Region(NamedTuple):
    """Operations side by side that stay float32 because of what half would do to `tensor`: the outputs would move by about `error`."""

    operations: list[str]
    tensor: str
    error: float


@dataclass(slots=True)
class Conversion:
    """A converted model that is not written yet; `save` writes it, whole or not at all.

    `heavy` counts the operations that half makes faster (matmuls, convolutions …), `whole` those that are int8 and stay so, `operations`
    all that compute on floats. Sizes are in bytes. `error` is the largest error of an output against the original, relative to that
    output's largest value, None where nothing could be run. `verified` says by what the result was proven, `problems` what is wrong with
    it. `kept` are the operations that stay float32, each with the reason. `advice` are lines that the user's own program needs.
    `gaps` are what keeps the result from being proven although nothing is wrong: outputs that follow no input, for one.
    `close` takes away the temporary files that `save` needs.
    `observe` gives the largest |value| that tensors, operations or layers of the original took on the samples, by name, in one more run.
    `trials` are the samples that it was tried on, `outputs` the names of the outputs that their errors are of, where outputs have names.
    `regions` are the parts that stay float32 for what half would do to their numbers.
    `planned` is the policy that was written for each layer, by its name, where names say it; `in_half` are the paths of those in half.
    `halves` are the half dtypes that its operations compute in, where that is known of each.
    """

    policy: Policy
    save: Callable[[str], None]
    heavy: int = 0
    heavy_half: int = 0
    operations: int = 0
    operations_half: int = 0
    whole: int = 0
    casts_added: int = 0
    size_before: int = 0
    size_after: int = 0
    error: float | None = None
    kept: list[tuple[str, str]] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    planned: dict[str, str] = field(default_factory=dict)
    halves: tuple[str, ...] = ()
    close: Callable[[], None] = field(default=lambda: None)
    in_half: list[str] = field(default_factory=list)
    observe: Callable[[], Mapping[str, float]] = field(default=dict)
    trials: list[Trial] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """What is known of the result."""
        if self.problems:
            return Verdict.WRONG
        if not self.operations_half:
            return Verdict.UNCHANGED
        return Verdict.UNPROVEN if self.gaps else Verdict.PROVEN

    @property
    def proven(self) -> bool:
        """Whether verification found nothing wrong, and enough to hold the result against."""
        return not self.problems and not self.gaps

    @property
    def decided(self) -> str:
        """The output and the sample that the largest error was met on; "" where nothing was compared."""
        worst = max(self.trials, key=lambda one: (bool(one.broken), max((error or 0.0 for error in one.errors), default=0.0)), default=None)
        if worst is None or not any(worst.errors):
            return ""
        at = max(range(len(worst.errors)), key=lambda number: worst.errors[number] or 0.0)
        return f"{self.outputs[at] if at < len(self.outputs) else f'output {at + 1}'} on {worst.sample}"
