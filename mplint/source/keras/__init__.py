"""Precision facts about Keras and TensorFlow code: policies, layers and model outputs, training loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.source.file import SourceFile


class KerasFacts:
    """The facts of one file, each computed on first use."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
