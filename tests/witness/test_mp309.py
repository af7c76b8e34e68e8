"""A scaler around a float32 forward pass changes nothing: not the dtype, and not a single update."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def train(scaled: bool, mixed: bool) -> tuple[torch.Tensor, set[torch.dtype]]:
    """The weights after five steps, and the dtypes of the outputs."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    x, y, dtypes = torch.randn(16, 8), torch.randn(16, 4), set()
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=mixed):
            output = model(x)
        dtypes.add(output.dtype)
        scaler.scale(torch.nn.functional.mse_loss(output.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    return model.weight.detach(), dtypes


def test_a_scaler_without_autocast_leaves_everything_in_float32_and_every_update_as_it_was() -> None:
    plain, _ = train(scaled=False, mixed=False)
    scaled, dtypes = train(scaled=True, mixed=False)
    assert dtypes == {torch.float32}
    assert torch.equal(plain, scaled)


def test_autocast_is_what_brings_half_precision() -> None:
    _, dtypes = train(scaled=True, mixed=True)
    assert dtypes == {torch.float16}
