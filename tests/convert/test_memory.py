"""What conversion holds in memory: weights that lie mapped, what is made of them, and the process's own allocator."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from mplint.conversion.onnx.lean import FILES, array_of, forget_pages, release
from mplint.conversion.onnx.order import put_late
from mplint.conversion.onnx.read import read


def model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A model from x to y."""
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y"))
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", [given], [made], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHTS = {"w": np.eye(8, dtype=np.float32)}


def test_what_is_made_of_weights_alone_comes_where_it_is_taken() -> None:
    nodes = [
        helper.make_node("Identity", ["w"], ["copy"]),
        helper.make_node("Transpose", ["copy"], ["turned"]),
        helper.make_node("Identity", ["w"], ["other"]),
        helper.make_node("MatMul", ["x", "w"], ["first"]),
        helper.make_node("MatMul", ["first", "other"], ["second"]),
        helper.make_node("MatMul", ["second", "turned"], ["y"]),
    ]
    made = model(nodes, WEIGHTS)
    put_late(made)
    onnx.checker.check_model(made, full_check=True)
    assert [node.output[0] for node in made.graph.node] == ["first", "other", "second", "copy", "turned", "y"]


def test_what_a_branch_takes_comes_before_it() -> None:
    shown = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    yes = helper.make_graph([helper.make_node("MatMul", ["x", "copy"], ["out"])], "yes", [], [shown])
    no = helper.make_graph([helper.make_node("Identity", ["x"], ["out"])], "no", [], [shown])
    nodes = [
        helper.make_node("Identity", ["w"], ["copy"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["which"]),
        helper.make_node("If", ["which"], ["y"], then_branch=yes, else_branch=no),
    ]
    made = model(nodes, {**WEIGHTS, "zero": np.zeros((), np.float32)})
    put_late(made)
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node] == ["ReduceSum", "Greater", "Identity", "If"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of mapped pages")
def test_pages_of_weights_are_let_go_and_read_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = str(tmp_path / "a.onnx")
    large = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    onnx.save(model([helper.make_node("Identity", ["x"], ["y"])], {"w": large}), path)
    tensor = read(path).graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    held = array_of(tensor)
    for let_go in (lambda: release(tensor), forget_pages):
        np.testing.assert_array_equal(held, large)
        assert resident(path) > 2 << 10
        let_go()
        assert resident(path) < 1 << 10
    np.testing.assert_array_equal(held, large)
    assert len(FILES) >= 1


def resident(path: str) -> int:
    """The kilobytes of a mapped file that are in memory."""
    found, inside = 0, False
    with open("/proc/self/smaps", encoding="utf-8") as stream:
        for line in stream:
            if "-" in line.split(" ", 1)[0]:
                inside = line.rstrip().endswith(path)
            elif inside and line.startswith("Rss:"):
                found += int(line.split()[1])
    return found


def test_a_library_leaves_the_allocator_alone() -> None:
    code = (
        "import mplint.conversion.memory as m; from mplint.conversion.onnx import convert; set_ = []\n"
        "class Fake:\n    def mallopt(self, *a): set_.append(a)\n    def malloc_trim(self, size): pass\n"
        "m._c_library = lambda: Fake()\nm.trim(); assert not set_\nm.give_back_at_once(); assert len(set_) == 2"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
