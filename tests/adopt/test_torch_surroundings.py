"""What adoption makes of PyTorch loops whose optimizers, losses and devices come about in less usual ways, some of them in other files."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_texts import after, converted, reasons

from mplint.adopt.adopt import adopt
from mplint.adopt.program import Adoption
from mplint.targets import Targets

LOOP = """\
import torch
from torch import nn

model = nn.Linear(8, 1).cuda()
{made}
for x, y in batches:
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TWO = """\
import torch
from torch import nn

class Pair:
    def __init__(self, maker, judge, maker_optimizer, judge_optimizer):
        self.maker, self.judge, self.device = maker, judge, torch.device("cuda")
        self.maker_optimizer, self.judge_optimizer = maker_optimizer, judge_optimizer

    def make(self, noise):
        self.maker.train()
        self.judge.eval()
        self.maker_optimizer.zero_grad()
        loss = -self.judge(self.maker(noise)).mean()
        loss.backward()
        self.maker_optimizer.step()

    def judge_them(self, real):
        self.judge.train()
        self.judge_optimizer.zero_grad()
        loss = -self.judge(real).mean()
        loss.backward()
        steep = self.judge(real).pow(2).mean()
        steep.backward(create_graph=True)
        self.judge_optimizer.step()
"""
TEAM = """\
import torch
from torch import nn

class Player:
    def __init__(self, size):
        self.judge = nn.Sequential(nn.Linear(size, 8), nn.ReLU(), nn.Linear(8, 1))
        self.steps = torch.optim.Adam(self.judge.parameters())

class Team:
    def __init__(self, sizes):
        self.players = [Player(size) for size in sizes]

    def learn(self, seen, rewards, index):
        player = self.players[index]
        player.steps.zero_grad()
        error = nn.functional.mse_loss(player.judge(seen.cuda()), rewards)
        error.backward()
        nn.utils.clip_grad_norm_(player.judge.parameters(), 0.5)
        player.steps.step()

team = Team([4, 4])
for seen, rewards in samples:
    team.learn(seen, rewards, 0)
"""


def project(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> Adoption:
    """What becomes of `train.py` beside other files."""
    monkeypatch.chdir(folder)
    (folder / "pyproject.toml").write_text("")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return adopt("train.py", files["train"].encode(), "mixed_float16", Targets())


@pytest.mark.parametrize(
    "made",
    [
        "optimizer = torch.optim.SGD(model.parameters()) if plain else torch.optim.Adam(model.parameters())",
        "if whole:\n    optimizer = torch.optim.SGD(model.parameters())\nelse:\n    optimizer = torch.optim.Adam(w) if plain else other(w)",
    ],
)
def test_an_optimizer_may_be_chosen_by_a_condition(made: str) -> None:
    found = after(LOOP.format(made=made))
    assert 'scaler = torch.amp.GradScaler("cuda")\nfor x, y in batches' in found
    assert "scaler.step(optimizer)\n    scaler.update()" in found


def test_an_optimizer_may_be_none_at_first() -> None:
    found = after(
        """\
        import torch
        from torch import nn

        class Solver:
            def __init__(self):
                self.optimizer = None
                self.build()

            def build(self):
                self.net = nn.Linear(8, 1).cuda()
                self.optimizer = torch.optim.Adam(self.net.parameters())

            def train(self, batches):
                for x, y in batches:
                    loss = nn.functional.mse_loss(self.net(x.cuda()), y.cuda())
                    loss.backward()
                    self.optimizer.step()
        """
    )
    assert 'self.optimizer = torch.optim.Adam(self.net.parameters())\n        self.scaler = torch.amp.GradScaler("cuda")' in found


def test_an_optimizer_that_is_changed_in_the_loop_is_the_same_one() -> None:
    text = LOOP.format(made="optimizer = torch.optim.SGD(model.parameters(), lr=0.1)")
    found = after(text.replace("    optimizer.zero_grad", "    optimizer = slower(optimizer, x)\n    optimizer.zero_grad"))
    assert 'lr=0.1)\nscaler = torch.amp.GradScaler("cuda")\nfor x, y' in found


def test_scores_are_scaled_where_their_backward_pass_is_given_gradients() -> None:
    text = LOOP.format(made="optimizer = torch.optim.SGD(model.parameters())\nmone = -torch.ones(1).cuda()")
    found = after(text.replace("loss.backward()", "loss.backward(mone)"))
    assert "scaler.scale(loss.float()).backward(mone)" in found
    twice = text.replace("loss.backward()", "features.sum().backward()\n    loss.backward(features.grad)")
    assert "`features.grad` holds" in "\n".join(note.text for note in converted(twice).left)


def test_losses_that_cannot_be_scaled_stop_only_what_they_are_applied_with() -> None:
    result = converted(TWO)
    found = result.after.decode()
    assert "self.scaler.step(self.maker_optimizer)" in found
    assert "self.judge_optimizer.step()" in found and "steep.backward(create_graph=True)" in found
    assert [note.location.line for note in result.left] == [21, 23]


def test_a_loop_may_stand_in_a_function_inside_of_another() -> None:
    found = after(
        """\
        import torch
        from torch import nn

        def looping(net, optimizer, batches):
            def once():
                net.train()
                for x, y in batches:
                    pass
                loss = nn.functional.mse_loss(net(x), y)
                loss.backward()
                optimizer.step()
            return once

        def train(batches):
            net = nn.Linear(8, 1)
            once = looping(net.cuda(), torch.optim.Adam(net.parameters()), batches)
            for _ in range(9):
                once()

        train(batches)
        """
    )
    assert 'def looping(net, optimizer, batches):\n    scaler = torch.amp.GradScaler("cuda")\n    def once():' in found


def test_the_optimizers_of_objects_in_a_list_share_a_scaler_of_what_keeps_them() -> None:
    found = after(TEAM)
    assert 'for size in sizes]\n        self.scaler = torch.amp.GradScaler("cuda")' in found
    assert "self.scaler.unscale_(player.steps)\n        nn.utils.clip_grad_norm_(player.judge" in found


def test_the_number_of_a_gpu_may_be_none() -> None:
    text = LOOP.format(made="optimizer = torch.optim.SGD(model.parameters())").replace("x.cuda()", "x.to(args.gpu)")
    assert 'torch.autocast(device_type="cuda"' in after(text)


def test_a_model_that_another_file_moves_says_itself_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from places import put\n" + LOOP.format(made="optimizer = torch.optim.SGD(model.parameters())")
    text = text.replace("nn.Linear(8, 1).cuda()", "put(nn.Linear(8, 1), True)").replace("x.cuda()", "put(x, True)").replace("y.cuda()", "y")
    places = "def put(thing, there):\n    return thing.cuda() if there else thing\n"
    found = project(tmp_path, monkeypatch, train=text, places=places).after.decode()
    assert "torch.autocast(device_type=next(model.parameters()).device.type" in found
    assert "GradScaler(next(model.parameters()).device.type)" in found


def test_a_trainer_that_is_handed_its_models_asks_them_where_they_are() -> None:
    text = TWO.replace(', self.device = maker, judge, torch.device("cuda")', " = maker, judge")
    assert "torch.autocast(device_type=next(self.maker.parameters()).device.type" in after(text)


def test_a_model_that_stays_in_float32_gets_float32_of_one_that_does_not() -> None:
    loss = "        loss = -self.judge(real).mean()\n        loss.backward()\n"
    made = "        with torch.no_grad():\n            made = self.maker(real)\n"
    found = after(TWO.replace(loss, made + loss.replace("real", "made")))
    assert "                made = self.maker(real)\n        made = made.float()\n        loss = -self.judge(made)" in found


def test_the_loss_behind_a_block_without_gradients_gets_float32() -> None:
    text = LOOP.format(made="optimizer = torch.optim.SGD(model.parameters())\ncriterion = nn.CrossEntropyLoss()")
    check = "for x, y in checks:\n    with torch.no_grad():\n        got = model(x.cuda())\n    loss = criterion(got, y)\n"
    found = after(text + check)
    assert "loss = criterion(got.float(), y)" in found


def test_outputs_in_a_tuple_are_cast_for_a_loss_that_needs_float32() -> None:
    found = after(
        """\
        import torch
        from torch import nn

        class Finder(nn.Module):
            def __init__(self):
                super().__init__()
                self.where, self.what = nn.Linear(8, 4), nn.Linear(8, 3)

            def forward(self, x):
                return self.where(x), self.what(x)

        def cost(out, wanted):
            where, what = out
            return torch.log(torch.exp(what).sum(1)).mean() + (where - wanted).abs().mean()

        net = Finder().cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, wanted in batches:
            out = net(x.cuda())
            loss = cost(out, wanted)
            loss.backward()
            optimizer.step()
        """
    )
    assert "    out = tuple(part.float()" in found and " for part in out)\n    loss = cost(out, wanted)" in found


def test_a_refused_loss_with_a_model_of_its_own_stays_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = project(
        tmp_path,
        monkeypatch,
        train="""\
import torch
from torch import nn
from domains import confusion

net, judge = nn.Linear(8, 4).cuda(), nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()).cuda()
optimizer = torch.optim.SGD([*net.parameters(), *judge.parameters()], lr=0.1)
for x, y in batches:
    features = net(x.cuda())
    other = confusion(features, judge)
    loss = nn.functional.cross_entropy(features, y) + other
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
        domains="""\
import torch
from torch import nn

def confusion(features, judge):
    return nn.BCELoss()(judge(features), torch.ones(len(features), 1).cuda())
""",
    ).after.decode()
    assert "        features = net(x.cuda())\n    other = confusion(features.float(), judge)" in found


APART = """\
import torch
from torch import autograd, nn

def steepness(judge, x):
    x.requires_grad_()
    return autograd.grad(judge(x).sum(), x, create_graph=True)[0].pow(2).mean()

def train(judge, x):
    steepness(judge, x).backward()
"""


def test_gradients_that_another_loop_of_the_project_takes_stop_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = """\
import torch
from torch import nn

class Learner:
    def __init__(self, net):
        self.net = net
        self.steps = torch.optim.Adam(net.parameters())

    def learn(self, x, y):
        loss = nn.functional.mse_loss(self.net(x.cuda()), y)
        loss.backward()
        self.steps.step()
"""
    main = "import apart\nfrom train import Learner\nfrom torch import nn\n\nlearner = Learner(nn.Linear(8, 1).cuda())\n"
    main += "for x, y in batches:\n    learner.learn(x, y)\n    apart.train(learner.net, x)\n"
    result = project(tmp_path, monkeypatch, train=learner, apart=APART, main=main)
    assert "self.scaler.scale(loss).backward()" in result.after.decode() and not result.left


POWER = """\
import torch
from torch import nn

def unit(v):
    return v / (v.norm() + 1e-12)

class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.u = nn.Parameter(torch.randn(8), requires_grad=False)

    def forward(self, x):
        {kept}
        return x @ (self.weight / self.u.norm())
"""
USER = """\
import torch
from torch import nn
from parts import {name}

net = {name}().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    loss = nn.functional.mse_loss(net(x.cuda()), y)
    loss.backward()
    optimizer.step()
"""


def test_weights_that_keep_what_autocast_computes_are_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = "self.u.data = unit(torch.mv(self.weight.data, self.u.data))"
    result = project(tmp_path, monkeypatch, train=USER.format(name="Bounded"), parts=POWER.format(kept=kept))
    assert result.before == result.after and "`parts.py:14` keeps in `self.u.data`" in result.left[0].text
    copied = kept.replace(".data = ", ".data.copy_(") + ")"
    assert not project(tmp_path, monkeypatch, train=USER.format(name="Bounded"), parts=POWER.format(kept=copied)).left


def test_a_kernel_that_half_has_not_in_another_file_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = "self.u.data.copy_(torch.inverse(torch.matmul(self.weight, x.t()))[0])"
    result = project(tmp_path, monkeypatch, train=USER.format(name="Bounded"), parts=POWER.format(kept=kept))
    assert result.before == result.after and "`parts.py:14` gives `torch.inverse` half tensors" in result.left[0].text
    single = kept.replace("matmul(self.weight, x.t())", "matmul(self.weight, x.t()).float()")
    assert not project(tmp_path, monkeypatch, train=USER.format(name="Bounded"), parts=POWER.format(kept=single)).left


LOSING = """\
import torch
from torch import nn

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)
        self.codes = nn.Parameter(torch.randn(16, 4))

    def forward(self, x):
        z = self.net(x)
        {line}
        return z
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("near = (z ** 2).sum(1, keepdim=True) + (self.codes ** 2).sum(1) - 2 * torch.matmul(z, self.codes.t())", "squared distances"),
        ("sine = torch.sqrt((1.0 - torch.pow(z, 2)).clamp(0, 1))", "whose root has no gradient"),
        ("chosen = torch.distributions.Normal(z, 1.0)", "is made of half tensors"),
        ("chosen = torch.log(torch.matmul(torch.softmax(z, 1), self.codes.t()).t())", ""),
        ("chosen = torch.log(torch.matmul(torch.softmax(z, 1), self.codes.t()))", "its logarithm infinite"),
        ("near = (z.float() ** 2).sum(1, keepdim=True) - 2", ""),
        ("sine = torch.sqrt(1.0 + torch.pow(z, 2))", ""),
        ("chosen = torch.distributions.Normal(z.float(), 1.0)", ""),
    ],
)
def test_what_loses_too_much_in_another_file_is_told(line: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = project(tmp_path, monkeypatch, train=USER.format(name="Part"), parts=LOSING.format(line=line))
    assert "scaler.step(optimizer)" in result.after.decode()
    assert [(note.location.path, note.location.line) for note in result.left] == ([("parts.py", 12)] if told else [])
    assert all(told in note.text for note in result.left)


def test_mistakes_of_a_program_that_has_adopted_already_are_left_to_the_user() -> None:
    text = after(LOOP.format(made="optimizer = torch.optim.SGD(model.parameters())"))
    clipped = text.replace("    scaler.step", "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step")
    assert "(MP304)" in reasons(clipped)
    assert not converted(text).left


HELPER = """\
import torch
from torch import nn

class Helper:
    def __init__(self, kind):
        self.kind = kind
        self.optimizer = None
        self.model = nn.Linear(8, 1).cuda()

    def start(self):
        if self.kind == "adam":
            self.optimizer = torch.optim.Adam(self.model.parameters())
        else:
            self.optimizer = torch.optim.SGD(self.model.parameters())

    def train(self, loader):
        for epoch in range(9):
            if epoch % 3 == 0:
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1 / (1 + epoch))
            for x, y in loader:
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x.cuda()), y.cuda())
                loss.backward()
                self.optimizer.step()
"""
SECOND = """\
import torch
from torch import nn
from first import fit

class Second:
    def __init__(self):
        self.model = nn.Linear(8, 1).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters())

    def round(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x.cuda()).square().mean()
        loss.backward()
        self.optimizer.step()

def main(batches):
    fit(batches)
    second = Second()
    for x in batches:
        second.round(x)
"""
FIRST = """\
import torch
from torch import nn

def fit(batches):
    model = nn.Linear(8, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for x in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(x.cuda()).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_optimizers_that_methods_make_anew_share_a_scaler_of_the_object() -> None:
    found = after(HELPER)
    assert 'nn.Linear(8, 1).cuda()\n        self.scaler = torch.amp.GradScaler("cuda")' in found
    assert "self.scaler.step(self.optimizer)" in found


def test_a_scaler_asks_no_model_that_is_not_there_yet() -> None:
    late = HELPER.replace("self.model = nn.Linear(8, 1).cuda()", "self.model = None").replace("loader):", "loader, device):")
    late = late.replace("def start(self):\n", "def start(self):\n        self.model = nn.Linear(8, 1)\n").replace(".cuda()", ".to(device)")
    late = late.replace("        for epoch", "        self.model.to(torch.device(device))\n        for epoch")
    assert "its optimizer is made in several places" in reasons(late)


def test_a_scaler_of_another_loop_of_the_program_does_not_serve_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = project(tmp_path, monkeypatch, train=SECOND, first=FIRST).after.decode()
    assert "self.scaler.scale(loss).backward()" in found


def test_gradients_that_come_from_out_of_sight_are_a_reason() -> None:
    text = LOOP.format(made="optimizer = torch.optim.SGD(model.parameters())")
    hidden = text.replace("loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())", "pass").replace("loss.backward()", "engine.run(x, y)")
    assert "`optimizer.step()` applies gradients that are computed out of sight" in reasons(hidden)


TWINS = """\
import torch
from torch import nn

class Twins:
    def __init__(self):
        self.one = nn.Linear(8, 1).cuda()
        self.other = nn.Linear(8, 1).cuda()
        self.one_steps = torch.optim.Adam(self.one.parameters())
        self.other_steps = torch.optim.Adam(self.other.parameters())

    def update(self, x, y):
        one_loss = nn.functional.mse_loss(self.one(x.cuda()), y.cuda())
        other_loss = nn.functional.mse_loss(self.other(x.cuda()), y.cuda())
        self.one_steps.zero_grad()
        one_loss.backward()
        self.one_steps.step()
        self.other_steps.zero_grad()
        other_loss.backward()
        self.other_steps.step()
"""


def test_losses_that_are_computed_before_the_first_of_their_steps_are_all_scaled() -> None:
    found = after(TWINS)
    assert found.count("torch.autocast(") == 2
    assert "self.scaler.scale(other_loss).backward()\n        self.scaler.step(self.other_steps)\n        self.scaler.update()" in found


ATTACK = """\
import torch
from torch import nn

class Attack:
    def __init__(self, model):
        self.model = model.cuda()

    def perturb(self, image, label):
        image = image.cuda().requires_grad_(True)
        loss = nn.functional.cross_entropy(self.model(image), label.cuda())
        loss.backward()
        return (image + 0.1 * image.grad.sign()).detach()
"""


def test_gradients_that_nothing_steps_with_are_a_reason_of_their_own() -> None:
    assert "no optimizer steps with its gradients" in reasons(ATTACK)


def test_a_scaled_loop_that_runs_in_the_place_of_another_is_not_that_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instead = "def main(batches, first):\n    if first:\n        return fit(batches)\n"
    whole = SECOND.replace("def main(batches):\n    fit(batches)\n", instead)
    found = project(tmp_path, monkeypatch, train=whole, first=FIRST).after.decode()
    assert "self.scaler.scale(loss).backward()" in found


SCRIPT = """\
import torch
from torch import nn
from data import batches

def fit(model, criterion, optimizer, loader, epochs=3):
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()

if __name__ == "__main__":
    model = nn.Linear(8, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, nn.CrossEntropyLoss(), optimizer, batches)
"""


def test_a_scaler_of_a_script_is_handed_to_the_functions_that_others_may_import() -> None:
    found = after(SCRIPT)
    assert "epochs=3, scaler=None):" in found
    assert "fit(model, nn.CrossEntropyLoss(), optimizer, batches, scaler=scaler)" in found


DRAWN = """\
import cv2
import torch
from torch import nn

model = nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    out = model(x.cuda())
    cv2.imwrite("out.png", 255 * ((out + 1) / 2).detach().cpu().numpy()[0])
    kept = torch.zeros(4, 1, device="cuda")
    kept[x[:, 0].cuda() > 0] = out / 2
    loss = nn.functional.mse_loss(out, y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_sum_is_cast_whole() -> None:
    found = after(DRAWN)
    assert "255 * ((out + 1) / 2).float().detach().cpu().numpy()[0]" in found
    assert "= (out / 2).float()" in found


STEPPING = """\
import torch
from torch import nn

class Coder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.coder = nn.Linear(size, size)
        self.steps = torch.optim.Adam(self.coder.parameters())

    def forward(self, x):
        loss = nn.functional.mse_loss(self.coder(x), x)
        self.steps.zero_grad()
        loss.backward()
        self.steps.step()
        return loss
"""


@pytest.mark.parametrize(("moved", "told"), [("Coder(8).to('cuda')", '"cuda"'), ("Coder(8).to('cuda' if big else 'mps')", None)])
def test_a_model_that_steps_itself_makes_its_scaler_before_it_is_moved(
    moved: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = f"import torch\nfrom train import Coder\ncoder = {moved}\nfor x in batches:\n    coder(x)\n"
    result = project(tmp_path, monkeypatch, train=STEPPING, main=main)
    if told is None:
        assert "self.coder.parameters()).device.type)" not in result.after.decode()
    else:
        assert f"GradScaler({told})" in result.after.decode()


TAGGER = """\
import torch
from torch import nn
from tagger import Tagger

model = Tagger()
optimizer = torch.optim.Adam(model.parameters())
for x, y in batches:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LAYERED = """\
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.{layer}(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0])
"""


@pytest.mark.parametrize(("layer", "left"), [("LSTM", True), ("GRU", False), ("LSTMCell", False)])
def test_an_lstm_of_another_file_has_no_float16_kernel_on_the_cpu(
    layer: str, left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = project(tmp_path, monkeypatch, train=TAGGER, tagger=LAYERED.format(layer=layer))
    assert (result.after == result.before) is left
    assert any("an LSTM has no float16 kernel on the CPU" in note.text for note in result.left) is left


COMPILED = """\
import torch
from torch import nn
from torch.utils.cpp_extension import load

native = load("native", sources=["native.cu"])

class Blur(torch.autograd.Function):
{decorator}    @staticmethod
    def forward(ctx, image, kernel):
        return native.blur(image, kernel)

    @staticmethod
    def backward(ctx, given):
        return native.blurred(given), None

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)
        self.register_buffer("kernel", torch.ones(3))

    def forward(self, x):
        return Blur.apply(self.net(x), self.kernel)
"""


def test_half_tensors_that_go_to_compiled_code_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = project(tmp_path, monkeypatch, train=USER.format(name="Part"), parts=COMPILED.format(decorator=""))
    assert any("hands half tensors to compiled code" in note.text for note in result.left)
    decorated = COMPILED.format(decorator="    @torch.amp.custom_fwd\n")
    result = project(tmp_path, monkeypatch, train=USER.format(name="Part"), parts=decorated)
    assert not any("compiled code" in note.text for note in result.left)


def test_a_transform_of_images_is_no_model() -> None:
    text = """
        import torch
        from torch import nn
        from torchvision.transforms import v2

        def show(picture):
            painted = v2.Compose([v2.ToPILImage()])
            painted(picture.cpu()).save("seen.png")

        def train(batches, device):
            device = torch.device(device)
            net = nn.Linear(3, 3).to(device)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in batches:
                loss = nn.functional.mse_loss(net(x.to(device)), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                show(y)
    """
    found = after(text)
    assert "scaler.scale(loss)" in found
    assert "    with torch.no_grad():\n        show(y)" in found


MEASURED = """\
import torch
from torch import nn
from measures import spread

def measure(net, batches, device, wide):
    net.eval()
    total = 0
    for x, y in batches:
        with torch.no_grad():
            out = net(x.to(device))
        if wide:
            total += nn.functional.mse_loss(out, y.to(device)).item()
        else:
            kept = out.detach().cpu()
            total += spread(kept, y)
    return total

def train(batches, device, wide):
    device = torch.device(device)
    net = nn.Linear(3, 3).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return measure(net, batches, device, wide)
"""


def test_measures_behind_a_block_without_gradients_get_float32_in_arms_and_on_the_host() -> None:
    found = after(MEASURED)
    assert "mse_loss(out.float(), y.to(device)).item()" in found
    assert "kept = out.float().detach().cpu()" in found


GIVEN = """\
import torch
from torch import nn

def fit(net, optimizer, batches, device):
    for x, y in batches:
        loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

CALLED = """\
import torch
from rounds import fit

device = torch.device("cuda")
for fold in range(2):
    {early}net = torch.nn.Linear(3, 3).to(device)
    {early}optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(9):
        {late}net = torch.nn.Linear(3, 3).to(device)
        {late}optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        fit(net, optimizer, [(torch.ones(2, 3), torch.ones(2, 3))], device)
"""


@pytest.mark.parametrize("late", [False, True])
def test_a_function_that_another_file_calls_round_by_round_makes_no_scaler(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "run.py").write_text(CALLED.format(early="# " if late else "", late="" if late else "# "))
    (tmp_path / "rounds.py").write_text(GIVEN)
    result = adopt("rounds.py", GIVEN.encode(), "mixed_float16", Targets())
    assert (result.after != result.before) is late  # an optimizer of its own for each call
    assert late or "its optimizer comes from elsewhere" in result.left[0].text


def test_a_script_whose_loop_another_file_has_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    script = CALLED.format(early="", late="# ")
    (tmp_path / "run.py").write_text(script)
    (tmp_path / "rounds.py").write_text(GIVEN)
    result = adopt("run.py", script.encode(), "mixed_float16", Targets())
    assert result.after == result.before and result.trains
    assert [note.text.partition(":")[0] for note in result.left] == ["`fit` trains in `rounds.py"]
    assert "beside the optimizer here" in result.left[0].text
    (tmp_path / "rounds.py").write_text(
        GIVEN.replace("device):", "device, scaler):").replace("loss.backward", "scaler.scale(loss).backward")
    )
    scaled = script.replace("device)\n", "device, torch.amp.GradScaler())\n")
    assert not adopt("run.py", scaled.encode(), "mixed_float16", Targets()).left


def test_what_is_trained_encodes_no_text() -> None:
    found = after("""
        import torch
        from parts import Squeezed

        def train(batches):
            net = Squeezed().cuda()
            optimizer = torch.optim.Adam(net.parameters())
            for x in batches:
                x = x.cuda()
                back = net.decode(net.encode(x))
                loss = (back - x).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """)
    assert "        with torch.autocast(" in found and "            back = net.decode(net.encode(x))" in found


@pytest.mark.parametrize("model", ["torchaudio.models.Conformer(80, 4, 128, 4, 31)", "kornia.models.Vit()", "torch.jit.load('net.pt')"])
def test_a_model_is_a_model_whatever_its_package_has_besides(model: str) -> None:
    text = f"""
        import torch, torchaudio, kornia
        from torch import nn

        device = torch.device("cuda")
        net = {model}.to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in torch.load("data.pt"):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
    """
    assert "scaler.scale(loss).backward()" in after(text)
