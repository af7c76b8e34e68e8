"""What `mplint convert` makes of torch programs and live modules."""

from __future__ import annotations

from pathlib import Path

import pytest

import mplint
from mplint.cli.main import main

pytestmark = pytest.mark.framework


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A small network, exported with a dynamic batch, that returns a dict."""
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3)
            self.norm = torch.nn.BatchNorm2d(8)
            self.head = torch.nn.Linear(8, 4)
            self.scale = torch.nn.Parameter(torch.ones(4))

        def forward(self, image: torch.Tensor, *, bias: torch.Tensor) -> dict[str, torch.Tensor]:
            pooled = torch.relu(self.norm(self.conv(image))).mean((2, 3))
            scores = self.head(pooled) * self.scale + bias
            return {"scores": scores, "label": scores.argmax(1)}

    batch = torch.export.Dim("batch", min=2, max=64)
    inputs = torch.randn(2, 3, 8, 8)
    shapes = {"image": {0: batch}, "bias": None}
    bias = {"bias": torch.tensor([0.0, 9.0, 0.0, 0.0])}
    made = torch.export.export(Net().eval(), (inputs,), bias, dynamic_shapes=shapes)
    torch.export.save(made, tmp_path / "a.pt2")
    return tmp_path / "a.pt2"


def test_a_program_keeps_its_signature_sizes_names_and_output_dtypes(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    target = program.with_name("b.pt2")
    assert main(["convert", str(program), "-o", str(target), "--device", "cpu"]) == 0
    assert "2 of 2 matmuls and convolutions in float16" in capsys.readouterr().out
    before, after = torch.export.load(program), torch.export.load(target)
    assert list(before.state_dict) == list(after.state_dict)
    assert [str(bounds) for bounds in after.range_constraints.values()] == ["VR[2, 64]"]
    inputs, bias = torch.randn(5, 3, 8, 8), torch.tensor([0.0, 9.0, 0.0, 0.0])
    one, other = before.module()(inputs, bias=bias), after.module()(inputs, bias=bias)
    assert other["scores"].dtype == torch.float32 and torch.equal(one["label"], other["label"])
    assert 0 < float((one["scores"] - other["scores"]).abs().max().detach()) < 0.05


def test_the_regions_are_for_the_device_that_was_asked_for(program: Path) -> None:
    graph = mplint.convert(program, device="cuda")
    target = program.with_name("b.pt2")
    graph.save(str(target))
    regions = [node for node in mplint.load_graph(target).nodes() if "autocast" in node.op_type]
    assert regions and all("cuda" in map(str, node.attributes.values()) for node in regions)


def test_what_can_not_be_converted_says_what_to_do(program: Path) -> None:
    converted = program.with_name("b.pt2")
    mplint.convert(program, device="cpu").save(str(converted))
    with pytest.raises(mplint.ConversionError, match="autocast regions already"):
        mplint.convert(converted)


def test_a_live_module_is_exported_and_converted() -> None:
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Softmax(-1)).train()
    with pytest.raises(mplint.ConversionError, match="example_inputs"):
        mplint.convert(module)
    result = mplint.convert(module, "mixed_bfloat16", example_inputs=(torch.randn(2, 8),))
    assert result.proven and (result.heavy_half, result.heavy) == (1, 1) and module.training


def test_a_live_keras_model_is_converted_and_stays_as_it_is(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    result = mplint.convert(model)
    result.save(str(tmp_path / "b.keras"))
    assert result.proven and keras.models.load_model(tmp_path / "b.keras").layers[0].compute_dtype == "float16"
    assert model.layers[0].compute_dtype == "float32"


def test_programs_are_tried_on_silence_and_outputs_that_never_move_prove_nothing() -> None:
    import torch

    class Still(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(torch.zeros_like(x))

    moving = mplint.convert(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), example_inputs=torch.randn(4, 8))
    assert moving.proven and any("zeros" in trial.sample for trial in moving.trials)
    still = mplint.convert(Still(), example_inputs=torch.randn(4, 8))
    assert still.verdict == "unproven" and "the same whatever the inputs are" in still.gaps[0]


@pytest.mark.parametrize(("slope", "verdict"), [(1e-10, "unproven"), (1e-4, "proven")])
def test_each_output_of_a_program_has_to_move_be_it_by_larger_inputs(slope: float, verdict: str) -> None:
    import torch

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            return self.first(x), torch.sigmoid(x * slope), x.new_ones(x.shape)  # the last follows no value

    result = mplint.convert(Two(), example_inputs=torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
    assert result.verdict == verdict
    assert ["the output 'sigmoid'" in gap for gap in result.gaps] == [True] * (verdict == "unproven")
