"""Models as PyTorch exports them to ONNX: the loader agrees with ONNX and ONNX Runtime, and planted mistakes are found."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import onnx
import onnxruntime
import pytest

import mplint
from mplint.config import Config
from mplint.graph.model import OpKind

pytestmark = pytest.mark.framework
ISOLATED = Config(cache=False, isolated=True)


class Export(NamedTuple):
    """How a model is exported: the exporter, the opset, and the dtype that the model is cast to."""

    dynamo: bool
    opset: int
    dtype: str = "float32"


EXPORTS = (
    Export(False, 14),
    Export(False, 17),
    Export(True, 18),
    Export(True, 21),
    Export(False, 17, "float16"),
    Export(True, 18, "bfloat16"),
)
FAMILIES = ("resnet", "vit", "gpt", "tagger")
# What a half model without any care gives.
WANTED = {"resnet": {"MP201", "MP203"}, "vit": {"MP201", "MP202", "MP203"}, "gpt": {"MP201", "MP202"}, "tagger": {"MP201", "MP202"}}


def export(name: str, how: Export, path: Path) -> Path:
    """The model of a family in a file."""
    torch = pytest.importorskip("torch")
    from torch_models import MODELS

    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make().eval().to(getattr(torch, how.dtype))
    inputs = tuple(x.to(getattr(torch, how.dtype)) if x.is_floating_point() else x for x in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more = {"external_data": False, "verbose": False} if how.dynamo else {}
        torch.onnx.export(model, inputs, str(path), dynamo=how.dynamo, opset_version=how.opset, **more)
    return path


@pytest.fixture(scope="module", params=[(n, e) for n in FAMILIES for e in EXPORTS], ids=lambda p: f"{p[0]}-{'-'.join(map(str, p[1]))}")
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Export, Path]:
    name, how = request.param
    return name, how, export(name, how, tmp_path_factory.mktemp("exported") / f"{name}.onnx")


def operations(model: onnx.ModelProto) -> list[str]:
    return sorted(node.op_type for node in model.graph.node if node.op_type != "Constant")


def test_every_node_and_weight_is_there(exported: tuple[str, Export, Path]) -> None:
    path = exported[2]
    graph, model = mplint.load_graph(path), onnx.load(path)
    assert sorted(node.op_type for node in graph.nodes()) == operations(model)
    assert {t.name for t in model.graph.initializer} <= graph.graph.constants.keys()
    assert sum(t.nbytes or 0 for t in graph.constants()) >= sum(len(t.raw_data) for t in model.graph.initializer)
    assert not graph.notes


def plain(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """A dimension as ModelGraph has it: names that inference makes up say nothing."""
    if dim.HasField("dim_value"):
        return dim.dim_value
    return None if dim.dim_param.startswith("unk__") else dim.dim_param or None


def test_types_and_shapes_agree_with_onnx(exported: tuple[str, Export, Path]) -> None:
    path = exported[2]
    graph = mplint.load_graph(path)
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True).graph
    stated = {info.name: info.type.tensor_type for info in (*inferred.value_info, *inferred.output, *inferred.input)}
    compared = 0
    for node in graph.nodes():
        for tensor in node.outputs:
            if not tensor.name:
                continue
            assert tensor.dtype is not None, node.described
            about = stated.get(tensor.name)
            if about is None:
                continue
            compared += 1
            assert onnx.helper.tensor_dtype_to_np_dtype(about.elem_type).name == tensor.dtype
            if about.HasField("shape"):
                assert tensor.shape == tuple(map(plain, about.shape.dim))
    assert compared > 0


def test_inputs_and_outputs_agree_with_onnx_runtime(exported: tuple[str, Export, Path]) -> None:
    _, how, path = exported
    if how.dtype == "bfloat16":
        pytest.skip("ONNX Runtime's CPU provider lacks many bfloat16 kernels")
    graph = mplint.load_graph(path).graph
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64"}
    for ours, theirs in ((graph.inputs, session.get_inputs()), (graph.outputs, session.get_outputs())):
        assert [(t.name, t.dtype) for t in ours] == [(t.name, names[t.type]) for t in theirs]


def test_layers_have_kinds_and_paths(exported: tuple[str, Export, Path]) -> None:
    name, _, path = exported
    graph = mplint.load_graph(path)
    assert not [node.described for node in graph.nodes() if node.kind is OpKind.OPAQUE]
    products = [node for node in graph.nodes() if node.kind in (OpKind.MATMUL, OpKind.CONV, OpKind.RECURRENT)]
    assert len(products) >= {"resnet": 8, "vit": 14, "gpt": 13, "tagger": 2}[name]
    assert sum(1 for node in products if node.layer) >= len(products) // 2
    if name in ("gpt", "tagger"):
        assert any(node.kind is OpKind.EMBEDDING for node in graph.nodes())


def test_float32_models_are_clean_and_half_ones_are_not(exported: tuple[str, Export, Path]) -> None:
    name, how, path = exported
    result = mplint.check(path, ISOLATED)
    assert not result.faults
    wanted = set() if how.dtype == "float32" else WANTED[name] - ({"MP202"} if how.dtype == "bfloat16" else set())
    assert {finding.code for finding in result.findings} == wanted


def test_value_range_of_weights_streams(exported: tuple[str, Export, Path]) -> None:
    path = exported[2]
    graph = mplint.load_graph(path)
    theirs = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    for name, array in theirs.items():
        weights = graph.graph.constants[name].weights
        assert weights is not None
        assert b"".join(chunk.tobytes() for chunk in weights.chunks(1 << 12)) == array.tobytes()


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        ("scale", "MP204"),  # a constant beyond float16
        ("epsilon", "MP205"),  # an epsilon that float16 rounds to 0, before a division
        ("double", "MP601"),  # a numpy scalar that turned everything behind it into float64
        ("square", "MP202"),  # the square of an image of bytes
    ],
)
def test_planted_mistakes_are_found(mistake: str, code: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch import nn

    class Planted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 16, 3), nn.Linear(16, 8)

        def forward(self, x):  # type: ignore[no-untyped-def]
            x = x.float()
            if mistake == "square":
                return self.head(self.conv((x * 2) ** 2).mean((2, 3)))
            y = self.conv(x / 255)
            if mistake == "scale":
                y = y * 1e6
            if mistake == "epsilon":
                y = y / (y.pow(2).mean(1, keepdim=True) + 1e-10)
            y = self.head(y.mean((2, 3)))
            return y.double() * 0.5 if mistake == "double" else y

    path = tmp_path / "planted.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = (torch.zeros(1, 3, 8, 8, dtype=torch.uint8),)
        torch.onnx.export(Planted().eval(), given, str(path), dynamo=False, opset_version=17)
    assert {finding.code for finding in mplint.check(path, ISOLATED._replace(policy="mixed_float16")).findings} == {code}
    as_it_is = {finding.code for finding in mplint.check(path, ISOLATED).findings}
    assert as_it_is == ({code} if mistake == "double" else set())  # in float32 the model is right
