"""The estimated memory of a training step against what torch allocates for it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from measured_step import CASES, Case, measured_peak  # noqa: E402

from mplint.estimate.memory import OPTIMIZERS, memory  # noqa: E402
from mplint.estimate.precision import precision  # noqa: E402
from mplint.estimate.sizes import sized  # noqa: E402
from mplint.graph.load import load_graph  # noqa: E402

pytestmark = pytest.mark.framework


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_peak_is_within_a_tenth_of_what_torch_allocates(case: Case, policy: str) -> None:
    if policy == "mixed_bfloat16" and case.name in ("convolutions", "residual") and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("torch copies what bfloat16 convolutions take to float32 on this processor")
    model = sized(load_graph(case.make(), (torch.zeros(*case.shape),)), None, {})
    estimated = memory(model, precision(model.model, policy, "cpu"), OPTIMIZERS["adam"])
    measured = measured_peak(case, None if policy == "float32" else torch.bfloat16)
    assert estimated.peak == pytest.approx(measured, rel=0.1)


def test_the_batch_scales_what_flows_and_not_the_weights() -> None:
    case = CASES[0]
    graph = load_graph(case.make(), (torch.zeros(*case.shape),))
    own = sized(graph, None, {})
    four = sized(graph, 4 * own.batch, {})
    one, other = (memory(each, precision(graph, "float32"), OPTIMIZERS["sgd"]) for each in (own, four))
    assert (own.batch, four.batch) == (16, 64)
    assert other.weights == one.weights
    assert other.activations == pytest.approx(4 * one.activations)
    assert one.largest_batch(own.batch, other.peak) == pytest.approx(64, abs=1)
