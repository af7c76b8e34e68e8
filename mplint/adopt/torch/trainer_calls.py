"""The trainers that a program configures: by calls, by dicts that they are given, by the defaults of their subclasses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.adopt.torch.trainer_options import Given, SourceOptions, given
from mplint.configs.trainers.duties import configured
from mplint.configs.trainers.kinds import DEEPSPEED_SECTIONS, is_deepspeed
from mplint.configs.trainers.setup import Setup
from mplint.python.syntax import argument

if TYPE_CHECKING:
    from mplint.source.file import SourceFile

# Arguments that take a DeepSpeed configuration, by the last part of what is called.
DEEPSPEED_ARGUMENTS = {
    "initialize": ("config", "config_params"),
    "DeepSpeedStrategy": ("config",),
    "DeepSpeedPlugin": ("hf_ds_config",),
    "TrainingArguments": ("deepspeed",),
    "Seq2SeqTrainingArguments": ("deepspeed",),
}
WORDS = ("transformers", "trl", "lightning", "accelerate", "deepspeed")
DEEPSPEED_HOMES = ("deepspeed", "lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "transformers")


def setups(file: SourceFile) -> list[Setup]:
    """Everything that the program sets for a trainer, in source order."""
    found = [*_calls(file), *_classes(file)] if any(word in file.document.text for word in WORDS) else []
    found += _deepspeed(file)
    return sorted(found, key=lambda setup: setup.options.place)


def trainer_of(name: str) -> tuple[str, str] | None:
    """The trainer and its distribution that the class called `name` belongs to, or None."""
    kind = configured(name)
    return (kind.key, "lightning" if kind.key == "fabric" else kind.key) if kind is not None else None


def _calls(file: SourceFile) -> Iterator[Setup]:
    for call in file.syntax.all(ast.Call):
        func = call.func
        outer: list[ast.Call] = []
        if isinstance(func, ast.Name) and not file.names.candidates(func):
            outer = [d for d in file.values.definitions(func) if isinstance(d, ast.Call) and _is_partial(file, d)]
            if len(outer) == 1 and outer[0].args:
                func = outer[0].args[0]
        for name in file.names.candidates(func):
            found = trainer_of(name)
            if found is not None:
                options = SourceOptions(file, call, [*(g for o in outer for g in given(file, o)), *given(file, call)])
                yield Setup(found[0], name.rpartition(".")[2], options, found[1])
                break
            last = name.rpartition(".")[2]
            if last == "LightningCLI" and (value := argument(call, "trainer_defaults")) is not None:
                yield from _of_dict(file, value, "lightning", "Trainer", "lightning")
        if isinstance(func, ast.Attribute) and func.attr == "parse_dict" and call.args and _is_parser(file, func.value):
            yield from _of_dict(file, call.args[0], "transformers", "TrainingArguments", "transformers")


def _is_parser(file: SourceFile, node: ast.expr) -> bool:
    return any(name == "transformers.HfArgumentParser" for _, name in file.values.made_by(node))


def _is_partial(file: SourceFile, call: ast.Call) -> bool:
    return file.names.resolve(call.func) == "functools.partial"


def _of_dict(file: SourceFile, value: ast.expr, trainer: str, title: str, home: str) -> Iterator[Setup]:
    definitions = file.values.definitions(value)
    if len(definitions) == 1 and isinstance(definitions[0], ast.Dict | ast.Call) and (entries := given(file, definitions[0])):
        yield Setup(trainer, title, SourceOptions(file, definitions[0], entries), home)


def _classes(file: SourceFile) -> Iterator[Setup]:
    for owner in file.syntax.all(ast.ClassDef):
        names = [name for name in file.names.base_names(owner) if (trainer_of(name) or ("",))[0] == "transformers"] if owner.bases else []
        if names:
            entries = []
            for item in owner.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is not None:
                    entries.append(Given(item.target.id, item.target, default_of(item.value), owner))
            yield Setup("transformers", owner.name, SourceOptions(file, owner, entries), "transformers")


def default_of(value: ast.expr) -> ast.expr:
    """The default in `field(default=…)`, else the value itself."""
    if isinstance(value, ast.Call) and (default := argument(value, "default")) is not None:
        return default
    return value


def _deepspeed(file: SourceFile) -> Iterator[Setup]:
    seen: set[ast.AST] = set()
    for call in file.syntax.all(ast.Call):
        last = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
        for name in DEEPSPEED_ARGUMENTS.get(last, ()):
            value = argument(call, name)
            if value is None or not any(n.partition(".")[0] in DEEPSPEED_HOMES for n in file.names.candidates(call.func)):
                continue
            for definition in file.values.definitions(value):
                if isinstance(definition, ast.Dict) and definition not in seen:
                    seen.add(definition)
                    yield Setup("deepspeed", "DeepSpeed", SourceOptions(file, definition, list(given(file, definition))), "deepspeed")
    for node in file.syntax.all(ast.Dict):
        if node not in seen and any(isinstance(key, ast.Constant) and key.value in DEEPSPEED_SECTIONS for key in node.keys):
            options = SourceOptions(file, node, list(given(file, node)))
            if is_deepspeed(options):
                yield Setup("deepspeed", "DeepSpeed", options, "deepspeed")
