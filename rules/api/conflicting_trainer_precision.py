"""MP109 conflicting-trainer-precision."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mplint.configs.trainers.config_file import ConfigFile
from mplint.findings import Applicability, Confidence, Finding, Severity
from mplint.frameworks.trainers.written import Configured, setups, verdict_of
from mplint.program.trace import Trace
from mplint.program.values import TRUE, Place
from mplint.python.document import is_test_path
from mplint.python.file import SourceFile
from mplint.rule import Rule

from .trainers.conflicts import Built, Conflict, conflicts
from .trainers.plugin_scalers import plugin_scalers
from .trainers.regions import regions


class ConflictingTrainerPrecision(Rule):
    """Precision settings of a trainer that exclude each other

    ## What it does
    Finds settings of a trainer that can't hold together, in calls, in dicts and in its configuration files: `fp16` beside `bf16` in
    transformers' and trl's arguments, two of `fp16`, `bf16`, `amp` and `torch_autocast` enabled for DeepSpeed, a precision that
    Lightning's strategy, accelerator, scaler or optimizer does not take, float16 on the CPU of accelerate, `mixed_precision` in an
    accelerate configuration beside the DeepSpeed file that it names, `tf32` for a target that is older than Ampere. Also an autocast
    region or a GradScaler of the program's own inside a trainer that brings both. Configuration files (DeepSpeed JSON, accelerate YAML,
    TrainingArguments and Lightning as JSON or YAML) are told by their content, whatever their names. Values that the text does not fix,
    `"auto"` among them, conflict with nothing.

    ## Why is this bad?
    Most of these raise before the first of many steps, often on a cluster after an hour in the queue: transformers says "At most one of
    fp16 and bf16 can be True, but not both". The rest is silent: on a CPU accelerate's `fp16` trains in float32, and a loss that the
    program's own GradScaler multiplied by 65536 is never divided by it again.

    ## Example
    ```python
    from transformers import TrainingArguments

    arguments = TrainingArguments("out", fp16=True, bf16=True)
    ```

    ## Use instead
    ```python
    from transformers import TrainingArguments

    arguments = TrainingArguments("out", bf16=True)
    ```

    ## Fix safety
    Safe: the program could not run before. Of `fp16` and `bf16` the first one goes, with a target that has no bfloat16 the second. Where
    more than one flag would have to change, nothing is offered. Unsafe where the DeepSpeed file that remains enables another precision.

    ## Evidence
    Raised by the trainers themselves, before a GPU computes anything; their sources are named below.

    ## References
    - <https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py>
    - <https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py>
    - <https://lightning.ai/docs/pytorch/stable/common/precision_basic.html>
    - <https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py>
    - <https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py>
    """

    code = "MP109"
    name = "conflicting-trainer-precision"
    severity = Severity.ERROR
    fix = Applicability.SAFE
    configs = True
    tokens = ("fp16", "bf16", "bfloat16", "precision", "tf32", "MixedPrecision", "GradScaler", "autocast")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report conflicting settings, then the program's own regions and scalers inside trainers."""
        ways: dict[Place, list[list[Conflict]]] = {}
        told: list[tuple[Configured, Conflict]] = []
        for found in setups(trace):
            clashing = list(conflicts(found.setup, trace.targets(trace.path_of(found.file)), built_with(trace, found.event.place.path)))
            ways.setdefault(found.event.place, []).append(clashing)
            told += [(found, conflict) for conflict in clashing]
        for found, conflict in told:
            always = all(any(other.place == conflict.place for other in way) for way in ways[found.event.place])
            verdict = verdict_of(trace, found, partial(clashes, trace, conflict))
            said = conflict._replace(
                message=conflict.message + verdict.condition(),
                fix=conflict.fix if always else None,  # other runs need what it takes out
            )
            yield self._report(found.file, said, sure=verdict.proven)
        for own in (*plugin_scalers(trace), *regions(trace)):
            yield self.at(
                trace,
                own.place,
                own.message,
                why=own.why,
                help=own.help,
                severity=Severity.INFO if is_test_path(own.place.path) else own.severity,
                confidence=Confidence.HIGH if own.sure else Confidence.MEDIUM,
                steps=own.steps,
                fix=own.fix,
            )

    def check_config(self, file: ConfigFile) -> Iterator[Finding]:
        """Report conflicting settings."""
        for setup in file.trainers:
            for conflict in conflicts(setup, file.targets):
                yield self._report(file, conflict)

    def _report(self, file: SourceFile | ConfigFile, conflict: Conflict, *, sure: bool = True) -> Finding:
        return self.finding(
            file,
            conflict.place,
            conflict.message,
            why=conflict.why,
            help=conflict.help,
            severity=Severity.INFO if file.is_test else conflict.severity,
            confidence=Confidence.HIGH if conflict.sure and sure else Confidence.MEDIUM,
            related=conflict.related,
            fix=conflict.fix,
        )


def clashes(trace: Trace, conflict: Conflict, other: Configured) -> bool:
    """Whether a trainer has a conflict, too."""
    found = conflicts(other.setup, trace.targets(trace.path_of(other.file)), built_with(trace, other.event.place.path))
    return any((one.place, one.message) == (conflict.place, conflict.message) for one in found)


def built_with(trace: Trace, path: str) -> list[Built]:
    """The optimizers that `configure_optimizers` builds in the modules of a file, whatever is chosen."""
    found: dict[Built, None] = {}
    for _, event in trace.of("optimizer made"):
        if event.function == "configure_optimizers" and event.place.path == path and not event.path:
            fused = event.data["args"].named.get("fused")  # type: ignore[attr-defined]
            if str(event.data["name"]).endswith(".LBFGS") or fused == TRUE:
                found[trace.location(event.place), fused != TRUE] = None
    return list(found)
