"""MP110 legacy-trainer-precision."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mplint.configs.trainers.config_file import ConfigFile
from mplint.findings import Applicability, Confidence, Finding, Location, Severity, numbered
from mplint.frameworks.trainers.written import Configured, WrittenOptions, setups, verdict_of
from mplint.program.trace import Trace
from mplint.program.values import Place
from mplint.program.verdict import Verdict
from mplint.python.file import SourceFile
from mplint.rule import Rule, Surroundings

from .trainers.plugins import plugins
from .trainers.spellings import Spelling, spellings

MAX_USES = 4  # trainers shown that one default is given to


class LegacyTrainerPrecision(Rule):
    """Removed, old and unknown spellings of a trainer's precision

    ## What it does
    Finds precision settings that a trainer no longer takes, takes only for old programs, or never took: Lightning's `precision=16`
    and `"bf16"`, `amp_backend`, `amp_level` and plugin classes that were renamed; transformers' `fp16_backend`,
    `half_precision_backend` and `fp16_opt_level`; `Accelerator(fp16=True)`; the `bfloat16` and `amp` sections of DeepSpeed. A precision
    that the trainer does not know ("fp16" for Lightning, "float16" for accelerate, "amp" for Composer since 0.13) is an error, and so is
    an `amp_level` without `amp_backend="apex"`, which Lightning refuses since 1.5. Reads calls, dicts and configuration files (JSON,
    YAML). Silent where the project pins versions that do not have the new spelling yet.

    ## Why is this bad?
    transformers 5 and Lightning 2.0 removed these arguments: the call raises TypeError after the next upgrade. The old values of
    Lightning still work, with a warning in every run, and hide which of `16-mixed` (weights in float32) and `16-true` (weights in
    float16) is meant.

    ## Example
    ```python
    from lightning.pytorch import Trainer

    trainer = Trainer(max_epochs=10, precision=16)
    ```

    ## Use instead
    ```python
    from lightning.pytorch import Trainer

    trainer = Trainer(max_epochs=10, precision="16-mixed")
    ```

    ## Fix safety
    Safe: the new spelling means what the old one meant, and an argument is dropped only where its value is the default. Unsafe in a call
    that has arguments of Lightning 1.x, which refuses the new spellings. Where the old one asked for apex, nothing is offered.

    ## Evidence
    Said by the trainers' own warnings and errors, before a GPU computes anything; see the references.

    ## References
    - <https://lightning.ai/docs/pytorch/stable/upgrade/from_1_9.html>
    - <https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md>
    - <https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/precision_config.py>
    """

    code = "MP110"
    name = "legacy-trainer-precision"
    severity = Severity.WARNING
    fix = Applicability.SAFE
    configs = True
    tokens = ("precision", "fp16", "bfloat16", "amp_backend", "amp_level", "PrecisionPlugin", '"amp"', "'amp'")
    program = True

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Report old spellings of settings, wherever their values come from: once where one default gives several trainers theirs."""
        shared: dict[tuple[Place | None, str], dict[Location, Finding]] = {}
        for found in setups(trace):
            for spelling in spellings(found.setup, trace.targets(trace.path_of(found.file))):
                made = self._report(found.file, spelling, verdict_of(trace, found, partial(is_spelled, trace, spelling)))
                options = found.setup.options
                place = options.decided_at(spelling.name) if isinstance(options, WrittenOptions) and spelling.name else None
                if place is None:
                    yield made
                    continue
                uses = shared.setdefault((place, spelling.message), {})
                if made.location not in uses or made.confidence.rank > uses[made.location].confidence.rank:
                    uses[made.location] = made
        for (place, _), uses in shared.items():
            if len(uses) == 1 or place is None:
                yield from uses.values()
                continue
            first = max(uses.values(), key=lambda finding: finding.confidence.rank)
            steps = numbered(tuple((location, "a trainer gets it here") for location in list(uses)[:MAX_USES]))
            yield first._replace(location=trace.location(place), related=steps, fix=None)

    def check_source(self, file: SourceFile, around: Surroundings) -> Iterator[Finding]:
        """Report old names of plugin classes."""
        for spelling in plugins(file, around.targets, around.modules):
            yield self._report(file, spelling)

    def check_config(self, file: ConfigFile) -> Iterator[Finding]:
        """Report old spellings of settings."""
        for setup in file.trainers:
            for spelling in spellings(setup, file.targets):
                yield self._report(file, spelling)

    def _report(self, file: SourceFile | ConfigFile, spelling: Spelling, verdict: Verdict | None = None) -> Finding:
        return self.finding(
            file,
            spelling.place,
            spelling.message + (verdict.condition() if verdict is not None else ""),
            why=spelling.why,
            help=spelling.help,
            severity=Severity.INFO if file.is_test else spelling.severity,
            confidence=Confidence.HIGH if verdict is None or verdict.proven else Confidence.MEDIUM,
            fix=spelling.fix,
        )


def is_spelled(trace: Trace, spelling: Spelling, other: Configured) -> bool:
    """Whether a trainer has an old spelling, too."""
    found = spellings(other.setup, trace.targets(trace.path_of(other.file)))
    return any((one.place, one.message) == (spelling.place, spelling.message) for one in found)
