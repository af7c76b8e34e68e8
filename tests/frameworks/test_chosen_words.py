"""What a report calls something that is chosen at run time."""

from __future__ import annotations

from pathlib import Path

from mplint.api import check
from mplint.config import Config

FOLDER = Path(__file__).parents[2] / "fixtures" / "MP206" / "bad_loss_that_may_be_chosen"


def test_a_loss_that_is_chosen_is_not_called_a_model() -> None:
    found = check([str(FOLDER)], Config(select=("MP206",), cache=False, isolated=True)).findings
    assert len(found) == 2
    assert all("a loss that is chosen at run time is called here" in repr(finding) for finding in found)
    assert not any("a model that is chosen" in repr(finding) for finding in found)
