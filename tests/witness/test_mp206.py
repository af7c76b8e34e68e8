"""Binary cross entropy on probabilities is refused under CUDA autocast; on logits it runs."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def test_loss_on_probabilities_raises_under_autocast_and_on_logits_it_runs() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn import functional as F

    with FakeTensorMode(), torch.no_grad():
        logits = torch.empty(4, device="cuda", dtype=torch.float16)
        labels = torch.empty(4, device="cuda")
        torch.set_autocast_enabled("cuda", True)
        try:
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                F.binary_cross_entropy(torch.sigmoid(logits), labels)
            assert F.binary_cross_entropy_with_logits(logits, labels).dtype is torch.float32
        finally:
            torch.set_autocast_enabled("cuda", False)
