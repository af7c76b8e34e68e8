"""The scripts that complete mplint's options, in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mplint.cli.main import COMMANDS, main, options_of


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Path]:
    made = {}
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        made[shell] = tmp_path / f"mplint.{shell}"
        made[shell].write_text(capsys.readouterr().out)
    return made


def asked(shell: str, script: str) -> list[str]:
    """What a shell prints, word by word."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([found, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LINES = [
    (("mplint", "ba"), ["baseline"]),
    (("mplint", "check", "--stat"), ["--statistics"]),
    (("mplint", "check", "--output-format", "gi"), ["github", "gitlab"]),
    (("mplint", "explain", "clip-"), ["clip-before-unscale"]),
    (("mplint", "check", "--select", "MP30"), [f"MP30{n}" for n in range(1, 10)]),
    (("mplint", "baseline", "pr"), ["prune"]),
    (("mplint", "check", "--config", "x"), []),
]


@pytest.mark.parametrize(("words", "offered"), LINES)
def test_bash_offers_what_fits(scripts: dict[str, Path], words: tuple[str, ...], offered: list[str]) -> None:
    line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _mplint; echo ${{COMPREPLY[@]}}"
    assert asked("bash", f"source {scripts['bash']}; {line}") == offered


@pytest.mark.parametrize(("words", "offered"), LINES[:-1])
def test_fish_offers_what_fits(scripts: dict[str, Path], words: tuple[str, ...], offered: list[str]) -> None:
    lines = asked("fish", f"source {scripts['fish']}; complete -C '{' '.join(words)}' | string replace -r '\\t.*' ''; true")
    assert lines == offered


def test_zsh_can_read_its_script(scripts: dict[str, Path]) -> None:
    assert asked("zsh", f"zsh -n {scripts['zsh']}") == []
    text = scripts["zsh"].read_text()
    assert all(flag in text for name in COMMANDS for flag in options_of(name)._option_string_actions)


def test_an_unknown_shell_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
