"""`mplint compare` on real scripts: each run is a process that trains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.framework, pytest.mark.timeout(300)]

TORCH = """
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
args = parser.parse_args()
model = nn.Sequential(nn.Linear(16, args.width), nn.ReLU(), nn.Linear(args.width, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
device = "cpu"
model.to(device)
for step in range(1000):
    inputs, targets = torch.randn(32, 16, device=device), torch.randint(0, 2, (32,), device=device)
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()
    print("width", args.width, "step", step, flush=True)
"""
KERAS = """
import keras
import numpy as np

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2, activation="softmax")])
model.compile("sgd", "sparse_categorical_crossentropy")
model.fit(np.ones((256, 8), "float32"), np.zeros(256, "int32"), batch_size=8, epochs=5, verbose=0)
"""
TAPE = """
import keras
import numpy as np
import tensorflow as tf

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)])
optimizer = keras.optimizers.Adam(1e-2)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
data = tf.data.Dataset.from_tensor_slices((np.random.rand(256, 8).astype("float32"), np.random.randint(0, 3, 256))).batch(16)


@tf.function{options}
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_function(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch in range(4):
    for x, y in data:
        print(float(train_step(x, y)))
"""
OWN_TORCH_LOOP = """
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)])
optimizer = keras.optimizers.Adam(1e-2)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
xs, ys = np.random.rand(256, 8).astype("float32"), np.random.randint(0, 3, 256)

for epoch in range(4):
    for at in range(0, 256, 16):
        x, y = torch.tensor(xs[at : at + 16]), torch.tensor(ys[at : at + 16])
        loss = loss_function(y, model(x, training=True))
        model.zero_grad()
        loss.backward()
        variables = model.trainable_weights
        gradients = [v.value.grad for v in variables]
        with torch.no_grad():
            optimizer.apply(gradients, variables)
        print(float(loss))
"""
MANY_STEPS_A_CALL = TAPE.replace("def train_step(x, y):", "def one(x, y):").replace(
    """for epoch in range(4):
    for x, y in data:
        print(float(train_step(x, y)))
""",
    """@tf.function
def epoch():
    for x, y in data:
        one(x, y)


for number in range(4):
    epoch()
""",
)


def mplint(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mplint", "compare", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, env={**os.environ, **environment}, check=False)


def test_a_float32_script_of_torch_is_adopted_and_compared(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TORCH, encoding="utf-8")
    options = ("--steps", "20", "--repeats", "1", "--policies", "mixed_float16,mixed_bfloat16", "--output-format", "json")
    logs = ("--tensorboard", "events", "--wandb", "probe", "--report", "page.html")
    done = mplint("train.py", *options, *logs, "--", "--width", "64", cwd=tmp_path, WANDB_MODE="offline", WANDB_SILENT="true")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    policies = found["policies"]
    assert list(policies) == ["float32", "mixed_float16", "mixed_bfloat16"]
    assert all(each["steps"] == 20 and each["seconds"] > 0 and len(each["losses"]) == 20 for each in policies.values())
    assert [each["half"] for each in policies.values()] == [False, True, True]
    assert policies["float32"]["losses"] == pytest.approx(policies["mixed_bfloat16"]["losses"], rel=0.1)  # the same seed and data
    assert policies["float32"]["losses"] != policies["mixed_bfloat16"]["losses"]
    assert policies["mixed_float16"]["scales"][0] == 65536
    assert policies["mixed_bfloat16"]["scales"][0] is None
    assert {path.name for path in (tmp_path / "events").iterdir()} == set(policies)
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 3
    assert "one run each is no proof of speed" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == TORCH


def test_a_keras_script_follows_the_policy_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KERAS, encoding="utf-8")
    done = mplint("train.py", "--steps", "20", "--repeats", "1", "--policies", "mixed_float16", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert policies["mixed_float16"]["steps"] == 20
    assert policies["mixed_float16"]["scales"][-1] is not None
    assert policies["float32"]["scales"][-1] is None
    assert policies["float32"]["loss"] == pytest.approx(policies["mixed_float16"]["loss"], rel=0.1)


@pytest.mark.parametrize(
    "source",
    [
        TAPE.replace("{options}", ""),
        TAPE.replace("{options}", "(jit_compile=True)"),
        TAPE.replace("@tf.function{options}\n", ""),
        OWN_TORCH_LOOP,
    ],
    ids=["function", "jit", "eager", "torch"],
)
def test_a_loop_of_keras_that_is_written_by_hand_is_adopted_and_timed(tmp_path: Path, source: str) -> None:
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    done = mplint("train.py", "--steps", "40", "--repeats", "1", "--policies", "mixed_float16", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    plain, mixed = policies["float32"], policies["mixed_float16"]
    assert plain["steps"] == mixed["steps"] == 40
    assert plain["losses"] == pytest.approx(mixed["losses"], rel=0.1)  # as they were before they were scaled
    assert plain["losses"] != mixed["losses"]
    assert (plain["half"], mixed["half"]) == (False, True)
    assert (plain["scales"][-1], mixed["scales"][-1]) == (None, 32768)


def test_a_function_that_makes_many_steps_shares_its_time_among_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MANY_STEPS_A_CALL.replace("{options}", ""), encoding="utf-8")
    done = mplint("train.py", "--steps", "48", "--repeats", "1", "--policies", "float32", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["policies"]["float32"]
    assert found["steps"] == 48
    assert found["seconds"] > 0
    assert len(set(found["losses"])) == 3  # of each call their mean


def test_the_first_optimizer_counts_the_steps(tmp_path: Path) -> None:
    critic = "critic = keras.optimizers.Adam(1e-3)\noptimizer = keras"
    both = "optimizer.apply_gradients(zip(gradients, model.trainable_variables))"
    source = (
        TAPE.replace("{options}", "").replace("optimizer = keras", critic).replace(both, f"{both}\n    critic.{both.partition('.')[2]}")
    )
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    done = mplint("train.py", "--steps", "90", "--repeats", "1", "--policies", "float32", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["policies"]["float32"]["steps"] == 64


def test_a_scale_that_the_program_wrote_does_nothing_in_float32(tmp_path: Path) -> None:
    wrapped = "keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))"
    source = KERAS.replace("import numpy as np\n", "import numpy as np\n\nkeras.mixed_precision.set_global_policy('mixed_float16')\n")
    source = source.replace('"softmax"', '"softmax", dtype="float32"').replace('compile("sgd"', f"compile({wrapped}")
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    done = mplint("train.py", "--steps", "20", "--repeats", "1", "--policies", "mixed_float16", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert (policies["float32"]["scales"][-1], policies["mixed_float16"]["scales"][-1]) == (None, 32768)
    assert policies["float32"]["losses"] == pytest.approx(policies["mixed_float16"]["losses"], rel=0.1)


FOR_A_GPU = (
    TORCH.replace(
        "    optimizer.zero_grad()\n", "    optimizer.zero_grad()\n    with torch.cuda.amp.autocast():\n        outputs = model(inputs)\n"
    )
    .replace("criterion(model(inputs), targets)", "criterion(outputs.float(), targets)")
    .replace("for step in", "scaler = torch.cuda.amp.GradScaler()\nfor step in")
    .replace(
        "    loss.backward()\n    optimizer.step()", "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"
    )
)


def test_regions_and_scalers_for_a_gpu_that_is_not_there_work_on_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FOR_A_GPU, encoding="utf-8")
    done = mplint("train.py", "--steps", "20", "--repeats", "1", "--output-format", "json", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert [each["half"] for each in policies.values()] == [False, True, True]
    assert [each["scales"][-1] for each in policies.values()] == [None, 65536, None]


LIGHTNING = """
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.body(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = DataLoader(TensorDataset(torch.randn(256, 16), torch.randint(0, 3, (256,))), batch_size=16)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
lightning.Trainer(max_epochs=4, accelerator="cpu", devices=1, **quiet).fit(Net(), data)
"""
TRAINER = """
import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x, labels=None):
        logits = self.body(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


data = [{"x": torch.randn(16), "labels": torch.randint(0, 3, ())} for _ in range(256)]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=16, num_train_epochs=4, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True
)
Trainer(Net(), arguments, train_dataset=data).train()
"""


@pytest.mark.parametrize(("packages", "source"), [(("lightning",), LIGHTNING), (("transformers", "accelerate"), TRAINER)])
def test_a_trainer_of_another_package_is_adopted_and_timed(tmp_path: Path, packages: tuple[str, ...], source: str) -> None:
    for package in packages:
        pytest.importorskip(package)
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    done = mplint("train.py", "--steps", "20", "--repeats", "1", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mixed_float16 is left out: train.py:" in done.stderr  # on a CPU these trainers take bfloat16 only
    policies = json.loads(done.stdout)["policies"]
    assert list(policies) == ["float32", "mixed_bfloat16"]
    assert [each["steps"] for each in policies.values()] == [20, 20]
    assert [each["half"] for each in policies.values()] == [False, True]
    assert policies["float32"]["losses"] == pytest.approx(policies["mixed_bfloat16"]["losses"], rel=0.1)


ACCELERATED = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(256, 16), torch.randint(0, 3, (256,))), batch_size=16)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _ in range(4):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""


def test_an_accelerator_that_has_no_float16_on_a_cpu_is_compared_in_bfloat16(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    (tmp_path / "train.py").write_text(ACCELERATED, encoding="utf-8")
    done = mplint("train.py", "--steps", "20", "--repeats", "1", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert [(name, each["half"]) for name, each in policies.items()] == [
        ("float32", False),
        ("mixed_float16", False),
        ("mixed_bfloat16", True),
    ]
    assert policies["float32"]["losses"] == pytest.approx(policies["mixed_bfloat16"]["losses"], rel=0.1)


FABRIC = (
    ACCELERATED.replace("from accelerate import Accelerator", "import lightning")
    .replace("accelerator = Accelerator(cpu=True)", 'fabric = lightning.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")')
    .replace(
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)", "model, optimizer = fabric.setup(model, optimizer)"
    )
    .replace("accelerator.backward", "fabric.backward")
)


def test_a_fabric_casts_what_the_model_is_given_as_the_policy_wants(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    (tmp_path / "train.py").write_text(FABRIC, encoding="utf-8")
    done = mplint("train.py", "--steps", "20", "--repeats", "1", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert [each["half"] for each in policies.values()] == [False, True, True]
    assert [each["scales"][-1] for each in policies.values()] == [None, 65536, None]


def test_a_device_that_is_not_there_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TORCH, encoding="utf-8")
    options = ("--steps", "5", "--repeats", "1", "--policies", "float32")
    done = mplint("train.py", *options, "--device", "cuda:7", cwd=tmp_path)
    assert done.returncode == 2
    assert "--device cuda:7: the program trained on the CPU" in done.stderr
    assert mplint("train.py", *options, "--device", "cpu", cwd=tmp_path).returncode == 0


def test_a_script_that_fails_is_shown_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TORCH.replace("    print(", '    raise RuntimeError("out of paper")\n    print('), encoding="utf-8")
    done = mplint("train.py", "--repeats", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: out of paper" in done.stdout
    assert "train.py:" in done.stdout


def test_a_script_that_ends_early_is_compared_over_its_own_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TORCH.replace("range(1000)", "range(9)"), encoding="utf-8")
    done = mplint("train.py", "--repeats", "1", "--policies", "mixed_bfloat16", "--output-format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["policies"]["mixed_bfloat16"]["steps"] == 9


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_an_interruption_shows_what_was_measured(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    step = f"    optimizer.step(); open({str(steps)!r}, 'a').write('.'); __import__('time').sleep(0.05)"
    (tmp_path / "train.py").write_text(TORCH.replace("    optimizer.step()", step), encoding="utf-8")
    command = [sys.executable, "-m", "mplint", "compare", "train.py", "--steps", "900", "--policies", "mixed_bfloat16"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    began = time.monotonic()
    while (not steps.exists() or steps.stat().st_size < 40) and time.monotonic() - began < 90:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "what was measured until then" in err
    assert "milliseconds a step" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train.py", "--policies", "mixed_float15"), 'did you mean "mixed_float16"?'),
        (("missing.py",), "no such file"),
        (("train.py", "--steps", "0"), "too small"),
        (("train.txt",), "only a Python script"),
        (("train.py", "--device", "gpu0"), "is none of cpu, cuda, and cuda:1"),
    ],
)
def test_misuse_runs_nothing(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "train.py").write_text('raise SystemExit("it ran")\n', encoding="utf-8")
    done = mplint(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_script_that_does_not_train_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('print("hello")\n', encoding="utf-8")
    done = mplint("train.py", "--repeats", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert "made no step that can be seen" in done.stderr
    assert done.stdout == ""
