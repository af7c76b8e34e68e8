"""What a device asks of a conversion: which policy is fast on it, and which operators its runtime has no half kernel for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from mplint.conversion.policy import ConversionError
from mplint.graph.runtimes import lacking
from mplint.hardware import Target

RUNTIMES = {"cuda": "onnxruntime-cuda", "cpu": "onnxruntime-cpu"}  # what commonly runs ONNX models there
DEVICES = {"cuda": "cuda", "rocm": "cuda", "mps": "mps", "xpu": "xpu", "tpu": "xla", "cpu": "cpu"}  # as torch calls them


class Fitted(NamedTuple):
    """The policy for a device, what its torch programs are exported for, what speaks against half there, and what stays float32 by why."""

    policy: str
    device: str
    against: str = ""
    reasons: Mapping[str, str] = MappingProxyType({})


def fitted(target: Target | None, policy: str | None, runtime: str | None, *, onnx: bool) -> Fitted:
    """How a model is converted for a device. Raises ConversionError for a policy that the device does not have.

    float16 has the more digits, so it is taken where both are fast. `runtime` is what runs an ONNX model there, if not the common one.
    """
    if target is None:
        chosen = policy or "mixed_float16"
        return Fitted(chosen, "cuda", "", missing(runtime, chosen.removeprefix("mixed_")) if runtime and onnx else {})
    if policy == "mixed_bfloat16" and target.bf16_native is False:
        raise ConversionError(f"{target.label} has no bfloat16 and emulates it: say mixed_float16, or leave --policy out")
    if policy == "mixed_float16" and target.kind == "tpu":
        raise ConversionError(f"{target.label} has no float16: say mixed_bfloat16, or leave --policy out")
    chosen = policy or ("mixed_bfloat16" if target.kind == "tpu" else "mixed_float16")
    half = chosen.removeprefix("mixed_")
    slow = target.half_fast is False
    against = f"advised against: {target.label} multiplies no faster in {half} than in float32; half saves memory there, and no time"
    named = runtime or RUNTIMES.get(target.kind)
    return Fitted(chosen, DEVICES.get(target.kind, "cuda"), against if slow else "", missing(named, half) if named and onnx else {})


def missing(runtime: str, half: str) -> dict[str, str]:
    """The operators that a runtime has no half kernel for, each with the reason to keep it in float32."""
    table = lacking(runtime, half)
    return dict.fromkeys(sorted(table.operators), f"{table.title} has no {half} kernel for it")
