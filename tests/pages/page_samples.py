"""Pages to look at: of a program with findings, of a converted model, of an adoption, of runs; with names that try to break out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mplint.cli.main import main
from mplint.compare.comparison import compare
from mplint.report.page import comparison_page
from mplint.runs.record import Run, StepLine

EVIL = "</script><img src=x onerror=alert(1)>"
PROGRAM = f'''\
import torch

TITLE = "{EVIL}"


def train(model, opt, data):
    scaler = torch.cuda.amp.GradScaler()
    for x in data:
        with torch.autocast("cuda", torch.float16):
            loss = model(x)  # {EVIL}
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
'''
HELPER = """\
import torch


def scores(x, mask):
    return x.masked_fill(~mask, -1e9)
"""
CALLER = """\
import torch

from helper import scores


def attend(x, mask):
    with torch.autocast("cuda", torch.float16):
        return scores(x @ x, mask).softmax(-1)
"""
SCRIPT = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in [(torch.randn(4, 8), torch.randn(4, 1))]:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
"""


def write_project(folder: Path) -> Path:
    """A project with findings in one file and across two."""
    for name, text in (("train.py", PROGRAM), ("helper.py", HELPER), ("attention.py", CALLER)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def write_model(path: Path, layers: int = 3, *, evil: bool = True) -> str:
    """A chain of products in layers, and a square of large numbers and an epsilon, which half can't hold: they stay float32."""
    rng = np.random.default_rng(0)
    name = EVIL if evil else "odd"
    nodes, weights, last = [], [], "x"
    for at in range(layers):
        weights.append(numpy_helper.from_array((rng.standard_normal((8, 8)) / 3).astype(np.float32), f"w{at}"))
        scope = f"/encoder/layers.{at}"
        nodes.append(helper.make_node("MatMul", [last, f"w{at}"], [f"a{at}"], name=f"{scope}/dense/MatMul"))
        nodes.append(helper.make_node("Relu", [f"a{at}"], [f"r{at}"], name=f"{scope}/Relu"))
        nodes.append(helper.make_node("Add", [f"r{at}", last], [f"s{at}"], name=f"{scope}/Add"))
        last = f"s{at}"
    weights.append(numpy_helper.from_array(np.float32(1000.0), "thousand"))
    nodes.append(helper.make_node("Mul", [last, "thousand"], ["big"], name="/head/Mul"))
    nodes.append(helper.make_node("Mul", ["big", "big"], ["square"], name=f"/head/{name}"))
    weights.append(numpy_helper.from_array(np.float32(1e-9), "epsilon"))
    nodes.append(helper.make_node("Add", ["square", "epsilon"], ["guarded"], name="/head/Guard"))
    nodes.append(helper.make_node("Sqrt", ["guarded"], ["y"], name="/head/Sqrt"))
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [4, 8]) for end in ("x", "y")]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def check_page_of(folder: Path, *options: str) -> str:
    """The page of a check of a folder."""
    report = folder / "out" / "check.html"
    report.parent.mkdir(exist_ok=True)
    main(["check", str(folder), "--isolated", "--no-cache", "-q", *options, "--report", str(report)])
    return str(report)


def conversion_page_of(folder: Path, layers: int = 3) -> str:
    """The page of a conversion."""
    source, report = write_model(folder / "model.onnx", layers), folder / "convert.html"
    assert main(["convert", source, "-o", str(folder / "half.onnx"), "--report", str(report)]) == 0
    return str(report)


def adoption_page_of(folder: Path) -> str:
    """The page of an adoption."""
    script, report = folder / "script.py", folder / "adopt.html"
    script.write_text(SCRIPT, encoding="utf-8")
    assert main(["convert", str(script), "--report", str(report)]) == 0
    return str(report)


def comparison_page_of(folder: Path, *, interrupted: bool = False, error: str = "", steps: int = 120, lost: int | None = None) -> str:
    """The page of a comparison of runs that were made up: float16 skips three steps, and its losses are no numbers from `lost` on."""
    runs = []
    for repeat in (0, 1):
        for policy, milliseconds in (("float32", 40.0), ("mixed_float16", 20.0), ("mixed_bfloat16", 25.0)):
            half = policy == "mixed_float16"
            facts = {"half": policy != "float32", "memory": 1e9, "device": "CPU", "torch": EVIL}
            facts |= {"error": error, "output": EVIL} if error and half else {}
            runs.append(Run(policy, repeat, _steps(steps, milliseconds + repeat, scaled=half, lost=lost if half else None), facts))
    report = folder / "compare.html"
    report.write_text(comparison_page(compare(runs), f"{EVIL}.py", interrupted=interrupted), encoding="utf-8")
    return str(report)


def _steps(count: int, milliseconds: float, *, scaled: bool, lost: int | None) -> tuple[StepLine, ...]:
    found, scale = [], 65536.0
    for step in range(count):
        skipped = scaled and step in (0, 1, 60)
        scale /= 2 if skipped else 1
        loss = float("nan") if lost is not None and step >= lost else 2 / (1 + step / 20)
        found.append(StepLine((900 if step == 0 else milliseconds + step % 3) / 1e3, loss, scale if scaled else None, skipped))
    return tuple(found)
