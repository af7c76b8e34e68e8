"""What a rule may ask about its surroundings: the library versions and the hardware that the project targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mplint.hardware import Target


class VersionRange(Protocol):
    """The versions of a library that a project supports; an unknown bound answers False."""

    def before(self, version: str) -> bool:
        """Whether some supported version is certainly older than `version` (the lower bound is below it)."""

    def at_least(self, version: str) -> bool:
        """Whether every supported version is at least `version`."""

    def below(self, version: str) -> bool:
        """Whether every supported version is older than `version`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Targets of one file: library versions (None: not known) and hardware (None: not named)."""

    torch: VersionRange | None = None
    keras: VersionRange | None = None
    tensorflow: VersionRange | None = None
    hardware: Target | None = None

    @property
    def keras_major(self) -> int | None:
        """2 or 3 where the targets say which Keras the code runs under, else None."""
        if self.keras is not None:
            if self.keras.at_least("3"):
                return 3
            if self.keras.below("3"):
                return 2
        if self.tensorflow is not None:
            if self.tensorflow.at_least("2.16"):
                return 3
            if self.tensorflow.below("2.16"):
                return 2
        return None

    def torch_lacks(self, version: str) -> bool:
        """Whether the project supports a torch older than `version`, so that what came with it can't be used."""
        return self.torch is not None and self.torch.before(version)
