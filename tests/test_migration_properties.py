"""However a loop is put together, its migration parses, mends what it says and nothing else, and finds nothing to do again."""

from __future__ import annotations

import ast
from textwrap import indent

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mplint.api import check_text, fix_text
from mplint.findings import Severity

LIGHT = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def problems(text: str) -> set[str]:
    """The codes of everything above advice that is found in a program."""
    return {f.code for f in check_text(text, "src/train.py", {}) if f.severity is not Severity.INFO}


def assert_mended(text: str, code: str) -> str:
    """The program after the fix of `code`, which must be all that changes for the better or worse."""
    before = problems(text)
    assert code in before, text
    fixed = fix_text(text, "src/train.py", {}, select=[code])
    ast.parse(fixed)
    assert problems(fixed) <= before - {code}, fixed
    assert fix_text(fixed, "src/train.py", {}, select=[code]) == fixed
    return fixed


def block(*lines: str) -> str:
    return "\n".join(line for line in lines if line) + "\n"


@st.composite
def apex_programs(draw: st.DrawFn) -> str:
    """A program of the standard apex pattern: a function, or a class, with what such programs have besides."""
    flag = draw(st.sampled_from(["", "args.fp16", "args.amp"]))
    owner = draw(st.sampled_from(["", "self."]))
    guarded = draw(st.sampled_from(["plain", "try", "inside"] if flag and not owner else ["plain", "try"]))
    comment = draw(st.sampled_from(["", "  # the whole batch"]))
    steps = draw(st.sampled_from(["", "args.steps"]))
    clip = draw(st.sampled_from(["", "master", "model", "every"]))
    level = draw(st.sampled_from(['"O1"', '"O2"', "args.opt_level"]))
    model, optimizer = f"{owner}model", f"{owner}optimizer"
    start = f"{model}, {optimizer} = amp.initialize({model}, {optimizer}, opt_level={level})"
    imported = {
        "plain": "from apex import amp",
        "try": "try:\n    from apex import amp\nexcept ImportError:\n    raise ImportError('apex')",
    }
    prepare = [f"{optimizer} = torch.optim.SGD({model}.parameters(), lr=args.lr)"]
    if flag:
        inner = ["    from apex import amp"] if guarded == "inside" else []
        prepare += [f"if {flag}:", *inner, f"    {start}"]
    else:
        prepare += [start]
    forward = (
        [f"output = {model}(x)", f"loss = F.mse_loss(output, y){comment}"] if draw(st.booleans()) else [f"loss = F.mse_loss({model}(x), y)"]
    )
    forward += [f"loss = loss / {steps}"] if steps else []
    clipping = {
        "": "", "master": f"torch.nn.utils.clip_grad_norm_(amp.master_params({optimizer}), 1.0)",
        "model": f"torch.nn.utils.clip_grad_norm_({model}.parameters(), 1.0)",
        "every": f"torch.nn.utils.clip_grad_norm_(amp.master_params({optimizer}), 1.0)",
    }  # fmt: skip
    scaled = [f"with amp.scale_loss(loss, {optimizer}) as scaled_loss:", "    scaled_loss.backward()"]
    scaled += [clipping["every"]] if clip == "every" else []
    if flag:
        plain = ["loss.backward()"] + ([f"torch.nn.utils.clip_grad_norm_({model}.parameters(), 1.0)"] if clip == "every" else [])
        backward = [f"if {flag}:", *(f"    {s}" for s in scaled), "else:", *(f"    {s}" for s in plain)]
    else:
        backward = scaled
    step = []
    if clip in ("master", "model"):
        guard = flag and clip == "master"
        plain_clip = f"torch.nn.utils.clip_grad_norm_({model}.parameters(), 1.0)"
        step += [f"if {flag}:", f"    {clipping[clip]}", "else:", f"    {plain_clip}"] if guard else [clipping[clip]]
    step += [f"{optimizer}.step()", f"{optimizer}.zero_grad()"]
    if steps:
        step = [f"if (index + 1) % {steps} == 0:", *(f"    {s}" for s in step)]
    loop = ["for index, (x, y) in enumerate(loader):", *(f"    {s}" for s in (*forward, *backward, *step))]
    if draw(st.booleans()):
        loop = ["for epoch in range(3):", *(f"    {s}" for s in loop)]
    saved = f'torch.save({{"model": {model}.state_dict(), "amp": amp.state_dict()}}, "last.pt")'
    save = [saved, 'amp.load_state_dict(torch.load("last.pt")["amp"])'] if draw(st.booleans()) and not flag else []
    head = block("import torch", "import torch.nn.functional as F", imported.get(guarded, ""))
    if owner:
        made = indent(block("self.model, self.args = model, args", *prepare), "        ")
        run = indent(block("args = self.args", *loop, *save), "        ")
        return f"{head}\n\nclass Trainer:\n    def __init__(self, model, args):\n{made}\n    def run(self, loader):\n{run}".replace(
            f"if {flag}", f"if self.{flag}" if flag else "if "
        )
    return f"{head}\n\ndef main(args, model, loader):\n{indent(block(*prepare, *loop, *save), '    ')}"


@st.composite
def unscaled_programs(draw: st.DrawFn) -> str:
    """A loop in float16 without a scaler: a function, a function that gets its optimizer, or a class."""
    shape = draw(st.sampled_from(["function", "handed", "class"]))
    owner = "self." if shape == "class" else ""
    flag = draw(st.sampled_from(["", ", enabled=amp"] if shape == "function" else [""]))
    steps = draw(st.booleans())
    clip = draw(st.booleans())
    scheduler = draw(st.booleans())
    saves = draw(st.booleans())
    closing = [f"torch.nn.utils.clip_grad_value_({owner}model.parameters(), 1.0)"] if clip else []
    closing += [f"{owner}optimizer.step()", *([f"{owner}scheduler.step()"] if scheduler and shape != "handed" else [])]
    closing += [f"{owner}optimizer.zero_grad()"]
    body = [f'with torch.autocast("cuda", dtype=torch.float16{flag}):', f"    loss = F.mse_loss({owner}model(x), y)", "loss.backward()"]
    body += ["if index % 4 == 3:", *(f"    {s}" for s in closing)] if steps else closing
    loop = ["for index, (x, y) in enumerate(loader):", *(f"    {s}" for s in body)]
    made = [f"{owner}optimizer = torch.optim.AdamW({owner}model.parameters(), lr=1e-3)"]
    made += [f"{owner}scheduler = torch.optim.lr_scheduler.StepLR({owner}optimizer, 2)"] if scheduler else []
    state = f'torch.save({{"model": {owner}model.state_dict(), "optimizer": {owner}optimizer.state_dict()}}, "last.pt")'
    save = [state] if saves else []
    head = "import torch\nimport torch.nn.functional as F\n\n\n"
    if shape == "function":
        return f"{head}def main(model, loader, amp=True):\n{indent(block(*made, *loop, *save), '    ')}"
    if shape == "handed":
        call = ["for epoch in range(3):", "    train(model, loader, optimizer)"]
        train = indent(block(*loop), "    ")
        return (
            f"{head}def train(model, loader, optimizer):\n{train}\n\ndef main(model, loader):\n{indent(block(*made, *call, *save), '    ')}"
        )
    built = indent(block("self.model = model", *made), "        ")
    run = indent(block(*loop, *save), "        ")
    return f"{head}class Trainer:\n    def __init__(self, model):\n{built}\n    def run(self, loader):\n{run}"


@st.composite
def losses_on_probabilities(draw: st.DrawFn) -> str:
    """A binary cross entropy under autocast, by function or object, on a sigmoid in one of its spellings."""
    sigmoid = draw(st.sampled_from(["torch.sigmoid({})", "{}.sigmoid()", "F.sigmoid({})"]))
    named = draw(st.booleans())
    is_read = named and draw(st.booleans())
    weight = draw(st.sampled_from(["", ", reduction='sum'"]))
    loss = draw(st.sampled_from(["F.binary_cross_entropy({}, y" + weight + ")", "criterion({}, y)"]))
    probabilities = sigmoid.format("model(x)")
    body = [f"p = {probabilities}", f"loss = {loss.format('p')}"] if named else [f"loss = {loss.format(probabilities)}"]
    region = ['with torch.autocast("cuda", dtype=torch.bfloat16):', *(f"    {s}" for s in body)]
    rest = ["hits = (p > 0.5).sum()"] if is_read else []
    head = (
        f"import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\ncriterion = nn.BCELoss({weight.removeprefix(', ')})\n\n\n"
    )
    return f"{head}def step(model, x, y):\n{indent(block(*region, *rest, 'return loss'), '    ')}"


@LIGHT
@given(apex_programs())
def test_apex_programs_become_programs_of_torch(text: str) -> None:
    fixed = assert_mended(text, "MP104")
    assert "apex" not in fixed and "amp." not in fixed.replace("torch.amp.", "").replace("args.amp", "")
    assert fixed.count("GradScaler(") == 1 and fixed.count("scaler.update()") == 1


@LIGHT
@given(unscaled_programs())
def test_loops_without_a_scaler_get_one(text: str) -> None:
    fixed = assert_mended(text, "MP301")
    assert fixed.count("GradScaler(") == 1 and fixed.count("scaler.update()") == 1
    assert ("unscale_(" in fixed) == ("clip_grad" in text)


@LIGHT
@given(losses_on_probabilities())
def test_losses_on_probabilities_become_losses_on_logits(text: str) -> None:
    fixed = assert_mended(text, "MP206")
    assert ("sigmoid" in fixed) == ("hits" in text)
