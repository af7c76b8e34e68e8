"""What reading whole programs costs: its share of the CPU time of a cold check, in one run.

    python benchmarks/interpret.py FOLDER... [--rounds 3]

Files are checked in this process; medians of the rounds are shown.
"""

from __future__ import annotations

import argparse
import statistics
import time

from mplint.config import Config
from mplint.engine import interpret, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for folder in options.folders:
        rounds = [measured(folder) for _ in range(options.rounds)]
        whole, share, files = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{folder}: {files:.0f} files, {whole:.1f} s of CPU, of which reading the whole program {share:.1f} s ({share / whole:.0%})")


def measured(folder: str) -> tuple[float, float, int]:
    """CPU seconds of a cold check, of the interpreter in it, and the number of files."""
    spent: list[float] = []
    original = interpret.program_findings

    def timed(*args: object) -> object:
        start = time.process_time()
        try:
            return original(*args)  # type: ignore[arg-type]
        finally:
            spent.append(time.process_time() - start)

    interpret.program_findings = timed  # type: ignore[assignment]
    start = time.process_time()
    try:
        result = run.check_paths([folder], Config(cache=False, isolated=True, jobs=1))  # workers' time would not be seen here
    finally:
        interpret.program_findings = original
    return time.process_time() - start, sum(spent), result.files


if __name__ == "__main__":
    main()
