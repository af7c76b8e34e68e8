"""Whether worker processes pay on one repository: processor seconds of each process of a cold check, for several numbers of jobs.

    python benchmarks/workers.py FOLDER... [--jobs 1 2]

A run can't be shorter than this process and, of each stage, the worker that computes longest: the speed-up is what one process takes
divided by that. Seconds on the clock are shown beside it, and say something on a quiet machine alone. The reports must be the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--jobs", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.folders[0], options.jobs[0])))
        return 0
    for folder in options.folders:
        alone, digests = 0.0, set()
        for jobs in options.jobs:
            command = [sys.executable, __file__, folder, "--jobs", str(jobs), "--one"]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            longest = found["main"] + sum(max(stage) for stage in found["stages"])
            alone = alone or longest
            digests.add(found["digest"])
            workers = "; ".join(" + ".join(f"{seconds:.1f}" for seconds in stage) for stage in found["stages"]) or "no workers"
            print(
                f"{folder}: {found['files']} files, {found['findings']} findings, --jobs {jobs}: {found['main']:.1f} s here, {workers}; "
                f"{alone / longest:.2f} times as fast, {found['clock']:.0f} s on the clock, {found['peak']:.0f} MB at most in a process",
                flush=True,
            )
        if len(digests) > 1:
            raise SystemExit(f"{folder}: the reports differ")
    return 0


def measured(folder: str, jobs: int) -> dict[str, object]:
    """What a cold check takes with a number of jobs: this process, and the workers of each stage."""
    from mplint.config import Config
    from mplint.engine import workers
    from mplint.engine.run import check_paths

    with tempfile.TemporaryDirectory() as told:
        begin = workers.start_worker

        def timed(start: Callable[..., None], args: tuple[object, ...]) -> None:
            Finalize(None, tell, args=(Path(told), start.__name__), exitpriority=1)
            begin(start, args)

        workers.start_worker = timed
        started = time.perf_counter()
        result = check_paths([folder], Config(cache=False, isolated=True, jobs=jobs))
        clock = time.perf_counter() - started
        by_stage: dict[str, list[float]] = {}
        peaks = [peak()]
        for file in sorted(Path(told).iterdir()):
            seconds, most = file.read_text().split()
            by_stage.setdefault(file.name.partition("-")[0], []).append(float(seconds))
            peaks.append(float(most))
    return {
        "main": time.process_time(),
        "stages": list(by_stage.values()),
        "clock": clock,
        "files": result.files,
        "findings": len(result.findings),
        "digest": hashlib.sha256(repr(result.findings).encode()).hexdigest(),
        "peak": max(peaks),
    }


def tell(folder: Path, stage: str) -> None:
    """Write down what this process has taken."""
    (folder / f"{stage}-{os.getpid()}").write_text(f"{time.process_time()} {peak()}")


def peak() -> float:
    """The most memory that this process has held, in MB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    sys.exit(main())
