"""What adoption does in PyTorch programs with several optimizers, files, penalties and distributions."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_texts import after, converted, reasons

from mplint.adopt.adopt import adopt
from mplint.targets import Targets
from mplint.versions import Versions

AGENT = """\
import torch
from torch import nn
from torch.distributions import Normal

device = torch.device("cuda")

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.middle = nn.Linear(8, 2)
        self.width = nn.Linear(8, 2)

    def forward(self, state):
        spread = Normal(self.middle(state), self.width(state).exp())
        move = spread.rsample()
        return move, spread.log_prob(move).sum(1)

class Learner:
    def __init__(self):
        self.head = Head().to(device)
        self.judge = nn.Linear(10, 1).to(device)
        self.head_steps = torch.optim.Adam(self.head.parameters())
        self.judge_steps = torch.optim.Adam(self.judge.parameters())
        self.heat = torch.zeros(1, requires_grad=True, device=device)
        self.heat_steps = torch.optim.Adam([self.heat])
        self.rounds = 0

    def learn(self, state, gain):
        self.rounds += 1
        move, chance = self.head(state)
        worth = self.judge(torch.cat([state, move.detach()], 1))
        judged = nn.functional.mse_loss(worth, gain)
        self.judge_steps.zero_grad()
        judged.backward()
        nn.utils.clip_grad_norm_(self.judge.parameters(), 1.0)
        self.judge_steps.step()
        if self.rounds % 3 == 0:
            move, chance = self.head(state)
            headed = (chance - self.judge(torch.cat([state, move], 1))).mean()
            self.head_steps.zero_grad()
            headed.backward()
            self.head_steps.step()
            cooled = -(self.heat * (chance + 2.0).detach()).mean()
            self.heat_steps.zero_grad()
            cooled.backward()
            self.heat_steps.step()
"""


def test_a_loss_of_a_single_number_stops_no_other() -> None:
    found = after(AGENT)
    assert "self.scaler.scale(judged).backward()" in found and "self.scaler.scale(headed).backward()" in found
    assert "cooled.backward()" in found and "self.heat_steps.step()" in found
    assert converted(AGENT).left == ()


def test_every_third_round_of_an_object_is_followed() -> None:
    assert "self.scaler.step(self.head_steps)" in after(AGENT)


def test_a_clip_is_told_by_the_models_of_optimizers_on_the_object() -> None:
    assert "self.scaler.unscale_(self.judge_steps)\n        nn.utils" in after(AGENT)


def test_distributions_are_made_of_float32() -> None:
    assert "Normal(self.middle(state).float(), self.width(state).exp())" in after(AGENT)  # autocast takes exp in float32


PAIR = """\
import torch
from torch import nn

def limit(chosen, most):
    for group in chosen.param_groups:
        for weight in group["params"]:
            if weight.grad is not None:
                weight.grad.data.clamp_(-most, most)

TUNE = False

def fit(front, back, batches, front_steps, back_steps):
    for x, y in batches:
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(back(front(x)), y)
        back_steps.zero_grad()
        if front_steps is not None:
            front_steps.zero_grad()
        loss.backward()
        limit(back_steps, 5.0)
        if front_steps is not None:
            limit(front_steps, 5.0)
        back_steps.step()
        if front_steps is not None:
            front_steps.step()

def main(batches):
    front, back = nn.Linear(4, 8).cuda(), nn.Linear(8, 2).cuda()
    back_steps = torch.optim.Adam(back.parameters())
    front_steps = torch.optim.Adam(front.parameters()) if TUNE else None
    for epoch in range(3):
        fit(front, back, batches, front_steps, back_steps)

main(torch.utils.data.DataLoader([]))
"""


def test_an_optimizer_that_is_off_by_default_is_scaled_with_the_other() -> None:
    found = after(PAIR)
    assert (
        "scaler.step(back_steps)\n        if front_steps is not None:\n            scaler.step(front_steps)\n        scaler.update()"
        in found
    )
    assert "scaler.unscale_(back_steps)\n        limit(back_steps, 5.0)" in found
    assert "scaler.unscale_(front_steps)\n            limit(front_steps, 5.0)" in found


def test_a_helper_that_clips_a_models_gradients_has_them_unscaled() -> None:
    text = """\
import torch
from torch import nn

def press(net, most):
    for weight in net.parameters():
        weight.grad.data.clamp_(-most, most)

def learn(net, batches):
    net.cuda()
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        steps.zero_grad()
        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        loss.backward()
        press(net, 0.1)
        steps.step()

learn(nn.Linear(3, 2), torch.utils.data.DataLoader([]))
"""
    assert "scaler.unscale_(steps)\n        press(net, 0.1)\n        scaler.step(steps)" in after(text)


def test_a_global_optimizer_that_changes_later_keeps_one_scaler() -> None:
    text = """\
import torch
from torch import nn

net = nn.Linear(3, 2).cuda()

def restore(path):
    global net, steps
    net, steps = torch.load(path)

def learn(batches):
    for x, y in batches:
        steps.zero_grad()
        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        loss.backward()
        steps.step()

try:
    steps = torch.optim.SGD(net.parameters(), lr=1.0)
    for epoch in range(9):
        learn(torch.utils.data.DataLoader([]))
        if epoch == 5:
            steps = torch.optim.ASGD(net.parameters(), lr=0.1)
except KeyboardInterrupt:
    restore("best")
"""
    found = after(text)
    assert found.count("GradScaler(") == 1 and 'scaler = torch.amp.GradScaler("cuda")\ntry:' in found


PENALTY = """\
import torch
from torch import nn

device = torch.device("cuda")

def slope(score, sample):
    rise = torch.autograd.grad(outputs=score, inputs=sample, grad_outputs=torch.ones_like(score), create_graph=True)[0]
    return ((rise.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

def learn(maker, critic, critic_steps, batches):
    for real in batches:
        real = real.to(device)
        fake = maker(torch.randn(real.size(0), 8, device=device))
        loss = critic(fake.detach()).mean() - critic(real).mean()
        mix = torch.rand(real.size(0), 1, device=device)
        between = (mix * real.data + (1 - mix) * fake.data).requires_grad_(True)
        score = critic(between)
        steep = slope(score, between)
        loss = loss + 10 * steep
        critic_steps.zero_grad()
        loss.backward()
        critic_steps.step()

maker, critic = nn.Linear(8, 4).to(device), nn.Linear(4, 1).to(device)
critic_steps = torch.optim.Adam(critic.parameters())
learn(maker, critic, critic_steps, torch.utils.data.DataLoader([]))
"""


def test_a_penalty_of_a_function_has_its_score_computed_in_float32() -> None:
    found = after(PENALTY)
    assert "        score = critic(between)\n        steep = slope(score, between)\n" in found  # outside of every region
    assert "scaler.scale(loss).backward()" in found and "fake = maker(" in found
    assert "            fake = maker(" in found


def test_gradients_taken_inside_the_forward_pass_are_left_with_the_reason() -> None:
    text = """\
import torch
from torch import nn

net = nn.Linear(3, 2).cuda()
steps = torch.optim.Adam(net.parameters())
for near, far in torch.utils.data.DataLoader([]):
    first = nn.functional.cross_entropy(net(near[0].cuda()), near[1].cuda())
    rise = torch.autograd.grad(first, net.parameters())
    quick = [weight - 0.1 * part for weight, part in zip(net.parameters(), rise)]
    loss = nn.functional.cross_entropy(nn.functional.linear(far[0].cuda(), *quick), far[1].cuda())
    steps.zero_grad()
    loss.backward()
    steps.step()
"""
    assert "takes gradients of float16 work inside" in reasons(text)
    assert "with torch.autocast" in after(text, "mixed_bfloat16")


def test_a_torch_without_autocast_is_a_reason() -> None:
    text = "import torch\n" + PAIR.partition("import torch\n")[2]
    targets = Targets(torch=Versions.parse("==0.4.1"))
    result = adopt("train.py", text.encode(), "mixed_float16", targets)
    assert result.after == result.before
    assert {note.text.partition(": ")[2] for note in result.left} == {
        "the project pins torch >=0.4.1,<0.4.2, which has no autocast: move to a later one first"
    }


def test_a_script_that_is_called_a_test_is_adopted_like_any_other() -> None:
    loop = "import torch\nfrom torch import nn\nnet = nn.Linear(3, 2).cuda()\nsteps = torch.optim.Adam(net.parameters())\n"
    loop += "for x, y in torch.utils.data.DataLoader([]):\n    steps.zero_grad()\n"
    loop += "    loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())\n    loss.backward()\n    steps.step()\n"
    result = adopt("models/copying_test.py", loop.encode(), "mixed_float16", Targets())
    assert b"scaler.scale(loss).backward()" in result.after
    assert {note.location.path for note in result.made} == {"models/copying_test.py"}


BASE = """\
class Base:
    def __init__(self, net, chosen):
        self.net, self.chosen = net, chosen
"""
HEIR = """\
import torch
from torch import nn
from base import Base

class Course(Base):
    def __init__(self, net, chosen, device):
        super().__init__(net, chosen)
        self.device = device

    def lap(self, batches):
        for x, y in batches:
            self.chosen.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.chosen.step()
"""
RUN = """\
import torch
from torch import nn
from course import Course

net = nn.Linear(3, 2)
Course(net, torch.optim.Adam(net.parameters()), torch.device("cuda")).lap(torch.utils.data.DataLoader([]))
"""


def test_a_scaler_stands_beside_the_base_class_that_keeps_the_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    for name, text in {"base.py": BASE, "course.py": HEIR, "run.py": RUN}.items():
        (tmp_path / name).write_text(text)
    found = adopt("course.py", HEIR.encode(), "mixed_float16", Targets()).after.decode()
    assert "        self.device = device\n        self.scaler = torch.amp.GradScaler(" in found
    assert "self.scaler.step(self.chosen)" in found


def test_sparse_products_of_another_file_are_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "mesh.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Mesh(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.inner = nn.Linear(4, 2)\n\n    def forward(self, x, edges):\n        return torch.spmm(edges, self.inner(x))\n"
    )
    text = (
        "import torch\nfrom torch import nn\nfrom parts.mesh import Mesh\n\nnet = Mesh().cuda()\n"
        "steps = torch.optim.Adam(net.parameters())\n"
        'x, edges, y = torch.load("data.pt")\nfor epoch in range(9):\n    steps.zero_grad()\n'
        "    loss = nn.functional.cross_entropy(net(x, edges), y)\n    loss.backward()\n    steps.step()\n"
    )
    path = str(Path("parts") / "train.py")
    result = adopt(path, text.encode(), "mixed_float16", Targets())
    assert result.after == result.before
    assert "`parts/mesh.py` multiplies sparse tensors" in result.left[0].text


def test_states_in_files_of_their_own_hold_the_scaler_once_and_give_it_back() -> None:
    text = """\
import torch
from torch import nn

class Twin:
    def __init__(self):
        self.left, self.right = nn.Linear(3, 2).cuda(), nn.Linear(3, 2).cuda()
        self.left_optimizer = torch.optim.Adam(self.left.parameters())
        self.right_optimizer = torch.optim.Adam(self.right.parameters())

    def learn(self, x, y):
        loss = nn.functional.mse_loss(self.left(x), y) + nn.functional.mse_loss(self.right(x), y)
        self.left_optimizer.zero_grad()
        self.right_optimizer.zero_grad()
        loss.backward()
        self.left_optimizer.step()
        self.right_optimizer.step()

    def save(self, name):
        torch.save(self.left_optimizer.state_dict(), name + "_left_optimizer")
        torch.save(self.right_optimizer.state_dict(), name + "_right_optimizer")

    def load(self, name):
        self.left_optimizer.load_state_dict(torch.load(name + "_left_optimizer", map_location="cpu"))
        self.right_optimizer.load_state_dict(torch.load(name + "_right_optimizer", map_location="cpu"))

twin = Twin()
for x, y in torch.utils.data.DataLoader([]):
    twin.learn(x.cuda(), y.cuda())
"""
    found = after(text)
    assert found.count("self.scaler.state_dict()") == 1 and found.count("self.scaler.load_state_dict(") == 1
    assert (
        'if os.path.exists(name + "_left_scaler"):\n'
        '            self.scaler.load_state_dict(torch.load(name + "_left_scaler", map_location="cpu"))'
    ) in found and "import os\n" in found


def test_a_loss_of_what_is_only_rearranged_is_evaluated_as_it_is_trained() -> None:
    text = """\
import torch
from torch import nn

net = nn.Linear(3, 3).cuda()

def check(batches, likeness):
    net.eval()
    with torch.no_grad():
        for x, y in batches:
            made = net(x.cuda())
            made = made if made.ndim else made
            if len(made) > 9:
                made = made[:9]
            total = nn.functional.mse_loss(made, y.cuda())
    return total
"""
    text += """
steps = torch.optim.Adam(net.parameters())
for x, y in torch.utils.data.DataLoader([]):
    loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
    steps.zero_grad()
    loss.backward()
    steps.step()
check(torch.utils.data.DataLoader([]), None)
"""
    found = after(text)
    assert '            with torch.autocast(device_type="cuda", dtype=torch.float16):\n                made = net(x.cuda())' in found
    assert "                total = nn.functional" in found


def test_lightnings_old_arguments_are_named_as_they_are() -> None:
    text = """\
from argparse import ArgumentParser
from pytorch_lightning import Trainer
from own import Course, Data

parser = Trainer.add_argparse_args(ArgumentParser())
trainer = Trainer.from_argparse_args(parser.parse_args())
trainer.fit(Course(), Data())
"""
    assert "run the script with `--precision 16`" in reasons(text)
