"""Scripts in which mixed precision was adopted train on the CPU as they did before."""

from __future__ import annotations

import math
from functools import cache

import pytest
from torch_runs import FOLDER, POLICIES, SCRIPTS, adopted, losses_of

pytestmark = pytest.mark.framework

LEFT = {("closure.py", "mixed_float16")}
ADOPTED = [(name, policy) for name in SCRIPTS for policy in POLICIES if (name, policy) not in LEFT]
# What bfloat16, with 8 bits, may add to a loss in a few steps, and float16, with 11.
NOISE = {"mixed_bfloat16": 0.08, "mixed_float16": 0.02}


@cache
def before(name: str) -> list[float]:
    return losses_of(name, (FOLDER / name).read_bytes())


def require_kernels(name: str, policy: str) -> None:
    """Skip what this processor can't run."""
    import torch

    if (name, policy) == ("recurrent.py", "mixed_bfloat16") and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("torch has no bfloat16 LSTM on this processor")


@pytest.mark.parametrize(("name", "policy"), ADOPTED)
def test_the_losses_agree_within_the_noise_of_the_dtype(name: str, policy: str) -> None:
    require_kernels(name, policy)
    expected, found = before(name), losses_of(name, adopted(name, policy).after, scale=256.0)
    assert len(expected) == len(found) >= 5
    largest = max(abs(loss) for loss in expected)
    assert all(math.isclose(a, b, rel_tol=NOISE[policy], abs_tol=NOISE[policy] * largest) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize(("name", "policy"), ADOPTED)
def test_adoption_has_an_effect_on_what_is_computed(name: str, policy: str) -> None:
    require_kernels(name, policy)
    found = losses_of(name, adopted(name, policy).after, scale=256.0)
    if (name, policy) == ("recurrent.py", "mixed_float16"):
        assert found == before(name)  # the CPU has no float16 LSTM
    else:
        assert found != before(name)


@pytest.mark.parametrize("name", sorted(name for name, policy in ADOPTED if policy == "mixed_float16"))
def test_training_goes_on_from_the_usual_loss_scale(name: str) -> None:
    losses = losses_of(name, adopted(name, "mixed_float16").after)
    assert all(math.isfinite(loss) for loss in losses)
    assert len(losses) == len(before(name))
