"""Precision facts about Keras and TensorFlow code: policies, layers and model outputs, training loops."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.keras.loop import KerasLoop
    from mplint.source.keras.models import KerasModels
    from mplint.source.keras.policy import KerasPolicy


class KerasFacts:
    """The facts of one file, each computed on first use."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    @cached_property
    def policy(self) -> KerasPolicy:
        """The global dtype policy along the program."""
        from mplint.source.keras.policy import KerasPolicy

        return KerasPolicy(self.file)

    @cached_property
    def models(self) -> KerasModels:
        """Layers, models and what computes their outputs."""
        from mplint.source.keras.models import KerasModels

        return KerasModels(self.file)

    @cached_property
    def loop(self) -> KerasLoop:
        """Custom training loops: where gradients reach an optimizer, and what was scaled and unscaled on the way."""
        from mplint.source.keras.loop import KerasLoop

        return KerasLoop(self.file)
