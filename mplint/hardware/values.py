"""What a target is."""

from __future__ import annotations

from dataclasses import dataclass

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Target:
    """A device, and what is fast on it; None where that depends on what is not known.

    `kind` is "cuda", "rocm", "mps", "xpu", "tpu" or "cpu"; `capability` is NVIDIA's compute capability.
    `tensor_cores`: it has matrix units. `half_fast`: matrix products with half-precision inputs and
    float32 sums are faster than in float32. `bf16_native`, `tf32`, `fp8`: the hardware computes in that format,
    without emulation. `float16_rate`: float16 operations of the cores outside of matrix units for each one in float32; 0 where they
    have no float16 arithmetic and convert. `certainty` says how well the table's row was checked: "checked", "part-checked",
    "memory" or "unsure".
    """

    kind: str
    name: str
    capability: Capability | None
    tensor_cores: bool
    half_fast: bool | None
    bf16_native: bool | None
    tf32: bool
    fp8: bool | None
    certainty: str = "checked"
    float16_rate: float | None = None

    @property
    def label(self) -> str:
        """The device in a sentence: "Tesla T4", "a GPU of compute capability 7.5", "a CPU"."""
        if self.name.startswith("compute capability"):
            return f"a GPU of {self.name}"
        return "a CPU" if self.kind == "cpu" else self.name

    @property
    def sure(self) -> bool:
        """Whether what is said of the device was checked, in part at least."""
        return self.certainty in ("checked", "part-checked")

    @property
    def version(self) -> str:
        """The compute capability as people write it, "" where there is none."""
        return "" if self.capability is None else "{}.{}".format(*self.capability)


def capability(text: str) -> Capability:
    """ "7.5" as (7, 5)."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)
