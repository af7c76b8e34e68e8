"""Where the scaler of an adopted PyTorch program stands, what it unscales, and which checkpoints hold it."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_texts import after

from mplint.adopt.adopt import adopt
from mplint.targets import Targets

HEAD = """\
import itertools

import torch
from pairs import loader
from torch import nn

device = torch.device("cuda")


"""
ROUND = """\
def run_round(model, batches, chosen):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        chosen.zero_grad()
        loss.backward()
        chosen.step()


"""


def test_an_optimizer_chosen_by_a_condition_has_its_scaler_behind_it() -> None:
    main = """\
def main(fast, batches):
    model = nn.Linear(4, 2).to(device)
    if fast:
        chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        chosen = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        run_round(model, batches, chosen)


main(len(loader) > 9, loader)
"""
    found = after(HEAD + ROUND + main)
    assert "Adam(model.parameters())\n    scaler = torch.amp.GradScaler(device.type)\n    for epoch" in found
    assert "run_round(model, batches, chosen, scaler=scaler)" in found
    assert "def run_round(model, batches, chosen, scaler):" in found


def test_an_optimizer_that_each_epoch_makes_anew_has_one_scaler_for_all() -> None:
    main = """\
def main(batches):
    model = nn.Linear(4, 2).to(device)
    for epoch in range(9):
        if epoch < 5:
            chosen = torch.optim.Adadelta(model.parameters(), lr=1.0)
        else:
            chosen = torch.optim.Adadelta(model.parameters(), lr=0.1)
        run_round(model, batches, chosen)


main(loader)
"""
    assert "    scaler = torch.amp.GradScaler(device.type)\n    for epoch in range(9):" in after(HEAD + ROUND + main)


def test_each_fold_has_a_scaler_of_its_own() -> None:
    main = """\
for fold in range(5):
    model = nn.Linear(4, 2).to(device)
    chosen = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        run_round(model, loader, chosen)
"""
    found = after(HEAD + ROUND + main)
    assert "    chosen = torch.optim.Adam(model.parameters())\n    scaler = torch.amp.GradScaler(device.type)\n" in found


def test_an_optimizer_of_several_models_is_unscaled_once_before_both_are_clipped() -> None:
    text = """\
def train(batches):
    eye, ear = nn.Linear(4, 2).to(device), nn.Linear(4, 2).to(device)
    mouth = nn.Linear(2, 4).to(device)
    senses = torch.optim.Adam(itertools.chain(eye.parameters(), ear.parameters()))
    speech = torch.optim.Adam(mouth.parameters())
    for x, y in batches:
        senses.zero_grad()
        felt = nn.functional.mse_loss(eye(x) + ear(x), y)
        felt.backward()
        nn.utils.clip_grad_norm_(eye.parameters(), 1.0)
        nn.utils.clip_grad_norm_(ear.parameters(), 1.0)
        senses.step()
        speech.zero_grad()
        said = nn.functional.mse_loss(mouth(y), x)
        said.backward()
        nn.utils.clip_grad_norm_(mouth.parameters(), 1.0)
        speech.step()


train(loader)
"""
    found = after(HEAD + text)
    assert found.count("scaler.unscale_(senses)") == 1
    assert found.count("scaler.unscale_(speech)") == 1


def test_a_checkpoint_that_a_nested_function_writes_holds_the_scaler_once() -> None:
    text = """\
def train(path, batches):
    drawer, critic = nn.Linear(4, 2).to(device), nn.Linear(2, 1).to(device)
    draws = torch.optim.Adam(drawer.parameters())
    judges = torch.optim.Adam(critic.parameters())

    def keep():
        torch.save({"drawer": drawer.state_dict(), "draws": draws.state_dict(), "judges": judges.state_dict()}, path)

    for x, y in batches:
        judges.zero_grad()
        worth = nn.functional.mse_loss(critic(drawer(x).detach()), y)
        worth.backward()
        judges.step()
        draws.zero_grad()
        wish = -critic(drawer(x)).mean()
        wish.backward()
        draws.step()
    keep()


train("last.pt", loader)
"""
    found = after(HEAD + text)
    assert found.count("scaler.state_dict()") == 1


def test_a_state_that_has_a_file_of_its_own_holds_the_scaler() -> None:
    text = """\
def train(path, batches):
    model = nn.Linear(4, 2).to(device)
    chosen = torch.optim.Adam(model.parameters())
    kept = torch.load(path)
    chosen.load_state_dict(kept["moments"])
    for x, y in batches:
        chosen.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        chosen.step()
    moments = {"moments": chosen.state_dict()}
    torch.save(moments, path)


train("last.pt", loader)
"""
    found = after(HEAD + text)
    assert '{"moments": chosen.state_dict(), "scaler": scaler.state_dict()}' in found
    assert 'scaler.load_state_dict(kept["scaler"])' in found


SPECTRUM = """\
import torch

def loudness(wave, filters):
    spectrum = torch.view_as_real(torch.stft(wave, 64, return_complex=True))
    return torch.log(torch.clamp(filters @ torch.sqrt(spectrum.pow(2).sum(-1) + 1e-9), min=1e-5))
"""


def test_spectra_are_computed_in_float32(tmp_path: Path) -> None:
    text = """\
from sounds import loudness

def train(batches, filters):
    voice = nn.Linear(256, 256).to(device)
    chosen = torch.optim.Adam(voice.parameters())
    for x, wanted in batches:
        wave = voice(x.to(device))
        heard = loudness(wave, filters)
        chosen.zero_grad()
        loss = nn.functional.l1_loss(heard, wanted)
        loss.backward()
        chosen.step()


train(loader, torch.ones(20, 33))
"""
    (tmp_path / "sounds.py").write_text(SPECTRUM)
    path = tmp_path / "train.py"
    path.write_text(HEAD + text)
    found = adopt(str(path), path.read_bytes(), "mixed_float16", Targets()).after.decode()
    assert "            wave = voice(x.to(device))\n        heard = loudness(wave.float(), filters)\n" in found


def test_sums_behind_the_loss_stay_under_autocast() -> None:
    text = """\
model = nn.Linear(4, 2).to(device)
chosen = torch.optim.Adam(model.parameters())
for x, y in loader:
    hidden = model(x)
    loss = nn.functional.mse_loss(hidden, y)
    sparsity = 0.1 * hidden.abs().sum()
    chosen.zero_grad()
    loss.backward()
    chosen.step()
    print(sparsity.item())
"""
    found = after(HEAD + text)
    assert "        sparsity = 0.1 * hidden.abs().sum()\n    chosen.zero_grad()" in found


PROJECT = {
    "train.py": """\
import torch
from torch import nn

from resuming import resume
from clipping import clip_gradient

device = torch.device("cuda")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.Adam(model.parameters())
resume(model, optimizer)
for x, y in torch.load("batches.pt"):
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    clip_gradient(model, 1.0)
    optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
""",
    "resuming.py": """\
import torch


def resume(model, optimizer):
    checkpoint = torch.load("last.pt")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
""",
}


def test_what_another_file_has_to_do_is_left_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in PROJECT.items():
        Path(name).write_text(text)
    adoption = adopt("train.py", PROJECT["train.py"].encode(), "mixed_float16", Targets())
    after = adoption.after.decode()
    assert "    scaler.unscale_(optimizer)\n    clip_gradient(model, 1.0)\n    scaler.step(optimizer)" in after  # nobody sees into it
    assert '"scaler": scaler.state_dict()' in after
    assert [(note.location.path, note.location.line) for note in adoption.left] == [("resuming.py", 7)]
    assert "MP307" in adoption.left[0].text


NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x, y):
        return nn.functional.binary_cross_entropy(torch.sigmoid(self.head(x)), y)
"""
USE = """\
import torch
from net import Net

model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
for x, y in torch.load("batches.pt"):
    loss = model(x.cuda(), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_error_in_another_file_stands_against_the_adoption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(USE)
    Path("net.py").write_text(NET)
    adoption = adopt("train.py", USE.encode(), "mixed_float16", Targets())
    assert adoption.after == adoption.before
    assert "net.py:11: MP206" in adoption.left[0].text
