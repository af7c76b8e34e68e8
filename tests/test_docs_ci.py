"""The commands that docs/continuous-integration.md recommends are ones that mplint takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mplint.cli import check
from mplint.cli.main import parse_arguments
from mplint.report.formats import FORMATS

PAGE = Path(__file__).parents[1] / "docs" / "continuous-integration.md"
COMMANDS = re.findall(r"mplint check ([^'\n`]*)", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_recommended_command_is_understood(command: str) -> None:
    arguments = shlex.split(command.split(">>")[0].split("&&")[0])
    assert parse_arguments("check", check, arguments)


def test_every_format_is_told() -> None:
    table = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("| `")]
    assert {name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])} == set(FORMATS)
    assert len(COMMANDS) >= 7
