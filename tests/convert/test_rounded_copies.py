"""Copies of a model with roundings in them, which are put together of parts that were written before."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx_models import model, rng

from mplint.conversion.onnx.convert import load
from mplint.conversion.onnx.instrument import Change, Stencil, _Copying
from mplint.conversion.onnx.program import analyze
from mplint.conversion.policy import Options

PLAIN = "g (float[N,64] x) => (float[N,8] y) { a = MatMul(x, W) r = Relu(a) b = Mul(r, s) y = MatMul(b, V) }"
BRANCHES = """g (float[N,64] x) => (float[N,8] y) { a = MatMul(x, W) m = ReduceMax<keepdims=0>(x) c = Greater(m, s)
    b = If (c) <then_branch = t () => (float[N,64] u) { k = Mul(a, s) u = Relu(k) },
                else_branch = e () => (float[N,64] v) { v = MatMul(a, W) }>
    y = MatMul(b, V) }"""


@pytest.mark.parametrize("text", [PLAIN, BRANCHES])
@pytest.mark.parametrize("saturating", [False, True])
def test_a_copy_of_parts_is_the_copy_that_was_written_whole(text: str, saturating: bool, tmp_path: Path) -> None:
    path = model(text, tmp_path / "a.onnx", W=rng(64, 64), V=rng(64, 8), s=rng(1)[0])
    program = analyze(load(path).model, "float16", Options())
    candidates = list(program.producers)
    stencil = Stencil(program.model, candidates, [program.halves_of(value) for value in candidates])
    for step in (1, 2, 3, 2, 1):  # the later ones are of parts that are there
        change = Change(range(0, len(candidates), step), saturating=saturating)
        whole = type(stencil.base.proto)()
        whole.CopyFrom(stencil.base.proto)
        _Copying(stencil, change).body(program.model.graph, whole.graph)
        assert list(stencil.copy(change).proto.graph.node) == list(whole.graph.node)
