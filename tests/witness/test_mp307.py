"""Without the scaler's state a resumed run starts at 65536 again and skips the steps that overflow."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework
FITTING = 64.0  # the scale that the model below allows: its loss times more than that is infinite in float16


def skipped_after_resume(save_scaler: bool) -> int:
    """How many of the first 20 steps after a resume are skipped, with or without the scaler's state in the checkpoint."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    before = torch.amp.GradScaler("cpu", init_scale=FITTING)
    before.scale(weight.sum())
    checkpoint = {"optimizer": optimizer.state_dict(), "scaler": before.state_dict() if save_scaler else None}
    scaler = torch.amp.GradScaler("cpu")
    optimizer.load_state_dict(checkpoint["optimizer"])
    if checkpoint["scaler"]:
        scaler.load_state_dict(checkpoint["scaler"])
    skipped = 0
    for _ in range(20):
        optimizer.zero_grad()
        loss = (weight.half() * 1000.0).float().sum()
        scaler.scale(loss).backward()
        held = weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        skipped += bool(torch.equal(held, weight.detach()))
    return skipped


def test_without_the_scalers_state_the_first_steps_after_a_resume_are_skipped() -> None:
    assert skipped_after_resume(save_scaler=False) == 10


def test_with_the_scalers_state_no_step_is_skipped() -> None:
    assert skipped_after_resume(save_scaler=True) == 0
