"""MP604 on checkpoints, as their loaders describe them."""

from __future__ import annotations

from mplint.api import check
from mplint.config import Config
from mplint.graph.model import Graph, ModelGraph, Optimizer, Tensor

CONFIG = Config(select=("MP604",), cache=False, isolated=True)


def checkpoint(dtype: str, state: tuple[str, ...], names: tuple[str, ...] = ("exp_avg", "exp_avg_sq")) -> ModelGraph:
    """One weight, and a tensor of its shape in the optimizer's state for each of `state`."""
    weight = Tensor("layer.weight", dtype, (8, 8))
    tensors = tuple(Tensor(f"0.{name}", kind, (8, 8)) for name, kind in zip(names, state, strict=False))
    return ModelGraph("run.pt", "state-dict", Graph(constants={weight.name: weight}), optimizer=Optimizer("AdamW", tensors))


def codes(model: ModelGraph) -> list[str]:
    return [finding.code for finding in check(model, CONFIG).findings]


def test_half_weights_beside_optimizer_state_are_reported() -> None:
    assert codes(checkpoint("bfloat16", ("bfloat16", "bfloat16"))) == ["MP604"]
    assert codes(checkpoint("float16", ("float32", "float32"))) == ["MP604"]


def test_float32_weights_are_fine() -> None:
    assert codes(checkpoint("float32", ("float32", "float32"))) == []


def test_weights_without_optimizer_state_are_a_model_that_is_shipped() -> None:
    assert codes(checkpoint("float16", ())) == []


def test_float32_copies_in_the_state_are_master_weights() -> None:
    assert codes(checkpoint("float16", ("float32", "float32", "float32"), ("exp_avg", "exp_avg_sq", "master_param"))) == []
    assert codes(checkpoint("float16", ("float32", "float32", "float32"), ("a", "b", "c"))) == []
