"""Casts in the graphs of torch programs: what goes to half, what stays and why, and that callers see the same program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mplint
from mplint.cli.main import main
from mplint.conversion.result import Conversion

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.framework
NAMES = (
    "convolutional",
    "mask filled",
    "mask chosen",
    "mask added",
    "norm",
    "vanishing",
    "stateful",
    "islands",
    "branching",
    "positions",
    "random",
)


def converted(
    name: str, tmp_path: Path, policy: str = "mixed_float16", **options: object
) -> tuple[Conversion, torch.export.ExportedProgram]:
    import torch

    from tests.convert.torch_cases import exported

    result = mplint.convert(exported(name, decomposed=True), policy, device="cpu", **options)
    result.save(str(tmp_path / "b.pt2"))
    return result, torch.export.load(tmp_path / "b.pt2")


def operators(program: torch.export.ExportedProgram, name: str) -> list[torch.fx.Node]:
    return [node for node in program.graph.nodes if str(node.target).startswith(f"aten.{name}.")]


@pytest.mark.parametrize("name", NAMES)
def test_programs_of_every_kind_are_proven_with_all_heavy_operators_in_half(name: str) -> None:
    from tests.convert.torch_cases import exported

    for decomposed in (False, True):
        result = mplint.convert(exported(name, decomposed=decomposed))
        assert result.proven, result.problems
        untaken = sum(why == "no sample takes this branch" for _, why in result.kept)  # each has at most one
        assert result.heavy > 0 and result.heavy - result.heavy_half <= untaken


def test_a_decomposed_program_keeps_its_names_and_halves_its_weights(tmp_path: Path) -> None:
    import torch

    from tests.convert.torch_cases import exported, made

    result, after = converted("convolutional", tmp_path)
    assert result.proven and result.casts_added == 2 and result.size_after * 2 == pytest.approx(result.size_before, abs=8)
    before = exported("convolutional", decomposed=True)
    assert list(after.state_dict) == list(before.state_dict)
    assert after.state_dict["first.weight"].dtype == torch.float16
    _, inputs = made("convolutional")
    one, other = before.module()(*inputs), after.module()(*inputs)
    assert other.dtype == torch.float32 and 0 < float((one - other).abs().max().detach()) < 0.01


def test_dynamic_sizes_stay_dynamic() -> None:
    import torch

    from tests.convert.torch_cases import made

    module, inputs = made("convolutional")
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(module, inputs, dynamic_shapes={"image": {0: batch}}).run_decompositions()
    result = mplint.convert(program)
    assert result.proven and result.heavy_half == result.heavy


def test_squares_beyond_the_range_stay_float32_and_say_how_large_they_get(tmp_path: Path) -> None:
    result, _ = converted("norm", tmp_path)
    kept = dict(result.kept)
    assert "beyond the 65504 of float16" in kept["mul (mul)"] and "sum_1 (sum)" in kept
    assert mplint.convert(tmp_path / "b.pt2").proven  # converting twice changes nothing


def test_constants_that_float16_can_not_hold_stay_float32(tmp_path: Path) -> None:
    result, _ = converted("vanishing", tmp_path)
    assert any("in float16 the epsilon 1e-09 is 0" in reason for _, reason in result.kept)


def test_a_mask_is_filled_with_the_largest_number_that_float16_has(tmp_path: Path) -> None:
    import torch

    result, after = converted("mask filled", tmp_path)
    filled = [node for name in ("full", "scalar_tensor") for node in operators(after, name) if -65504.0 in node.args]
    assert result.proven and filled and filled[0].kwargs["dtype"] == torch.float16


def test_shared_weights_stay_shared(tmp_path: Path) -> None:
    _, after = converted("mask filled", tmp_path)
    one, other = after.state_dict["embed.weight"], after.state_dict["head.weight"]
    assert one.data_ptr() == other.data_ptr() and one.element_size() == 2


def test_buffers_and_inputs_change_as_before_and_the_original_is_left_alone(tmp_path: Path) -> None:
    import torch

    from tests.convert.torch_cases import exported, made

    program = exported("stateful", decomposed=False)
    held = {name: value.clone() for name, value in program.state_dict.items()}
    result = mplint.convert(program, keep=("mean",))  # autocast keeps nothing: casts go into the graph
    assert result.proven and all(torch.equal(value, held[name]) for name, value in program.state_dict.items())
    result.save(str(tmp_path / "c.pt2"))
    after = torch.export.load(tmp_path / "c.pt2").module()
    _, (x, state) = made("stateful")
    with torch.no_grad():
        after(x, state)
    assert int(after.calls) == 1 and after.average.dtype == torch.float32 and float(state.abs().sum()) > 0


def test_random_numbers_other_precisions_and_bodies_stay_and_say_so(tmp_path: Path) -> None:
    reasons = {why for name in ("random", "islands", "branching") for _, why in converted(name, tmp_path, keep=("permute",))[0].kept}
    assert "in half it draws other random numbers" in reasons
    assert "what enters and leaves its graphs stays float32" in reasons
    assert any(why.startswith(("it has float64", "it has complex64")) for why in reasons)


def test_what_is_named_stays_float32_by_operator_module_or_node(tmp_path: Path) -> None:
    result, _ = converted("norm", tmp_path, keep=("last",))
    assert (result.heavy_half, result.heavy) == (1, 2)
    with pytest.raises(mplint.ConversionError, match="--keep frist names nothing in the model"):
        converted("norm", tmp_path, keep=("addmm", "frist"))
    result, _ = converted("norm", tmp_path, keep=("addmm",))
    assert result.heavy_half == 0 and ("addmm (addmm)", "asked to stay float32") in result.kept


def test_where_autocast_fails_its_proof_casts_go_into_the_graph() -> None:
    from tests.convert.torch_cases import exported

    result = mplint.convert(exported("norm", decomposed=False))
    assert result.proven and any("under autocast for cuda, the outputs are off" in note for note in result.notes)


def test_calibration_and_ranges_go_by_the_names_of_inputs(tmp_path: Path) -> None:
    import numpy as np

    from tests.convert.torch_cases import exported

    program = exported("norm", decomposed=True)
    np.savez(tmp_path / "data.npz", x=np.ones((4, 16), dtype=np.float32))
    small = mplint.convert(program, calibration=[str(tmp_path / "data.npz")], input_ranges={"x": (0.0, 1.0)}, keep=("last",))
    assert small.proven and small.heavy_half == 1
    with pytest.raises(mplint.ConversionError, match="no input 'y'; it takes x"):
        mplint.convert(program, input_ranges={"y": (0.0, 1.0)})
    np.savez(tmp_path / "wide.npz", x=np.ones((4, 3), dtype=np.float32))
    with pytest.raises(mplint.ConversionError, match=r"the input takes float32\[4, 16\]"):
        mplint.convert(program, calibration=[str(tmp_path / "wide.npz")])


def test_half_operators_round_as_torch_does_on_the_cpu() -> None:
    import torch

    from mplint.conversion.planner import plan
    from mplint.conversion.policy import Options, policy
    from mplint.conversion.torch.graph_pass import emulated
    from mplint.conversion.torch.program import analyze
    from mplint.conversion.torch.run import flat_run
    from mplint.conversion.torch.samples import examples
    from mplint.conversion.torch.write import write
    from tests.convert.torch_cases import exported

    wanted = policy("mixed_float16")
    program = exported("convolutional", decomposed=True)
    found = analyze(program, wanted, Options(), examples(program), "cpu")
    written = write(found, plan(found, {}), wanted)
    one, other = emulated(written, examples(program)), flat_run(written.program, examples(program))
    assert torch.allclose(torch.tensor(one[0]), torch.tensor(other[0]), atol=2e-3)


def test_the_rules_of_the_cpu_give_what_autocast_gives_on_the_cpu() -> None:
    import torch

    from mplint.conversion.policy import policy
    from mplint.conversion.torch.autocast_rules import ruled
    from mplint.conversion.torch.samples import Sample
    from mplint.conversion.torch.verify import Expected
    from tests.convert.torch_cases import exported, made

    for name in ("convolutional", "mask added", "positions"):
        module, inputs = made(name)
        with torch.no_grad():
            expected = module(*inputs)
            with torch.autocast("cpu", torch.bfloat16):
                got = module(*inputs).float()
        off = float((got - expected).abs().max() / expected.abs().max())
        followed = ruled(exported(name, decomposed=False), policy("mixed_bfloat16"), "cpu", Expected([Sample(inputs, {})], "cpu"))
        assert followed.distances[0].error == pytest.approx(off, rel=0.5, abs=1e-3)


def test_live_modules_take_one_tensor_keywords_and_dynamic_sizes() -> None:
    import torch

    from tests.convert.torch_cases import Norm

    module = Norm().train()
    module.last.eval()
    result = mplint.convert(
        module, policy="mixed_bfloat16", example_inputs=torch.randn(4, 16), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}}
    )
    assert result.proven and module.training and not module.last.training
    assert mplint.convert(module, example_inputs={"x": torch.randn(4, 16)}).proven
    with pytest.raises(mplint.ConversionError, match="can't be exported"):
        mplint.convert(module, example_inputs=(torch.randn(3),))


def test_arguments_called_like_builtins_keep_their_names(tmp_path: Path) -> None:
    import torch

    class Builtin(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, input: torch.Tensor, *, type: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.layer(input) + type, -1)

    program = torch.export.export(Builtin(), (torch.randn(2, 8),), {"type": torch.randn(8)}).run_decompositions()
    result = mplint.convert(program)
    assert result.proven and result.heavy_half == 1
    result.save(str(tmp_path / "b.pt2"))
    assert torch.export.load(tmp_path / "b.pt2").module()(torch.randn(2, 8), type=torch.randn(8)).shape == (2, 8)


def test_a_device_without_autocast_is_refused() -> None:
    from tests.convert.torch_cases import exported

    program = exported("norm", decomposed=True)
    assert mplint.convert(program, device="cuda:1").proven
    for device in ("tpu", "meta"):
        with pytest.raises(mplint.ConversionError, match="say cuda, cpu, mps, xpu"):
            mplint.convert(program, device=device)


def test_a_program_without_float32_stays_as_it_is(tmp_path: Path) -> None:
    import torch

    class Integers(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids * 2

    torch.export.save(torch.export.export(Integers(), (torch.arange(3),)), tmp_path / "a.pt2")
    assert main(["convert", str(tmp_path / "a.pt2"), "-o", str(tmp_path / "b.pt2"), "--force"]) == 3
    assert torch.export.load(tmp_path / "b.pt2").module()(torch.arange(3)).tolist() == [0, 2, 4]


def test_the_report_lists_what_stays_and_how_it_was_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    from tests.convert.torch_cases import exported

    torch.export.save(exported("norm", decomposed=True), tmp_path / "a.pt2")
    assert main(["convert", str(tmp_path / "a.pt2"), "--dry-run", "--report", str(tmp_path / "r.json")]) == 0
    assert "move_to_device_pass" in capsys.readouterr().out
    facts = json.loads((tmp_path / "r.json").read_text())
    assert facts["proven"] and facts["heavy_operations_in_half"] == 2 and facts["casts_added"] == 4
    assert facts["verified_by"][0] == "true float16 semantics on 7 samples"
    assert [item["operation"] for item in facts["kept_float32"]] == ["mul (mul)", "sum_1 (sum)", "sqrt (sqrt)"]


def test_where_not_all_operators_fit_into_the_tolerance_some_become_half_as_a_whole() -> None:
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    for layer in layers[::2]:
        torch.nn.init.normal_(layer.weight, std=0.2)
    chain = torch.nn.Sequential(*layers)
    program = torch.export.export(chain.eval(), (torch.randn(4, 64),))
    error = mplint.convert(program, device="cpu", tolerance=1.0).error
    assert error is not None
    result = mplint.convert(program, device="cpu", tolerance=0.7 * error)
    assert result.proven and 4 <= result.heavy_half < result.heavy


def test_what_is_normalized_costs_what_the_normalization_makes_of_it() -> None:
    import torch

    from mplint.conversion.policy import Options, policy
    from mplint.conversion.torch.measure import Measurement
    from mplint.conversion.torch.program import analyze, functional
    from mplint.conversion.torch.verify import expected

    torch.manual_seed(0)
    blocks = [layer for _ in range(2) for layer in (torch.nn.Conv1d(4, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.Tanh())]
    program, half = torch.export.export(torch.nn.Sequential(*blocks).eval(), (torch.randn(2, 4, 12),)), policy("mixed_float16")
    wanted = expected(program, half, Options(), "cpu", [])
    planned = analyze(functional(program), half, Options(), wanted.samples[0], "cpu")
    costs = {node.name: cost for node, cost in Measurement(planned, half, wanted).look(0).items()}
    convolutions = [cost for name, cost in costs.items() if name.startswith("conv")]
    assert len(convolutions) == 2 and min(convolutions) > 1e-6


def test_a_heavy_operation_is_tried_by_itself_once_where_not_all_fit() -> None:
    import torch

    from mplint.conversion.policy import Options, policy
    from mplint.conversion.torch.measure import Measurement, _Trials
    from mplint.conversion.torch.program import analyze, functional
    from mplint.conversion.torch.verify import expected

    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(16, 16), torch.nn.Tanh())]
    program, half = torch.export.export(torch.nn.Sequential(*layers).eval(), (torch.randn(4, 16),)), policy("mixed_float16")
    wanted = expected(program, half, Options(), "cpu", [])
    measured = Measurement(analyze(functional(program), half, Options(), wanted.samples[0], "cpu"), half, wanted)
    told: list[str] = []
    trials = _Trials(measured, told.append)
    trials.failed = [0, 1]
    group = tuple(range(3))
    assert trials.cost()(group) == trials.cost()(group) == max(measured.far(group, at).error for at in (0, 1)) > 0
    assert len(told) == 2


def test_a_device_that_rounds_more_than_was_measured_gets_a_plan_with_less_in_half(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch import nn

    from mplint.conversion.torch import graph_pass
    from mplint.conversion.torch.verify import verify

    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(32, 32), nn.Tanh())]
    tolerance, asked = 4e-3, []

    def harsher(result: Conversion, *given: object) -> None:  # as kernels that sum in half are
        verify(result, *given)  # type: ignore[arg-type]
        asked.append(result.heavy_half)
        if result.heavy_half > 4:
            result.error = 2 * tolerance
            result.problems.append("the outputs are off")

    monkeypatch.setattr(graph_pass, "verify", harsher)
    result = mplint.convert(
        nn.Sequential(*layers), "mixed_float16", example_inputs=torch.randn(4, 32), tolerance=tolerance, keep=("*tanh_7*",), device="cpu"
    )
    assert result.proven and 0 < result.heavy_half <= 4, asked
    assert asked[0] == 8 and asked[-1] == result.heavy_half and len(asked) <= 5


def test_a_sample_that_a_result_failed_on_is_planned_with_as_strictly_as_it_is_proven() -> None:
    import numpy as np

    from mplint.conversion.torch.verify import Expected

    expected = Expected([], "cpu", names=["the data", "zeros", "sample 3"], ordinary=1, given=True)  # type: ignore[arg-type]
    references = [(np.float32([8.0]),), (np.float32([1.0]),), (np.float32([1.0]),)]
    got = (np.float32([1.1]),)
    derived = expected.far(references, 2, got).error  # type: ignore[arg-type]
    expected.learned.add(2)
    learned = expected.far(references, 2, got).error  # type: ignore[arg-type]
    assert derived == pytest.approx(0.1 / 8, rel=1e-3) and learned == pytest.approx(0.1, rel=1e-3)
