"""`mplint doctor` as a user runs it: what it prints, how it ends, and what it says of the findings of `check`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forks import Forks
from training_scripts import LOOP

from mplint.doctor.diagnosis import diagnose
from mplint.doctor.uses import BACKWARD, FUNCTION, PROBABILITIES, READ, SCALED
from mplint.findings import Confidence, Finding, Location, Related, Severity
from mplint.runs.record import Event, Run, StepLine

MISTAKEN = LOOP.replace("    scaler.unscale_(optimizer)\n", "").replace('"scaler": scaler.state_dict()', '"step": step')


def doctor(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mplint", "doctor", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=170, check=False, env={**os.environ, "COLUMNS": "100"})


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_findings_of_check_get_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MISTAKEN, encoding="utf-8")
    done = doctor("train.py", "--steps", "24", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["steps"] == 24
    assert {each["code"] for each in found["diagnoses"]} == {"MP304", "MP307"}
    verdicts = {each["code"]: each for each in found["findings"]}
    assert verdicts["MP304"]["verdict"] == "confirmed"
    assert "without the scale of 65536" in verdicts["MP304"]["evidence"]
    assert found["facts"]["operations"]["float16"] > 0
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == MISTAKEN


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_findings_outside_the_folder_of_the_script_get_a_verdict(tmp_path: Path) -> None:
    head, loop = MISTAKEN.split("for step in range", 1)
    for folder in ("scripts", "steps", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'steps'\n", encoding="utf-8")
    clip = next(line for line in loop.splitlines() if "clip_grad_norm_" in line)
    finish = ["import torch", "from torch import nn", "", "", "def finish(model, optimizer, scaler):", clip, "    scaler.step(optimizer)"]
    (tmp_path / "steps" / "finish.py").write_text("\n".join([*finish, "    scaler.update()", ""]), encoding="utf-8")
    loop = (
        loop.replace(clip, "    finish(model, optimizer, scaler)")
        .replace("    scaler.step(optimizer)\n", "")
        .replace("    scaler.update()\n", "")
    )
    way = "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).resolve().parent.parent))\n"
    way += "from steps.finish import finish\n"
    (tmp_path / "scripts" / "train.py").write_text(f"{way}{head}for step in range{loop}", encoding="utf-8")
    (tmp_path / "other" / "train.py").write_text(MISTAKEN, encoding="utf-8")
    done = doctor("scripts/train.py", "--steps", "24", "--output-format", "json", "--output-file", "run.json", cwd=tmp_path)
    assert done.returncode == 1, (done.stdout, done.stderr)
    found = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["findings"]
    assert {each["verdict"] for each in found if each["code"] == "MP304" and each["path"] == "steps/finish.py"} == {"confirmed"}
    assert {each["verdict"] for each in found if each["path"] == "other/train.py"} == {"not reached"}
    assert "in files that the run did not read: not reached" in done.stdout


JUDGED = """
import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
for step in range(24):
    inputs, targets = torch.randn(32, 16, device=device), torch.randint(0, 2, (32, 16), device=device).float()
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        outputs = model(inputs)
        scores = torch.matmul(inputs.half(), inputs.t().half())
        loss = F.binary_cross_entropy(torch.sigmoid(outputs), targets) + scores.float().square().mean() * 1e-3
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    print(loss.item())
"""


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_findings_on_regions_and_scaled_losses_get_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(JUDGED, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.mplint]\nselect = ["MP206", "MP207", "MP315"]\n', encoding="utf-8")
    done = doctor("train.py", "--steps", "12", "--every", "1", "--output-format", "json", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stdout  # all of that is worth knowing, and none a mistake on this device
    verdicts = {each["code"]: (each["verdict"], each["evidence"]) for each in json.loads(done.stdout)["findings"]}
    assert {code: verdict for code, (verdict, _) in verdicts.items()} == dict.fromkeys(("MP206", "MP207", "MP315"), "confirmed")
    assert "on a GPU this raises" in verdicts["MP206"][1]
    assert "goes into `mm`, which autocast gives that dtype itself" in verdicts["MP207"][1]
    assert "multiplied by the scale of 65536" in verdicts["MP315"][1]


OVERFLOWING = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=10)
for step in range(24):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(torch.randn(32, 16)), torch.randint(0, 4, (32,)))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_the_scale_is_told_over_time_with_the_steps_and_layers_that_overflowed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OVERFLOWING, encoding="utf-8")
    done = doctor("train.py", "--steps", "24", "--output-format", "json", "--output-file", "run.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    history, skipped = found["history"], found["history"]["skipped"]
    assert (len(history["scale"]), history["scale"][0], skipped[0]) == (24, 2.0**24, 0)
    for step, (before, after) in enumerate(zip(history["scale"], history["scale"][1:], strict=False)):
        assert after == before / 2 if step in skipped else after >= before
    infinite = {row["name"]: row["infinite"] for row in found["facts"]["gradients"]}
    assert max(infinite.values()) <= len(skipped) <= sum(infinite.values())
    text = " ".join(done.stdout.split())
    assert f"loss scale 16777216 to {history['scale'][-1]:.0f}, {len(skipped)} steps skipped: 0 to " in text
    assert "scale over time 16777216, 8388608 from step 1" in text
    assert "infinite gradients in 2." in text


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_a_torch_program_that_imports_keras_is_watched_as_one_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")  # which torch.utils.tensorboard imports, and Keras with it
    (tmp_path / "train.py").write_text(f"import keras\n{MISTAKEN}", encoding="utf-8")
    done = doctor("train.py", "--steps", "24", "--output-format", "json", cwd=tmp_path)
    facts = json.loads(done.stdout)["facts"]
    assert facts["looked_at"] > 0
    assert facts["operations"]["float16"] > 0
    (tmp_path / "train.py").write_text(f"import os\nos.environ['KERAS_BACKEND'] = 'numpy'\nimport keras\n{MISTAKEN}", encoding="utf-8")
    assert doctor("train.py", "--steps", "24", cwd=tmp_path).returncode == 1  # Keras on NumPy trains nothing here


WARNED = """
import torch
from torch import nn

model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.cuda.amp.GradScaler(enabled=False)
for step in range(12):
    optimizer.zero_grad()
    with torch.amp.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(4, 4)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step == 10:
        with torch.autocast(dtype=torch.bfloat16):
            model(torch.randn(4, 4))
"""


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_what_a_library_warns_of_or_refuses_confirms_the_finding_on_its_call(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WARNED, encoding="utf-8")
    done = doctor("train.py", "--steps", "12", "--output-format", "json", cwd=tmp_path)
    told = {each["code"]: (each["verdict"], each["evidence"]) for each in json.loads(done.stdout)["findings"]}
    assert told["MP101"][0] == "confirmed"
    assert told["MP101"][1].startswith("FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated")
    assert told["MP107"][0] == "confirmed"
    assert "device_type" in told["MP107"][1]


HASHED = """
import torch
from torch import nn


class Metric(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = 0.0

    def __hash__(self):
        return hash(self.total)  # there only once it is made, as in torchmetrics


metric = Metric()
"""


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_a_module_with_a_hash_of_its_own_is_left_alone_and_a_model_beside_the_script_is_told_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'net'\nversion = '1'\n", encoding="utf-8")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "src").mkdir()
    lines = (
        "from torch import nn",
        "class Net(nn.Linear):",
        "    def forward(self, x):",
        "        return (super().forward(x).relu() + 1e-8).log()",
    )
    model = "\n\n".join(lines)
    (tmp_path / "src" / "net.py").write_text(model, encoding="utf-8")
    script = f"import sys\n\nsys.path.append({str(tmp_path / 'src')!r})\n{HASHED}\nfrom net import Net\n{OVERFLOWING}"
    script = script.replace("nn.Linear(32, 4))", "Net(32, 4))")
    (tmp_path / "scripts" / "train.py").write_text(script, encoding="utf-8")
    done = doctor("scripts/train.py", "--steps", "12", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["steps"], found["ended"]) == (12, "steps")
    assert "NaN" not in done.stdout and "Infinity" not in done.stdout  # which JSON does not have
    infinite = [each for each in found["diagnoses"] if each["kind"] == "inf"]
    assert [(each["path"], each["line"]) for each in infinite] == [(str(tmp_path / "src" / "net.py"), 7)]


SPARED = """
import argparse
import torch
from torch import nn
from torch.nn import functional as F


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
amp = parser.parse_args().amp
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(16, 8).to(device)
weight = nn.Parameter(torch.randn(8, 16, device=device))
optimizer = torch.optim.Adam([*model.parameters(), weight], lr=1e-3)
scaler = torch.amp.GradScaler(device, enabled=amp)
for step in range(40):
    inputs, targets = torch.randn(32, 16, device=device), torch.randint(0, 2, (32, 16), device=device).float()
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16, enabled=amp):
        outputs = Product.apply(model(inputs), weight)
        loss = F.binary_cross_entropy(torch.sigmoid(outputs), targets)
    loss = scaler.scale(loss)
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    print(loss.item())
"""


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_findings_under_a_switch_that_is_off_are_refuted_with_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPARED, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.mplint]\nselect = ["MP206", "MP208", "MP315"]\n', encoding="utf-8")
    done = doctor("train.py", "--steps", "12", "--every", "1", "--output-format", "json", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    told = {each["code"]: (each["verdict"], each["evidence"]) for each in json.loads(done.stdout)["findings"]}
    assert told == {
        "MP206": ("refuted", "the loss was computed here 12 times, never inside a region of autocast that is on"),
        "MP208": ("refuted", "the function was applied 12 times, never inside a region of autocast that is on"),
        "MP315": ("refuted", "12 losses were given to a scaler that is disabled: none was multiplied by a scale in 12 steps"),
    }
    on = doctor("train.py", "--steps", "12", "--every", "1", "--output-format", "json", "--device", "cpu", "--", "--amp", cwd=tmp_path)
    told = {each["code"]: (each["verdict"], each["evidence"]) for each in json.loads(on.stdout)["findings"]}
    assert told["MP208"][0] == "confirmed"  # its backward pass ends the run
    assert "refuted" not in {verdict for verdict, _ in told.values()}


NUMBERS = """
import torch
from torch import nn

dtype = torch.float32
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(16, 8).to(device)
head = nn.Linear(8, 8).to(device).to(dtype)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-7)
for step in range(24):
    inputs, mask = torch.randn(32, 16, device=device), torch.rand(32, 8, device=device) > 0.5
    optimizer.zero_grad()
    outputs = head(model(inputs).to(dtype))
    scores = torch.where(mask, outputs, -1e9)
    weights = scores.softmax(dim=-1)
    normed = outputs / (outputs.abs().mean(dim=-1, keepdim=True) + 1e-8)
    loss = (weights * normed).float().square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.framework
@pytest.mark.timeout(240)
def test_findings_on_numbers_are_judged_by_what_ran_at_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    lines = NUMBERS.splitlines()
    findings = [finding(code, path, number) for number, line in enumerate(lines, 1) for text, code in MARKS if text in line]
    reached = ran(path, *(each.location.line or 0 for each in findings)).facts
    forks = Forks("torch")
    runs = [forks.watch(tmp_path, text, 12, every=1) for text in (NUMBERS, NUMBERS.replace("float32", "float16"))]
    forks.close()
    wide, half = (run._replace(facts={**run.facts, **reached}) for run in runs)
    off = [(each.finding.code, each.verdict, each.evidence) for each in diagnose(wide, findings).verdicts]
    assert [(code, verdict) for code, verdict, _ in off] == [(code, "refuted") for code in ("MP205", "MP204", "MP202", "MP205")]
    assert off[0][2] == "the optimizer that is made here stepped 12 times, never over float16"
    assert off[2][2] == "`softmax` ran 12 times here, each time in float32"
    on = diagnose(half, findings).verdicts
    assert [each.verdict for each in on] == ["confirmed"] * 4
    assert on[0].evidence == "the optimizer that is made here stepped 12 times over parameters in float16"
    assert on[1].evidence == "a number that is written here became infinite in float16, 12 times"
    assert on[3].evidence == "1e-08 is 0 in float16"


MARKS = (("optim.Adam(", "MP205"), ("torch.where(", "MP204"), ("softmax(", "MP202"), ("1e-8)", "MP205"))


def ranges(path: Path, *rows: tuple[str, int, str, int, int]) -> list[dict[str, object]]:
    return [
        {
            "place": [str(path), line],
            "operation": name,
            "dtype": dtype,
            "times": times,
            "given": [0.5, 9.0],
            "infinite": infinite,
            "undefined": 0,
            "zero": 0,
        }
        for name, line, dtype, times, infinite in rows
    ]


def test_counts_at_a_line_decide_by_the_dtype_and_by_what_came_of_it(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    run = ran(path, 10, 20, 30, 40, 50)
    rows = ranges(
        path, ("softmax", 10, "float16", 9, 0), ("exp", 20, "float16", 9, 2), ("where", 30, "float16", 9, 0), ("mm", 40, "float16", 9, 0)
    )
    run = run._replace(facts={**run.facts, "ranges": [*rows, *ranges(path, ("softmax", 40, "float32", 9, 0))]})
    found = diagnose(
        run, [finding(code, path, line) for code, line in (("MP202", 10), ("MP202", 20), ("MP204", 30), ("MP202", 40))]
    ).verdicts
    assert [each.verdict for each in found] == ["confirmed", "confirmed", "undecided", "refuted"]
    assert found[0].evidence.startswith(
        "`softmax` ran 9 times here in float16, on magnitudes from 0.5 to 9; nothing finite became infinite"
    )
    assert found[1].evidence.endswith("a result was infinite in 2 of them")
    (short,) = diagnose(run._replace(steps=run.steps[:2]), [finding("MP202", path, 40)]).verdicts
    assert short.verdict == "undecided"


def test_a_number_with_a_name_is_judged_where_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    run = ran(path, 10, 20)
    run = run._replace(facts={**run.facts, "ranges": ranges(path, ("div", 20, "float32", 9, 0), ("mm", 21, "float16", 9, 0))})
    used = tuple(Related(Location(str(path), line, 1, line, 2), "it guards this") for line in (20, 21))
    (verdict,) = diagnose(run, [finding("MP205", path, 10)._replace(related=used)]).verdicts
    assert (verdict.verdict, verdict.evidence) == ("refuted", "`div` ran 9 times here, each time in float32")
    (verdict,) = diagnose(run, [finding("MP202", path, 10)._replace(related=used)]).verdicts
    assert verdict.verdict == "undecided"


def test_what_is_seen_at_the_line_of_another_finding_of_the_rule_is_not_told_of_its_neighbor(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    run = ran(path, 10, 11)
    event = Event("constant-becomes-zero", {"place": [str(path), 10], "value": 1e-8, "dtype": "float16"})
    run = run._replace(events=(event,), facts={**run.facts, "ranges": ranges(path, ("maximum", 11, "float32", 9, 0))})
    first, second = diagnose(run, [finding("MP205", path, 10), finding("MP205", path, 11)]).verdicts
    assert (first.verdict, first.evidence) == ("confirmed", "1e-08 is 0 in float16")
    assert (second.verdict, second.evidence) == ("refuted", "`maximum` ran 9 times here, each time in float32")
    (alone,) = diagnose(run, [finding("MP205", path, 11)]).verdicts
    assert alone.verdict == "confirmed"  # a call may go over several lines


KERAS_NUMBERS = """
import keras
import tensorflow as tf


class Shares(keras.layers.Layer):
    def call(self, inputs):
        scores = tf.where(inputs > 0, inputs, -1e9)
        shares = tf.nn.softmax(inputs)
        return shares / (tf.abs(inputs) + 1e-8) + tf.exp(-tf.nn.relu(scores))


model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8), Shares(dtype="POLICY"), keras.layers.Dense(4, dtype="float32")])
model.compile(optimizer="adam", loss="mse")
model.fit(tf.random.normal((384, 16)), tf.zeros((384, 4)), batch_size=32, verbose=0)
"""


@pytest.mark.framework
@pytest.mark.timeout(240)
def test_findings_on_numbers_in_keras_are_judged_by_what_ran_at_their_lines(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    path = tmp_path / "train.py"
    marks = (("tf.where(", "MP204"), ("tf.nn.softmax(", "MP202"), ("1e-8)", "MP205"))
    findings = [
        finding(code, path, number) for number, line in enumerate(KERAS_NUMBERS.splitlines(), 1) for text, code in marks if text in line
    ]
    reached = ran(path, *(each.location.line or 0 for each in findings)).facts
    forks = Forks("tensorflow", "keras", KERAS_BACKEND="tensorflow")
    texts = [KERAS_NUMBERS.replace("POLICY", policy) for policy in ("float32", "mixed_float16")]
    runs = [forks.watch(tmp_path, text, 12, every=4) for text in texts]
    forks.close()
    wide, half = (diagnose(run._replace(facts={**run.facts, **reached}), findings).verdicts for run in runs)
    assert [(each.finding.code, each.verdict) for each in wide] == [(code, "refuted") for _, code in marks]
    assert wide[1].evidence.startswith("`softmax` ran") and wide[1].evidence.endswith("each time in float32")
    assert [(each.finding.code, each.verdict) for each in half] == [(code, "confirmed") for _, code in marks]
    assert "a result was infinite in" in half[0].evidence or "became infinite" in half[0].evidence
    assert "here in float16, on magnitudes from" in half[1].evidence
    assert half[2].evidence == "1e-08 is 0 in float16"


def uses(path: Path, *rows: tuple[str, int, int, int]) -> dict[str, object]:
    return {"uses": [{"kind": kind, "place": [str(path), line], "times": times, "wrong": wrong} for kind, line, times, wrong in rows]}


def test_what_was_counted_at_a_line_refutes_a_finding_and_one_wrong_use_does_not(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    run = ran(path, 10, 20, 30, 40, 50, 60)
    counted = uses(
        path, (FUNCTION, 10, 20, 20), (BACKWARD, 10, 20, 0), (FUNCTION, 20, 20, 3), (PROBABILITIES, 30, 9, 1), (PROBABILITIES, 40, 9, 0)
    )
    more = uses(path, (SCALED, 45, 20, 20), (READ, 50, 20, 0), (READ, 60, 20, 20))
    run = run._replace(facts={**run.facts, "uses": [*counted["uses"], *more["uses"]]})  # type: ignore[misc]
    findings = [finding("MP208", path, 10), finding("MP208", path, 20), finding("MP206", path, 30), finding("MP206", path, 40)]
    findings += [finding("MP315", path, 50), finding("MP315", path, 60)]
    found = [(each.verdict, each.evidence) for each in diagnose(run, findings).verdicts]
    assert [verdict for verdict, _ in found] == ["refuted", "undecided", "undecided", "refuted", "refuted", "undecided"]
    assert found[0][1].endswith("and its backward pass ran 20 times without an error")
    assert found[4][1] == "the number was read here 20 times, each time beside the scale that it is divided by"


@pytest.mark.framework
@pytest.mark.timeout(180)
def test_a_healthy_run_ends_with_zero(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP, encoding="utf-8")
    done = doctor("train.py", "--steps", "12", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Nothing wrong was seen." in done.stdout
    assert "12 steps" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("train.txt",), "only a python script"), (("missing.py",), "no such file"), (("train.py", "--steps", "0"), "too small")],
)
def test_misuse_runs_nothing(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "train.py").write_text('raise SystemExit("it ran")\n', encoding="utf-8")
    done = doctor(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr.lower()


def test_a_program_without_torch_has_nothing_to_watch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n", encoding="utf-8")
    done = doctor("train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "used neither PyTorch nor Keras" in done.stderr


def finding(code: str, path: Path, line: int) -> Finding:
    return Finding(code, "a-mistake", Severity.ERROR, Confidence.HIGH, "a mistake", Location(str(path), line, 1, line, 2))


def ran(path: Path, *lines: int, events: tuple[Event, ...] = ()) -> Run:
    steps = tuple(StepLine(0.01, 0.5, 1024.0, False) for _ in range(20))
    return Run("", 0, steps, {"ended": "steps", "reached": [[str(path), line] for line in lines], "files": [str(path)]}, events)


def test_what_a_run_says_of_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    clip = Event("clip-before-unscale", {"place": [str(path), 11], "norm": 600.0, "real": 0.6, "scale": 1000.0, "limit": 1.0})
    run = ran(path, 10, 20, 40, events=(clip,))
    findings = [finding("MP304", path, 10), finding("MP302", path, 20), finding("MP302", path, 30), finding("MP205", path, 40)]
    verdicts = [each.verdict for each in diagnose(run, findings).verdicts]
    assert verdicts == ["confirmed", "refuted", "not reached", "undecided"]


def test_a_cast_is_judged_by_the_region_and_by_who_takes_what_it_gives(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    rows = [
        {"place": [str(path), 10], "dtype": "float16", "inside": True, "products": ["mm"]},
        {"place": [str(path), 20], "dtype": "float16", "inside": False, "products": ["mm"]},
        {"place": [str(path), 30], "dtype": "float16", "inside": True, "products": []},
    ]
    run = ran(path, 10, 20, 30)
    run = run._replace(facts={**run.facts, "casts": rows})
    verdicts = diagnose(run, [finding("MP207", path, line) for line in (10, 20, 30)]).verdicts
    assert [each.verdict for each in verdicts] == ["confirmed", "refuted", "undecided"]


def test_findings_of_files_that_the_run_did_not_read_are_not_reached(tmp_path: Path) -> None:
    (verdict,) = diagnose(ran(tmp_path / "train.py"), [finding("MP304", tmp_path / "other.py", 3)]).verdicts
    assert (verdict.verdict, verdict.evidence) == ("not reached", "the run did not read this file")


def test_an_overflow_that_a_scaler_handles_is_no_mistake(tmp_path: Path) -> None:
    details = {"phase": "backward", "scaled": True, "operation": "mm", "dtype": "float16", "place": [str(tmp_path / "train.py"), 3]}
    assert diagnose(ran(tmp_path / "train.py", events=(Event("inf", details),)), []).diagnoses == ()
    alone = {**details, "scaled": False}
    assert [each.code for each in diagnose(ran(tmp_path / "train.py", events=(Event("inf", alone),)), []).diagnoses] == ["MP211"]


def test_a_size_is_judged_by_the_products_of_the_layer(tmp_path: Path) -> None:
    path = tmp_path / "train.py"

    def product(line: int, columns: int, dtype: str) -> dict[str, object]:
        missed = [columns] if columns % 8 and dtype == "float16" else []
        sizes = [32, 64, columns]
        return {"module": "fc", "place": None, "made": [str(path), line], "dtype": dtype, "sizes": sizes, "share": 0.25, "missed": missed}

    run = ran(path, 10, 20, 30)
    run = run._replace(
        facts={**run.facts, "products": [product(10, 100, "float16"), product(20, 128, "float16"), product(30, 100, "float32")]}
    )
    report = diagnose(run, [finding("MP401", path, line) for line in (10, 20, 30)])
    assert [each.verdict for each in report.verdicts] == ["confirmed", "refuted", "undecided"]
    assert "32 x 64 x 100" in report.verdicts[0].evidence and "25% of the work" in report.verdicts[0].evidence
    assert report.diagnoses == ()
