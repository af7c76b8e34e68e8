"""Programs of torch as ONNX models, by torch's own exporter: what is converted then is the ONNX model."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from mplint.conversion.feeds import load_feeds
from mplint.conversion.policy import ConversionError
from mplint.conversion.quiet import quiet
from mplint.conversion.result import Conversion
from mplint.conversion.torch.files import first_line, load
from mplint.conversion.torch.script import program_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def through_onnx(source: str, calibration: Sequence[str], convert: Callable[[str], Conversion], *, script: bool) -> Conversion:
    """What `convert` makes of the ONNX model that a .pt2 program or a TorchScript file is; it is there until the result is closed.

    Raises ConversionError where torch can't write it.
    """
    if script:
        program, names = program_of(source, load_feeds(calibration, ()) if calibration else [])
    else:
        program, names = load(source), []
    folder = tempfile.TemporaryDirectory(prefix="mplint-")
    path = os.path.join(folder.name, "program.onnx")
    try:
        write(program, names, path)
        result = convert(path)
    except BaseException:
        folder.cleanup()
        raise
    before = result.close

    def close() -> None:
        before()
        folder.cleanup()

    result.close = close
    kind = "TorchScript file, for inputs of the sizes that the data has" if script else "program"
    result.notes.append(f"torch's own exporter made the ONNX model of the {kind}; it is what the result was compared with")
    return result


def write(program: ExportedProgram, names: Sequence[str], path: str) -> None:
    """Write a program as an ONNX model, whose inputs have the `names` of the tensors among its arguments."""
    given = program.example_inputs[0] if program.example_inputs is not None else ()
    tensors = [name for name, value in zip(names, given, strict=False) if isinstance(value, torch.Tensor)]
    try:
        with warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")
            made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=tensors or None)
            if made is None:
                raise ConversionError("torch made no ONNX model of it")
            made.save(path)
    except ImportError as error:
        raise ConversionError(f"torch writes ONNX models with {error.name}: pip install {error.name}") from None
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(
            f"torch can't write it as an ONNX model: {first_line(error)}; a result that ends in .pt2 needs none"
        ) from None
