"""On which device a run is made, by what the user asks for, and on which one it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mplint.errors import UsageError

if TYPE_CHECKING:
    from types import ModuleType

    from mplint.runs.record import Recorder

CPU = "CPU"
ASKED = re.compile(r"(?:cuda|gpu)(?::(\d+))?")


def environment(asked: str | None) -> dict[str, str]:
    """What shows a program the device that was asked for and no other; raises UsageError for what is none."""
    if asked is None:
        return {}
    if asked.lower() == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    known = ASKED.fullmatch(asked.lower())
    if known is None:
        raise UsageError(f'--device: "{asked}" is none of cpu, cuda, and cuda:1')
    return {} if known[1] is None else {"CUDA_VISIBLE_DEVICES": known[1]}


def must_be(asked: str | None, found: str) -> None:
    """Raise UsageError where a GPU was asked for and a run trained on the CPU."""
    if asked is not None and asked.lower() != "cpu" and found == CPU:
        raise UsageError(
            f"--device {asked}: the program trained on the CPU; the framework sees no such GPU, or the program does not use it"
        )


class Device:
    """Tells, once, the device that the weights of a program are on, and now and then the most memory that it held."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._told = False

    def torch(self, torch: ModuleType, weight: Any) -> None:
        """A torch program trains a weight."""
        if self._told:
            return
        self._told = True
        place = weight.device
        if place.type != "cuda":
            self._recorder.fact("device", CPU if place.type == "cpu" else place.type)
            return
        self._recorder.fact("device", str(torch.cuda.get_device_name(place)))
        self._recorder.at_end(lambda: self._recorder.fact("device_memory", torch.cuda.max_memory_allocated(place)))

    def tensorflow(self, weight: Any) -> None:
        """A TensorFlow program trains a weight."""
        if self._told:
            return
        self._told = True
        import tensorflow as tf

        kind, _, number = str(weight.device).rpartition("device:")[2].partition(":")
        devices = tf.config.list_physical_devices("GPU")
        if kind != "GPU" or not devices:
            self._recorder.fact("device", CPU if kind in ("CPU", "") else kind)
            return
        details = tf.config.experimental.get_device_details(devices[int(number)])
        self._recorder.fact("device", str(details.get("device_name", "GPU")))
        name = f"GPU:{number}"
        self._recorder.at_end(lambda: self._recorder.fact("device_memory", tf.config.experimental.get_memory_info(name)["peak"]))
