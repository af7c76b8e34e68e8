"""The dtype that the settings of a trainer choose, and the device that they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.configs.trainers.setup import Option, Setup, get, is_on
from mplint.precisions import dtypes

ACCELERATORS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "tpu": "xla", "mps": "mps", "hpu": "hpu"}
FLAGS = (("fp16", "float16"), ("bf16", "bfloat16"))
SECTIONS = (*FLAGS, ("bfloat16", "bfloat16"))
DISTRIBUTED = {
    "TPU": "xla", "MULTI_GPU": "cuda", "MULTI_CPU": "cpu", "MULTI_XPU": "xpu", "MULTI_HPU": "hpu", "MULTI_NPU": "npu",
    "MULTI_MLU": "mlu", "MULTI_MUSA": "musa", "MULTI_SDAA": "sdaa", "MULTI_NEURON": "neuron", "MPS": "mps",
}  # fmt: skip
ON_CPU = ("use_cpu", "no_cuda", "cpu")


class Mode(NamedTuple):
    """One setting that chooses a low-precision dtype; `device` is "cpu", "cuda", "xla" … or "" where none is named."""

    option: Option
    dtype: str
    device: str

    def fits(self, device: str) -> bool:
        """Whether it may take effect on that device type."""
        return self.device in (device, "")


def modes(setup: Setup) -> Iterator[Mode]:
    """The settings of one trainer that choose float16, bfloat16 or float8."""
    options = setup.options
    device = device_of(setup)
    if setup.trainer == "transformers":
        yield from (Mode(option, dtype, device) for flag, dtype in FLAGS if (option := is_on(options, flag)) is not None)
    elif setup.trainer == "deepspeed":
        found = ((is_on(options, section, "enabled"), dtype) for section, dtype in SECTIONS)
        yield from (Mode(option, dtype, device) for option, dtype in found if option is not None)
    else:
        name = "mixed_precision" if setup.trainer == "accelerate" else "precision"
        option = get(options, name)
        if option is not None and (dtype := dtypes("mixed", "pure").get(option.text or "")) not in (None, "float32"):
            yield Mode(option, dtype, device)


def device_of(setup: Setup) -> str:
    """The device type that the settings name, "" where they name none."""
    options = setup.options
    if any(is_on(options, name) for name in ON_CPU):
        return "cpu"
    distributed, accelerator = get(options, "distributed_type"), get(options, "accelerator")
    if setup.trainer == "accelerate" and distributed is not None and distributed.text in DISTRIBUTED:
        return DISTRIBUTED[distributed.text]
    if accelerator is not None:
        return ACCELERATORS.get(accelerator.text or "", "")
    return "cuda" if get(options, "gpus") is not None else ""
