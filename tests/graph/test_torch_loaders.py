"""What the loaders say of torch's files is what torch says: dtypes, shapes, symbolic dimensions and autocast regions, op by op."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.framework
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_models import MODELS  # noqa: E402

from mplint.api import check  # noqa: E402
from mplint.config import Config  # noqa: E402
from mplint.graph.load import load_graph  # noqa: E402
from mplint.graph.model import HEAVY, GraphError, ModelGraph, Node, OpKind, Tensor  # noqa: E402


class Autocast(nn.Module):
    """A model inside an autocast region, its result in float32."""

    def __init__(self, inner: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self.dtype = inner, dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            y = self.inner(x)
        return y.float()


def exported(name: str, form: str) -> torch.export.ExportedProgram:
    build, inputs = MODELS[name]
    model = build().eval()
    shapes = None
    if form in ("bfloat16", "float16"):
        model = Autocast(model, getattr(torch, form))
    if form == "half weights":
        model, inputs = model.half(), tuple(t.half() if t.is_floating_point() else t for t in inputs)
    if form == "dynamic":
        shapes = ({0: torch.export.Dim("batch")},)
    return torch.export.export(model, inputs, dynamic_shapes=shapes)


@pytest.mark.parametrize("form", ["float32", "bfloat16", "float16", "half weights", "dynamic"])
@pytest.mark.parametrize("name", MODELS)
def test_every_operation_is_as_torch_export_has_it(name: str, form: str, tmp_path: Path) -> None:
    program = exported(name, form)
    torch.export.save(program, tmp_path / "model.pt2")
    found = load_graph(tmp_path / "model.pt2")
    compare(program, found)
    assert found.policy == (form if form.endswith("16") else None)
    compare_weights(program.state_dict, found)


@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_archives_of_older_releases_are_read(packed: int, tmp_path: Path) -> None:
    program = exported("resnet", "bfloat16")
    torch.export.save(program, tmp_path / "new.pt2")
    states = io.BytesIO()
    torch.save(program.state_dict, states)
    with zipfile.ZipFile(tmp_path / "new.pt2") as new, zipfile.ZipFile(tmp_path / "old.pt2", "w", packed) as old:
        old.writestr("serialized_exported_program.json", new.read("new/models/model.json"))
        old.writestr("serialized_state_dict.pt", states.getvalue())
        old.writestr("version", "8.9")
    found = load_graph(tmp_path / "old.pt2")
    compare(program, found)
    compare_weights(program.state_dict, found)


@pytest.mark.parametrize("name", MODELS)
def test_a_live_module_is_described_as_its_file_is(name: str) -> None:
    build, inputs = MODELS[name]
    model = Autocast(build().eval(), torch.bfloat16)
    found = load_graph((model, inputs))
    compare(torch.export.export(model, inputs), found)
    compare_weights(model.state_dict(), found)


def test_a_module_without_memory_is_exported_on_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model = nn.Sequential(*[nn.Linear(30_000, 30_000, dtype=torch.bfloat16) for _ in range(8)])
        inputs = (torch.empty(4, 30_000, dtype=torch.bfloat16),)
    found = load_graph((model, inputs))
    assert sum(tensor.nbytes or 0 for tensor in found.constants()) > 14e9
    assert [node.kind for node in found.graph.nodes] == [OpKind.MATMUL] * 8
    assert all(tensor.weights is None for tensor in found.constants())


def test_a_module_without_example_inputs_shows_its_parameters_alone() -> None:
    found = load_graph(nn.Linear(3, 2).half())
    assert [tensor.described for tensor in found.constants()] == ["float16[2, 3]", "float16[2]"]
    assert "example inputs" in found.notes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", ["traced", "scripted"])
@pytest.mark.parametrize("name", MODELS)
def test_torchscript_shows_its_operations_and_weights(name: str, how: str, dtype: torch.dtype, tmp_path: Path) -> None:
    build, inputs = MODELS[name]
    model = build().eval().to(dtype)
    inputs = tuple(value.to(dtype) if value.is_floating_point() else value for value in inputs)
    if how == "scripted" and name in ("vit", "gpt"):
        pytest.skip("torch.jit.script can't compile the attention of these modules")
    script = torch.jit.trace(model, inputs) if how == "traced" else torch.jit.script(model)
    torch.jit.save(script, tmp_path / "model.pt")
    found = load_graph(tmp_path / "model.pt")
    assert found.format == "torchscript"
    compare_weights(model.state_dict(), found)
    theirs = [node.kind().rstrip("_") for node in torch.jit.load(tmp_path / "model.pt").inlined_graph.nodes()]
    sizes = ("aten::size", "aten::len", "aten::Int", "aten::dim", "aten::add_", "aten::IntImplicit", "aten::ScalarImplicit")
    if how == "traced":
        assert [node.op_type for node in found.nodes()] == [op for op in theirs if op.startswith("aten::") and op not in sizes]
        assert [tensor.dtype for tensor in found.graph.inputs] == [str(value.dtype).removeprefix("torch.") for value in inputs]
    assert [tensor.dtype for tensor in found.graph.outputs] == [str(script(*inputs).dtype).removeprefix("torch.")]
    assert {node.compute_dtype for node in found.nodes() if node.kind in HEAVY} == {str(dtype).removeprefix("torch.")}
    assert not [node.described for node in found.nodes() if node.kind is OpKind.OPAQUE]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_state_dicts_hold_the_same_tensors(name: str, zipped: bool, tmp_path: Path) -> None:
    model = MODELS[name][0]().bfloat16()
    torch.save(model.state_dict(), tmp_path / "model.pth", _use_new_zipfile_serialization=zipped)
    compare_weights(model.state_dict(), load_graph(tmp_path / "model.pth"))


def test_views_ties_and_every_dtype_are_read(tmp_path: Path) -> None:
    base = torch.arange(24, dtype=torch.float16).reshape(4, 6)
    dtypes = (torch.float64, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.bool, torch.complex64, torch.float8_e4m3fn)
    state = {"base": base, "row": base[2], "tied": base, "turned": base.t(), "empty": base[:0]}
    state |= {str(dtype): torch.ones(3).to(dtype) for dtype in dtypes}
    torch.save(state, tmp_path / "state.pt")
    found = load_graph(tmp_path / "state.pt").graph.constants
    assert found["base"] is found["tied"]
    assert values(found["row"]).tolist() == base[2].tolist()
    assert found["turned"].shape == (6, 4)
    for dtype in dtypes:
        assert found[str(dtype)].dtype == str(dtype).removeprefix("torch.")
        assert values(found[str(dtype)]).astype("complex64").tolist() == [1, 1, 1]


def test_a_checkpoint_shows_its_optimizer_and_scaler(tmp_path: Path) -> None:
    model = nn.Linear(3, 2).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    torch.save(
        {"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, tmp_path / "c.pt"
    )
    found = load_graph(tmp_path / "c.pt")
    assert list(found.graph.constants) == ["weight", "bias"]
    assert found.optimizer is not None
    assert (found.optimizer.name, found.optimizer.loss_scaling) == ("Adam", True)
    assert {tensor.dtype for tensor in found.optimizer.tensors if tensor.shape} == {"bfloat16"}


def test_a_pickled_module_is_read_without_its_class(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2).half(), nn.BatchNorm1d(2))
    torch.save(model, tmp_path / "model.pt")
    found = load_graph(tmp_path / "model.pt")
    compare_weights(model.state_dict(), found)
    assert "Sequential" in found.notes[0]


def test_what_a_pickle_would_call_is_refused_and_not_run(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, ...]:
            return (open, (str(tmp_path / "written"), "w"))

    for zipped in (True, False):
        torch.save({"weight": torch.ones(2), "more": Payload()}, tmp_path / "bad.pt", _use_new_zipfile_serialization=zipped)
        with pytest.raises(GraphError, match=r"calls \S*open when it is loaded"):
            load_graph(tmp_path / "bad.pt")
    assert not (tmp_path / "written").exists()


def compare(program: torch.export.ExportedProgram, found: ModelGraph) -> None:
    """Every operation in order, with the dtype and shape of each of its outputs; inputs and outputs of the program."""
    theirs = [entry for entry in operations(program.graph_module) if entry[1]]
    ours = [entry for entry in described(found.nodes()) if entry[1]]
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other
    kinds = [node.op_type for node in found.nodes() if node.kind is OpKind.OPAQUE]
    assert kinds == []
    users = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    assert [tensor.name for tensor in found.graph.inputs] == users


def described(nodes: Iterator[Node]) -> Iterator[tuple[str, list[str]]]:
    for node in nodes:
        if not node.graphs:
            yield node.op_type, [tensor.described for tensor in node.outputs]


def operations(module: torch.fx.GraphModule) -> Iterator[tuple[str, list[str]]]:
    for node in module.graph.nodes:
        bodies = [getattr(module, str(arg.target)) for arg in node.all_input_nodes if arg.op == "get_attr"]
        bodies = [body for body in bodies if isinstance(body, torch.fx.GraphModule)]
        if bodies:
            for body in bodies:
                yield from operations(body)
        elif node.op == "call_function" and getattr(node.target, "_schema", None) is not None:
            value = node.meta["val"]
            users = sorted(user.args[1] for user in node.users if getattr(user.target, "__name__", "") == "getitem")
            parts = [value[place] for place in users] if isinstance(value, tuple | list) else [value]
            yield str(node.target), [text(part) for part in parts if isinstance(part, torch.Tensor)]


def text(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(str(dim) for dim in value.shape)}]"


def compare_weights(state: dict[str, torch.Tensor], found: ModelGraph) -> None:
    """Every tensor of a state dict, with its dtype, shape and values."""
    for name, value in state.items():
        tensor = found.graph.constants[name]
        assert tensor.described == text(value), name
        expected = value.detach().reshape(-1)
        if expected.dtype == torch.bfloat16:
            expected = expected.view(torch.int16)
        assert np.array_equal(values(tensor).view(expected.numpy().dtype), expected.numpy()), name


def values(tensor: Tensor) -> np.ndarray:
    assert tensor.weights is not None
    pieces = list(tensor.weights.chunks(1000))
    assert all(piece.nbytes <= 1000 for piece in pieces)
    return np.concatenate(pieces) if pieces else np.zeros(0)


def test_a_pickle_without_tensors_that_calls_is_passed_over_in_folders(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    path = folder / "training_args.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("training_args/data.pkl", b"\x80\x02ctrainer\nStrategy\nU\x05steps\x85R.")
    assert not check(str(folder), Config(isolated=True, cache=False)).findings
    (finding,) = check(str(path), Config(isolated=True, cache=False)).findings
    assert finding.code == "MP001" and "no tensors" in finding.message
