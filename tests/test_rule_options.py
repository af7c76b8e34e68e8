"""What single rules leave to the user, in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config, load_config
from mplint.errors import UsageError
from mplint.rule import registry

MODEL = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50257, 768)
        self.inner = nn.Linear(768, 1001)
        self.outer = nn.Linear(1001, 768)
        self.head = nn.Linear(768, 50257, bias=False)

    def forward(self, tokens):
        return self.head(self.outer(self.inner(self.tokens(tokens))))

model = Model()
with torch.autocast("cuda", dtype=torch.bfloat16):
    logits = model(batch)
"""


def found(folder: Path, settings: str) -> dict[str, str]:
    """The help of each finding by code, with these settings."""
    (folder / "mplint.toml").write_text(settings)
    (folder / "model.py").write_text(MODEL)
    config = load_config(str(folder))._replace(cache=False)
    return {finding.code: finding.help for finding in check([str(folder)], config).findings}


def test_a_rule_takes_its_numbers_from_the_configuration(tmp_path: Path) -> None:
    assert found(tmp_path, "").keys() == {"MP401", "MP403"}
    assert "50304" in found(tmp_path, "")["MP403"]
    assert "50432" in found(tmp_path, "[options]\nMP403 = {pad-to = 256}")["MP403"]
    assert found(tmp_path, "[options.vocab-not-multiple-of-8]\nleast-rows = 60000").keys() == {"MP401"}
    assert found(tmp_path, "[options.MP401]\nleast-width = 2048").keys() == {"MP403"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("MP403 = {least-row = 5}", 'options: MP403 has no option "least-row"; did you mean "least-rows"?'),
        ("MP403 = {zzz = 5}", 'options: MP403 has no option "zzz"; it has least-rows, pad-to'),
        ("MP304 = {threshold = 5}", 'options: MP304 has no option "threshold"; it has none'),
        ("MP403 = {pad-to = 0}", "options: MP403.pad-to must be 8 or more, not 0"),
        ("MP999 = {a = 1}", 'options: unknown rule "MP999"; did you mean "MP309"?'),
    ],
)
def test_a_wrong_option_is_told_with_the_right_ones(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        found(tmp_path, f"[options]\n{settings}\n")
    assert str(error.value) == f"{tmp_path / 'mplint.toml'}: {message}"


def test_every_option_has_a_meaning_and_a_default_that_it_may_be() -> None:
    options = [option for rule in registry().values() for option in rule.options]
    assert len(options) >= 5
    assert all(option.least <= option.default and option.about and option.name == option.name.lower() for option in options)


def test_without_a_configuration_the_defaults_hold() -> None:
    assert Config().options == ()
