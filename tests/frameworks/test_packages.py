"""Other packages: what the table says of them, and Python's functions that run functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from mplint.dev.coverage import coverage
from mplint.dev.facts import facts
from mplint.frameworks.packages import is_known


@pytest.mark.parametrize(
    "name", ["os.path.join", "numpy.random.RandomState", "torchvision.models.resnet18", "wandb", "torch.cuda.synchronize"]
)
def test_names_below_a_package_of_the_table_are_known(name: str) -> None:
    assert is_known(name)


@pytest.mark.parametrize("name", ["osmium.join", "apex.amp.initialize", "torch.cuda.amp.custom_fwd", "tensorflow_addons.optimizers.AdamW"])
def test_what_sets_a_precision_or_is_another_package_is_not(name: str) -> None:
    assert not is_known(name)


def events(folder: Path, program: str) -> list[tuple[int, str]]:
    (folder / "train.py").write_text(program)
    found = facts(str(folder / "train.py"), str(folder))
    return [(line.number, event.kind) for line in found.lines for event in line.events]


SPAWN = """\
import torch
import torch.multiprocessing as mp


def worker(rank, size, dtype):
    with torch.autocast("cuda", dtype=dtype):
        pass


if __name__ == "__main__":
    {call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "mp.spawn(worker, args=(2, torch.bfloat16), nprocs=2)",
        "mp.Process(target=worker, args=(0, 2), kwargs={'dtype': torch.bfloat16}).start()",
    ],
)
def test_functions_that_processes_run_are_run_with_their_arguments(tmp_path: Path, call: str) -> None:
    (tmp_path / "train.py").write_text(SPAWN.replace("{call}", call))
    found = facts(str(tmp_path / "train.py"), str(tmp_path))
    line = next(line for line in found.lines if line.number == 6)
    assert found.entries[0].script
    assert any("autocast in bfloat16" in said.words for said in line.values)


NAMED = """\
import functools
import operator
from collections import namedtuple

import torch

Pair = namedtuple("Pair", "first second")
pair = Pair(torch.zeros(2, dtype=torch.float16), second=torch.zeros(2))
one, other = pair
total = functools.reduce(operator.mul, [pair.first, 2, 1e5])
scaler = torch.amp.GradScaler("cuda")
"""


def test_named_tuples_keep_their_fields_and_reduce_runs_its_function(tmp_path: Path) -> None:
    assert (10, "constant beyond range") in events(tmp_path, NAMED)


def test_coverage_counts_calls_that_half_reaches_and_names_the_unknown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, torch, somebody\n"
        "x = torch.zeros(2, dtype=torch.float16)\n"
        "somebody.before()\n"
        "with torch.autocast('cuda'):\n"
        "    y = torch.relu(x)\n"
        "    os.makedirs('out')\n"
        "    somebody.elses(y)\n"
        "somebody.elses(x)\n"
    )
    count = coverage(str(tmp_path))
    assert count.calls == 4
    assert dict(count.unknown) == {"somebody.elses": 2}
    assert count.share == 0.5


SHAPES = """\
import torch
from einops import einsum, rearrange
from torch.autograd import Variable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

half = torch.zeros(2, 3, dtype=torch.float16, device="cuda")
a = rearrange(Variable(half), "b c -> c b")
b, lengths = pad_packed_sequence(pack_padded_sequence(half, [3, 2]))
with torch.autocast("cuda", dtype=torch.bfloat16):
    c = einsum(half, half, "b c, b d -> c d")
d = torch.Tensor([1.0])
scaler = torch.amp.GradScaler("cuda")
"""


def test_wrappers_and_shapes_keep_dtypes_and_products_take_that_of_autocast(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHAPES)
    said = {line.number: " ".join(value.words for value in line.values) for line in facts(str(tmp_path / "train.py"), str(tmp_path)).lines}
    assert said[7].startswith("tensor in float16")
    assert said[8].startswith("(tensor in float16") and "tensor in int64" in said[8]
    assert said[10].startswith("tensor in bfloat16")
    assert said[11].startswith("tensor in float32")
