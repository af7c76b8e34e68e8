"""How long model files take, and how much memory: `python benchmarks/graphs.py [FOLDER]`.

Builds a 7-billion-parameter ONNX model whose external data is a sparse file (14 GB that take no space), and an ONNX model of 6,000
nodes, and runs `mplint check` on each. Exits with 1 where a bound is exceeded (by CPU seconds: the machine may be busy).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Seconds and megabytes that a check may take.
BOUNDS = {"7b": (3.0, 300), "6000": (1.5, 300)}
RUNS = 3


def main() -> int:
    """Build the models, check them, print a table."""
    if sys.argv[1:2] == ["--build"]:  # in a process of its own, so that its memory is not the check's
        from graph_models import language_model, long_chain

        language_model(Path(sys.argv[2]))
        long_chain(Path(sys.argv[2]))
        return 0
    slow = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        folder.mkdir(exist_ok=True)
        subprocess.run([sys.executable, __file__, "--build", str(folder)], check=True)
        for name, (most, memory) in BOUNDS.items():
            path = folder / f"{name}.onnx"
            seconds, elapsed, megabytes = min(measure(path) for _ in range(RUNS))
            held = seconds <= most and megabytes <= memory
            slow += not held
            figures = f"{seconds:5.2f} s CPU  {elapsed:5.2f} s elapsed  {megabytes:4d} MB"
            print(f"{path.name:<12} {figures}  (bounds {most} s, {memory} MB)  {'ok' if held else 'TOO SLOW'}")
    return 1 if slow else 0


def measure(path: Path) -> tuple[float, float, int]:
    """A check without the cache: seconds of CPU (one thread: what an idle machine takes), seconds elapsed, peak memory in megabytes."""
    command = [sys.executable, "-m", "mplint", "check", "--isolated", "--no-cache", "--exit-zero", "--select", "ALL", str(path)]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"the check of {path} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, elapsed, usage.ru_maxrss // 1024


if __name__ == "__main__":
    raise SystemExit(main())
