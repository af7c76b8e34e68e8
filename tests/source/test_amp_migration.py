"""What the fixes of torch's old autocast say."""

from __future__ import annotations

import pytest

import mplint
from mplint.findings import Applicability


@pytest.mark.parametrize(
    ("oldest", "title"),
    [
        (">=2.4", "Use `torch.amp.GradScaler`"),
        (">=1.13", "Use `torch.amp.GradScaler` once the project needs torch 2.3 or newer"),
    ],
)
def test_a_fix_that_an_old_torch_forbids_says_which_torch_it_waits_for(oldest: str, title: str) -> None:
    text = "import torch\n\nscaler = torch.cuda.amp.GradScaler()\n"
    (finding,) = mplint.check_text(text, "train.py", {"torch": oldest}, ["MP101"])
    assert finding.fix is not None
    assert (finding.fix.title, finding.fix.applicability is Applicability.DISPLAY) == (title, "once" in title)
