"""Precision facts about PyTorch code: autocast regions, loss scalers, the training loop, operand dtypes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.torch.autocast import Autocasts


class TorchFacts:
    """The facts of one file, each computed on first use."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    @cached_property
    def autocasts(self) -> Autocasts:
        """Where autocast is built, entered and in force."""
        from mplint.source.torch.autocast import Autocasts

        return Autocasts(self.file)
