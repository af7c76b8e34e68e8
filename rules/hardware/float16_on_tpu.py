"""MP502 float16-on-tpu."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.configs.trainers.config_file import ConfigFile
from mplint.configs.trainers.setup import Setup
from mplint.findings import Applicability, Confidence, Finding, Fix, Replace, Severity
from mplint.frameworks.choices import Choice, choices, is_requested, targets_of, texts
from mplint.frameworks.trainers.modes import modes
from mplint.frameworks.trainers.written import setups
from mplint.program.conditions import Path, extend
from mplint.program.trace import Trace
from mplint.rule import Consequence, Rule
from mplint.targets import Targets

if TYPE_CHECKING:
    from mplint.python.file import SourceFile

DEVICE = re.compile(r"tpu|gpu|cuda|strategy|device|accelerator|resolver", re.I)
BFLOAT16 = {"fp16": "bf16", "16-mixed": "bf16-true", "16-true": "bf16-true"}  # Lightning takes no bf16-mixed there
WHY = "TPUs multiply in bfloat16: float16 gains nothing, overflows above 65504, and loss scaling raises under TPUStrategy in Keras 2."


class Float16OnTpu(Rule):
    """float16 on a TPU, which has only bfloat16

    ## What it does
    Finds float16 on a TPU: a float16 dtype policy in a program that builds a TPUStrategy or connects to a TPU, or that is checked for a TPU
    target, and float16 autocast on an XLA device (advice where the program asks for float16 by name, as in `if precision == "fp16":`).
    Also trainers (Lightning, accelerate) that are set to a TPU and to float16, in programs and in configuration files.

    ## Why is this bad?
    A TPU's matrix units take bfloat16. Float16 is emulated there at no gain and overflows above 65504, where bfloat16 reaches 3.4e38 and
    needs no loss scaling; Keras 2 refuses LossScaleOptimizer under TPUStrategy.

    ## Example
    ```python
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    strategy = tf.distribute.TPUStrategy(resolver)
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    ```

    ## Use instead
    ```python
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    strategy = tf.distribute.TPUStrategy(resolver)
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    ```

    ## Fix safety
    Unsafe: bfloat16 has 8 bits where float16 has 11, and the same code may run on GPUs. The policy becomes `"mixed_bfloat16"`, which
    TPUs run natively, a trainer's precision its bfloat16 sibling, and an autocast region for an XLA device gets `torch.bfloat16` where
    it is written with `torch.float16`.

    ## Evidence
    Shows only on a TPU; see the TensorFlow guide in the references.

    ## References
    - https://www.tensorflow.org/guide/mixed_precision
    - https://cloud.google.com/tpu/docs/bfloat16
    """

    code = "MP502"
    name = "float16-on-tpu"
    severity = Severity.ERROR
    fix = Applicability.UNSAFE
    frameworks = ("keras", "torch")
    tokens = ("float16", "precision")
    program = True
    configs = True
    adoption = Consequence(fatal=True)

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report float16 policies next to a TPU, float16 autocast on XLA devices, then trainers that are set to both."""
        for choice in choices(trace):
            if choice.dtype == "float16" and choice.kind == "policy":
                yield from self._policy(trace, choice)
            elif choice.dtype == "float16" and choice.kind == "autocast" and choice.device == "xla":
                yield self._autocast(trace, choice)
        for found in setups(trace):
            if found.verdict.proven:
                yield from self._trainer(found.file, found.setup, trace.targets(trace.path_of(found.file)))

    def _policy(self, trace: Trace, choice: Choice) -> Iterator[Finding]:
        """A policy in a program that runs on a TPU on the same way, or is checked for one."""
        target = is_tpu(targets_of(trace, choice))
        used = [event for event in choice.entry.of("tpu used") if extend(choice.path, event.path) is not None]
        used = [e for e in used if not e.path or trace.file(e.place.path) is choice.file]  # helpers of others try out what there is
        if is_fallback(choice) or is_requested(trace, choice.path, "float16"):
            return
        if not (target or (used and not excludes_tpu(choice.path))):
            return
        literals = [c for c in choice.file.syntax.all(ast.Constant) if isinstance(c.value, str) and choice.file.span(c) == choice.span]
        text = str(literals[0].value) if literals else ""
        quote = choice.file.text(literals[0])[0] if literals else ""
        change = Replace(choice.span, f"{quote}mixed_bfloat16{quote}")
        sure = target or any(not event.path for event in used)
        yield self.finding(
            choice.file,
            trace.span(choice.site) if trace.file(choice.site.path) is choice.file else choice.span,
            f'the policy "{text or "float16"}" computes in float16 on a TPU{choice.verdict.condition()}',
            why=WHY,
            help='use "mixed_bfloat16"',
            severity=Severity.INFO if choice.file.is_test else None,
            confidence=Confidence.HIGH if sure and choice.verdict.proven else Confidence.MEDIUM,
            related=((trace.location(used[0].place), "runs on a TPU"),) if used else (),
            fix=Fix('use the policy "mixed_bfloat16"', Applicability.UNSAFE, (change,)) if text else None,
        )

    def _autocast(self, trace: Trace, choice: Choice) -> Finding:
        """A region for XLA devices."""
        target = is_tpu(targets_of(trace, choice))
        asked = not target and is_requested(trace, choice.path, "float16")  # an option; an XLA device may be a GPU
        return self.finding(
            choice.file,
            trace.span(choice.site) if trace.file(choice.site.path) is choice.file else choice.span,
            f"float16 autocast on an XLA device{choice.verdict.condition()}",
            why=WHY,
            help="use `dtype=torch.bfloat16`",
            severity=Severity.INFO if asked or choice.file.is_test else None,
            confidence=Confidence.HIGH if target else Confidence.MEDIUM,
            fix=in_bfloat16(choice),
        )

    def check_config(self, file: ConfigFile) -> Iterator[Finding]:
        """Report trainers that are set to float16 and to a TPU."""
        for setup in file.trainers:
            yield from self._trainer(file, setup, file.targets)

    def _trainer(self, file: SourceFile | ConfigFile, setup: Setup, targets: Targets) -> Iterator[Finding]:
        target = is_tpu(targets)
        for mode in modes(setup):
            if mode.dtype != "float16" or not (mode.device == "xla" or (target and mode.fits("xla"))):
                continue
            new = BFLOAT16.get(mode.option.text or "")
            change = setup.options.set(mode.option, new) if new is not None else None
            yield self.finding(
                file,
                mode.option.place,
                f"{setup.title} computes in float16 on a TPU",
                why="TPUs multiply in bfloat16: float16 gains nothing there, and Lightning and accelerate refuse its mixed form.",
                help="use bfloat16",
                severity=Severity.INFO if file.is_test else None,
                fix=Fix(f"use {new}", Applicability.UNSAFE, (change,)) if change is not None else None,
            )


def in_bfloat16(choice: Choice) -> Fix | None:
    """The dtype of a region that is written as `torch.float16` or `torch.half` in bfloat16."""
    line, column, end_line, end_column = choice.span
    text = choice.file.lines[line - 1][column:end_column] if line == end_line else ""
    owner, _, name = text.rpartition(".")
    if name not in ("float16", "half"):
        return None
    return Fix("compute in bfloat16", Applicability.UNSAFE, (Replace(choice.span, f"{owner}.bfloat16" if owner else "bfloat16"),))


def is_tpu(targets: Targets) -> bool:
    """Whether a file is checked for a TPU."""
    return targets.hardware is not None and targets.hardware.kind == "tpu"


def is_fallback(choice: Choice) -> bool:
    """Whether a policy is set only where setting another one has raised."""
    failed = {key for key, sense in choice.path if key[0] == "place" and key[2:3] == ("try",) and not sense}
    return any((key, True) in event.path for event in choice.entry.of("policy set") for key in failed)


def excludes_tpu(path: Path) -> bool:
    """Whether a condition of a path asks which device or strategy there is."""
    return any(DEVICE.search(text) for text, _, _ in texts(path))
