"""What adoption changes in PyTorch programs."""

from __future__ import annotations

import ast

import pytest
from torch_runs import FOLDER, POLICIES, SCRIPTS, adopted, code_of
from torch_texts import LOOP, after

from mplint.adopt.adopt import adopt
from mplint.api import check_text
from mplint.findings import Severity
from mplint.targets import Targets
from mplint.versions import Versions


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
    found = adopt("train.py", text.encode(), "mixed_float16", Targets()).after.decode()
    assert "\t\twith torch.autocast(device_type=device.type, dtype=torch.float16):\r\n\t\t\tloss" in found
    assert "\n" not in found.replace("\r\n", "")


def test_an_old_torch_gets_the_names_that_it_has() -> None:
    found = after(LOOP, targets=Targets(torch=Versions.parse(">=1.12,<2.3")))
    assert 'torch.cuda.amp.GradScaler(enabled=device.type == "cuda")' in found
    assert "torch.autocast(device_type=device.type" in found
    assert "with torch.cuda.amp.autocast():" in after(LOOP, targets=Targets(torch=Versions.parse(">=1.6")))


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


def test_a_comment_about_lstms_is_no_lstm() -> None:
    comment = "# other cells: GRU, LSTM\n"
    assert "enabled=" not in after(comment + LOOP)
    assert "enabled=" in after(LOOP + "cells = {'lstm': nn.LSTM}\n")


def test_a_forward_pass_under_autocast_gets_its_scaler() -> None:
    text = after(LOOP, "mixed_bfloat16").replace("torch.bfloat16", "torch.float16")
    assert after(text) == after(LOOP)


def test_another_scaler_keeps_its_name() -> None:
    text = LOOP.replace(
        "from torch import nn\n", "from sklearn.preprocessing import StandardScaler\nfrom torch import nn\n\nscaler = StandardScaler()\n"
    )
    assert "grad_scaler = torch.amp.GradScaler(device.type)" in after(text)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_scripts_are_clean_afterwards_and_a_second_run_changes_nothing(name: str, policy: str) -> None:
    result = adopted(name, policy)
    ast.parse(code_of(name, result.after))
    found = check_text(result.after.decode(), f"train.{name.rpartition('.')[2]}")
    assert [finding for finding in found if finding.severity is not Severity.INFO] == []
    again = adopt(name, result.after, policy, Targets())
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
        "gradient_penalty",
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


def test_a_loop_that_skips_batches_without_a_finite_loss_is_adopted() -> None:
    skipped = "        if loss == 0 or not torch.isfinite(loss):\n            continue\n"
    found = after(LOOP.replace("        loss.backward()\n", f"{skipped}        loss.backward()\n"))
    assert f"{skipped}        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n" in found


def test_what_makes_data_and_what_makes_a_model_stay_outside_of_autocast() -> None:
    text = """\
import torch

device = torch.device("cuda")
wanted = torch.randn(4, 1, device=device)

class Lazy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 1)
        self.head(torch.zeros(1, 4))

    def forward(self, x):
        return self.head(x)

def batch():
    x = torch.randn(32, 4, device=device)
    return x, x.mm(wanted)

model = Lazy().to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(10):
    x, y = batch()
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    header = "    with torch.autocast(device_type=device.type, dtype=torch.bfloat16):\n"
    assert after(text, "mixed_bfloat16") == text.replace("    loss = torch", f"{header}        loss = torch")


def test_a_penalty_whose_gradients_are_differentiated_again_is_computed_in_float32() -> None:
    text = """\
import torch

device = torch.device("cuda")
critic = torch.nn.Linear(6, 1).to(device)
generator = torch.nn.Linear(3, 6).to(device)
optimizer = torch.optim.Adam(critic.parameters())

def penalty(real, fake):
    mixed = (real + fake).requires_grad_(True)
    (gradients,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (gradients.norm(2, dim=1) - 1).square().mean()

for real in loader:
    fake = generator(torch.randn(32, 3, device=device)).detach()
    score = critic(fake).mean() - critic(real).mean()
    loss = score + 10 * penalty(real, fake)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    found = after(text)
    assert (
        "    with torch.autocast(device_type=device.type, dtype=torch.float16):\n"
        "        fake = generator(torch.randn(32, 3, device=device)).detach()\n"
        "        score = critic(fake).mean() - critic(real).mean()\n"
        "    loss = score.float() + 10 * penalty(real, fake.float())\n"
        "    optimizer.zero_grad()\n"
        "    scaler.scale(loss).backward()\n"
    ) in found


def test_a_wrapped_loop_in_a_function_that_its_caller_gives_everything() -> None:
    text = """\
import torch
from tools import build_optimizer

def train(model, batches, optimizer, device):
    for x, y in batches:
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y)
        loss.backward()
        optimizer.step()

def main(model, batches):
    device = torch.device("cuda")
    optimizer, scheduler = build_optimizer(model)
    for _ in range(3):
        train(model, batches, optimizer, device)
"""
    found = after(text)
    assert "    optimizer, scheduler = build_optimizer(model)\n    scaler = torch.amp.GradScaler(device.type)\n" in found
    assert "train(model, batches, optimizer, device, scaler=scaler)" in found
