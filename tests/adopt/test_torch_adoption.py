"""What adoption changes in PyTorch programs, and what it leaves with a reason."""

from __future__ import annotations

import ast
import textwrap

import pytest
from torch_runs import FOLDER, POLICIES, SCRIPTS, adopted, code_of

from mplint.api import check_text
from mplint.conversion.source.adopt import adopt
from mplint.conversion.source.program import Adoption
from mplint.findings import Severity
from mplint.settings import Settings
from mplint.versions import Versions

LOOP = """\
import torch
from torch import nn

def train(model, loader, device):
    device = torch.device(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(device)), y)
        loss.backward()
        optimizer.step()
"""


def converted(text: str, policy: str = "mixed_float16", settings: Settings | None = None) -> Adoption:
    return adopt("train.py", textwrap.dedent(text).encode(), policy, settings or Settings())


def after(text: str, policy: str = "mixed_float16", settings: Settings | None = None) -> str:
    return converted(text, policy, settings).after.decode()


def reasons(text: str, policy: str = "mixed_float16") -> str:
    result = converted(text, policy)
    assert result.after == result.before
    return "\n".join(note.text for note in result.left)


def test_a_float16_loop_gets_autocast_and_a_scaler() -> None:
    assert after(LOOP) == LOOP.replace(
        "    for x, y in loader:\n", "    scaler = torch.amp.GradScaler(device.type)\n    for x, y in loader:\n"
    ).replace(
        "        loss = nn", "        with torch.autocast(device_type=device.type, dtype=torch.float16):\n            loss = nn"
    ).replace("loss.backward()", "scaler.scale(loss).backward()").replace(
        "optimizer.step()", "scaler.step(optimizer)\n        scaler.update()"
    )


def test_a_bfloat16_loop_gets_autocast_only() -> None:
    assert after(LOOP, "mixed_bfloat16") == LOOP.replace(
        "        loss = nn", "        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):\n            loss = nn"
    )


def test_line_ends_and_tabs_stay() -> None:
    text = LOOP.replace("    ", "\t").replace("\n", "\r\n")
    found = adopt("train.py", text.encode(), "mixed_float16", Settings()).after.decode()
    assert "\t\twith torch.autocast(device_type=device.type, dtype=torch.float16):\r\n\t\t\tloss" in found
    assert "\n" not in found.replace("\r\n", "")


def test_an_old_torch_gets_the_names_that_it_has() -> None:
    found = after(LOOP, settings=Settings(torch=Versions.parse(">=1.12,<2.3")))
    assert 'torch.cuda.amp.GradScaler(enabled=device.type == "cuda")' in found
    assert "torch.autocast(device_type=device.type" in found
    assert "with torch.cuda.amp.autocast():" in after(LOOP, settings=Settings(torch=Versions.parse(">=1.6")))


@pytest.mark.parametrize(
    ("device", "written"),
    [
        ('device = torch.device("cuda")', "device.type"),
        ('device = "cuda" if torch.cuda.is_available() else "cpu"', "device"),
        ("device = torch.accelerator.current_accelerator()", "device.type"),
        ('device = f"cuda:{index}"', "torch.device(device).type"),
    ],
)
def test_the_device_is_the_programs_own(device: str, written: str) -> None:
    text = f"""\
import torch
{device}
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x.to(device)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    found = after(text)
    assert f"device_type={written}, dtype" in found
    assert f"GradScaler({written})" in found


def test_a_program_that_moves_to_cuda_names_it() -> None:
    text = (
        LOOP.replace("    device = torch.device(device)\n", "    model.cuda()\n")
        .replace(".to(device)", ".cuda()")
        .replace(", device)", ")")
    )
    assert 'torch.autocast(device_type="cuda", dtype' in after(text)


def test_clipping_is_unscaled_first_and_accumulation_stays() -> None:
    found = code_of("accumulation.py", adopted("accumulation.py", "mixed_float16").after)
    clip = "            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\n"
    assert f"            scaler.unscale_(optimizer)\n{clip}            scaler.step(optimizer)\n            scaler.update()\n" in found
    assert "            loss = F.cross_entropy(logits, y)\n        loss = loss / ACCUMULATE\n        scaler.scale(loss).backward()" in found


def test_the_scaler_is_saved_and_loaded_with_the_optimizer() -> None:
    found = code_of("trainer_class.py", adopted("trainer_class.py", "mixed_float16").after)
    assert '"scaler": self.scaler.state_dict(),' in found
    assert 'self.scaler.load_state_dict(state["scaler"])' in found


def test_losses_of_probabilities_are_computed_in_float32_outside_autocast() -> None:
    found = code_of("autoencoder.py", adopted("autoencoder.py", "mixed_float16").after)
    assert "        loss = loss_function(recon_batch.float(), data, mu.float(), logvar.float())\n" in found
    assert "torch.sigmoid(self.decoder(z).float())" in found


def test_results_for_numpy_are_float32() -> None:
    assert "netG(fixed_noise).float().detach().cpu().numpy()" in code_of("gan.py", adopted("gan.py", "mixed_bfloat16").after)


def test_numbers_for_numpy_stay_numbers() -> None:
    text = (
        LOOP
        + """
def predict(model, x):
    model.eval()
    with torch.no_grad():
        classes = model(x).argmax(1)
    return classes.cpu().numpy()
"""
    )
    assert ".float()" not in after(text, "mixed_bfloat16")


def test_a_mask_that_float16_cannot_hold_is_mended_with_it() -> None:
    assert "torch.finfo(scores.dtype).min" in code_of("own_function.py", adopted("own_function.py", "mixed_float16").after)


def test_lstms_stay_in_float32_on_the_cpu() -> None:
    found = code_of("recurrent.py", adopted("recurrent.py", "mixed_float16").after)
    assert 'dtype=torch.float16, enabled=device != "cpu"):' in found
    assert 'torch.amp.GradScaler(device, enabled=device != "cpu")' in found


@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_adopted_mixed_precision_stays_as_it_is(policy: str) -> None:
    result = converted(after(LOOP), policy)
    assert (result.after, result.made, result.left, result.trains) == (result.before, (), (), True)


def test_a_forward_pass_under_autocast_gets_its_scaler() -> None:
    text = after(LOOP, "mixed_bfloat16").replace("torch.bfloat16", "torch.float16")
    assert after(text) == after(LOOP)


def test_another_scaler_keeps_its_name() -> None:
    text = LOOP.replace(
        "from torch import nn\n", "from sklearn.preprocessing import StandardScaler\nfrom torch import nn\n\nscaler = StandardScaler()\n"
    )
    assert "grad_scaler = torch.amp.GradScaler(device.type)" in after(text)


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
    again = adopt("train.py", result.after, policy, Settings())
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


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_scripts_are_clean_afterwards_and_a_second_run_changes_nothing(name: str, policy: str) -> None:
    result = adopted(name, policy)
    ast.parse(code_of(name, result.after))
    found = check_text(result.after.decode(), f"train.{name.rpartition('.')[2]}")
    assert [finding for finding in found if finding.severity is not Severity.INFO] == []
    again = adopt(name, result.after, policy, Settings())
    assert again.after == result.after
    assert not again.made
    assert [note.text for note in again.left] == [note.text for note in result.left]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_comments_and_untouched_lines_of_scripts_stay(name: str, policy: str) -> None:
    before, found = code_of(name, (FOLDER / name).read_bytes()), code_of(name, adopted(name, policy).after)
    assert [line.strip() for line in before.split("\n") if "#" in line] == [line.strip() for line in found.split("\n") if "#" in line]
    lines = iter(line.strip() for line in found.split("\n"))
    changed = (
        "backward",
        "step(",
        "float(",
        "numpy",
        "def ",
        "train",
        "sigmoid",
        "loss_function",
        "Loss",
        "cross_entropy",
        "state_dict",
        "masked_fill",
        "total[mask]",
        "index_add_",
    )
    kept = [line.strip() for line in before.split("\n") if not any(word in line for word in changed)]
    assert all(line in lines for line in kept)


def test_gradients_that_a_loop_reads_are_unscaled_once_before_it() -> None:
    norm = "        for p in model.parameters():\n            total += p.grad.norm().item() ** 2\n"
    found = after(LOOP.replace("        optimizer.step()\n", f"        total = 0.0\n{norm}        optimizer.step()\n"))
    assert f"        scaler.unscale_(optimizer)\n{norm}" in found


def test_what_a_mask_stores_has_the_dtype_of_the_tensor() -> None:
    text = LOOP.replace(
        "        loss = nn",
        "        values = torch.zeros(8, device=device)\n        with torch.no_grad():\n"
        "            values[mask] = target_net(x).max(1).values\n        loss = nn",
    ).replace(", y)\n", ", y + values)\n")
    assert "values[mask] = target_net(x).float().max(1).values" in after(text, "mixed_bfloat16")


def test_losses_that_an_object_keeps_are_scaled_where_their_gradients_are() -> None:
    text = """\
import torch

class Model:
    def __init__(self, net, device):
        self.device = torch.device(device)
        self.net = net.to(self.device)
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def forward(self):
        self.out = self.net(self.x)

    def backward(self):
        self.loss = torch.nn.functional.mse_loss(self.out, self.y)
        self.loss.backward()

    def optimize(self):
        self.forward()
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()
"""
    found = after(text)
    header = "        with torch.autocast(device_type=self.device.type, dtype=torch.float16):\n"
    assert f"{header}            self.out = self.net(self.x)\n" in found
    assert "        self.scaler.scale(self.loss).backward()\n" in found
    assert "        self.scaler.step(self.optimizer)\n        self.scaler.update()\n" in found


def test_a_list_of_results_is_cast_where_it_becomes_an_array() -> None:
    text = (
        LOOP
        + """
@torch.no_grad()
def predict(model, loader, device):
    device = torch.device(device)
    found = []
    for x in loader:
        found.append(model(x.to(device)).cpu())
    return torch.cat(found).numpy()
"""
    )
    assert "torch.cat(found).float().numpy()" in after(text, "mixed_bfloat16")


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


def test_a_scaler_gets_a_line_of_its_own_where_the_parameters_have_theirs() -> None:
    text = """\
        import torch

        def train(
            model,
            loader,
            optimizer: torch.optim.Optimizer,  # of all weights
        ):
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x.cuda()), y)
                loss.backward()
                optimizer.step()

        def main(model, loader):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(3):
                train(model, loader, optimizer)
    """
    assert "    optimizer: torch.optim.Optimizer,  # of all weights\n    scaler,\n):" in after(text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("    model.half()\n", "casts the model as a whole"),
        ("    torch.linalg.inv(model.weight)\n", "has no half kernel"),
    ],
)
def test_models_that_half_precision_cannot_run_are_left(line: str, reason: str) -> None:
    assert reason in reasons(LOOP.replace("    optimizer = ", f"{line}    optimizer = "))


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
