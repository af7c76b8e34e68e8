"""A model that converters to half break: its text in ONNX's own notation, its weights and inputs, and what of it can be half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper
from onnx.helper import find_min_ir_version_for, make_opsetid

Array = np.ndarray
Make = Callable[[np.random.Generator], Array]


@dataclass(frozen=True)
class Case:
    """One model: why it is hard, its text, weights and inputs (made from a seed), and the heavy operations of which `half` can be half.

    `change` makes of it what the text can't say.
    """

    why: str
    text: str
    inputs: dict[str, Make]
    weights: dict[str, Make] = field(default_factory=dict)
    heavy: int = 1
    half: int | None = None
    opset: int = 17
    tolerance: float = 0.02
    change: Callable[[onnx.ModelProto], None] | None = None

    def model(self) -> onnx.ModelProto:
        """The model, checked with full type inference."""
        version = max(8, find_min_ir_version_for([make_opsetid("", self.opset)]))
        head = "" if self.text.lstrip().startswith("<") else f'<ir_version: {version}, opset_import: ["" : {self.opset}]>\n'
        built = onnx.parser.parse_model(head + self.text)
        rng = np.random.default_rng(7)
        named = {value.name for value in built.graph.initializer}
        for name, make in self.weights.items():
            if name not in named:
                built.graph.initializer.append(numpy_helper.from_array(np.asarray(make(rng)), name))
        if self.change is not None:
            self.change(built)
        onnx.checker.check_model(built, full_check=True)
        return built

    def feed(self, seed: int) -> dict[str, Array]:
        """Inputs, the same for the same seed."""
        rng = np.random.default_rng(seed)
        return {name: np.asarray(make(rng)) for name, make in self.inputs.items()}


def n(*shape: int, std: float = 1.0, mean: float = 0.0) -> Make:
    """Normal float32."""
    return lambda rng: rng.normal(mean, std, shape).astype(np.float32)


def u(low: float, high: float, *shape: int) -> Make:
    """Uniform float32."""
    return lambda rng: rng.uniform(low, high, shape).astype(np.float32)


def i(low: int, high: int, *shape: int) -> Make:
    """Integers."""
    return lambda rng: rng.integers(low, high, shape)


def b(*shape: int) -> Make:
    """Booleans, mostly true."""
    return lambda rng: rng.random(shape) < 0.8


def c(value: object, dtype: type = np.float32) -> Make:
    """A constant."""
    return lambda rng: np.asarray(value, dtype=dtype)


W = {"W": n(8, 8, std=0.35)}
X = {"x": n(4, 8)}
