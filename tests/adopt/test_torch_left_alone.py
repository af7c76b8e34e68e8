"""What adoption leaves to the user in PyTorch programs, with a reason, and what it leaves to trainers."""

from __future__ import annotations

import pytest
from torch_runs import POLICIES
from torch_texts import LOOP, after, converted, reasons

from mplint.adopt.adopt import adopt
from mplint.targets import Targets


@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_adopted_mixed_precision_stays_as_it_is(policy: str) -> None:
    result = converted(after(LOOP), policy)
    assert (result.after, result.made, result.left, result.trains) == (result.before, (), (), True)


def test_a_program_that_does_not_train_has_nothing_to_adopt() -> None:
    result = converted("import torch\n\nwith torch.no_grad():\n    print(torch.nn.Linear(2, 1)(torch.zeros(1, 2)))\n")
    assert (result.after, result.trains) == (result.before, False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("torch.optim.SGD(model.parameters(), lr=0.1)", "torch.optim.LBFGS(model.parameters())"), "GradScaler takes no closures"),
        (("loss.backward()", "loss.backward(create_graph=True)"), "differentiated again"),
        (("model(x.to(device))", "model(x.to(device).double())"), "float64"),
        (("import torch\n", "import torch\nfrom torch.distributed.fsdp import fully_shard\n"), "sharded"),
        (
            ("        loss.backward()\n        optimizer.step()\n", "        deepspeed.initialize(model=model)[0].backward(loss)\n"),
            '"fp16":',
        ),
        (("        optimizer.step()\n", "        for p in model.parameters():\n            p.data.add_(p.grad, alpha=-0.1)\n"), "by hand"),
        (("        optimizer.step()\n", ""), "the step of its optimizer is not in sight"),
        (("def train", "@torch.compile\ndef train"), "is compiled as a whole"),
        (("model(x.to(device))", "targets[0]"), "is not in sight of it"),
    ],
)
def test_what_is_left_has_a_reason(change: tuple[str, str], reason: str) -> None:
    text = LOOP.replace(*change)
    if "deepspeed" in text:
        text = f"import deepspeed\n{text}"
    if "LBFGS" in text:
        text = text.replace("        optimizer.zero_grad()\n", "        def closure():\n            optimizer.zero_grad()\n")
        for line in ("loss = nn.functional.mse_loss(model(x.to(device)), y)", "loss.backward()"):
            text = text.replace(f"        {line}", f"            {line}")
        text = text.replace("        optimizer.step()\n", "            return loss\n        optimizer.step(closure)\n")
    assert reason in reasons(text)


def test_a_loss_whose_backward_is_in_another_file_is_no_loop() -> None:
    text = LOOP.replace("        loss.backward()\n        optimizer.step()\n", "        apply(loss, optimizer)\n").replace(
        "import nn", "import nn\nfrom steps import apply"
    )
    result = converted(text)
    assert result.after == result.before


def test_reinforcement_learning_that_collects_its_losses_is_left() -> None:
    text = """\
import torch
policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(policy.parameters())
saved = []

def act(state):
    saved.append(torch.log_softmax(policy(state), -1)[0])

def finish(rewards):
    losses = [-p * r for p, r in zip(saved, rewards)]
    loss = torch.stack(losses).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert "what computes `loss` is not in sight" in reasons(text)


@pytest.mark.parametrize(
    ("text", "policy", "written"),
    [
        ("import lightning as L\n\ntrainer = L.Trainer(max_epochs=1)\n", "mixed_float16", 'L.Trainer(max_epochs=1, precision="16-mixed")'),
        ("import lightning as L\n\ntrainer = L.Trainer(precision=32)\n", "mixed_bfloat16", 'L.Trainer(precision="bf16-mixed")'),
        ("from lightning.fabric import Fabric\n\nfabric = Fabric()\n", "mixed_float16", 'Fabric(precision="16-mixed")'),
        (
            "from transformers import TrainingArguments\n\na = TrainingArguments('out')\n",
            "mixed_float16",
            "TrainingArguments('out', fp16=True)",
        ),
        (
            "from transformers import TrainingArguments\n\na = TrainingArguments('out')\n",
            "mixed_bfloat16",
            "TrainingArguments('out', bf16=True)",
        ),
        ("from accelerate import Accelerator\n\na = Accelerator()\n", "mixed_float16", 'Accelerator(mixed_precision="fp16")'),
    ],
)
def test_trainers_are_switched(text: str, policy: str, written: str) -> None:
    result = converted(text, policy)
    assert written in result.after.decode()
    again = adopt("train.py", result.after, policy, Targets())
    assert again.after == result.after and not again.made and not again.left


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import lightning as L\n\nL.Trainer(**options)\n", "not all of its arguments are in sight"),
        ("import lightning as L\n\nL.Trainer(precision=args.precision)\n", "`precision` is a setting"),
        ("import pytorch_lightning as pl\n\npl.Trainer(gpus=1)\n", "Lightning 1"),
        ("from accelerate import Accelerator\n\nAccelerator(deepspeed_plugin=plugin)\n", "`deepspeed_plugin` chooses the precision"),
        ("from transformers import HfArgumentParser, TrainingArguments\n\nHfArgumentParser(TrainingArguments)\n", "`--fp16`"),
    ],
)
def test_trainers_that_are_set_elsewhere_are_left(text: str, reason: str) -> None:
    assert reason in reasons(text)


def test_a_parser_of_classes_of_ones_own_is_no_trainer_s() -> None:
    own = "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n\n@dataclass\nclass Sizes:\n    width: int\n\n"
    assert "--fp16" not in str(reasons(own + "HfArgumentParser(Sizes)\n"))
    assert "--fp16" in str(reasons(own.replace("class Sizes:", "class Sizes(TrainingArguments):") + "HfArgumentParser((Sizes,))\n"))


def test_what_runs_beside_an_adopted_loop_stays_as_it_is() -> None:
    text = """\
        import torch

        def train(self, args, loader):
            for x, y in loader:
                self.optimizer.zero_grad()
                if args.amp:
                    with torch.autocast("cuda"):
                        loss = self.criterion(self.model(x), y)
                    self.scaler.scale(loss).backward()
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
                else:
                    loss = self.criterion(self.model(x), y)
                    loss.backward()
                    self.optimizer.step()

        def evaluate(model, loader):
            with torch.no_grad():
                return [model(x).cpu().numpy() for x in loader]
    """
    found = converted(text)
    assert found.after == found.before and not found.left and found.trains


def test_a_model_that_is_cast_as_a_whole_is_left() -> None:
    assert "casts the model as a whole" in reasons(LOOP.replace("    optimizer = ", "    model.half()\n    optimizer = "))


def test_what_has_no_half_kernel_gets_float32_where_half_reaches_it() -> None:
    beside = LOOP.replace("    optimizer = ", "    torch.linalg.inv(model.weight)\n    optimizer = ")
    assert "torch.linalg.inv(model.weight)\n" in after(beside)
    inside = LOOP.replace("nn.functional.mse_loss(model(x.to(device)), y)", "torch.logdet(model(x.to(device)))")
    assert "torch.logdet(model(x.to(device)).float())" in after(inside)


def test_a_torch_program_that_only_measures_with_tensorflow_has_no_notes_on_keras() -> None:
    text = """\
        import tensorflow as tf
        import torch

        def distance(images):
            with tf.Session() as session:
                return session.run("pool:0", {"input:0": images})

        def train(model, loader):
            device = torch.device("cuda")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x.to(device)), y)
                loss.backward()
                optimizer.step()
    """
    found = converted(text)
    assert "scaler.scale(loss).backward()" in found.after.decode()
    assert [(note.location.line, note.text) for note in found.left] == []
    assert [note.location.line for note in found.made] == [13]


def test_a_closure_elsewhere_and_words_in_docstrings_stop_no_loop() -> None:
    text = (
        '"""Trains on one GPU; see the DeepSpeed version for more."""\n'
        + LOOP
        + """
device = torch.device("cuda")
second = torch.optim.LBFGS(model.parameters())

def closure():
    second.zero_grad()
    loss = nn.functional.mse_loss(model(first.to(device)), wanted)
    loss.backward()
    return loss

second.step(closure)
third = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    third.zero_grad()
    loss = nn.functional.mse_loss(model(x.to(device)), y)
    loss.backward()
    third.step()
"""
    )
    found = converted(text)
    assert found.after.decode().count("scaler.scale(loss).backward()") == 2
    assert [note.location.line for note in found.left] == [20]


COUNTED = LOOP.replace("    for x, y", "    right = torch.zeros((), device=device)\n    for x, y").replace(
    "        optimizer.step()\n", "        optimizer.step()\n        right += (y > 0).sum()\n    return right.double() / 9\n"
)


def test_what_is_counted_in_float64_stops_nothing() -> None:
    assert "scaler.step(optimizer)" in after(COUNTED)


@pytest.mark.parametrize("line", ["    model = model.double()\n", "    torch.set_default_dtype(torch.float64)\n"])
def test_a_model_in_float64_stays(line: str) -> None:
    assert "float64" in reasons(LOOP.replace("    optimizer =", f"{line}    optimizer ="))
