"""Runs training scripts and gives the losses that they note down; distributed ones run in processes of their own."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mplint.adopt.adopt import adopt
from mplint.adopt.program import Adoption
from mplint.targets import Targets

FOLDER = Path(__file__).parent / "torch_scripts"
SCRIPTS = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".ipynb"))
ROOT = FOLDER.parents[2]
LIMIT = 120  # seconds for a distributed script, whose process group may hang
TRIES = 2
POLICIES = ("mixed_float16", "mixed_bfloat16")


@cache
def adopted(name: str, policy: str) -> Adoption:
    """What adoption makes of a script."""
    return adopt(name, (FOLDER / name).read_bytes(), policy, Targets())


def code_of(name: str, data: bytes) -> str:
    """The program of a script or notebook, without commands."""
    if not name.endswith(".ipynb"):
        return data.decode()
    cells = [cell for cell in json.loads(data)["cells"] if cell["cell_type"] == "code"]
    return "\n".join("".join(line for line in cell["source"] if not line.startswith("%")) for cell in cells)


def losses_of(name: str, data: bytes, scale: float | None = None) -> list[float]:
    """The losses of a run; with `scale`, loss scales begin there."""
    return losses_apart(name, data, scale) if b"init_process_group" in data else losses_here(name, data, scale)


def losses_here(name: str, data: bytes, scale: float | None) -> list[float]:
    """The losses of a run in this process."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    with beginning_at(scale), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code_of(name, data), name, "exec"), namespace)
    losses = namespace["losses"]
    assert isinstance(losses, list)
    return losses


def losses_apart(name: str, data: bytes, scale: float | None) -> list[float]:
    """The losses of a run in a process of its own; one that hangs, as gloo's now and then does, is tried once more."""
    command = [sys.executable, "-c", APART, str(FOLDER.parent), name, json.dumps(scale)]
    for last in (False,) * (TRIES - 1) + (True,):
        try:
            done = subprocess.run(command, input=data, capture_output=True, timeout=LIMIT, cwd=ROOT, check=True)
        except subprocess.TimeoutExpired:
            if last:
                raise
            continue
        losses = json.loads(done.stdout)
        assert isinstance(losses, list)
        return losses
    raise AssertionError(name)


APART = """
import json, os, sys
sys.path[:0] = [sys.argv[1]]
from torch_runs import losses_here
print(json.dumps(losses_here(sys.argv[2], sys.stdin.buffer.read(), json.loads(sys.argv[3]))), flush=True)
os._exit(0)
"""


@contextlib.contextmanager
def beginning_at(scale: float | None) -> Iterator[None]:
    """Let loss scales begin so low that no step is skipped, which makes runs comparable step by step."""
    import torch

    usual = torch.amp.GradScaler
    if scale is not None:

        class Gentle(usual):  # type: ignore[misc, valid-type]
            def __init__(self, device: str = "cuda", enabled: bool = True) -> None:
                super().__init__(device, init_scale=scale, enabled=enabled)

        torch.amp.GradScaler = Gentle  # type: ignore[misc]
    try:
        yield
    finally:
        torch.amp.GradScaler = usual  # type: ignore[misc]
