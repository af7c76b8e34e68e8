"""Converting from Python: files by their paths, and live models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mplint.conversion import policy as policies
from mplint.conversion.command import convert_file
from mplint.conversion.policy import ConversionError, Options
from mplint.conversion.result import Conversion


def convert(
    model: object,
    policy: str = "mixed_float16",
    *,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    calibration: Sequence[str] = (),
    input_ranges: Mapping[str, tuple[float, float]] | None = None,
    tolerance: float | None = None,
    keep: Sequence[str] = (),
    device: str = "cuda",
) -> Conversion:
    """Convert a model to a mixed-precision policy and prove it; `save(path)` of the result writes it.

    `model` is the path of an ONNX model, a .keras archive or a .pt2 program, a keras.Model, a torch.export.ExportedProgram, or a
    torch.nn.Module. A module needs `example_inputs`: a tensor, a tuple of the positional or a dict of the keyword arguments; its
    `dynamic_shapes` are those of torch.export.
    `calibration` are .npz files, `input_ranges` the least and largest value of inputs, `tolerance` the largest relative error of an output,
    `keep` names and patterns of what stays float32, `device` the device type that a torch program is for. Raises ConversionError.
    """
    options = Options(tuple(keep), ranges=dict(input_ranges or {}))
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        return convert_file(path, path, policy, tolerance, options, list(calibration), device)
    wanted = policies.policy(policy, tolerance)
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(model).__mro__}
    if "torch.Module" in kinds:
        from mplint.conversion.torch.convert import convert_module

        if example_inputs is None or example_inputs == ():
            raise ConversionError("a torch module is converted on example inputs: give example_inputs=(tensor, …)")
        return convert_module(model, example_inputs, wanted, options, device, dynamic_shapes, list(calibration))  # type: ignore[arg-type]
    if "torch.ExportedProgram" in kinds:
        from mplint.conversion.torch.convert import convert_program

        return convert_program(model, wanted, options, device, list(calibration))  # type: ignore[arg-type]
    if "keras.Model" in kinds:
        from mplint.conversion.keras.convert import convert_live

        return convert_live(model, wanted, options, list(calibration))
    raise ConversionError(f"{type(model).__name__} is no path, no keras.Model, no torch.nn.Module and no ExportedProgram")
