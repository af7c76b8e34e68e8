"""What many repositories cost: made ones, or trees of real ones, checked in one run by one process, without a cache.

    python benchmarks/many.py made 1000
    python benchmarks/many.py real 100 FOLDER        # FOLDER holds bare repositories, one to a folder or below one
    python benchmarks/many.py real 100 FOLDER 2.5    # with up to 2.5 MB of programs each
    python benchmarks/many.py made 100 --executor "dask://local?workers=2"    # on a cluster as well, and compares the two reports

Prints the number of files and bytes, the findings, processor seconds of the run, the clock, and the memory at its highest. A made
repository is small: a training script, a model, a loss and helpers that differ from one to the next by a number; every third holds a
mistake over two files. Of real ones those are taken whose programs are at most a megabyte together, or what is given, by name.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LARGEST_FILE = 1_000_000  # bytes of a file that is laid out
HELPERS = 16
MODEL = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.body = nn.Sequential(*(nn.Linear(width, width) for _ in range({depth})))
        self.head = nn.Linear(width, {classes})

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))
"""
STEPS = """\
import torch


def finish(scaler, optimizer, model):
{unscale}    torch.nn.utils.clip_grad_norm_(model.parameters(), {norm})
    scaler.step(optimizer)
    scaler.update()
"""
TRAIN = """\
import argparse

import torch
from .helper{helper} import prepare{helper}
from .model import Net
from .steps import finish


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default={depth})
    args = parser.parse_args()
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(args.epochs):
        for x, y in prepare{helper}():
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            scaler.scale(loss).backward()
            finish(scaler, optimizer, model)


if __name__ == "__main__":
    main()
"""
HELPER = """\
import json
import torch


def prepare{number}(path="data{number}.json", size={size}):
    with open(path) as stream:
        rows = json.load(stream)
    for start in range(0, len(rows), size):
        chunk = rows[start : start + size]
        yield torch.tensor([row["x"] for row in chunk]), torch.tensor([row["y"] for row in chunk])


class Shelf{number}:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index % {size}]
"""


def made(number: int, folder: Path) -> None:
    """Write one repository."""
    dice = random.Random(number)
    root = folder / f"repository{number:04}"
    package = root / "src" / f"project{number}"
    package.mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "requirements.txt").write_text("torch>=2.4\n")
    sizes = {"width": dice.choice((64, 128, 256)), "depth": dice.randint(2, 9), "classes": dice.choice((8, 16, 1000))}
    unscale = "" if number % 3 == 0 else "    scaler.unscale_(optimizer)\n"
    texts = {
        "__init__": "",
        "model": MODEL.format(**sizes),
        "steps": STEPS.format(unscale=unscale, norm=dice.choice((0.5, 1.0, 5.0))),
        "train": TRAIN.format(helper=dice.randrange(HELPERS), **sizes),
    }
    texts |= {f"helper{at}": HELPER.format(number=at, size=dice.randint(16, 512)) for at in range(HELPERS)}
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)


def real(shelf: Path, number: int, folder: Path, most: float) -> None:
    """Lay out the programs of so many real repositories, each with at most so many bytes of them."""
    found = 0
    for git in bare_below(shelf):
        listed = subprocess.run(["git", "-C", git, "ls-tree", "-r", "-l", "HEAD"], capture_output=True, text=True, errors="replace")
        rows = [row.split(None, 4) for row in listed.stdout.splitlines() if row.endswith((".py", ".ipynb"))]
        sizes = [int(row[3]) for row in rows if len(row) == 5 and row[3].isdecimal()]
        if listed.returncode or not sizes or sum(sizes) > most:
            continue
        packed = subprocess.run(["git", "-C", git, "archive", "--format=tar", "HEAD"], capture_output=True)
        if packed.returncode:
            continue
        root = folder / f"repository{found:04}"
        (root / ".git").mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
            members = [member for member in tar if member.isfile() and member.size < LARGEST_FILE and member.name.endswith(TEXTS)]
            tar.extractall(root, members, filter="data")
        found += 1
        if found == number:
            return
    raise SystemExit(f"{shelf} has only {found} such repositories")


TEXTS = (".py", ".ipynb", ".json", ".yaml", ".yml", ".toml", ".txt", ".cfg")


def bare_below(shelf: Path) -> Iterator[str]:
    """The bare repositories below a folder, at most two folders deep, by name."""
    for folder in sorted(shelf.iterdir()):
        for path in (folder, *sorted(folder.iterdir())) if folder.is_dir() else ():
            if (path / "HEAD").is_file() and (path / "objects").is_dir():
                yield str(path)
                break


def main() -> None:
    """Make or lay out the repositories, check them, and say what it cost."""
    given = sys.argv[1:]
    executor = given.pop() if "--executor" in given else ""
    given = [word for word in given if word != "--executor"]
    kind, number = given[0], int(given[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "made":
            for at in range(number):
                made(at, folder)
        else:
            real(Path(given[2]), number, folder, 1e6 * float(given[3] if len(given) > 3 else 1))
        alone = checked(folder, "--jobs", "1")
        files = [path for path in folder.rglob("*") if path.suffix in (".py", ".ipynb")]
        size = sum(path.stat().st_size for path in files)
        found = len(json.loads(alone.report)["findings"])
        print(f"{number} {kind} repositories, {len(files):,} programs, {size / 1e6:.1f} MB: {found} findings, {alone.cost}", flush=True)
        if executor:
            shared = checked(folder, "--executor", executor)
            print(f"{executor}: {'the same report' if shared.report == alone.report else 'ANOTHER REPORT'}, {shared.cost}")
            print(shared.told, end="")


class Checked(NamedTuple):
    """One run of `mplint check`: its report, what it told on standard error, and what it cost."""

    report: str
    told: str
    cost: str


def checked(folder: Path, *options: str) -> Checked:
    """Check all repositories of a folder."""
    command = [sys.executable, "-m", "mplint", "check", ".", "--isolated", "--no-cache", "--output-format", "json", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONSAFEPATH": "1"})
    clock = time.monotonic() - begun
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    cost = f"{seconds:.1f} processor seconds, {clock:.0f} s on the clock, {spent.ru_maxrss / 1024:.0f} MB at the highest"
    return Checked(done.stdout, done.stderr, f"{cost}, exit status {done.returncode}")


if __name__ == "__main__":
    main()
