"""How fast `mplint check` is, next to what pure Python can do at best on the same files.

    python benchmarks/check_speed.py FOLDER... [--rounds 3] [--starts 30]

One run measures everything, in turns, so that a busy machine slows all sides alike. See README.md here.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LIMIT = Path(__file__).with_name("pure_python_limit.py")
CHECK = (sys.executable, "-m", "mplint", "check")
BARE = (sys.executable, "-c", "import ast, re, json, pathlib")
COUNT_FILES = "import json, sys; print(json.load(sys.stdin)['summary']['files'])"
SKIPPED = {"__pycache__", "build", "dist", "env", "node_modules", "site-packages", "venv"}


class Cost(NamedTuple):
    """What one child and the processes it waited for have used."""

    cpu: float  # seconds, user and system
    wall: float  # seconds
    peak: float  # MB (1e6 bytes), the largest single process
    code: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side over the folders (default 3)")
    parser.add_argument("--starts", type=int, default=30, help="runs of each side on one file (default 30)")
    options = parser.parse_args(arguments)

    paths = python_files(options.folders)
    if not paths:
        parser.error("no Python files found")
    listing = "\n".join(map(str, paths)).encode("utf8", "surrogateescape")
    check_folders = (*CHECK, *options.folders, "--no-cache", "--isolated", "--exit-zero", "--output-format", "concise")
    limit = (sys.executable, "-W", "ignore", str(LIMIT))
    one_file = typical_file(paths)
    check_one = (*CHECK, str(one_file), "--no-cache")

    print(f"{len(paths)} Python files; mplint read {files_read(options.folders)}", flush=True)
    cold, floor = in_turns([(check_folders, b""), (limit, listing)], options.rounds)
    print(f"one file: {one_file} ({one_file.stat().st_size} bytes)")
    measure(check_one)  # the first start finds nothing compiled or cached
    measure(BARE)
    one, bare = in_turns([(check_one, b""), (BARE, b"")], options.starts)
    report(cold, floor, one, bare)
    return 0


def python_files(folders: Sequence[str]) -> list[Path]:
    """Every .py and .pyi file below the folders that mplint reads, sorted."""
    found = []
    for folder in folders:
        for root, directories, files in os.walk(folder):
            directories[:] = [name for name in directories if name not in SKIPPED and not name.startswith(".")]
            found += [Path(root, name) for name in files if name.endswith((".py", ".pyi"))]
    return sorted(found)


def typical_file(paths: Sequence[Path]) -> Path:
    """A file of about median size that uses mixed precision, so that the rules have work to do."""
    size = {path: path.stat().st_size for path in paths}
    median = statistics.median(size.values())
    words = (b"autocast(", b"GradScaler(", b"set_global_policy(")
    nearest = sorted(paths, key=lambda path: abs(size[path] - median))
    return next((path for path in nearest if any(word in path.read_bytes() for word in words)), nearest[0])


def files_read(folders: Sequence[str]) -> int:
    """How many files mplint says it read; also the warm-up that leaves compiled modules and a warm disk cache behind."""
    command = (*CHECK, *folders, "--no-cache", "--isolated", "--exit-zero", "--output-format", "json")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as check:
        # Counted in a child: this process must stay small, because a child's peak starts at that of the process it came from.
        answer = subprocess.run((sys.executable, "-c", COUNT_FILES), stdin=check.stdout, capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"no JSON report from: {' '.join(command)}")
    return int(answer.stdout)


def in_turns(sides: Sequence[tuple[Sequence[str], bytes]], rounds: int) -> list[list[Cost]]:
    """Run each side (command, standard input) `rounds` times, the order reversed every other round."""
    costs: list[list[Cost]] = [[] for _ in sides]
    for turn in range(rounds):
        for side in sorted(range(len(sides)), reverse=turn % 2 == 1):
            costs[side].append(measure(*sides[side]))
    return costs


def measure(command: Sequence[str], given: bytes = b"") -> Cost:
    """Run one child to its end, its output thrown away; exit codes other than 0, 1 and 2 end the benchmark."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert child.stdin is not None
    child.stdin.write(given)
    child.stdin.close()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1, 2):
        raise SystemExit(f"exit code {code} from: {' '.join(command)}")
    scale = 1 if sys.platform == "darwin" else 1024
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * scale / 1e6, code)


def report(cold: list[Cost], floor: list[Cost], one: list[Cost], bare: list[Cost]) -> None:
    """Print medians, their ratio and, for the spread, the lowest and highest ratio of a single round."""
    print(f"\n{'':28}{'mplint':>10}{'against':>10}{'ratio':>8}   rounds")
    row("cold CPU / limit, s", [c.cpu for c in cold], [c.cpu for c in floor])
    row("one file / bare python, ms", [c.cpu * 1e3 for c in one], [c.cpu * 1e3 for c in bare])
    row("  the same, elapsed, ms", [c.wall * 1e3 for c in one], [c.wall * 1e3 for c in bare])
    print(f"{'peak of a process, MB':28}{max(c.peak for c in cold):>10.1f}{max(c.peak for c in floor):>10.1f}")


def row(title: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    mine, other = statistics.median(ours), statistics.median(theirs)
    singles = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(f"{title:28}{mine:>10.2f}{other:>10.2f}{mine / other:>8.2f}   {min(singles):.2f} to {max(singles):.2f}")


if __name__ == "__main__":
    sys.exit(main())
