"""A large project is run in parts that have nothing to do with each other, and says the same however many processes share them."""

from __future__ import annotations

import gc
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from mplint.config import Config
from mplint.engine import parts, run, tracing
from mplint.engine.parts import parts_of
from mplint.engine.run import check_paths
from mplint.findings import Finding
from mplint.program.modules import ImportGraph

NET = """
import torch
from torch import nn
{imports}

class Net{n}(nn.Module):
    def forward(self, x, mask):
        scores = torch.matmul(x, x)
        return scores.masked_fill(mask, {fill}) / (scores.norm() + {eps})
"""
STEP = """
import torch

def step(scaler, optimizer, model, loss):
    scaler.scale(loss).backward()
    {clip}
    scaler.step(optimizer)
    scaler.update()
"""
TRAIN = """
import torch
from nets.net{n} import Net{n}
{more}

def main(half={half}):
    model = Net{n}().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.cuda.amp.GradScaler(enabled=half)
    for x, mask in torch.utils.data.DataLoader(torch.load("set.pt")):
        with torch.autocast("cuda", dtype=torch.float16, enabled=half):
            loss = model(x, mask).sum()
        {step}

if __name__ == "__main__":
    main()
"""
CLIPS = ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "scaler.unscale_(optimizer)", "pass")


def write(folder: Path, chance: random.Random, projects: int) -> None:
    """Projects beside each other in one repository: each has models of its own, and a script that trains one of them; some share a step."""
    (folder / ".git").mkdir(parents=True)
    (folder / "common").mkdir()
    (folder / "common" / "__init__.py").write_text("")
    for number in range(2):
        (folder / "common" / f"step{number}.py").write_text(STEP.format(clip=CLIPS[number]))
    for number in range(projects):
        home = folder / f"project{number}"
        (home / "nets").mkdir(parents=True)
        (home / "nets" / "__init__.py").write_text("")
        count = chance.randrange(1, 4)
        for n in range(count):
            imports = f"from nets.net{n - 1} import Net{n - 1}\n" if n and chance.random() < 0.5 else ""
            text = NET.format(n=n, imports=imports, fill=chance.choice(["-1e9", "-1e4"]), eps=chance.choice(["1e-8", "1e-4"]))
            (home / "nets" / f"net{n}.py").write_text(text)
        shared = chance.random() < 0.3
        step = "step(scaler, optimizer, model, loss)" if shared else f"scaler.scale(loss).backward()\n        {chance.choice(CLIPS)}"
        more = f"from common.step{chance.randrange(2)} import step" if shared else ""
        script = TRAIN.format(n=chance.randrange(count), more=more, half=chance.choice(["True", "False"]), step=step)
        (home / "train.py").write_text(script)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few programs are many, and little source is enough for workers."""
    monkeypatch.setattr(parts, "LARGE", 3)
    monkeypatch.setattr(run, "PARALLEL_BYTES", 1)


def checked(folder: Path, jobs: int, cache: bool = False) -> tuple[Finding, ...]:
    result = check_paths([str(folder)], Config(cache=cache, isolated=True, root=str(folder), jobs=jobs))
    assert result.faults == ()
    return result.findings


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("small")
def test_any_number_of_processes_says_the_same(tmp_path: Path, seed: int) -> None:
    write(tmp_path, random.Random(seed), projects=7)
    alone = checked(tmp_path, jobs=1)
    assert any(finding.code == "MP304" or finding.code == "MP201" for finding in alone) or len(alone) > 3
    assert repr(checked(tmp_path, jobs=2)) == repr(alone)
    assert repr(checked(tmp_path, jobs=3)) == repr(alone)


def test_the_parts_say_what_their_projects_say_each_alone(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, random.Random(1), projects=6)
    begun: list[int] = []
    real = tracing.part_findings
    monkeypatch.setattr(tracing, "part_findings", lambda *args: begun.append(len(args[1].named)) or real(*args))
    in_parts = checked(tmp_path, jobs=1)
    assert len(begun) > 3
    monkeypatch.setattr(parts, "LARGE", 1_000)
    assert checked(tmp_path, jobs=1) == in_parts


def test_workers_run_the_parts(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, random.Random(2), projects=4)
    here: list[object] = []
    real = tracing.part_findings
    monkeypatch.setattr(tracing, "part_findings", lambda *args: here.append(args) or real(*args))
    assert checked(tmp_path, jobs=2)
    assert here == []  # in this process: what workers do to their copies is not seen here


def test_what_a_killed_worker_leaves_is_run_here(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, random.Random(4), projects=5)
    expected = checked(tmp_path, jobs=1)
    this, real, here = os.getpid(), tracing.part_findings, []

    def killed(*args: Any) -> dict[str, list[Finding]]:
        if os.getpid() != this and len(here) + len(args[1].paths) % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        here.append(args)
        return real(*args)

    monkeypatch.setattr(tracing, "part_findings", killed)
    assert checked(tmp_path, jobs=2) == expected
    assert here


def test_an_edit_runs_the_part_that_it_is_in(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "repository"
    write(folder, random.Random(3), projects=6)
    checked(folder, jobs=1, cache=True)
    ran: list[tuple[str, ...]] = []
    real = tracing.traced
    monkeypatch.setattr(tracing, "traced", lambda programs, named, *more: ran.append(tuple(named)) or real(programs, named, *more))
    train = folder / "project4" / "train.py"
    train.write_text(train.read_text().replace("main():", "main(1):").replace("Adam", "SGD"))
    after = checked(folder, jobs=1, cache=True)
    assert len(ran) == 1 and any(path.endswith("project4/train.py") for path in ran[0])
    assert after == checked(folder, jobs=1)


def graph(imports: dict[str, tuple[str, ...]]) -> ImportGraph:
    return ImportGraph(imports)


def test_parts_are_joined_by_imports_and_folders_and_begin_with_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGE", 2)
    found = parts_of(
        graph({"a/train.py": ("net",), "a/net.py": (), "b/x.py": (), "b/y.py": (), "c/main.py": (), "d/silent.py": ()}),
        ["a/train.py", "b/x.py", "c/main.py"],
        {"a/train.py": 5, "b/x.py": 7, "c/main.py": 6}.__getitem__,
    )
    assert [part.paths for part in found] == [("b/x.py", "b/y.py"), ("c/main.py",), ("a/net.py", "a/train.py")]
    assert [part.named for part in found] == [("b/x.py",), ("c/main.py",), ("a/train.py",)]


def test_a_project_of_few_programs_is_one_part() -> None:
    found = parts_of(graph({"a/train.py": (), "b/train.py": ()}), ["a/train.py", "b/train.py"], lambda path: 1)
    assert [part.named for part in found] == [("a/train.py", "b/train.py")]


def test_what_a_caller_keeps_from_the_collector_stays_so(tmp_path: Path, small: None) -> None:
    write(tmp_path, random.Random(3), projects=2)
    gc.freeze()
    frozen = gc.get_freeze_count()
    checked(tmp_path, jobs=1)
    assert gc.get_freeze_count() == frozen
