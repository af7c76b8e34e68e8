"""Precision facts about PyTorch code: autocast regions, loss scalers, the training loop, operand dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.source.file import SourceFile


class TorchFacts:
    """The facts of one file, each computed on first use."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
