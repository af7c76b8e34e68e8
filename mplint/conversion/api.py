"""Converting from Python: files by their paths, and live models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mplint.conversion.command import convert_file
from mplint.conversion.policy import ConversionError, Options, policy
from mplint.conversion.result import Conversion


def convert(
    model: object,
    policy_name: str = "mixed_float16",
    *,
    example_inputs: Sequence[Any] = (),
    calibration: Sequence[str] = (),
    input_ranges: Mapping[str, tuple[float, float]] | None = None,
    tolerance: float | None = None,
    keep: Sequence[str] = (),
    device: str = "cuda",
) -> Conversion:
    """Convert a model to a mixed-precision policy and prove it; `save(path)` of the result writes it.

    `model` is the path of an ONNX model, a .keras archive or a .pt2 program, a keras.Model, or a torch.nn.Module (with `example_inputs`).
    `calibration` are .npz files, `input_ranges` the least and largest value of inputs, `tolerance` the largest relative error of an output,
    `keep` names and patterns of what stays float32, `device` the device type that a torch program is for. Raises ConversionError.
    """
    options = Options(tuple(keep), ranges=dict(input_ranges or {}))
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        return convert_file(path, path, policy_name, tolerance, options, list(calibration), device)
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(model).__mro__}
    if "torch.Module" in kinds:
        from mplint.conversion.torch_export import convert_module

        if not example_inputs:
            raise ConversionError("a torch module is converted on example inputs: give example_inputs=(tensor, …)")
        return convert_module(model, tuple(example_inputs), policy(policy_name, tolerance), options, device)  # type: ignore[arg-type]
    if "keras.Model" in kinds:
        from mplint.conversion.keras.live import convert_live

        return convert_live(model, policy(policy_name, tolerance), options, list(calibration))
    raise ConversionError(f"{type(model).__name__} is no path, no keras.Model and no torch.nn.Module")
