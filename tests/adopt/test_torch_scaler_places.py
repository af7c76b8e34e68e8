"""Where the scaler of an adopted PyTorch program stands, what it unscales, and which checkpoints hold it."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_texts import after, reasons

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


def test_optimizers_that_a_loop_steps_share_a_scaler_that_is_updated_after_it() -> None:
    text = """\
def run_round(model, batches, parts):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        model.zero_grad()
        loss.backward()
        for part in parts:
            part.step()


def built(encoder, head):
    return torch.optim.SGD(encoder.parameters(), lr=0.1), torch.optim.Adam(head.parameters())


def main(batches):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(device)
    parts = built(model[0], model[1])
    for epoch in range(9):
        run_round(model, batches, parts)


main(loader)
"""
    found = after(HEAD + text)
    assert "        for part in parts:\n            scaler.step(part)\n        scaler.update()\n" in found
    assert "    parts = built(model[0], model[1])\n    scaler = torch.amp.GradScaler(device.type)\n    for epoch" in found


CLIPPED = """\
def main(batches):
    model = nn.Linear(4, 2).to(device)
    parts = [torch.optim.SGD([model.weight], lr=0.1), torch.optim.Adam([model.bias])]
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in parts:
            part.step()


main(loader)
"""


def test_optimizers_that_a_loop_steps_are_unscaled_in_a_loop_before_a_clip() -> None:
    found = after(HEAD + CLIPPED)
    assert "        for part in parts:\n            scaler.unscale_(part)\n        nn.utils.clip_grad_norm_" in found


def test_a_function_that_is_given_its_optimizer_has_the_scaler_before_its_rounds() -> None:
    main = """\
def fit(model, batches, chosen, epochs):
    for number in range(epochs):
        run_round(model, batches, chosen)
"""
    text = (ROUND + main).replace("run_round", "train_epoch").replace("chosen", "optimizer")
    found = after(HEAD + text)
    assert "    scaler = torch.amp.GradScaler(device.type)\n    for number in range(epochs):" in found
    assert "train_epoch(model, batches, optimizer, scaler=scaler)" in found


def test_an_object_whose_method_is_given_the_optimizer_keeps_the_scaler() -> None:
    text = """\
class Trainer:
    def __init__(self, device, verbose=False):
        self.device = torch.device(device)
        self.verbose = verbose

    def do_train(self, model, batches, opt):
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x.to(self.device)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
"""
    found = after(HEAD.replace('device = torch.device("cuda")\n', "") + text)
    assert "        self.verbose = verbose\n        self.scaler = torch.amp.GradScaler(self.device.type)\n" in found
    assert "self.scaler.step(opt)" in found


BASE = """\
class Trainer:
    def __init__(self, model):
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def iterate(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x.to(device)), y)
        loss.backward()
        self.optimizer.step()


class Weighted(Trainer):
    def iterate(self, x, y, w):
        self.optimizer.zero_grad()
        loss = (nn.functional.cross_entropy(self.model(x.to(device)), y, reduction="none") * w).mean()
        loss.backward()
        self.optimizer.step()
"""


def test_a_class_uses_the_scaler_beside_the_optimizer_of_its_base() -> None:
    found = after(HEAD + BASE)
    assert found.count("self.scaler = torch.amp.GradScaler(device.type)") == 1
    assert found.count("self.scaler.step(self.optimizer)") == 2


def test_a_second_kind_of_step_leaves_its_loop_and_no_other() -> None:
    odd = BASE.replace("y, w):\n        self.optimizer.zero_grad()", "y, w):\n        self.optimizer.step_first()")
    result = adopt("train.py", (HEAD + odd).encode(), "mixed_float16", Targets())
    assert result.after.decode().count("self.scaler.step(self.optimizer)") == 1
    assert "`self.optimizer.step_first()` takes gradients" in result.left[0].text


def test_a_helper_that_loads_the_optimizer_is_given_the_scaler() -> None:
    main = """\
def restore(model, chosen, path):
    held = torch.load(path)
    model.load_state_dict(held["model"])
    chosen.load_state_dict(held["chosen"])
    return held["epoch"]


def main(batches, path):
    model = nn.Linear(4, 2).to(device)
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    first = restore(model, chosen, path) if path else 0
    for epoch in range(first, 9):
        run_round(model, batches, chosen)
        torch.save({"model": model.state_dict(), "chosen": chosen.state_dict(), "epoch": epoch}, "last.pt")


main(loader, None)
"""
    found = after(HEAD + ROUND + main)
    assert "def restore(model, chosen, path, scaler):" in found
    assert 'held["chosen"])\n    if held.get("scaler"):\n        scaler.load_state_dict(held["scaler"])\n' in found
    assert "restore(model, chosen, path, scaler=scaler)" in found


def test_a_checkpoint_file_of_the_optimizer_has_one_of_the_scaler_beside_it() -> None:
    save = '\n    def save(self, n):\n        torch.save(self.optimizer.state_dict(), f"optimizer_{n}.pt")\n'
    found = after(HEAD + BASE + save)
    assert 'torch.save(self.scaler.state_dict(), f"scaler_{n}.pt")' in found


def test_what_a_restart_lacks_is_told_and_stops_nothing() -> None:
    main = """\
def main(batches, path):
    model = nn.Linear(4, 2).to(device)
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(9):
        run_round(model, batches, chosen)
        torch.save((model.state_dict(), chosen.state_dict()), path)


main(loader, "last.pt")
"""
    result = adopt("train.py", (HEAD + ROUND + main).encode(), "mixed_float16", Targets())
    assert "scaler.step(chosen)" in result.after.decode()
    assert all("(MP307)" in note.text for note in result.left)


def test_entries_that_a_loss_reads_by_name_are_cast_before_it() -> None:
    text = """\
from nets import build


def clipped(found, wanted):
    return nn.functional.binary_cross_entropy(found["share"], wanted)


def main(batches, epochs):
    model = build().to(device)
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        found = model(x.to(device))
        loss = clipped(found, y)
        chosen.zero_grad()
        loss.backward()
        chosen.step()


main(loader, 3)
"""
    found = after(HEAD + text)
    assert '        found["share"] = found["share"].float()\n        loss = clipped(found, y)\n' in found
    assert "            found = model(x.to(device))\n" in found


def test_what_is_handed_the_model_and_gives_the_loss_runs_under_autocast() -> None:
    text = """\
from chains import build


def main(batches):
    model = nn.Linear(4, 2).to(device)
    chain = build(1000)
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, _ in batches:
        loss = chain.losses(model, x.to(device)).mean()
        chosen.zero_grad()
        loss.backward()
        chosen.step()


main(loader)
"""
    assert "            loss = chain.losses(model, x.to(device)).mean()\n" in after(HEAD + text)


def test_a_loop_that_an_optional_amp_scales_has_mixed_precision() -> None:
    text = """\
def train(model, optimizer, batches, amp=None):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        if amp is not None:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()
"""
    result = adopt("train.py", (HEAD + text).encode(), "mixed_float16", Targets())
    assert (result.after, result.left) == (result.before, ())


OWNED = """\
import torch
from torch import nn

class Judge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Linear(width, 1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.to(self.device)

    def forward(self, x):
        return self.body(x)

class Memory:
    def __init__(self):
        self.filled = 0
        self.kept = []

    def keep(self, item):
        self.kept.append(item)
        self.filled += 1

class Player:
    def __init__(self, width):
        self.memory = Memory()
        self.judge = Judge(width)
        self.width = width

    def remember(self, item):
        self.memory.keep(item)

    def learn(self, x, y):
        if self.memory.filled < 64:
            return
        x, y = x.to(self.judge.device), y.to(self.judge.device)
        loss = nn.functional.mse_loss(self.judge(x), y)
        self.judge.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.judge.parameters(), 1.0)
        self.judge.optimizer.step()
"""


def test_an_optimizer_that_a_model_keeps_has_its_scaler_behind_the_model() -> None:
    found = after(OWNED)
    assert "self.judge = Judge(width)\n        self.scaler = torch.amp.GradScaler(self.judge.device.type)\n" in found
    assert "self.scaler.unscale_(self.judge.optimizer)\n        nn.utils.clip" in found
    assert "self.scaler.step(self.judge.optimizer)\n        self.scaler.update()" in found


def test_what_begins_once_enough_is_counted_is_adopted_where_others_count() -> None:
    counted = OWNED + "\nplayer = Player(3)\nfor item in range(64):\n    player.remember(item)\n"
    assert "self.scaler.scale(loss).backward()" in after(counted)


def test_a_scaler_is_there_before_a_constructor_has_its_state_restored() -> None:
    found = after("""
        import torch
        from torch import nn

        class Runner:
            def __init__(self, path, again):
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.path, self.again = path, again
                self.set_up()
                self.rounds = 3

            def set_up(self):
                self.net = nn.Linear(3, 1).to(self.device)
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
                self.restore()

            def restore(self):
                if self.again:
                    kept = torch.load(self.path)
                    self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
                    self.optimizer.load_state_dict(kept["optimizer"])

            def train(self, batches):
                for x, y in batches:
                    loss = nn.functional.mse_loss(self.net(x.to(self.device)), y.to(self.device))
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                torch.save({"optimizer": self.optimizer.state_dict()}, self.path)
    """)
    assert "self.scaler = torch.amp.GradScaler(self.device.type)\n        self.set_up()\n" in found
    assert 'self.scaler.load_state_dict(kept["scaler"])' in found.replace("'", '"')


def test_a_class_whose_heirs_make_the_optimizer_keeps_the_scaler() -> None:
    found = after("""
        import torch
        from torch import nn

        class Learner:
            def __init__(self, width):
                self.width = width

            def learn(self, batches):
                for x, y in batches:
                    loss = nn.functional.mse_loss(self.net(x.cuda()), y.cuda())
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()

        class Shallow(Learner):
            def __init__(self, width):
                super().__init__(width)
                self.net = nn.Linear(width, 1).cuda()
                self.optimizer = torch.optim.Adam(self.net.parameters())
    """)
    assert 'self.width = width\n        self.scaler = torch.amp.GradScaler("cuda")\n' in found
    assert "self.scaler.step(self.optimizer)" in found


def test_no_scaler_is_built_before_a_method_that_sets_the_device_it_is_built_for() -> None:
    text = """
        import torch
        from torch import nn

        class Runner:
            def __init__(self, path, plain):
                self.path, self.plain = path, plain
                self.set_up()

            def set_up(self):
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.net = nn.Linear(3, 1).to(self.device)
                if self.plain:
                    self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
                else:
                    self.optimizer = torch.optim.Adam(self.net.parameters())
                if self.path:
                    self.optimizer.load_state_dict(torch.load(self.path)["optimizer"])

            def train(self, batches):
                for x, y in batches:
                    loss = nn.functional.mse_loss(self.net(x.to(self.device)), y.to(self.device))
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
    """
    assert "the device is not known where the scaler is built" in reasons(text)
    lines = "self.path, self.plain = path, plain\n", 'self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    earlier = text.replace(16 * " " + lines[1], "").replace(lines[0], lines[0] + 16 * " " + lines[1])
    assert "self.scaler = torch.amp.GradScaler(self.device.type)\n        self.set_up()\n" in after(earlier)
