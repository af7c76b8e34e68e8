"""Trainers have a switch for mixed precision: Lightning's `precision`, transformers' `fp16`, accelerate's `mixed_precision`."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mplint.adopt.execution import Execution
from mplint.adopt.program import Adopted, Note, Program
from mplint.adopt.torch.judgment import parted, settled
from mplint.configs.trainers.duties import trainer
from mplint.configs.trainers.setup import Setup, is_on
from mplint.findings import Applicability, Fix
from mplint.frameworks.trainers.modes import modes
from mplint.frameworks.trainers.written import setups
from mplint.python.arguments import set_keyword
from mplint.python.document import InputError
from mplint.python.file import SourceFile
from mplint.python.names import position
from mplint.recipes.scaler.plan import NoFix, require
from mplint.rewrite import FixError
from mplint.targets import Targets

# What means float32, for each trainer's switch.
FULL = (None, False, 32, "32", "32-true", "no")
LIGHTNING = ("lightning", "fabric")
SWITCHED = (*LIGHTNING, "transformers", "accelerate")


class Switch(NamedTuple):
    """A keyword of a trainer's constructor, and the text of its value."""

    name: str
    text: str


def switch_trainers(program: Program, policy: str) -> Adopted:
    """Set the switch of each trainer that the program builds."""
    made: list[Note] = []
    left = [*_from_command_line(program.file, policy), *_engines(program.execution, policy)]
    first = program.file
    found = configured(program.execution)
    for index, (call, ways) in enumerate(found.items()):
        place = first.location(call)
        if any(list(modes(setup)) for setup in ways):
            continue
        setup, switch = ways[0], switch_of(ways[0], policy, program.targets)
        try:
            for way in ways:
                require_free(first, way, switch, policy)
            program = switched(program, index, switch)
            made.append(Note(place, f"`{switch.name}={switch.text}` lets {setup.title} train in mixed precision"))
        except NoFix as reason:
            left.append(Note(place, f"{setup.title} trains in float32: {reason}"))
    return Adopted(program, tuple(made), tuple(left), bool(found) or bool(left))


def configured(execution: Execution) -> dict[ast.Call, list[Setup]]:
    """The calls of this file that build trainers, in source order, each with what is set there on the ways that the program may take."""
    found: dict[ast.Call, list[Setup]] = {}
    for one in setups(execution.trace):
        call = execution.node(one.event.place)
        if one.setup.trainer in SWITCHED and isinstance(call, ast.Call):
            found.setdefault(call, []).append(one.setup)
    return dict(sorted(found.items(), key=lambda pair: position(pair[0])))


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
    call = list(configured(program.execution))[index]
    fix = Fix("Switch mixed precision on", Applicability.UNSAFE, (set_keyword(file, call, switch.name, switch.text),))
    try:
        after, remaining, _ = settled(program, program.after([fix]))
    except (FixError, InputError) as error:
        raise NoFix(f"the line can't be rewritten: {error}") from None
    remaining, _ = parted(program, remaining)
    require(not remaining, f"then mplint finds {remaining[0].code} {remaining[0].message}" if remaining else "")
    return after


def _engines(execution: Execution, policy: str) -> list[Note]:
    """DeepSpeed engines, whose configuration chooses the precision."""
    if any(one.setup.trainer == "deepspeed" and list(modes(one.setup)) for one in setups(execution.trace)):
        return []
    file = execution.file
    section = "fp16" if policy == "mixed_float16" else "bf16"
    text = f'DeepSpeed runs the training: set `"{section}": {{"enabled": true}}` in its configuration'
    calls = [c for c in file.syntax.all(ast.Call) if "deepspeed.initialize" in file.names.candidates(c.func)]
    return [Note(file.location(call), text) for call in calls]


def _of_trainers(file: SourceFile, parser: ast.Call) -> bool:
    """Whether a parser may fill the arguments of a Trainer: not where all its classes are the file's own, and none derives from them."""
    given = parser.args[0] if parser.args else None
    names = [each.id for each in ast.walk(given) if isinstance(each, ast.Name)] if given is not None else []
    own = {each.name: each for each in file.syntax.all(ast.ClassDef)}
    kinds = [own.get(name) for name in names]
    return not kinds or any(kind is None or any("TrainingArguments" in ast.unparse(base) for base in kind.bases) for kind in kinds)


def _from_command_line(file: SourceFile, policy: str) -> list[Note]:
    """Trainers whose settings come from the command line."""
    flag = "--fp16" if policy == "mixed_float16" else "--bf16"
    found = []
    for call in file.syntax.all(ast.Call):
        if any(name == "transformers.HfArgumentParser" for name in file.names.candidates(call.func)) and _of_trainers(file, call):
            found.append(Note(file.location(call), f"the precision comes from the command line: run the script with `{flag}`"))
        elif any(name.endswith("Trainer.from_argparse_args") for name in file.names.candidates(call.func)):  # gone with Lightning 2.0
            value = "--precision 16" if policy == "mixed_float16" else "--precision bf16"
            found.append(Note(file.location(call), f"the precision comes from the command line: run the script with `{value}`"))
        elif any(name.endswith("LightningCLI") for name in file.names.candidates(call.func)):
            value = "--trainer.precision 16-mixed" if policy == "mixed_float16" else "--trainer.precision bf16-mixed"
            found.append(Note(file.location(call), f"the precision comes from the command line: run the script with `{value}`"))
    return found
