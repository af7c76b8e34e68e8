"""The Python API says when mplint itself failed, and gives what the other rules found."""

from __future__ import annotations

import warnings

import pytest

from mplint import InternalErrorWarning, check_text, fix_text
from mplint.rule import registry

PROGRAM = """\
import torch
from torch.cuda.amp import GradScaler

scaler = GradScaler()
"""


def test_no_warning_where_nothing_fails() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {f.code for f in check_text(PROGRAM)} == {"MP101", "MP115"}


@pytest.mark.parametrize("checks", ["check_source", "check_program"])
def test_a_rule_that_fails_is_a_warning_and_the_others_are_heard(checks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("bad")

    failing = next(rule for code, rule in sorted(registry().items()) if code != "MP101" and rule.checks(checks))
    monkeypatch.setattr(failing, checks, fail)
    text = PROGRAM + "".join(f"# {token}\n" for token in failing.tokens)
    with pytest.warns(InternalErrorWarning, match=f"^{failing.code} failed on .*: ValueError: bad"):
        assert "MP101" in [f.code for f in check_text(text)]
    with pytest.warns(InternalErrorWarning, match=failing.code):
        assert "torch.amp" in fix_text(text)


def test_a_graph_is_shown_by_its_size_and_not_by_its_weights() -> None:
    from mplint.graph.model import Graph, ModelGraph, Tensor

    graph = Graph("g", constants={"w": Tensor("w", "float32", (2, 2))})
    assert repr(ModelGraph("m.onnx", "onnx", graph, policy="mixed_float16")) == (
        "<ModelGraph 'm.onnx': format='onnx', nodes=0, constants=1, policy='mixed_float16'>"
    )
