"""Training scripts by a grammar: everything that mixed precision is written with, in every order and nesting, right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from textwrap import indent

HEADS = (
    "import torch\nfrom torch import nn\nimport torch.nn.functional as F\nfrom torch.cuda.amp import autocast, GradScaler\n",
    "import torch as t\nimport torch\nfrom torch import amp, nn\nimport torch.nn.functional as F\n"
    "from torch.amp import GradScaler, autocast\n",
    "import torch\nfrom torch import nn\nimport torch.nn.functional as F\nfrom apex import amp\nfrom contextlib import nullcontext\n",
    "import tensorflow as tf\nfrom tensorflow import keras\nfrom tensorflow.keras import layers, mixed_precision\n",
    "import keras\nfrom keras import layers, ops\nimport tensorflow as tf\n",
    "import lightning as L\nimport torch\nfrom accelerate import Accelerator\nfrom transformers import Trainer, TrainingArguments\n",
)
NAMES = ("model", "x", "y", "loss", "scaler", "optimizer", "args", "batch", "out", "mask", "self.net", "self.scaler", "cfg.amp", "step")
ATOMS = (
    *("None", "True", "1e-8", "-1e9", "65536.0", "torch.float16", "torch.bfloat16", '"float16"', '"mixed_float16"', "tf.float16"),
    *(
        "args.fp16",
        "cfg['amp']",
        "half",
        "1",
        "0",
        "50257",
        "float('-inf')",
        "torch.finfo(x.dtype).min",
        "...",
        "f'{args.dtype}'",
        "(1, 3)",
    ),
)
CALLS = (
    *(
        "autocast()",
        'torch.autocast("cuda", dtype=<e>)',
        "autocast(enabled=<e>)",
        "GradScaler(enabled=<e>)",
        'torch.amp.GradScaler("cuda", <e>)',
    ),
    *("scaler.scale(<e>)", "scaler.scale(<e>).backward()", "scaler.step(optimizer)", "scaler.update(<e>)", "scaler.unscale_(optimizer)"),
    *("loss.backward()", "optimizer.step()", "optimizer.zero_grad(set_to_none=<e>)", "optimizer.apply_gradients(zip(<e>, <e>))"),
    *("torch.nn.utils.clip_grad_norm_(model.parameters(), <e>)", "F.softmax(<e>, dim=-1)", "F.binary_cross_entropy(<e>, <e>)"),
    *(
        "<e>.half()",
        "<e>.float()",
        "<e>.to(<e>)",
        "<e>.masked_fill(<e>, <e>)",
        "torch.zeros(3, dtype=<e>)",
        "<e>.sum()",
        "torch.log(<e> + <e>)",
    ),
    *("nn.Linear(<e>, <e>)", "nn.Embedding(<e>, 8)", "model(<e>)", "self.helper(<e>, *<e>)", "helper(<e>, **<e>)", "torch.load(<e>)"),
    *("torch.save({'model': model.state_dict(), 'step': <e>}, <e>)", "optimizer.load_state_dict(<e>)", "scaler.load_state_dict(<e>)"),
    *("amp.initialize(model, optimizer, opt_level=<e>)", "amp.scale_loss(<e>, optimizer)", "Accelerator(mixed_precision=<e>)"),
    *("keras.mixed_precision.set_global_policy(<e>)", "layers.Dense(<e>, activation=<e>, dtype=<e>)(<e>)", "keras.Input(<e>, dtype=<e>)"),
    *("keras.Sequential([<e>, <e>])", "model.compile(optimizer=<e>, loss=<e>)", "model.fit(<e>, batch_size=<e>)", "tf.cast(<e>, <e>)"),
    *(
        "tf.GradientTape()",
        "tape.gradient(<e>, model.trainable_variables)",
        "keras.optimizers.LossScaleOptimizer(<e>)",
        "keras.Model(<e>, <e>)",
    ),
    *("TrainingArguments(fp16=<e>, bf16=<e>)", "L.Trainer(precision=<e>)", "L.Trainer(precision=<e>).fit(<e>)", "torch.compile(<e>)"),
    *("torch.autograd.grad(<e>, <e>, create_graph=<e>)", "model.half().cuda()", "getattr(<e>, <e>)", "dict(a=<e>)[<e>]", "next(iter(<e>))"),
)
CONTEXTS = (
    "autocast()",
    'torch.autocast("cuda", dtype=<e>)',
    "torch.no_grad()",
    "amp.scale_loss(loss, optimizer) as scaled",
    "open(<e>) as f",
)
CONTEXTS += (
    "tf.GradientTape() as tape",
    "nullcontext() if <e> else autocast()",
    "autocast(), torch.no_grad()",
    "helper(<e>)",
    "strategy.scope()",
)


class Scripts:
    """Scripts by a source of chance."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def script(self) -> str:
        """A whole script."""
        parts = [self.pick(HEADS), *(self.statement(2) for _ in range(self.chance.randint(2, 8)))]
        if self.chance.random() < 0.3:
            parts.append('if __name__ == "__main__":\n' + indent(self.body(2), "    "))
        return "\n".join(parts)

    def pick(self, choices: tuple[str, ...]) -> str:
        """One of some texts."""
        return choices[self.chance.randrange(len(choices))]

    def expression(self, depth: int) -> str:
        """An expression."""
        if depth <= 0:
            return self.pick(NAMES) if self.chance.random() < 0.6 else self.pick(ATOMS)
        kind = self.chance.randrange(12)
        one = self.expression(depth - 1)
        if kind < 6:
            return self.filled(self.pick(CALLS), depth)
        other = self.expression(depth - 1)
        return {
            6: f"({one} {self.pick(('+', '-', '*', '/', '@', '==', '<', 'and', 'or', 'is not', 'in'))} {other})",
            7: f"({one} if {other} else {self.expression(0)})",
            8: f"[{one} for i in {other} if {self.expression(0)}]",
            9: f"(lambda a, *b, c={other}: {one})",
            10: f"({self.name()} := {one})",
            11: f"{{'a': {one}, **{{}}}}['a']",
        }[kind]

    def filled(self, pattern: str, depth: int) -> str:
        """A pattern with an expression at every place for one."""
        text = pattern
        while "<e>" in text:
            text = text.replace("<e>", f"({self.expression(depth - 1)})", 1)
        return text

    def name(self) -> str:
        """A name that can be assigned in every place."""
        return self.pick(tuple(name for name in NAMES if name.isidentifier()))

    def body(self, depth: int) -> str:
        """Some statements."""
        return "\n".join(self.statement(depth - 1) for _ in range(self.chance.randint(1, 3)))

    def block(self, depth: int) -> str:
        """Some statements, indented."""
        return indent(self.body(depth), "    ")

    def statement(self, depth: int) -> str:
        """A statement."""
        plain: list[Callable[[int], str]] = [self.assignment, self.call, self.call]
        nested: list[Callable[[int], str]] = [self.context, self.condition, self.loop, self.attempt, self.function, self.kind, self.match]
        return self.chance.choice(plain if depth <= 0 else [*plain, *nested])(depth)

    def assignment(self, depth: int) -> str:
        """An assignment of some kind."""
        value = self.expression(2)
        target = self.pick(NAMES)
        forms = ("{t} = {v}", "{t} += {v}", "{n}: float = {v}", "{n}, *rest = {v}", "{t} = {n} = {v}", "del {n}", "args.extra[{v}] = {t}")
        return self.pick(forms).replace("{t}", target).replace("{n}", self.name()).replace("{v}", value)

    def call(self, depth: int) -> str:
        """A call for its effect."""
        return self.filled(self.pick(CALLS), 2)

    def context(self, depth: int) -> str:
        """A with-statement."""
        return f"with {self.filled(self.pick(CONTEXTS), 1)}:\n{self.block(depth)}"

    def condition(self, depth: int) -> str:
        """An if-statement."""
        rest = f"\nelif {self.expression(1)}:\n{self.block(depth)}" if self.chance.random() < 0.3 else ""
        rest += f"\nelse:\n{self.block(depth)}" if self.chance.random() < 0.4 else ""
        return f"if {self.expression(1)}:\n{self.block(depth)}{rest}"

    def loop(self, depth: int) -> str:
        """A loop."""
        end = indent(self.pick(("", "break", "continue", f"if {self.expression(1)}:\n    break")), "    ")
        head = self.pick(
            (f"for i, {self.name()} in enumerate({self.expression(1)}):", f"while {self.expression(1)}:", "for x, y in loader:")
        )
        return f"{head}\n{self.block(depth)}\n{end}"

    def attempt(self, depth: int) -> str:
        """A try-statement."""
        last = f"\nfinally:\n{self.block(depth)}" if self.chance.random() < 0.3 else ""
        kind = self.pick(("ImportError", "Exception as e", "(KeyError, OSError)"))
        return f"try:\n{self.block(depth)}\nexcept {kind}:\n{self.block(depth)}{last}"

    def function(self, depth: int) -> str:
        """A function, and perhaps its call."""
        name = self.pick(("train", "helper", "step", "build", "main"))
        mark = self.pick(("", "", "@torch.no_grad()\n", "@autocast()\n", "@tf.function\n", "@property\n", "@torch.amp.custom_fwd\n"))
        head = self.pick(("model, x=None, *args, **kwargs", "x, y, scaler, optimizer", "", "args, /, *, amp=True"))
        end = indent(
            self.pick((f"return {self.expression(1)}", f"yield {self.expression(1)}", "return", "raise ValueError(x)", "pass")), "    "
        )
        call = f"\n{name}({self.expression(1)})" if self.chance.random() < 0.6 else ""
        return f"{mark}{self.pick(('', '', '', 'async '))}def {name}({head}):\n{self.block(depth)}\n{end}{call}"

    def kind(self, depth: int) -> str:
        """A class."""
        base = self.pick(
            ("nn.Module", "keras.layers.Layer", "keras.Model", "L.LightningModule", "torch.autograd.Function", "object", "Net", "Trainer")
        )
        methods = [
            f"def {self.pick(('__init__', 'forward', 'call', 'training_step', 'train_step', 'backward', 'helper'))}(self, x=None, *rest):\n"
            f"{self.block(depth)}\n    return {self.expression(1)}"
            for _ in range(self.chance.randint(1, 3))
        ]
        use = f"\nmodel = Net({self.expression(0)})\nout = model(x)" if self.chance.random() < 0.7 else ""
        return f"class Net({base}):\n" + indent("\n".join(methods), "    ") + use

    def match(self, depth: int) -> str:
        """A match-statement."""
        return f"match {self.expression(1)}:\n    case 'fp16' | 'bf16':\n{indent(self.block(depth), '    ')}\n    case _:\n        pass"
