"""Models written as ONNX text: what stands in fixtures and in the documentation of rules.

Comments on lines of their own set targets (`# fixture: target=Tesla T4, runtime=tensorrt, policy=mixed_float16, x=0:255`) and expectations
(`# expect: MP204 error mul_3`: code, severity, node). Inputs whose names begin with `w` become weights.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx.parser
from onnx import ModelProto, TensorProto, helper, numpy_helper

from mplint.api import check
from mplint.config import Config
from mplint.findings import Finding

EXPECT = re.compile(r"^# expect: (\w+) (\w+) (\S+)$", re.M)
FIXTURE = re.compile(r"^# fixture: (.*)$", re.M)


class Expected(NamedTuple):
    """A finding that must be there."""

    code: str
    severity: str
    node: str


def expectations(text: str) -> list[Expected]:
    """The findings that a model says it must give."""
    return sorted(Expected(*match) for match in EXPECT.findall(text))


def config(text: str, **changes: object) -> Config:
    """The configuration that the model's comments ask for."""
    target = runtime = policy = None
    ranges = []
    match = FIXTURE.search(text)
    for part in match[1].split(",") if match else ():
        name, value = part.strip().split("=", 1)
        if name == "target":
            target = value
        elif name == "runtime":
            runtime = value
        elif name == "policy":
            policy = value
        else:
            low, high = value.split(":")
            ranges.append((name, (float(low), float(high))))
    made = Config(select=("ALL",), cache=False, isolated=True, target=target, runtime=runtime, input_ranges=tuple(ranges), policy=policy)
    return made._replace(**changes)  # type: ignore[arg-type]


def parse(text: str) -> ModelProto:
    """The model, with weights in the place of the inputs that begin with `w`."""
    model = onnx.parser.parse_model(re.sub(r"^\s*#.*\n", "", text, flags=re.M))
    for info in [i for i in model.graph.input if i.name.startswith("w")]:
        model.graph.input.remove(info)
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        dtype = info.type.tensor_type.elem_type
        values = np.linspace(-0.5, 0.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        if dtype == TensorProto.BFLOAT16:
            model.graph.initializer.append(helper.make_tensor(info.name, dtype, shape, values.reshape(-1)))
        else:
            model.graph.initializer.append(numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(dtype)), info.name))
    return model


def findings(text: str, folder: Path, **changes: object) -> list[Finding]:
    """What is found in the model that `text` describes."""
    path = folder / "model.onnx"
    onnx.save(parse(text), path)
    result = check(str(path), config(text, **changes))
    assert not result.faults
    return list(result.findings)
