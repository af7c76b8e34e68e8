"""The loop that the fix writes trains on the CPU as the float32 loop does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mplint.api import fix_text

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework
BEFORE = Path(__file__).resolve().parents[2] / "fixtures" / "MP104" / "bad_plain_loop.py"


def migrated() -> Callable[..., tuple[list[float], dict[str, object]]]:
    """The training function of the fixture after the fix, on the CPU."""
    text = fix_text(BEFORE.read_text(), "train.py", {}, select=["MP104"])
    assert "apex" not in text
    scope: dict[str, object] = {}
    exec(compile(text.replace('"cuda"', '"cpu"'), "train.py", "exec"), scope)
    train = scope["train"]
    assert callable(train)
    return train


def batches() -> list[tuple[object, object]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(32, 8, generator=generator), torch.randint(0, 4, (32,), generator=generator)) for _ in range(4)]


def network() -> object:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))


def float32_losses(epochs: int) -> list[float]:
    model, losses = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for x, y in batches():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


def test_the_import_of_apex_amp_fails_today() -> None:
    with pytest.raises(ImportError):
        exec(compile(BEFORE.read_text(), "train.py", "exec"), {})


def test_the_migrated_loop_gives_the_losses_of_the_float32_loop() -> None:
    losses, checkpoint = migrated()(network(), batches(), 10, 1.0)
    assert losses == pytest.approx(float32_losses(10), abs=0.01)
    assert losses[-1] < losses[0] - 0.1
    assert checkpoint["amp"]["scale"] == 65536.0
