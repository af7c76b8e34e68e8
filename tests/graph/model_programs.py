"""Models written as programs (`fixtures/MP*/*.model`): built by their framework and saved in the forms that their first line names.

`# forms: pt2 torchscript` or `# forms: keras h5 savedmodel` on the first line; the program makes `model`, and for torch the `inputs` that
it is called with. `# expect: MP204 warning mul` speaks of every form, `# expect pt2: …` of one; `# fixture:` lines are those of ONNX text.
"""

from __future__ import annotations

import linecache
import re
import sys
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from onnx_text import Expected, config

from mplint.api import check
from mplint.findings import Finding

FORMS = re.compile(r"^# forms: (.+)$", re.M)
EXPECT = re.compile(r"^# expect(?: ([\w ]+))?: (\w+) (\w+) (\S+)$", re.M)
SUFFIX = {"keras": ".keras", "h5": ".h5", "savedmodel": "", "pt2": ".pt2", "torchscript": ".pt", "scripted": ".pt", "onnx": ".onnx"}
KERAS = ("keras", "h5", "savedmodel")


def forms(text: str) -> list[str]:
    """The forms that a program is saved in."""
    match = FORMS.match(text)
    assert match is not None, "the first line names the forms"
    return match[1].split()


def expectations(text: str, form: str) -> list[Expected]:
    """The findings that the model must give in a form."""
    return sorted(Expected(*rest) for where, *rest in EXPECT.findall(text) if not where or form in where.split())


def save(text: str, form: str, folder: Path) -> Path:
    """The model of a program in a file."""
    path = folder / f"model{SUFFIX[form]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _save_keras(text, form, path) if form in KERAS else _save_torch(text, form, path)


def _save_keras(text: str, form: str, path: Path) -> Path:
    import keras

    keras.backend.clear_session()  # layers are numbered from 0
    names = {"keras": keras, "layers": keras.layers, "ops": keras.ops}
    try:
        exec(text, names)
    finally:
        keras.config.set_dtype_policy("float32")
    model = names["model"]
    if form == "savedmodel":
        model.export(path, verbose=False)
        return path / "saved_model.pb"
    model.save(path)
    return path


def _save_torch(text: str, form: str, path: Path) -> Path:
    import torch

    source = path.with_name("program.py")  # torch.jit.script reads the file
    source.write_text(text)
    name = f"program_{abs(hash(path))}"  # which torch keeps
    spec = spec_from_file_location(name, source)
    assert spec is not None and spec.loader is not None
    program = sys.modules[name] = module_from_spec(spec)
    vars(program).update(torch=torch, nn=torch.nn, F=torch.nn.functional)
    spec.loader.exec_module(program)
    linecache.checkcache()
    model, inputs = program.model.eval(), program.inputs
    match form:
        case "pt2":
            torch.export.save(torch.export.export(model, inputs), path)
        case "torchscript":
            torch.jit.save(torch.jit.trace(model, inputs, strict=False), path)
        case "scripted":
            torch.jit.save(torch.jit.script(model), path)
        case _:
            torch.onnx.export(model, inputs, str(path), dynamo=False, opset_version=17)
    return path


def findings(text: str, form: str, folder: Path) -> list[Finding]:
    """What is found in the model in one form."""
    result = check(str(save(text, form, folder)), config(text))
    assert not result.faults
    return list(result.findings)
