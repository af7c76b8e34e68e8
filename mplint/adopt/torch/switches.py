"""Trainers have a switch for mixed precision: Lightning's `precision`, transformers' `fp16`, accelerate's `mixed_precision`."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.adopt.program import Adopted, Note, Program
from mplint.adopt.torch.judgment import settled
from mplint.adopt.torch.trainer_calls import setups
from mplint.adopt.torch.trainer_options import SourceOptions
from mplint.configs.trainers.duties import trainer
from mplint.configs.trainers.setup import Setup, is_on
from mplint.findings import Applicability, Fix
from mplint.frameworks.trainers.modes import modes
from mplint.python.arguments import set_keyword
from mplint.python.document import InputError
from mplint.recipes.scaler.plan import NoFix, require
from mplint.rewrite import FixError
from mplint.source.file import SourceFile
from mplint.targets import Targets

# What means float32, for each trainer's switch.
FULL = (None, False, 32, "32", "32-true", "no")
LIGHTNING = ("lightning", "fabric")


class Switch(NamedTuple):
    """A keyword of a trainer's constructor, and the text of its value."""

    name: str
    text: str


def switch_trainers(program: Program, policy: str) -> Adopted:
    """Set the switch of each trainer that the program builds."""
    made: list[Note] = []
    left = [*_from_command_line(program.file, policy), *_engines(program.file, policy)]
    first = program.file
    found = [s for s in first.fact(setups) if s.trainer in (*LIGHTNING, "transformers", "accelerate") and _call(s) is not None]
    for index, setup in enumerate(found):
        place = first.location(_call(setup) or first.tree)
        if list(modes(setup)):
            continue
        switch = switch_of(setup, policy, program.targets)
        try:
            require_free(first, setup, switch, policy)
            program = switched(program, index, switch)
            made.append(Note(place, f"`{switch.name}={switch.text}` lets {setup.title} train in mixed precision"))
        except NoFix as reason:
            left.append(Note(place, f"{setup.title} trains in float32: {reason}"))
    return Adopted(program, tuple(made), tuple(left), bool(found) or bool(left))


def _call(setup: Setup) -> ast.Call | None:
    node = setup.options.node if isinstance(setup.options, SourceOptions) else None
    return node if isinstance(node, ast.Call) else None


def switch_of(setup: Setup, policy: str, targets: Targets) -> Switch:
    """The keyword that chooses the policy for a trainer."""
    half = policy == "mixed_float16"
    if setup.trainer in LIGHTNING:
        versions = targets.trainer(setup.home)
        old = versions is not None and versions.before("2.0")
        return Switch("precision", ("16" if half else '"bf16"') if old else '"16-mixed"' if half else '"bf16-mixed"')
    if setup.trainer == "transformers":
        return Switch("fp16" if half else "bf16", "True")
    return Switch("mixed_precision", '"fp16"' if half else '"bf16"')


def require_free(file: SourceFile, setup: Setup, switch: Switch, policy: str) -> None:
    """Raise NoFix where something else decides about the precision, or the trainer refuses it here."""
    options = setup.options
    option = options.option(switch.name)
    if option is not None:
        full = option.sure and any(option.value is value or option.value == value for value in FULL)
        require(full, f"`{switch.name}` is a setting: set it to {switch.text} where it comes from")
    require(option is not None or options.complete, f"not all of its arguments are in sight: add `{switch.name}={switch.text}` to them")
    old = sorted(trainer("lightning").removed & set(options.names)) if setup.trainer == "lightning" and switch.text.startswith('"') else []
    require(
        not old, f"`{old[0]}` is an argument of Lightning 1, where it is `precision=16`; from 2.0 on it is {switch.text}" if old else ""
    )
    half = policy == "mixed_float16"
    require(not (half and "LBFGS" in file.document.text), "LBFGS takes no loss scaling: mixed_bfloat16 needs none")
    require(not (half and any(is_on(options, name) for name in ("use_cpu", "no_cuda"))), "on the CPU it takes bfloat16 only")
    for name in ("deepspeed", "deepspeed_plugin", "fsdp_plugin"):
        require(options.option(name) is None, f"`{name}` chooses the precision: set it there")
    accelerator = options.option("accelerator")
    require(accelerator is None or accelerator.text != "tpu", "on a TPU set `precision` to bf16-true, or keep it")
    on_cpu = setup.trainer in LIGHTNING and accelerator is not None and accelerator.text == "cpu"
    require(not (half and on_cpu), "on the CPU it takes bfloat16 only")


def switched(program: Program, index: int, switch: Switch) -> Program:
    """The program after setting the switch of its trainer number `index`; raises NoFix."""
    file = program.file
    found = [s for s in file.fact(setups) if s.trainer in (*LIGHTNING, "transformers", "accelerate") and _call(s) is not None]
    call = _call(found[index])
    if call is None:
        raise NoFix("the call can't be rewritten")
    fix = Fix("Switch mixed precision on", Applicability.UNSAFE, (set_keyword(file, call, switch.name, switch.text),))
    try:
        after, remaining, _ = settled(program, program.after([fix]))
    except (FixError, InputError) as error:
        raise NoFix(f"the line can't be rewritten: {error}") from None
    require(not remaining, f"then mplint finds {remaining[0].code} {remaining[0].message}" if remaining else "")
    return after


def _engines(file: SourceFile, policy: str) -> list[Note]:
    """DeepSpeed engines, whose configuration chooses the precision."""
    if any(setup.trainer == "deepspeed" and list(modes(setup)) for setup in file.fact(setups)):
        return []
    section = "fp16" if policy == "mixed_float16" else "bf16"
    text = f'DeepSpeed runs the training: set `"{section}": {{"enabled": true}}` in its configuration'
    calls = [c for c in file.syntax.all(ast.Call) if "deepspeed.initialize" in file.names.candidates(c.func)]
    return [Note(file.location(call), text) for call in calls]


def _from_command_line(file: SourceFile, policy: str) -> list[Note]:
    """Trainers whose settings come from the command line."""
    flag = "--fp16" if policy == "mixed_float16" else "--bf16"
    found = []
    for call in file.syntax.all(ast.Call):
        if any(name == "transformers.HfArgumentParser" for name in file.names.candidates(call.func)):
            found.append(Note(file.location(call), f"the precision comes from the command line: run the script with `{flag}`"))
        elif any(name.endswith(("LightningCLI", "Trainer.from_argparse_args")) for name in file.names.candidates(call.func)):
            value = "--trainer.precision 16-mixed" if policy == "mixed_float16" else "--trainer.precision bf16-mixed"
            found.append(Note(file.location(call), f"the precision comes from the command line: run the script with `{value}`"))
    return found
