"""Small training scripts of torch in float16 on the CPU: healthy ones, and each with one mistake planted.

The line at which a mistake is to be found ends with `# here`.
"""

from __future__ import annotations

from typing import NamedTuple

LOOP = """
import torch
from torch import nn
from torch.nn import functional as F

model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
criterion = nn.CrossEntropyLoss()
for step in range(24):
    inputs, targets = torch.randn(32, 16), torch.randint(0, 4, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        outputs = model(inputs)
        loss = criterion(outputs, targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step == 20:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, "last.pt")
"""
ACCUMULATED = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for step in range(48):
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(torch.randn(32, 16)), torch.randint(0, 4, (32,))) / 2
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
FUNCTIONS = """
import torch
from torch import nn


def train_step(model, optimizer, scaler, batch):
    with torch.autocast("cpu", torch.float16):
        loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def main():
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(24):
        train_step(model, optimizer, scaler, torch.randn(8, 16))


if __name__ == "__main__":
    main()
"""
FLOAT32 = """
import torch
from torch import nn

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(24):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 4))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
ATTENTION = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        query, key, value = self.qkv(x).chunk(3, -1)
        scores = query @ key.transpose(-1, -2) / 4
        mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
        return scores.softmax(-1) @ value


model = Attention()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(24):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.randn(4, 8, 16)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
HEALTHY = {
    "a loop": LOOP,
    "accumulation": ACCUMULATED,
    "functions": FUNCTIONS,
    "float32": FLOAT32,
    "attention with a mask": ATTENTION,
    "bfloat16 without a scaler": LOOP.replace("torch.float16", "torch.bfloat16").replace(
        'GradScaler("cpu")', 'GradScaler("cpu", enabled=False)'
    ),
    "a scaler that is off": FLOAT32.replace("loss.backward()", 'torch.amp.GradScaler("cpu", enabled=False).scale(loss).backward()'),
    "a scale too large at first": LOOP.replace('GradScaler("cpu")', 'GradScaler("cpu", init_scale=2.0**24)'),
    "an island in float32": LOOP.replace("criterion(outputs, targets)", "criterion(outputs.float(), targets)"),
    "two optimizers": LOOP.replace(
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
        "optimizer = torch.optim.Adam(model[0].parameters(), lr=1e-3)\nother = torch.optim.SGD(model[3].parameters(), lr=1e-3)",
    ).replace("    scaler.step(optimizer)\n", "    scaler.step(optimizer)\n    scaler.step(other)\n    other.zero_grad()\n"),
    "a scheduler": LOOP.replace("    scaler.update()\n", "    scaler.update()\n    optimizer.param_groups[0]['lr'] *= 0.99\n"),
    "validation between steps": LOOP.replace(
        "    scaler.update()\n",
        "    scaler.update()\n    with torch.no_grad(), torch.autocast('cpu', torch.float16):\n        model(inputs).argmax(-1)\n",
    ),
}


class Planted(NamedTuple):
    """A script with one mistake: which code tells it. Without a line marked `# here`, any place will do."""

    code: str
    script: str


def _loop(old: str, new: str, script: str = LOOP) -> str:
    assert old in script
    return script.replace(old, new)


CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
PLANTED = {
    "unscale_ removed": Planted("MP304", _loop("    scaler.unscale_(optimizer)\n" + CLIP, CLIP.replace("\n", "  # here\n"))),
    "unscale_ behind the clip": Planted(
        "MP304", _loop("    scaler.unscale_(optimizer)\n" + CLIP, CLIP.replace("\n", "  # here\n") + "    scaler.unscale_(optimizer)\n")
    ),
    "values clipped while scaled": Planted(
        "MP304",
        _loop("    scaler.unscale_(optimizer)\n" + CLIP, "    nn.utils.clip_grad_value_(model.parameters(), 1.0)  # here\n"),
    ),
    "a step past the scaler": Planted("MP302", _loop("scaler.step(optimizer)", "optimizer.step()  # here")),
    "a step on scaled gradients": Planted(
        "MP302", _loop("    scaler.unscale_(optimizer)\n" + CLIP + "    scaler.step(optimizer)", "    optimizer.step()  # here")
    ),
    "no update": Planted("MP303", _loop("    scaler.update()\n", "")),
    "no update in a function": Planted("MP303", _loop("    scaler.update()\n", "", FUNCTIONS)),
    "no scale": Planted("MP301", _loop("scaler.scale(loss).backward()", "loss.backward()  # here")),
    "no scaler at all": Planted(
        "MP301",
        _loop(
            "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
            "    loss.backward()\n    optimizer.step()\n",
            FUNCTIONS,
        ),
    ),
    "backward in the region": Planted(
        "MP305", _loop("    scaler.scale(loss).backward()\n", "        scaler.scale(loss).backward()  # here\n")
    ),
    "everything in the region": Planted(
        "MP311",
        _loop(
            "    scaler.scale(loss).backward()\n    if step % 2:\n",
            "        scaler.scale(loss).backward()\n    if step % 2:\n",
            ACCUMULATED,
        ).replace(
            "        scaler.step(optimizer)\n",
            "        with torch.autocast('cpu', torch.float16):\n            scaler.step(optimizer)  # here\n",
        ),
    ),
    "unscale_ in every part of a batch": Planted(
        "MP310",
        _loop(
            "    if step % 2:\n        scaler.unscale_(optimizer)\n", "    scaler.unscale_(optimizer)\n    if step % 2:\n", ACCUMULATED
        ).replace("    scaler.scale(loss).backward()", "    scaler.scale(loss).backward()  # here"),
    ),
    "a scaler for every step": Planted(
        "MP312", _loop("    optimizer.zero_grad()\n", '    optimizer.zero_grad()\n    scaler = torch.amp.GradScaler("cpu")  # here\n')
    ),
    "a scaler for every epoch": Planted(
        "MP312",
        _loop(
            "    optimizer.zero_grad()\n",
            '    optimizer.zero_grad()\n    if step % 5 == 0:\n        scaler = torch.amp.GradScaler("cpu")  # here\n',
        ),
    ),
    "a scaler that is not saved": Planted("MP307", _loop(', "scaler": scaler.state_dict()}, "last.pt")', '}, "last.pt")  # here')),
    "a scaler with bfloat16": Planted("MP306", _loop("torch.float16", "torch.bfloat16")),
    "a scaler without autocast": Planted(
        "MP309", _loop('torch.autocast("cpu", torch.float16)', 'torch.autocast("cpu", torch.float16, enabled=False)')
    ),
    "a scaled float16 loss": Planted(
        "MP202",
        _loop("loss = criterion(outputs, targets)", "loss = F.cross_entropy(outputs, targets, reduction='none').half()").replace(
            "scaler.scale(loss).backward()", "scaler.scale(loss).mean().backward()  # here"
        ),
    ),
    "an epsilon that is zero": Planted(
        "MP205", _loop("loss = criterion(outputs, targets)", "loss = -(outputs.relu() + 1e-8).log().mean()  # here")
    ),
    "a floor that is zero": Planted(
        "MP205", _loop("loss = criterion(outputs, targets)", "loss = outputs.abs().clamp(min=1e-10).sum()  # here")
    ),
    "a constant that is infinite": Planted("MP204", _loop("outputs = model(inputs)", "outputs = model(inputs) * 1e5  # here")),
    "a mask that is infinite": Planted(
        "MP204",
        _loop('scores = scores.masked_fill(mask, float("-inf"))', "scores = scores.masked_fill(mask, -1e9)  # here", ATTENTION),
    ),
    "a mask that is added": Planted(
        "MP204",
        _loop('scores = scores.masked_fill(mask, float("-inf"))', "scores = scores + mask.to(scores.dtype) * -1e9  # here", ATTENTION),
    ),
    "a mask over whole rows": Planted(
        "",
        _loop("mask = torch.ones(8, 8, dtype=torch.bool).triu(1)", "mask = torch.ones(8, 8, dtype=torch.bool)", ATTENTION).replace(
            "return scores.softmax(-1) @ value", "return scores.softmax(-1) @ value  # here"
        ),
    ),
    "a sum of squares": Planted(
        "MP211", _loop("loss = criterion(outputs, targets)", "loss = (outputs * 300).square().float().mean()  # here")
    ),
    "half weights": Planted(
        "MP210",
        FLOAT32.replace("nn.Linear(16, 4)", "nn.Linear(16, 4).half()")
        .replace("torch.randn(8, 16)", "torch.randn(8, 16).half()")
        .replace("torch.zeros(8, 4)", "torch.zeros(8, 4).half()")
        .replace("lr=1e-2", "lr=1e-6"),
    ),
    "half weights and a scaler": Planted(
        "MP210", _loop("nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16))", "nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16)).half()", FUNCTIONS)
    ),
}


def _changed(line: str, script: str = LOOP) -> str:
    """The loop with a line between the backward pass and the step, on gradients that are still scaled."""
    old = "    scaler.unscale_(optimizer)\n" + CLIP if script is LOOP else "    scaler.step(optimizer)\n"
    return _loop(old, line + (old if script is not LOOP else ""), script)


def _outside(loss: str) -> str:
    """The loop with a loss of the float16 outputs behind the region of autocast, whose own choice of dtypes does not hold there."""
    old = "        loss = criterion(outputs, targets)\n    scaler.scale"
    return _loop(old, f"    loss = {loss}  # here\n    scaler.scale")


EACH = "    for parameter in model.parameters():\n        "
PLANTED |= {
    "an exponential in half": Planted("MP202", _outside("outputs.mul(0).add(20).exp().float().mean()")),
    "a power in half": Planted("MP202", _outside("outputs.mul(0).add(10).pow(5).float().mean()")),
    "an epsilon under a square root": Planted("MP205", _outside("(outputs.relu() + 1e-8).sqrt().float().mean()")),
    "an epsilon under a division": Planted("MP205", _outside("(outputs / (outputs.norm() + 1e-9)).float().mean()")),
    "an epsilon of a normalization": Planted("MP205", _outside("(outputs * (outputs.var() + 1e-10).rsqrt()).float().mean()")),
    "a floor under a logarithm": Planted("MP205", _outside("outputs.abs().clamp_min(1e-12).log().float().mean()")),
    "a constant taken away": Planted("MP204", _outside("(outputs - 1e6).float().mean()")),
    "a tensor filled with too much": Planted("MP204", _outside("(outputs + torch.full((4,), -1e9, dtype=torch.float16)).float().mean()")),
    "a bias that is too large": Planted("MP204", _outside("torch.add(outputs, 70000.0).float().mean()")),
    "a sum that overflows": Planted("MP211", _outside("outputs.mul(0).add(1000).sum().float()")),
    "a Gram matrix": Planted("MP211", _outside("(outputs.mul(0).add(200).T @ outputs.mul(0).add(200)).float().mean()")),
    "a square that overflows": Planted("MP211", _outside("outputs.mul(0).add(300).square().float().mean()")),
    "positions in half": Planted("MP212", _outside("(outputs.sum() * torch.arange(4000, dtype=torch.float16).cos()).float().mean()")),
    "positions made half": Planted("MP212", _outside("(outputs.sum() * torch.arange(3000).half().cos()).float().mean()")),
    "positions in bfloat16": Planted(
        "MP212",
        _loop(
            "torch.float16", "torch.bfloat16", _outside("(outputs.sum() * torch.arange(1000).to(torch.bfloat16)).float().mean()")
        ).replace('GradScaler("cpu")', 'GradScaler("cpu", enabled=False)'),
    ),
    "weights in bfloat16": Planted(
        "MP210",
        FLOAT32.replace("nn.Linear(16, 4)", "nn.Linear(16, 4).bfloat16()")
        .replace("torch.randn(8, 16)", "torch.randn(8, 16).bfloat16()")
        .replace("torch.zeros(8, 4)", "torch.zeros(8, 4).bfloat16()")
        .replace("lr=1e-2", "lr=1e-5"),
    ),
    "a second loss without the scale": Planted(
        "MP301",
        _loop("    scaler.scale(loss).backward()\n", "    scaler.scale(loss).backward(retain_graph=True)\n    loss.backward()  # here\n"),
    ),
    "a second optimizer past the scaler": Planted(
        "MP302",
        _loop("    scaler.step(optimizer)\n", "    scaler.step(optimizer)\n    other.step()  # here\n").replace(
            "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
            "optimizer = torch.optim.Adam(model[0].parameters(), lr=1e-3)\nother = torch.optim.SGD(model[3].parameters(), lr=1e-3)",
        ),
    ),
    "no update when batches are split": Planted("MP303", _loop("        scaler.update()\n", "", ACCUMULATED)),
    "two steps for one update": Planted(
        "MP303", _loop("    scaler.step(optimizer)\n", "    scaler.step(optimizer)\n    scaler.step(optimizer)  # here\n")
    ),
    "a clip in a helper": Planted(
        "MP304",
        _loop(
            "    scaler.step(optimizer)\n",
            "    clip(model)\n    scaler.step(optimizer)\n",
            FUNCTIONS.replace(
                "def train_step", "def clip(model):\n    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # here\n\n\ndef train_step"
            ),
        ),
    ),
    "a clip when batches are split": Planted(
        "MP304", _loop("        scaler.unscale_(optimizer)\n    " + CLIP, "    " + CLIP.replace("\n", "  # here\n"), ACCUMULATED)
    ),
    "backward in the region of a function": Planted(
        "MP305",
        _loop(
            "    optimizer.zero_grad()\n    scaler.scale(loss).backward()\n",
            "        optimizer.zero_grad()\n        scaler.scale(loss).backward()  # here\n",
            FUNCTIONS,
        ),
    ),
    "a scaler with bfloat16 in functions": Planted("MP306", _loop("torch.float16", "torch.bfloat16", FUNCTIONS)),
    "a scaler that is not among the states": Planted(
        "MP307",
        _loop(
            'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, "last.pt")',
            'torch.save([model.state_dict(), {"optimizers": [optimizer.state_dict()]}], "last.pt")  # here',
        ),
    ),
    "a loss scaled twice": Planted(
        "MP308", _loop("scaler.scale(loss)", "scaler.scale(scaler.scale(loss))").replace("backward()", "backward()  # here")
    ),
    "unscale_ twice": Planted(
        "MP310", _loop("    scaler.unscale_(optimizer)\n", "    scaler.unscale_(optimizer)\n    scaler.unscale_(optimizer)  # here\n")
    ),
    "a region around the loop": Planted(
        "MP311",
        LOOP.replace("for step in range(24):", "torch.autocast('cpu', torch.float16).__enter__()\nfor step in range(24):").replace(
            "    scaler.step(optimizer)", "    scaler.step(optimizer)  # here"
        ),
    ),
    "a scaler that a helper makes": Planted(
        "MP312",
        _loop("    optimizer.zero_grad()\n", "    optimizer.zero_grad()\n    scaler = make()\n").replace(
            "for step in", 'def make():\n    return torch.amp.GradScaler("cpu")  # here\n\n\nfor step in'
        ),
    ),
    "noise on scaled gradients": Planted(
        "MP314", _changed(EACH + "parameter.grad.add_(torch.randn_like(parameter.grad) * 0.01)  # here\n")
    ),
    "a threshold on scaled gradients": Planted("MP314", _changed(EACH + "parameter.grad.clamp_(-0.1, 0.1)  # here\n")),
    "scaled gradients without NaN": Planted("MP314", _changed(EACH + "parameter.grad.nan_to_num_()  # here\n")),
    "decay on scaled gradients": Planted("MP314", _changed(EACH + "parameter.grad.add_(parameter.data, alpha=0.01)  # here\n")),
    "a penalty on scaled gradients in functions": Planted(
        "MP314", _changed(EACH + "parameter.grad.data = parameter.grad + 0.1 * parameter.data.sign()  # here\n", FUNCTIONS)
    ),
    "a gradient penalty without the scale": Planted(
        "MP316",
        _loop("torch.randn(32, 16), torch", "torch.randn(32, 16, requires_grad=True), torch").replace(
            "    scaler.scale(loss)",
            "    (slope,) = torch.autograd.grad(outputs.float().sum(), inputs, create_graph=True)  # here\n"
            "    loss = loss + slope.square().mean()\n    scaler.scale(loss)",
        ),
    ),
}
PLANTED |= {
    "a function without custom_fwd": Planted(
        "MP208",
        """
import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad  # here


weight = nn.Parameter(torch.randn(16, 4))
optimizer = torch.optim.SGD([weight], lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for step in range(24):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = Product.apply(torch.randn(8, 16), weight).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    ),
    "unscale_ in the first part of a batch alone": Planted(
        "MP310",
        _loop(
            "    if step % 2:\n        scaler.unscale_(optimizer)\n",
            "    if step % 2 == 0:\n        scaler.unscale_(optimizer)\n    else:\n",
            ACCUMULATED,
        )
        .replace("        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", "")
        .replace("    scaler.scale(loss).backward()", "    scaler.scale(loss).backward()  # here"),
    ),
    "a weight of two optimizers": Planted(
        "MP308",
        _loop("    scaler.step(optimizer)\n", "    scaler.step(optimizer)\n    scaler.step(other)  # here\n").replace(
            "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
            "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\nother = torch.optim.SGD(model[3].parameters(), lr=1e-3)",
        ),
    ),
    "a weight of two optimizers that are unscaled for a clip": Planted(
        "MP308",
        _loop("    scaler.unscale_(optimizer)\n", "    scaler.unscale_(optimizer)\n    scaler.unscale_(other)  # here\n")
        .replace("    scaler.step(optimizer)\n", "    scaler.step(optimizer)\n    scaler.step(other)\n")
        .replace(
            "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
            "optimizer = torch.optim.Adam(model[:2].parameters(), lr=1e-3)\nother = torch.optim.SGD(model[1:].parameters(), lr=1e-3)",
        ),
    ),
}
HEALTHY |= {
    "a weight of two optimizers in turns": LOOP.replace(
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
        "both = torch.optim.Adam(model.parameters(), lr=1e-3), torch.optim.SGD(model.parameters(), lr=1e-3)",
    )
    .replace("    inputs, targets =", "    optimizer = both[step % 2]\n    inputs, targets =")
    .replace("range(24)", "range(48)"),
    "two optimizers that take turns within a step": LOOP.replace(
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)",
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\nother = torch.optim.SGD(model[3].parameters(), lr=1e-3)",
    ).replace(
        "    if step == 20",
        "    other.zero_grad()\n    with torch.autocast('cpu', torch.float16):\n        again = criterion(model(inputs), targets)\n"
        "    scaler.scale(again).backward()\n    scaler.step(other)\n    scaler.update()\n    if step == 20",
    ),
    "two backward passes a step, and a scale that is read": _loop(
        "    scaler.scale(loss).backward()\n",
        "    scaler.scale(loss).backward()\n"
        "    with torch.autocast('cpu', torch.float16):\n        again = criterion(model(inputs), targets)\n"
        "    scaler.scale(again).backward()\n    scale = scaler.get_scale()\n",
    ),
    "memory that nothing was written to yet": _loop(
        "        loss = criterion(outputs, targets)\n",
        "        torch.use_deterministic_algorithms(True)  # which fills it with NaN\n"
        "        loss = criterion(outputs.new_empty(32, 4).copy_(outputs), targets)\n",
    ),
    "gradients that the program makes zero": _loop(
        "    optimizer.zero_grad()\n",
        "    for parameter in model.parameters():\n        parameter.grad is None or parameter.grad.zero_()\n",
    ),
    "two networks against each other": """
import torch
from torch import nn

maker = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
judge = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
of_maker, of_judge = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(judge.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu")
criterion = nn.BCEWithLogitsLoss()
for step in range(24):
    real, noise = torch.randn(16, 8), torch.randn(16, 8)
    of_judge.zero_grad()
    with torch.autocast("cpu", torch.float16):
        made = maker(noise)
        loss = criterion(judge(real), torch.ones(16, 1)) + criterion(judge(made.detach()), torch.zeros(16, 1))
    scaler.scale(loss).backward()
    scaler.unscale_(of_judge)
    nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
    scaler.step(of_judge)
    of_maker.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = criterion(judge(made), torch.ones(16, 1))
    scaler.scale(loss).backward()
    scaler.step(of_maker)
    scaler.update()
""",
    "a function with custom_fwd": PLANTED["a function without custom_fwd"]
    .script.replace(
        "    @staticmethod\n    def forward", '    @staticmethod\n    @torch.amp.custom_fwd(device_type="cpu")\n    def forward'
    )
    .replace("    @staticmethod\n    def backward", '    @staticmethod\n    @torch.amp.custom_bwd(device_type="cpu")\n    def backward'),
    "weights that the program changes itself": """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
for step in range(25):
    model.zero_grad()
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
""",
    "noise that carries the scale": _changed(
        EACH
        + "parameter.grad.add_(torch.randn_like(parameter.grad) * 1e-3 * scaler.get_scale())\n"
        + "    scaler.unscale_(optimizer)\n"
        + CLIP
    ),
    "gradients without the scale are changed": _loop(
        CLIP, CLIP + EACH + "parameter.grad.clamp_(-0.1, 0.1).add_(parameter.data, alpha=1e-4)\n"
    ),
    "half of the gradients": _changed(EACH + "parameter.grad.mul_(0.5)\n" + "    scaler.unscale_(optimizer)\n" + CLIP),
    "positions in float32": _outside("(outputs.sum().float() * torch.arange(4000).cos()).mean() * 1e-3"),
    "an epsilon that float16 holds": _outside("(outputs / (outputs.abs().mean() + 1e-3)).float().square().mean()"),
    "a penalty with the scale": LOOP.replace("torch.randn(32, 16), torch", "torch.randn(32, 16, requires_grad=True), torch").replace(
        "    scaler.scale(loss)",
        "    (slope,) = torch.autograd.grad(scaler.scale(outputs.float().mean()), inputs, create_graph=True)\n"
        "    slope = slope / scaler.get_scale()\n    loss = loss + slope.square().mean()\n    scaler.scale(loss)",
    ),
    "a frozen part": LOOP.replace("optimizer = ", "model[0].requires_grad_(False)\noptimizer = "),
    "half weights that are only used": LOOP.replace(
        "criterion = ", "teacher = nn.Linear(16, 4).half().requires_grad_(False)\ncriterion = "
    ).replace(
        "        loss = criterion(outputs, targets)\n",
        "        loss = criterion(outputs, targets) + (outputs - teacher(inputs)).float().square().mean()\n",
    ),
    "convolutions": LOOP.replace(
        "nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))",
        "nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),"
        " nn.Linear(128, 4))",
    ),
    "workers of a loader": LOOP.replace("for step in range(24):", "for step, (inputs, targets) in enumerate(loader):")
    .replace("    inputs, targets = torch.randn(32, 16), torch.randint(0, 4, (32,))\n", "")
    .replace(
        "criterion = ",
        "data = torch.utils.data.TensorDataset(torch.randn(768, 16), torch.randint(0, 4, (768,)))\n"
        "loader = torch.utils.data.DataLoader(data, batch_size=32, num_workers=1)\ncriterion = ",
    ),
}


CLOSURE = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


def closure():
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(torch.randn(32, 16)), torch.randint(0, 4, (32,)))
    loss.backward()
    return loss


for step in range(24):
    optimizer.step(closure)  # here
"""
HEALTHY |= {
    "gradients that a closure computes": CLOSURE.replace("  # here", ""),
    "a closure that is called several times a step": CLOSURE.replace("optim.SGD(", "optim.LBFGS(").replace("lr=1e-2", "lr=0.1, max_iter=3"),
}
PLANTED |= {
    "a closure in float16 without a scale": Planted("MP301", CLOSURE.replace("bfloat16", "float16")),
    "a closure in float16, given by its name": Planted(
        "MP301", CLOSURE.replace("bfloat16", "float16").replace("step(closure)", "step(closure=closure)")
    ),
}


class Remarked(NamedTuple):
    """A script in which something is worth knowing at the line marked `# here`, and one like it in which that is not so."""

    code: str
    script: str
    healthy: str


UPDATE = "    scaler.update()\n"
SCALED = _loop("    scaler.scale(loss).backward()\n", "    loss = scaler.scale(loss)\n    loss.backward()\n")
BINARY = _loop("torch.randint(0, 4, (32,))", "torch.randint(0, 2, (32, 4)).float()").replace(
    "criterion(outputs, targets)", "F.binary_cross_entropy(outputs.sigmoid(), targets)  # here"
)
REMARKED = {
    "a scaled loss that is added up": Remarked(
        "MP315",
        "total = 0.0\n" + _loop(UPDATE, UPDATE + "    total += loss.item()  # here\n", SCALED),
        "total = 0.0\n" + _loop(UPDATE, UPDATE + "    total += loss.item()\n"),
    ),
    "a scaled loss that is printed": Remarked(
        "MP315",
        _loop(UPDATE, UPDATE + "    print(f'{loss:.3f}')  # here\n", SCALED),
        _loop(UPDATE, "    print(loss.item() / scaler.get_scale())\n" + UPDATE, SCALED),
    ),
    "a scaled loss that is kept": Remarked(
        "MP315",
        "losses = []\n" + _loop(UPDATE, UPDATE + "    losses.append(float(loss.detach()))  # here\n", SCALED),
        "losses = []\n" + _loop(UPDATE, "    losses.append(1 / scaler.get_scale() * float(loss.detach()))\n" + UPDATE, SCALED),
    ),
    "a scaled loss that a function gives back": Remarked(
        "MP315",
        _loop("    scaler.scale(loss).backward()\n", "    loss = scaler.scale(loss)\n    loss.backward()\n", FUNCTIONS)
        .replace("        train_step(model,", "        last = train_step(model,")
        .replace("torch.randn(8, 16))\n\n\nif", "torch.randn(8, 16))\n        print(float(last))  # here\n\n\nif"),
        FUNCTIONS.replace("        train_step(model,", "        last = train_step(model,").replace(
            "torch.randn(8, 16))\n\n\nif", "torch.randn(8, 16))\n        print(float(last))\n\n\nif"
        ),
    ),
    "probabilities under autocast": Remarked(
        "MP206",
        BINARY,
        BINARY.replace("F.binary_cross_entropy(outputs.sigmoid(), targets)", "F.binary_cross_entropy_with_logits(outputs, targets)"),
    ),
    "probabilities beside a region that is on": Remarked(
        "MP206",
        BINARY.replace("F.binary_cross_entropy(", "nn.BCELoss()("),
        BINARY.replace("        loss = F.binary_cross_entropy(outputs.", "    loss = F.binary_cross_entropy(outputs.float()."),
    ),
}
