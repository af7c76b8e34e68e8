"""TorchScript files as programs of torch.export, which they are converted as: what is exported is what the data takes it through."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from mplint.conversion.distance import distance
from mplint.conversion.feeds import Data
from mplint.conversion.policy import ConversionError
from mplint.conversion.torch.files import first_line
from mplint.conversion.torch.run import arrays

if TYPE_CHECKING:
    from torch.export import ExportedProgram

SAME = 1e-4  # what the exported program may move an output
NUMBERS = {"int": int, "float": float, "bool": bool}


def program_of(path: str, feeds: Sequence[Data]) -> tuple[ExportedProgram, list[str]]:
    """The program that a TorchScript file is on the first of the data, and the names of its arguments.

    Raises ConversionError where there is no data, or torch makes no program of the file.
    The code in the file is run, as torch runs it.
    """
    from torch._export.converter import TS2EPConverter

    try:
        module = torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConversionError(f"{path} can't be loaded by torch {torch.__version__}: {first_line(error)}") from None
    wanted = module.forward.schema.arguments[1:]
    if not feeds:
        names = ", ".join(argument.name for argument in wanted)
        why = "does not say of what shapes its inputs are"
        raise ConversionError(f"{path} {why}: give --calibration data with an array for each of {names}")
    args = tuple(_argument(argument, feeds[0]) for argument in wanted)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program: ExportedProgram = TS2EPConverter(module, args).convert()
            program.example_inputs = (args, {})
            expected, got = arrays(module(*_copied(args))), arrays(program.module(check_guards=False)(*_copied(args)))
    except Exception as error:
        raise ConversionError(f"torch can't make a program of {path}: {first_line(error)}; export the model itself") from None
    far = distance(expected, got)
    if not far.within(SAME):
        why = far.broken or f"the outputs are off by {far.error:.2g}"
        raise ConversionError(f"the program that torch makes of {path} gives something else ({why}): export the model itself")
    return program, [argument.name for argument in wanted]


def _argument(argument: Any, feed: Data) -> Any:
    """What the data gives for an argument of `forward`, else its default."""
    kind = str(argument.type)
    if argument.name in feed:
        value = feed[argument.name]
        return NUMBERS[kind](value.reshape(-1)[0]) if kind in NUMBERS and value.size == 1 else torch.from_numpy(value.copy())
    if argument.has_default_value():
        return argument.default_value
    raise ConversionError(f"{feed.file} has no array for the input {argument.name!r}; it holds {', '.join(feed) or 'nothing'}")


def _copied(args: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
