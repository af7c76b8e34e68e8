"""mplint's ONNX conversion to mixed_float16 beside other converters, on the hard models of tests/convert: one table, one run.

    python benchmarks/convert.py [--only NAME,NAME]

A result is valid if the ONNX checker and ONNX Runtime take it and its inputs and outputs are unchanged; it is accurate if its outputs stay
within the tolerance under true float16 semantics, on two inputs that no converter has seen. Coverage is the share of heavy operations
in float16, of those that can be; it is 0 where the result is wrong. Converters that are not installed are left out. Each model is
converted and judged in a process of its own, since some results crash ONNX Runtime.
"""

import argparse
import contextlib
import importlib
import importlib.util
import io
import logging
import multiprocessing
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "convert"))
from hard_case import Case
from hard_cases import CASES
from hard_inputs import INPUTS
from hard_numerics import NUMERICS

from mplint.conversion.distance import distance
from mplint.conversion.onnx.convert import convert
from mplint.conversion.onnx.half_emulation import HALVES, to_strict
from mplint.conversion.onnx.program import HEAVY, bodies
from mplint.conversion.onnx.read import read
from mplint.conversion.onnx.run import Session
from mplint.conversion.onnx.types import infer_types
from mplint.conversion.policy import Options, policy

Converter = Callable[[Case, Path, Path], None]
FORK = multiprocessing.get_context("fork")
SECONDS = 120.0  # for one model


class Outcome(NamedTuple):
    """What one converter did with one model."""

    converted: bool = False
    valid: bool = False
    accurate: bool = False
    casts: int = 0
    heavy: int = 0
    half: int = 0
    seconds: float = 0.0


def with_data(case: Case, source: Path, target: Path) -> None:
    np.savez(target.with_suffix(".npz"), **case.feed(0))
    ours(case, source, target, [str(target.with_suffix(".npz"))])


def without_data(case: Case, source: Path, target: Path) -> None:
    ours(case, source, target, [])


def ours(case: Case, source: Path, target: Path, data: list[str]) -> None:
    result = convert(str(source), policy("mixed_float16", case.tolerance), Options(), data)
    if result.problems:
        raise ValueError(result.problems[0])
    result.save(str(target))


def common(case: Case, source: Path, target: Path) -> None:
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def transformers(case: Case, source: Path, target: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    OnnxModel(convert_float_to_float16(str(source), keep_io_types=True)).save_model_to_file(str(target))


def autocast(case: Case, source: Path, target: Path) -> None:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    onnx.save(convert_to_mixed_precision(str(source), low_precision_type="fp16", keep_io_types=True), target)


def autocast_with_data(case: Case, source: Path, target: Path) -> None:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    feed = case.feed(0)
    onnx.save(convert_to_mixed_precision(str(source), low_precision_type="fp16", keep_io_types=True, calibration_data=feed), target)


CONVERTERS: dict[str, tuple[str, Converter]] = {
    "mplint, with data": ("mplint", with_data),
    "mplint, without data": ("mplint", without_data),
    "onnxconverter-common float16": ("onnxconverter_common", common),
    "onnxruntime.transformers float16": ("onnxruntime", transformers),
    "modelopt autocast, with data": ("modelopt", autocast_with_data),
    "modelopt autocast, without data": ("modelopt", autocast),
}
IMPORTED = {  # once, and not in each process
    "mplint": ("onnxruntime", "scipy.sparse.csgraph", "onnx_ir.passes.common", "onnx.version_converter"),
    "modelopt": ("modelopt.onnx.autocast", "polygraphy.comparator"),
    "onnxruntime": ("onnxruntime.transformers.float16", "onnxruntime.transformers.onnx_model"),
    "onnxconverter_common": ("onnxconverter_common.float16",),
}


def outcome(case: Case, converter: Converter, folder: Path) -> Outcome:
    """Convert one model and judge the result, in a process of its own; one that crashes or takes too long is no result."""
    mine, other = FORK.Pipe(duplex=False)
    child = FORK.Process(target=lambda: other.send(in_process(case, converter, folder)))
    child.start()
    other.close()
    found = Outcome()
    with contextlib.suppress(EOFError):
        if mine.poll(SECONDS):
            found = mine.recv()
    child.kill()
    child.join()
    return found


def in_process(case: Case, converter: Converter, folder: Path) -> Outcome:
    source, target = folder / "a.onnx", folder / "b.onnx"
    target.unlink(missing_ok=True)
    onnx.save(case.model(), source)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            converter(case, source, target)
    except Exception:
        return Outcome()
    seconds = time.perf_counter() - start
    if not is_valid(source, target):
        return Outcome(True, seconds=seconds)
    heavy, half, casts = figures(target)
    return Outcome(True, True, is_accurate(case, source, target), casts - figures(source)[2], heavy, half, seconds)


def share(found: Outcome, case: Case) -> float:
    """The share of heavy operations in half, of those that can be."""
    possible = case.heavy if case.half is None else case.half
    return min(1.0, found.half / found.heavy * case.heavy / possible) if found.accurate and found.heavy else 0.0


def is_valid(source: Path, target: Path) -> bool:
    try:
        onnx.checker.check_model(str(target), full_check=True)
        Session(str(target), optimize=True)
    except Exception:
        return False
    before, after = onnx.load(source).graph, onnx.load(target).graph
    return list(before.input) == list(after.input) and list(before.output) == list(after.output)


def is_accurate(case: Case, source: Path, target: Path) -> bool:
    try:
        strict = read(str(target))
        infer_types(strict)
        to_strict(strict)
        original, emulated = Session(str(source)), Session(strict)
        return all(distance(original.run(case.feed(seed)), emulated.run(case.feed(seed))).within(case.tolerance) for seed in (1, 2))
    except Exception:
        return False


def figures(path: Path) -> tuple[int, int, int]:
    """Heavy operations, those in half, and casts."""
    model = read(str(path))
    infer_types(model)
    nodes = [node for body, _ in bodies(model) for node in body]
    heavy = [node for node in nodes if node.op_type in HEAVY]
    half = [node for node in heavy if any(value is not None and value.dtype in HALVES for value in node.inputs)]
    return len(heavy), len(half), sum(node.op_type == "Cast" for node in nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of models, separated by commas")
    only = set(filter(None, parser.parse_args().only.split(",")))
    cases = {name: case for name, case in (CASES | INPUTS | NUMERICS).items() if not only or name in only}
    print(f"| converter ({len(cases)} models) | converts | valid | accurate | coverage | casts | median s |")
    print("|---|---|---|---|---|---|---|")
    for label, (package, converter) in CONVERTERS.items():
        if importlib.util.find_spec(package) is None:
            continue
        for module in IMPORTED[package]:
            importlib.import_module(module)
        with tempfile.TemporaryDirectory() as folder:
            found = [outcome(case, converter, Path(folder)) for case in cases.values()]
        wrong = [name for name, one in zip(cases, found, strict=True) if not one.accurate]
        print(f"{label}: not accurate: {', '.join(wrong) or 'none'}", file=sys.stderr)
        right = [one for one in found if one.accurate]
        shares = [share(one, case) for one, case in zip(found, cases.values(), strict=True) if case.heavy and case.half != 0]
        columns = [sum(one.converted for one in found), sum(one.valid for one in found), len(right), f"{statistics.mean(shares):.2f}"]
        columns += [sum(one.casts for one in right), f"{statistics.median([one.seconds for one in found if one.converted] or [0.0]):.2f}"]
        print(f"| {label} | " + " | ".join(map(str, columns)) + " |", flush=True)


if __name__ == "__main__":
    main()
