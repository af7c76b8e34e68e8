"""How conversion does on the models that ONNX itself brings for its operators: `python benchmarks/node_tests.py OUT.jsonl [WORD …]`.

Each runs in another process for at most 60 seconds: with the inputs of its test as data, without data, and with data and each operation
worth any number of casts, since one operation alone hardly ever is. It is judged on those inputs, where each half result is stored in half.
Prints how often each verdict came with which ending. WORDs choose models by their names.
"""

from __future__ import annotations

import collections
import json
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from real_models import TOLERANCE, error, run, strictly

from mplint.conversion import planner
from mplint.conversion.api import convert_file
from mplint.conversion.onnx import convert, program
from mplint.conversion.policy import ConversionError, Options
from mplint.conversion.policy import policy as named

SECONDS = 60
WAYS = ("with data", "without data", "with data, all worth casts")
Found = dict[str, Any]


def inputs_of(case: Any) -> dict[str, np.ndarray] | None:
    """The inputs of a test by their names; None where one is no array that an .npz file holds."""
    names = [each.name for each in case.model.graph.input]
    given = list(case.data_sets[0][0])
    if len(names) != len(given) or not all(isinstance(one, np.ndarray | np.generic) and one.dtype.kind in "fiub" for one in given):
        return None
    return dict(zip(names, map(np.asarray, given), strict=True))


def judged(case: Any, folder: Path, way: str) -> Found:
    """What comes of one model."""
    source, target = folder / "a.onnx", folder / "b.onnx"
    onnx.save(case.model, source)
    feed = inputs_of(case)
    if feed is None:
        return {"ending": "inputs that no file holds"}
    try:
        references = run(str(source), [feed])
    except Exception as problem:
        return {"ending": "the runtime runs the original not", "why": str(problem)[:200]}
    np.savez(folder / "data.npz", **feed)  # type: ignore[arg-type]
    calibration = [] if way == "without data" else [str(folder / "data.npz")]
    program.LIGHT_GAIN = convert.HEAVY_GAIN - 1 if way == WAYS[2] else planner.LIGHT_GAIN  # type: ignore[misc]
    try:
        result = convert_file(str(source), str(target), named("mixed_float16"), Options(), calibration, "cuda")
    except ConversionError as problem:
        return {"ending": "refused", "why": str(problem)[:300]}
    found: Found = {"verdict": result.verdict.value, "why": "; ".join([*result.problems, *result.gaps])[:300]}
    found |= {"half": result.operations_half, "operations": result.operations, "kept": [reason for _, reason in result.kept][:3]}
    result.save(str(target))
    onnx.checker.check_model(str(target))
    run(str(target), [feed])
    far = error(references, strictly(target, [feed]))
    return found | {"error": far, "ending": "within" if far <= TOLERANCE else "beyond"}


def told(cases: Sequence[Any], asked: Any) -> None:
    """Write what comes of the models that are asked for by number and way, to the pipe."""
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    while True:
        number, way = asked.recv()
        try:
            with tempfile.TemporaryDirectory() as folder:
                found = judged(cases[number], Path(folder), way)
        except Exception as problem:  # a crash is what is looked for
            found = {"ending": "crashed", "why": f"{type(problem).__name__}: {problem}"[:300]}
        asked.send(found)


class Worker:
    """A process that tries models, and another one behind each that dies or takes too long."""

    def __init__(self, cases: Sequence[Any]) -> None:
        self.cases = cases
        self.start()

    def start(self) -> None:
        fork = multiprocessing.get_context("fork")
        self.pipe, there = fork.Pipe()
        self.process = fork.Process(target=told, args=(self.cases, there), daemon=True)
        self.process.start()
        there.close()

    def tried(self, number: int, way: str) -> Found:
        """What comes of one model."""
        self.pipe.send((number, way))
        try:
            if self.pipe.poll(SECONDS):
                return dict(self.pipe.recv())
            found = {"ending": "took too long"}
        except EOFError:
            found = {"ending": "the process died"}
        self.process.kill()
        self.process.join()
        self.start()
        return found


def main() -> None:
    """Try all models that OUT does not hold yet, and count."""
    warnings.simplefilter("ignore")
    out, words = Path(sys.argv[1]), sys.argv[2:]
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    done = {(line["name"], line["way"]) for line in lines}
    cases = [case for case in collect_testcases(None) if not words or any(word in case.name for word in words)]
    worker = Worker(cases)
    with open(out, "a", encoding="utf-8") as stream:
        for way in reversed(WAYS):
            for number, case in enumerate(cases):
                if (case.name, way) not in done:
                    lines.append({"name": case.name, "way": way, **worker.tried(number, way)})
                    stream.write(json.dumps(lines[-1]) + "\n")
                    stream.flush()
    for (way, verdict, ending), count in sorted(collections.Counter((r["way"], r.get("verdict", "-"), r["ending"]) for r in lines).items()):
        print(f"{way}: {verdict}, {ending}: {count}")


if __name__ == "__main__":
    main()
