"""Mutated ONNX models: findings or MP001, never an exception, in bounded time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx_text import parse

import mplint
from mplint.config import Config

FIXTURES = sorted((Path(__file__).resolve().parents[2] / "fixtures").glob("MP*/*.onnxtxt"))
MODELS = [parse(path.read_text()).SerializeToString() for path in FIXTURES]
CONFIG = Config(select=("ALL",), cache=False, isolated=True, target="Tesla T4", runtime="tensorrt", input_ranges=(("x", (-10.0, 1e5)),))
SECONDS = 20.0  # what no mutated model of a few kilobytes may take, on however slow a machine

mutations = st.lists(
    st.tuples(st.sampled_from(("set", "flip", "delete", "insert", "repeat", "cut")), st.floats(0, 1), st.binary(min_size=1, max_size=12)),
    min_size=1,
    max_size=8,
)


def mutated(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    """`data` after all changes, each at a place given as a share of the length."""
    for kind, share, more in changes:
        place = int(share * len(data))
        match kind:
            case "set":
                data = data[:place] + more[:1] + data[place + 1 :]
            case "flip":
                data = data[:place] + bytes(b ^ more[0] for b in data[place : place + 1]) + data[place + 1 :]
            case "delete":
                data = data[:place] + data[place + len(more) :]
            case "insert":
                data = data[:place] + more + data[place:]
            case "repeat":
                data = data[:place] + data[place : place + 40] * 2 + data[place + 40 :]
            case _:
                data = data[: max(place, 1)]
    return data


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.sampled_from(MODELS), mutations)
def test_mutated_models_give_findings_or_mp001(tmp_path: Path, model: bytes, changes: list[tuple[str, float, bytes]]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(mutated(model, changes))
    started = time.monotonic()
    result = mplint.check(path, CONFIG)
    assert time.monotonic() - started < SECONDS
    assert not result.faults
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_random_bytes_are_mp001(size: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes((i * 7919 + 13) % 256 for i in range(size)))
    (finding,) = mplint.check(path, CONFIG).findings
    assert finding.code == "MP001"
    assert finding.message
