"""A run that fails, is killed, hangs, forks or starts other processes tells what was seen until then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import Forks
from training_scripts import LOOP

from mplint.doctor.diagnosis import Report, diagnose
from mplint.errors import UsageError
from mplint.runs.child import Settings, reason
from mplint.runs.launched import command_of
from mplint.runs.process import make_run

pytestmark = [pytest.mark.framework, pytest.mark.timeout(240)]
MISTAKEN = LOOP.replace("    scaler.unscale_(optimizer)\n", "")
LINE = next(number for number, line in enumerate(MISTAKEN.splitlines(), 1) if "clip_grad_norm_" in line)
DISTRIBUTED = """
import os
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def work(rank, size):
    store = dist.FileStore(os.path.join(os.path.dirname(os.path.abspath(__file__)), "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(20):
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.randn(8, 16)).square().mean()
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


if __name__ == "__main__":
    mp.spawn(work, (2,), nprocs=2)
    print("all have ended")
"""


@pytest.fixture(scope="module")
def runs() -> Iterator[Forks]:
    forks = Forks("torch", "torch.optim", "torch._dynamo")
    yield forks
    forks.close()


def after(steps: int, line: str) -> str:
    """The mistaken loop with a line that is run in one of its steps."""
    return MISTAKEN.replace("    scaler.update()\n", f"    scaler.update()\n    if step == {steps}:\n        {line}\n")


def clips(report: object) -> list[int | None]:
    return [each.line for each in report.diagnoses if each.code == "MP304"]  # type: ignore[attr-defined]


def test_a_run_that_fails_tells_where_and_what_was_seen_before(tmp_path: Path, runs: Forks) -> None:
    report = diagnose(runs.watch(tmp_path, after(9, "raise ValueError('no more data')"), 24), [])
    assert clips(report) == [LINE]
    (error,) = [each for each in report.diagnoses if each.kind == "error"]
    assert "no more data" in error.message
    assert len(report.run.steps) == 10


def test_a_run_that_is_killed_tells_what_was_seen_before(tmp_path: Path, runs: Forks) -> None:
    report = diagnose(runs.watch(tmp_path, after(9, "import os; os.kill(os.getpid(), 9)"), 24), [])
    assert clips(report) == [LINE]
    assert report.run.facts["files"]  # what is summed up is written before the end


def test_a_process_that_is_forked_is_no_part_of_the_run(tmp_path: Path, runs: Forks) -> None:
    script = after(9, "import os; child = os.fork(); child or sys.exit(3); os.waitpid(child, 0)").replace(
        "import torch", "import sys, torch", 1
    )
    report = diagnose(runs.watch(tmp_path, script, 24), [])
    assert (clips(report), len(report.run.steps), report.run.text("ended")) == ([LINE], 24, "steps")


def test_a_compiled_model_is_watched(tmp_path: Path, runs: Forks) -> None:
    script = MISTAKEN.replace("optimizer = ", 'model = torch.compile(model, backend="aot_eager")\noptimizer = ', 1)
    report = diagnose(runs.watch(tmp_path, script, 12), [])
    assert report.run.text("error") == "", report.run.text("output")
    assert (clips(report), len(report.run.steps)) == ([LINE + 1], 12)
    assert report.run.facts["operations"]["float16"] > 0  # type: ignore[index]
    assert {row["name"] for row in report.run.facts["gradients"]} == {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"}  # type: ignore[attr-defined]


@pytest.mark.skipif(os.name != "posix", reason="gloo over a file")
def test_processes_that_train_together_are_watched(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DISTRIBUTED, encoding="utf-8")
    settings = Settings("doctor", ("torch", "keras"), str(script), DISTRIBUTED, [], "", 12, 0)
    report = diagnose(make_run(settings, tmp_path / "run", 200), [])
    line = next(number for number, line in enumerate(DISTRIBUTED.splitlines(), 1) if line.endswith("# here"))
    assert report.run.text("error") == "", report.run.text("output")
    assert (clips(report), len(report.run.steps), report.run.facts["processes"]) == ([line], 12, 2)


LAUNCHED = """
import os
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(20):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.randn(8, 16)).square().mean()
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
    scaler.step(optimizer)
    scaler.update()
    if step == 14 and os.environ["RANK"] == os.environ.get("FAILS"):
        raise ValueError("no more data")
"""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def launched(folder: Path, steps: int) -> Report:
    script = folder / "train.py"
    script.write_text(LAUNCHED, encoding="utf-8")
    settings = Settings("doctor", ("torch", "keras"), str(script), LAUNCHED, [], "", steps, 0)
    return diagnose(make_run(settings, folder / "run", 200, launcher=TORCHRUN), [])


@pytest.mark.skipif(os.name != "posix", reason="gloo over tcp")
def test_processes_that_torchrun_starts_are_watched(tmp_path: Path) -> None:
    report = launched(tmp_path, 12)
    line = next(number for number, line in enumerate(LAUNCHED.splitlines(), 1) if line.endswith("# here"))
    assert report.run.text("error") == "", report.run.text("output")
    assert (clips(report), len(report.run.steps), report.run.facts["processes"]) == ([line], 12, 2)
    assert report.run.text("ended") == "steps"


@pytest.mark.skipif(os.name != "posix", reason="gloo over tcp")
def test_the_process_of_torchrun_that_fails_first_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "1")
    report = launched(tmp_path, 20)
    (error,) = [each for each in report.diagnoses if each.kind == "error"]
    assert "no more data" in error.message
    assert len(report.run.steps) == 15


def test_a_launched_program_that_fails_before_its_first_step_is_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('\\x1b[1mno data\\x1b[0m at all')\n", encoding="utf-8")
    settings = Settings("doctor", ("torch",), str(script), "", [], "", 5, 0)
    found = make_run(settings, tmp_path / "run", 100, launcher=(sys.executable,))
    assert found.text("error") == f"{script}:1: ValueError: no data at all"


def test_a_launcher_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no command torchrn was found"):
        command_of("torchrn --nproc-per-node 2")
    assert command_of("torchrun --nproc-per-node 2")[-2:] == ["--nproc-per-node", "2"]


def test_the_module_that_an_environment_starts_with_is_imported_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n", encoding="utf-8")
    (tmp_path / "train.py").write_text("import sitecustomize\nprint(sitecustomize.__file__)\n", encoding="utf-8")
    settings = Settings("doctor", (), str(tmp_path / "train.py"), "", [], "", 1, 0)
    beside = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", beside)
        make_run(settings, tmp_path / "run", 100, launcher=(sys.executable,))
    assert (tmp_path / "run.log").read_text(encoding="utf-8").split() == ["mine", str(tmp_path / "sitecustomize.py")]


def test_a_run_has_the_python_path_of_its_user_and_one_order_of_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "first.py").write_text("NAMES = {'a', 'b', 'c', 'd', 'e', 'f'}\n", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text("import first\nprint(list(first.NAMES))\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.chdir(tmp_path)
    settings = Settings("doctor", (), str(script), script.read_text(encoding="utf-8"), [], "", 1, 0)
    runs = [make_run(settings, tmp_path / f"run{number}", 60) for number in range(2)]
    assert [found.text("error") for found in runs] == ["", ""]
    printed = [(tmp_path / f"run{number}.log").read_text(encoding="utf-8") for number in range(2)]
    assert printed[0] == printed[1] and "'a'" in printed[0]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interruption_shows_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(after(9, "open('reached', 'w').close(); import time; time.sleep(200)"), encoding="utf-8")
    command = [sys.executable, "-m", "mplint", "doctor", "train.py", "--steps", "24"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        end = time.monotonic() + 120
        while not (tmp_path / "reached").exists() and time.monotonic() < end:
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert f"train.py:{LINE}: MP304 gradients are clipped while they are scaled" in " ".join(out.split())
    assert "10 steps" in out
    assert "interrupted" in err


def test_a_run_that_takes_too_long_tells_so(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(100)\n", encoding="utf-8")
    found = make_run(Settings("doctor", ("torch",), str(script), script.read_text(encoding="utf-8"), [], "", 5, 0), tmp_path / "run", 3)
    assert found.text("error") == "it took longer than 3 s"


def test_a_run_whose_time_is_up_after_some_steps_has_done_nothing_wrong(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        LOOP.replace("    scaler.update()\n", "    scaler.update()\n    if step == 9:\n        import time; time.sleep(200)\n"),
        encoding="utf-8",
    )
    found = make_run(Settings("doctor", ("torch",), str(script), script.read_text(encoding="utf-8"), [], "", 24, 0), tmp_path / "run", 45)
    assert (found.text("error"), found.text("ended"), found.number("limit"), len(found.steps)) == ("", "limit", 45, 10)
    assert diagnose(found, []).diagnoses == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("division by zero", "division by zero"),
        ("", ""),
        (
            "Exception encountered when calling Noise.call().\n\ncannot compute Mul: a half tensor\n\nArguments received:\n  • x",
            "Noise.call(): cannot compute Mul: a half tensor",
        ),
        (
            "Exception encountered when calling Noise.call().\n\nCould not automatically infer the output shape. Error encountered:\n\n"
            "Input 'y' has type float16\n\nArguments received by Noise.call():\n  • x",
            "Noise.call(): Input 'y' has type float16",
        ),
        (
            'in user code:\n\n    File "mix.py", line 3, in None  *\n        lambda x: mix(x)\n    File "mix.py", line 1, in mix  *\n'
            "        return shape(x)\n\n    AttributeError: no attribute 'shape'\n",
            "AttributeError: no attribute 'shape'",
        ),
    ],
)
def test_an_error_is_told_by_the_line_that_says_why(text: str, told: str) -> None:
    assert reason(text) == told
