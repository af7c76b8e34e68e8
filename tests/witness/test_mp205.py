"""Epsilons at or below 2^-25 are 0 in float16 and guard nothing."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def test_division_guard_is_lost_and_a_larger_one_holds() -> None:
    x = torch.zeros(3, dtype=torch.float16)
    assert (x / (x.abs().mean() + 1e-8)).isnan().all()
    assert (x / (x.abs().mean() + 1e-4)).isfinite().all()


def test_log_guard_is_lost_and_a_larger_one_holds() -> None:
    p = torch.zeros(1, dtype=torch.float16)
    assert p.clamp(min=1e-8).log().isinf().all()
    assert p.clamp(min=1e-4).log().isfinite().all()


def test_autocast_promotes_the_logarithm_and_not_the_sum_before_it() -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        logits = torch.full((1, 4), -100.0) @ torch.ones(4, 1)
        assert logits.dtype == torch.float16
        assert (logits.sigmoid() + 1e-8).log().isinf().all()
        assert (logits.float().sigmoid() + 1e-8).log().isfinite().all()


def test_one_step_of_adam_makes_float16_weights_nan_and_a_larger_epsilon_holds() -> None:
    def stepped(eps: float) -> list[float]:
        weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
        weight.grad = torch.tensor([0.0, 1.0], dtype=torch.float16)
        torch.optim.Adam([weight], lr=1e-3, eps=eps).step()
        return list(weight.detach().tolist())

    assert stepped(1e-8)[0] != stepped(1e-8)[0]
    assert stepped(1e-4) == [1.0, pytest.approx(0.999, abs=1e-3)]


def test_a_bound_of_nearly_one_keeps_no_float16_from_the_end_of_an_arc_cosine() -> None:
    for dtype, finite in ((torch.float16, False), (torch.float32, True)):
        cosine = torch.ones(1, dtype=dtype, requires_grad=True)
        torch.acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7)).sum().backward()
        assert cosine.grad is not None
        assert bool(cosine.grad.isfinite().all()) is finite
    assert torch.atanh(torch.ones(1).half().clamp(max=1 - 1e-6)).isinf().all()
    assert torch.atanh(torch.ones(1).half().clamp(max=0.999)).isfinite().all()


def test_a_cast_behind_a_saturated_sigmoid_leaves_its_gradient_lost_and_one_before_it_does_not() -> None:
    def gradients(before: bool) -> torch.Tensor:
        logits = torch.tensor([12.0, 9.0, -12.0, 2.0], dtype=torch.float16, requires_grad=True)
        rest = 1 - torch.sigmoid(logits.float()) if before else (1 - torch.sigmoid(logits)).float()
        loss = -torch.log(rest + 1e-12).mean()
        assert loss.isfinite()
        (loss * 1024).backward()
        assert logits.grad is not None
        return logits.grad

    assert not gradients(before=False).isfinite().all()
    assert gradients(before=True).isfinite().all()
