"""Precision facts about PyTorch code: autocast regions, loss scalers, the training loop, operand dtypes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mplint.source.file import SourceFile
    from mplint.source.torch.amp_api import OldAmp
    from mplint.source.torch.autocast import Autocasts
    from mplint.source.torch.checkpoints import Checkpoints
    from mplint.source.torch.loop import TrainingLoop
    from mplint.source.torch.modules import Modules
    from mplint.source.torch.scaler import Scalers
    from mplint.source.torch.trainers import Trainers


class TorchFacts:
    """The facts of one file, each computed on first use."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    @cached_property
    def autocasts(self) -> Autocasts:
        """Where autocast is built, entered and in force."""
        from mplint.source.torch.autocast import Autocasts

        return Autocasts(self.file)

    @cached_property
    def scalers(self) -> Scalers:
        """The loss scalers: where they are built and which expressions stand for one."""
        from mplint.source.torch.scaler import Scalers

        return Scalers(self.file)

    @cached_property
    def loop(self) -> TrainingLoop:
        """The order in which the program scales, unscales, clips, steps and updates."""
        from mplint.source.torch.loop import TrainingLoop

        return TrainingLoop(self.file)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Where optimizer state is saved, and whether the scaler's state is saved with it."""
        from mplint.source.torch.checkpoints import Checkpoints

        return Checkpoints(self.file)

    @cached_property
    def old_amp(self) -> OldAmp:
        """References to the deprecated homes of autocast and its family."""
        from mplint.source.torch.amp_api import OldAmp

        return OldAmp(self.file)

    @cached_property
    def modules(self) -> Modules:
        """The torch.nn modules that the program builds, with their sizes."""
        from mplint.source.torch.modules import Modules

        return Modules(self.file)

    @cached_property
    def trainers(self) -> Trainers:
        """The trainers (Lightning, accelerate, …) that the program uses, and what they do by themselves."""
        from mplint.source.torch.trainers import Trainers

        return Trainers(self.file)
