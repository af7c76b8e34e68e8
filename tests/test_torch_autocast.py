"""What the autocast facts say of a program: constructions, regions, and the dtypes in force at a node."""

from __future__ import annotations

import ast
import textwrap
import tomllib
from pathlib import Path

import pytest

import mplint.data
from mplint.python.document import Document
from mplint.source.file import SourceFile
from mplint.source.torch.autocast import DEFAULT_DTYPES, Autocasts
from mplint.targets import Targets


def facts(text: str) -> tuple[SourceFile, Autocasts]:
    text = textwrap.dedent(text)
    file = SourceFile(Document("train.py", text), ast.parse(text), Targets())
    return file, file.fact(Autocasts)


def half_at_here(text: str) -> set[str]:
    """The dtypes in force at the call `here()`."""
    file, autocasts = facts("import torch\n" + textwrap.dedent(text))
    return set(autocasts.half_reaching(here(file)))


def here(file: SourceFile) -> ast.Call:
    return next(c for c in file.syntax.all(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "here")


def test_default_dtypes_are_those_of_the_table() -> None:
    table = tomllib.loads((Path(mplint.data.__file__).parent / "autocast_ops.toml").read_text())
    assert table["torch"]["default_dtype"] == DEFAULT_DTYPES


@pytest.mark.parametrize(
    ("call", "devices", "dtypes", "enabled"),
    [
        ("torch.autocast('cuda')", {"cuda"}, {"float16"}, True),
        ("torch.autocast('cuda:0', dtype=torch.bfloat16)", {"cuda"}, {"bfloat16"}, True),
        ("torch.amp.autocast('cpu')", {"cpu"}, {"bfloat16"}, True),
        ("torch.autocast(device)", {"?"}, {"?"}, True),
        ("torch.autocast(device_type='cuda', dtype=torch.bfloat16 if b else torch.float16)", {"cuda"}, {"bfloat16", "float16"}, True),
        ("torch.autocast('cuda', enabled=args.amp)", {"cuda"}, {"float16"}, "maybe"),
        ("torch.autocast('cuda', None, False)", {"cuda"}, {"float16"}, False),
        ("torch.cuda.amp.autocast(False)", {"cuda"}, {"float16"}, False),
        ("torch.cuda.amp.autocast(True, torch.bfloat16)", {"cuda"}, {"bfloat16"}, True),
        ("torch.cpu.amp.autocast()", {"cpu"}, {"bfloat16"}, True),
        ("torch.cuda.amp.autocast_mode.autocast(enabled=on)", {"cuda"}, {"float16"}, "maybe"),
        ("torch.autocast('cuda', **options)", {"cuda"}, {"?"}, "maybe"),
        ("functools.partial(torch.autocast, 'cuda', dtype=torch.float16)", {"cuda"}, {"float16"}, True),
    ],
)
def test_a_construction_is_read(call: str, devices: set[str], dtypes: set[str], enabled: object) -> None:
    _, autocasts = facts(f"import torch, functools\nx = {call}\n")
    (made,) = autocasts.constructions
    assert (set(made.devices), set(made.dtypes), made.enabled) == (devices, dtypes, enabled)
    assert autocasts.escapes(made)


@pytest.mark.parametrize(
    ("program", "half"),
    [
        ("with torch.autocast('cuda'):\n    here()", {"float16"}),
        ("with torch.autocast('cuda'):\n    pass\nhere()", set()),
        ("with torch.no_grad(), torch.autocast('cpu'):\n    here()", {"bfloat16"}),
        ("with torch.autocast('cuda'), manager(here()):\n    pass", {"float16"}),
        ("with torch.autocast('cuda'):\n    with torch.autocast('cuda', enabled=False):\n        here()", set()),
        ("with torch.autocast('cuda'):\n    with torch.autocast('cpu', enabled=False):\n        here()", {"float16"}),
        ("with torch.autocast('cuda'):\n    with torch.autocast(x.device.type, enabled=False):\n        here()", set()),
        ("with torch.autocast('cuda', dtype=torch.float32):\n    here()", set()),
        ("ctx = torch.autocast('cuda') if gpu else contextlib.nullcontext()\nwith ctx:\n    here()", {"float16"}),
        ("import functools\nac = functools.partial(torch.autocast, 'cuda', dtype=torch.bfloat16)\nwith ac():\n    here()", {"bfloat16"}),
        ("ac = torch.cuda.amp.autocast\nwith ac():\n    here()", {"float16"}),
        ("@torch.autocast('cuda')\ndef f():\n    here()", {"float16"}),
        ("torch.autocast('cuda').__enter__()\nhere()", {"float16"}),
        ("c = torch.autocast('cuda')\nc.__enter__()\nc.__exit__(None, None, None)\nhere()", set()),
        ("with ExitStack() as stack:\n    stack.enter_context(torch.autocast('cuda'))\n    here()", {"float16"}),
        ("with ExitStack() as stack:\n    stack.enter_context(torch.autocast('cuda'))\nhere()", set()),
        ("torch.set_autocast_enabled('cuda', True)\nhere()", {"float16"}),
        ("torch.set_autocast_enabled('cuda', True)\ntorch.set_autocast_enabled('cuda', False)\nhere()", set()),
        ("def helper():\n    here()\nwith torch.autocast('cuda'):\n    helper()", {"float16"}),
        ("class Net:\n    def forward(self):\n        here()\nnet = Net()\nwith torch.autocast('cuda'):\n    net()", {"float16"}),
        (
            "class T:\n    def __init__(self):\n        self.ctx = torch.autocast('cuda')\n    def f(self):\n        with self.ctx: here()",
            {"float16"},
        ),
        (
            "class T:\n    @property\n    def mode(self): return torch.autocast('cuda')\n    def f(self):\n        with self.mode: here()",
            {"float16"},
        ),
        (
            "class T:\n    def mode(self): return torch.autocast('cuda')\n    def f(self):\n        with self.mode(): here()",
            {"float16"},
        ),
        ("@contextmanager\ndef mode():\n    with torch.autocast('cuda'):\n        yield\nwith mode():\n    here()", {"float16"}),
        ("from project import smart_autocast\nwith smart_autocast(True):\n    here()", {"?"}),
        ("def f(amp_autocast):\n    with amp_autocast():\n        here()", {"?"}),
        ("from accelerate import Accelerator\na = Accelerator(mixed_precision='bf16')\nwith a.autocast():\n    here()", {"bfloat16"}),
        ("with torch.autocast('cuda'):\n    def later():\n        here()", set()),
        ("@custom_fwd(cast_inputs=torch.float32)\ndef forward(ctx, x):\n    here()", set()),
        ("with open('x') as f:\n    here()", set()),
    ],
)
def test_the_dtypes_in_force(program: str, half: set[str]) -> None:
    assert half_at_here(program) == half


def test_a_stored_autocast_knows_its_regions() -> None:
    file, autocasts = facts("import torch\nctx = torch.autocast('cuda')\nfor x in data:\n    with ctx:\n        pass\n")
    (made,) = autocasts.constructions
    assert [r.node for r in autocasts.entered(made)] == file.syntax.all(ast.With)
