"""After any edit a run with the cache says what a run without one says, in a tree of several hundred files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mplint.api import check
from mplint.config import Config

PACKAGES = 12
MEMBERS = 18  # of each package: with the scripts, 228 files
EDITS = 14

LAYER = """\
import torch
from torch import nn
{imports}

class Layer{n}(nn.Module):
    def __init__(self, width, eps={eps}):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.eps = eps

    def forward(self, x, mask):
        scores = self.inner(x).masked_fill(mask, {fill})
        return scores / (scores.norm() + self.eps)
"""
STEP = """\
import torch
{imports}

def step{n}(scaler, optimizer, model, loss):
    scaler.scale(loss).backward()
    {clip}
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
PLAIN = """\
import os
{imports}

def size{n}(path):
    # how much it takes
    return os.path.getsize(path) * {factor}
"""
TRAIN = """\
import torch
{imports}

def main(half=True):
    model = {layer}(64).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    for x, mask in torch.utils.data.DataLoader(torch.load("set.pt")):
        with torch.autocast("cuda", enabled=half):
            loss = model(x, mask).mean()
        {step}(scaler, optimizer, model, loss)

if __name__ == "__main__":
    main()
"""
CLIPS = ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "scaler.unscale_(optimizer)", "pass")


def member(chance: random.Random, package: int, number: int) -> str:
    """A module of a package: a layer, a step of training, or something beside the matter."""
    name = f"{package}_{number}"
    earlier = [f"from pack{package} import mod{chance.randrange(number)}"] if number else []
    imports = "\n".join(earlier if chance.random() < 0.6 else [])
    if number % 3 == 0:
        return LAYER.format(imports=imports, n=name, eps=chance.choice(["1e-8", "1e-5"]), fill=chance.choice(["-1e9", "-1e4"]))
    if number % 3 == 1:
        return STEP.format(imports=imports, n=name, clip=chance.choice(CLIPS))
    return PLAIN.format(imports=imports, n=name, factor=chance.randrange(9))


def tree(folder: Path, chance: random.Random) -> None:
    """Packages of layers and steps, and a script for each that trains one of them by one of them."""
    for package in range(PACKAGES):
        home = folder / f"pack{package}"
        home.mkdir(parents=True)
        for number in range(MEMBERS):
            (home / f"mod{number}.py").write_text(member(chance, package, number))
        layer, step = 3 * chance.randrange(MEMBERS // 3), 3 * chance.randrange(MEMBERS // 3) + 1
        imports = f"from pack{package}.mod{layer} import Layer{package}_{layer}\nfrom pack{package}.mod{step} import step{package}_{step}"
        script = TRAIN.format(imports=imports, layer=f"Layer{package}_{layer}", step=f"step{package}_{step}")
        (folder / f"train{package}.py").write_text(script)
        (home / "__init__.py").write_text("")


def edits(chance: random.Random) -> list[Callable[[str], str]]:
    """Edits of the kinds that people make; some of them break the program."""

    def at_line(change: Callable[[list[str], int], None]) -> Callable[[str], str]:
        def edit(text: str) -> str:
            lines = text.split("\n")
            change(lines, chance.randrange(len(lines)))
            return "\n".join(lines)

        return edit

    return [
        at_line(lambda lines, at: lines.insert(at, "")),
        at_line(lambda lines, at: lines.insert(at, "# a remark on float16")),
        at_line(lambda lines, at: lines.pop(at) and None),
        lambda text: text + "\n\ndef more(x):\n    return x.half()\n",
        lambda text: text.replace("-1e9", "-1e4") if "-1e9" in text else text.replace("-1e4", "-1e9"),
        lambda text: text.replace("pass", CLIPS[0]) if "pass" in text else text.replace(CLIPS[0], "pass"),
        lambda text: text.replace("scaler.update()\n", "", 1),
        lambda text: text.replace("half=True", "half=False") if "half=True" in text else text.replace("enabled=half", "enabled=True"),
        lambda text: "import numpy as np\n" + text,
        lambda text: text.replace("# how much it takes", "# what it takes, in bytes"),
        lambda text: text.replace('"""', "'''").replace("x", "y", 1),
    ]


def told(cache: bool) -> str:
    """The report of a run, byte for byte."""
    result = check(["."], Config(isolated=True, cache=cache, jobs=1))
    assert not result.faults
    return json.dumps([repr(finding) for finding in result.findings]) + str(result.files)


@pytest.mark.parametrize("seed", range(2))
def test_after_every_edit_the_cache_says_what_a_run_without_it_says(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "tree"
    tree(folder, chance)
    monkeypatch.chdir(folder)
    first = told(cache=True)
    assert first == told(cache=False)
    assert "MP204" in first and "MP304" in first
    others = 0
    for _ in range(EDITS):
        path = chance.choice(sorted(folder.rglob("*.py")))
        kind = chance.randrange(13)
        if kind == 11:
            path.unlink()
        elif kind == 12:
            (path.parent / f"new{chance.randrange(99)}.py").write_text(path.read_text())
        else:
            path.write_text(edits(chance)[kind](path.read_text()))
        warm = told(cache=True)
        assert warm == told(cache=False), path
        others += warm != first
    assert others, "no edit changed the report"
