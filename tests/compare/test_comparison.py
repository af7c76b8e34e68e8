"""What is said of runs beside each other: times, losses, and how sure that is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import ModuleType

import pytest

from mplint.compare.accelerate_probe import install
from mplint.compare.comparison import compare, step_time
from mplint.compare.lightning_probe import install as install_in_lightning
from mplint.compare.loggers import log_wandb
from mplint.report.compare import compare_json, compare_text
from mplint.report.style import Style
from mplint.runs.child import Settings
from mplint.runs.record import Finished, Recorder, Run, StepLine, read_run

CURVES = (("float32", (1.0,) * 40), ("mixed_float16", (1.5,) * 40))


def run(policy: str, milliseconds: float, repeat: int = 0, *, losses: tuple[float, ...] = (), half: bool = True, **facts: object) -> Run:
    """A run of 40 steps, the first of which takes a second."""
    curve = losses or tuple(1 / (step + 1) for step in range(40))
    scale = 65536.0 if policy == "mixed_float16" else None
    steps = tuple(StepLine(1.0 if step == 0 else milliseconds / 1000, loss, scale, False) for step, loss in enumerate(curve))
    return Run(policy, repeat, steps, {"ended": "steps", "half": half and policy != "float32", "memory": 1_000_000_000, **facts})


def test_the_first_steps_do_not_count() -> None:
    assert step_time(run("float32", 20)) == pytest.approx(0.020)


def test_a_gain_is_told_with_the_range_that_repeats_leave() -> None:
    found = compare([run("float32", 20), run("mixed_float16", 10), run("float32", 24, 1), run("mixed_float16", 11, 1)])
    beside = found.compared[0]
    assert beside.verdict == "faster"
    assert (beside.least, beside.most) == (pytest.approx(20 / 11), pytest.approx(2.4))
    assert found.measured[0].spread == pytest.approx(4 / 22)


def test_a_policy_that_a_library_refuses_is_told_with_the_reason() -> None:
    refused = run("mixed_float16", 20, half=False, refused="accelerate trains in float16 on a GPU only")
    found = compare([run("float32", 20), refused, run("mixed_bfloat16", 20)])
    assert found.compared[0].verdict == "nothing ran in half precision: accelerate trains in float16 on a GPU only"
    assert "refused" not in found.compared[1].verdict and "GPU" not in found.compared[1].verdict


def test_a_policy_in_which_nothing_is_in_half_says_why_and_tells_no_speed() -> None:
    off = run("mixed_float16", 20, half=False, without_half="the program's regions of autocast are off here")
    found = compare([run("float32", 10), off])
    shown = compare_text(found, "train.py", Style())
    assert "mixed_float16: nothing ran in half precision: the program's regions of autocast are off here." in " ".join(shown.split())
    assert "times the speed" not in shown


def test_a_loss_that_lags_behind_skipped_steps_says_so() -> None:
    late = run("mixed_float16", 20, losses=CURVES[1][1])
    late = late._replace(steps=tuple(step._replace(skipped=number < 5) for number, step in enumerate(late.steps)))
    verdict = compare([run("float32", 10, losses=CURVES[0][1]), late]).compared[0].verdict
    assert verdict.endswith("its loss ends +50% away, after 5 of 40 steps were skipped to find the loss scale")


def test_a_policy_that_runs_out_of_time_is_compared_over_the_steps_it_made() -> None:
    falling = tuple(1.0 - step / 100 for step in range(40))
    short = run("mixed_float16", 20, losses=falling[:20], ended="limit", limit=60.0)
    found = compare([run("float32", 10, losses=falling), short])
    assert "away" not in found.compared[0].verdict
    assert "mixed_float16 was ended after 60 s, with 20 steps (--limit)." in compare_text(found, "train.py", Style())


def test_the_framework_that_trains_is_named() -> None:
    both = {"torch": "2.13", "keras": "3.15 on tensorflow"}
    assert compare([run("float32", 10, trained="torch", **both)]).versions == "torch 2.13"
    assert compare([run("float32", 10, **both)]).versions == "torch 2.13, keras 3.15 on tensorflow"


def test_of_runs_that_fail_at_once_nothing_but_that_is_shown() -> None:
    failed = Run("float32", 0, (), {"ended": "error", "error": "train.py:3: no data", "output": "Traceback"})
    assert compare_text(compare([failed]), "train.py", Style()) == (
        "train.py on CPU\n\nfloat32 failed: train.py:3: no data\n  | Traceback\n"
    )


@pytest.mark.parametrize(
    ("policy", "asked", "given"),
    [
        ("mixed_bfloat16", {"mixed_precision": "fp16"}, "bf16"),
        ("mixed_float16", {"mixed_precision": "bf16"}, "fp16"),
        ("float32", {"mixed_precision": "fp16"}, "no"),
        ("mixed_float16", {"mixed_precision": "no"}, "no"),
        ("mixed_float16", {"mixed_precision": "fp8"}, "fp8"),
        ("mixed_float16", {}, None),
    ],
)
def test_an_accelerator_follows_the_policy_where_the_program_asks_for_half(policy: str, asked: dict[str, str], given: str | None) -> None:
    module, made = accelerator()
    recorder = Recorder(None, 10, "")
    install(module, settings(policy), recorder)
    module.Accelerator(**asked)
    assert made == [given]


@pytest.mark.parametrize(
    ("policy", "precision", "made"),
    [
        ("mixed_float16", "bf16-mixed", ("16-mixed", None, "half")),
        ("mixed_float16", "16-mixed", ("16-mixed", "a scaler", "half")),
        ("mixed_bfloat16", "16-mixed", ("bf16-mixed", None, "half")),
        ("float32", "16-mixed", ("16-mixed", "a scaler", "torch.float32")),
    ],
)
def test_a_precision_of_lightning_follows_the_policy(policy: str, precision: str, made: tuple[str, str | None, str]) -> None:
    class MixedPrecision:
        """The interface of the plugin of Lightning, which not every machine has."""

        def __init__(self, precision: str, device: str, scaler: str | None = None) -> None:
            self.precision, self.scaler = precision, scaler
            self._desired_input_dtype = "half"

    module = ModuleType("amp")
    module.MixedPrecision = MixedPrecision  # type: ignore[attr-defined]
    install_in_lightning(module, settings(policy), Recorder(None, 10, ""))
    plugin = MixedPrecision(precision, "cpu", scaler="a scaler" if precision == "16-mixed" else None)
    assert (plugin.precision, plugin.scaler, str(plugin._desired_input_dtype)) == made


def test_an_accelerator_is_told_its_policy_by_place_and_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    module, made = accelerator()
    install(module, settings("mixed_bfloat16"), Recorder(None, 10, ""))
    module.Accelerator(True, False, "fp16")
    module.Accelerator()
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    module.Accelerator()
    assert made == ["bf16", None, "bf16"]


def accelerator() -> tuple[ModuleType, list[str | None]]:
    """A module with the interface of accelerate, which not every machine has, and the precisions that were asked of it."""
    made: list[str | None] = []

    class Accelerator:
        native_amp = False

        def __init__(self, device_placement: bool = True, split_batches: bool = False, mixed_precision: str | None = None) -> None:
            made.append(mixed_precision)

    module = ModuleType("accelerate")
    module.Accelerator = Accelerator  # type: ignore[attr-defined]
    return module, made


def settings(policy: str) -> Settings:
    return Settings("compare", ("accelerate",), "train.py", "", [], policy, 10, 0)


def test_overlapping_runs_tell_nothing() -> None:
    found = compare([run("float32", 20), run("mixed_float16", 22), run("float32", 24, 1), run("mixed_float16", 21, 1)])
    assert found.compared[0].verdict == "no faster that these runs could tell"


def test_one_run_each_is_no_proof_of_a_gain() -> None:
    found = compare([run("float32", 20), run("mixed_float16", 10)])
    assert found.compared[0].verdict == "one run each is no proof of speed"
    assert found.compared[0].speedup == pytest.approx(2)


def test_a_run_in_which_nothing_was_half_says_so() -> None:
    found = compare([run("float32", 20), run("mixed_float16", 10, half=False)])
    assert found.compared[0].verdict == "nothing ran in half precision"


def test_float16_without_a_loss_scale_says_so() -> None:
    runs = [run("float32", 20), run("mixed_float16", 10), run("float32", 20, 1)]
    bare = [each._replace(steps=tuple(step._replace(scale=None) for step in each.steps)) for each in runs]
    assert compare(bare).compared[0].verdict == "faster, without a loss scale, since the program has none"
    assert compare(runs).compared[0].verdict == "faster"


def test_a_loss_that_breaks_is_worse_than_any_gain() -> None:
    broken = (*(0.5,) * 20, *(float("nan"),) * 20)
    found = compare([run("float32", 20), run("mixed_float16", 10, losses=broken), run("float32", 20, 1)])
    assert found.measured[1].nonfinite == 20
    assert found.compared[0].verdict == "faster, and its losses are no numbers"
    assert "×" in compare_text(found, "train.py", Style())
    assert json.loads(compare_json(found))["policies"]["mixed_float16"]["losses"][-1] is None


def test_a_loss_that_ends_elsewhere_is_told() -> None:
    runs = [run(policy, 20 if policy == "float32" else 10, repeat, losses=losses) for repeat in (0, 1) for policy, losses in CURVES]
    found = compare(runs)
    assert found.compared[0].verdict == "faster, and its loss ends +50% away"


def test_a_failed_run_shows_its_error_and_the_end_of_its_output() -> None:
    failed = run("mixed_float16", 10, error="train.py:3: ValueError: no", output="Traceback\nValueError: no")
    text = compare_text(compare([run("float32", 20), failed]), "train.py", Style())
    assert "mixed_float16: failed." in " ".join(text.split()) or "mixed_float16: failed" in text
    assert "train.py:3: ValueError: no" in text
    assert "  | Traceback" in text


def test_a_recorder_ends_the_program_after_its_steps() -> None:
    stream = io.StringIO()
    recorder = Recorder(stream, 2)
    recorder.step(0.5, None)
    with pytest.raises(Finished):
        recorder.step(0.25, 1024.0, True)
    assert not isinstance(Finished(), Exception)
    assert [json.loads(line)["step"][1:] for line in stream.getvalue().splitlines()] == [[0.5, None, False], [0.25, 1024.0, True]]


def test_what_a_killed_run_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.steps"
    path.write_text('{"torch": "2.13"}\n{"step": [0.1, 0.5, null, false]}\n{"step": [0.1, 0.', encoding="utf-8")
    found = read_run(path, "float32", 0)
    assert found.steps == (StepLine(0.1, 0.5, None, False),)
    assert found.text("torch") == "2.13"
    assert read_run(tmp_path / "missing", "float32", 0).steps == ()


def test_what_is_handed_to_wandb_says_on_which_device_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    told: list[dict[str, str]] = []

    class Held:
        summary: dict[str, float] = {}

        def __enter__(self) -> Held:
            return self

        def __exit__(self, *_: object) -> None: ...

        def log(self, *_: object, **__: object) -> None: ...

    def init(**options: dict[str, str]) -> Held:
        told.append(options["config"])
        return Held()

    monkeypatch.setattr(wandb, "init", init)
    log_wandb(compare([run("float32", 20), run("mixed_float16", 10)]), "probe", "train.py")
    assert [each["policy"] for each in told] == ["float32", "mixed_float16"]
    assert {each["device"] for each in told} == {"CPU"}
