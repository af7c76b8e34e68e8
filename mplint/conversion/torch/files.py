"""Reading and writing programs of torch.export."""

from __future__ import annotations

import os
import tempfile
import warnings
from typing import TYPE_CHECKING

from mplint.conversion.policy import ConversionError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def load(path: str) -> ExportedProgram:
    """The program in a .pt2 file; raises ConversionError for a file that can't be loaded."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.load(path)
    except Exception as error:
        advice = "load it where the operators and devices that it names exist"
        raise ConversionError(f"{path} can't be loaded by torch {torch.__version__}: {first_line(error)}; {advice}") from None


def save(program: ExportedProgram, target: str) -> None:
    """Write a program, whole or not at all."""
    import torch

    with tempfile.TemporaryDirectory(prefix=".mplint-", dir=os.path.dirname(os.path.abspath(target))) as folder:
        partial_path = os.path.join(folder, "program.pt2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(program, partial_path)
        os.replace(partial_path, target)


def reloaded(program: ExportedProgram) -> tuple[ExportedProgram, int]:
    """The program after a round trip through a file, and the size of that file."""
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        target = os.path.join(folder, "again.pt2")
        save(program, target)
        return load(target), os.path.getsize(target)


def weight_bytes(program: ExportedProgram) -> int:
    """The size of all parameters, buffers and constants, shared ones once."""
    import torch

    held = [value for value in (*program.state_dict.values(), *program.constants.values()) if isinstance(value, torch.Tensor)]
    return sum({value.untyped_storage()._cdata: value.untyped_storage().nbytes() for value in held}.values())


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:240]
