"""MP503: bfloat16 on GPUs that have no units for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.configs.trainers.config_file import ConfigFile
from mplint.findings import Confidence, Finding, Severity
from mplint.frameworks.choices import (
    Choice,
    asks_capability,
    choices,
    counts_emulation,
    effect,
    excludes,
    is_asked,
    is_requested,
    targets_of,
    texts,
)
from mplint.frameworks.trainers.modes import modes
from mplint.program.trace import Trace, possible
from mplint.program.values import Place, Test
from mplint.rule import Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.graph.stored import Stored
    from mplint.hardware import Target

WHY = "GPUs before Ampere (V100, T4, RTX 20: compute capability below 8.0) have no bfloat16 units: torch emulates it, older releases raise."
HELP = (
    "Decide by `torch.cuda.is_bf16_supported(including_emulation=False)` or `torch.cuda.get_device_capability() >= (8, 0)`, else float16."
)
AVAILABLE = re.compile("cuda|gpu|is_available", re.I)


class Bfloat16BeforeAmpere(Rule):
    """bfloat16 on GPUs that have no units for it

    ## What it does
    With a known target that is older than Ampere (`--target "Tesla T4"`, `--target 7.0`), finds bfloat16 in autocast, Keras policies, the
    precision options of trainers (in programs, JSON and YAML), sharding policies and `from_pretrained`, also behind
    `torch.cuda.is_bf16_supported()`: it answers True on these GPUs, because torch emulates bfloat16. Without a target, reports a program
    that means to run on many GPUs, since it scales the loss when its dtype is float16, but whose own default is a plain "bfloat16" that
    nothing checks. Other unchecked bfloat16 on CUDA is advice. Says nothing where the file reads the compute capability itself.
    In model graphs: products and convolutions in bfloat16, with such a target; in files of weights, bfloat16 matrices.

    ## Why is this bad?
    A Tesla T4 does 65 TFLOPS in float16 on its Tensor Cores and has none for bfloat16: emulation computes in float32, at 8.1 TFLOPS at
    most, with casts around it. Older torch refuses: "Current CUDA Device does not support bfloat16. Please switch dtype to float16."
    The harm needs a GPU with a compute capability below 8.0; on A100, H100, RTX 30 and later the same line is right.

    ## Example
    ```python
    # fixture: target=Tesla T4
    import torch

    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16

    def step(model, batch):
        with torch.autocast("cuda", dtype=dtype):
            return model(batch)
    ```

    ## Use instead
    ```python
    # fixture: target=Tesla T4
    import torch

    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16

    def step(model, batch):
        with torch.autocast("cuda", dtype=dtype):
            return model(batch)
    ```

    ## Evidence
    Shows only on a GPU older than Ampere; the reports below are from V100 and T4.

    ## References
    - <https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_bf16_supported.html>
    - <https://github.com/karpathy/nanoGPT/pull/277>
    - <https://github.com/pytorch/pytorch/issues/124996>
    - <https://developer.nvidia.com/cuda-gpus>
    """

    code = "MP503"
    name = "bfloat16-before-ampere"
    severity = Severity.WARNING
    frameworks = ("keras", "torch")
    graphs = True
    weights = True
    tokens = ("bfloat16", "bf16")
    program = True
    configs = True

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield a model that computes in bfloat16 where the target has no units for it."""
        target = graph.targets.hardware
        if target is None or target.bf16_native is not False:
            return
        if graph.stored is not None:
            yield from self._stored(graph, graph.stored, target)
            return
        nodes = [n for n in graph.heavy or graph.working if n.compute_dtype == "bfloat16"]
        if nodes:
            yield self.graph_finding(
                graph,
                nodes[0],
                f"{len(nodes)} heavy nodes compute in bfloat16, which {target.label} only emulates; the first is {nodes[0].described}",
                why=WHY,
                help="Ship a float16 model for this device.",
                confidence=Confidence.HIGH if target.sure else Confidence.MEDIUM,
            )

    def _stored(self, graph: GraphFacts, stored: Stored, target: Target) -> Iterator[Finding]:
        from mplint.graph.sizes import title

        weights = stored.held_in("bfloat16")
        if weights:
            first = weights[0]
            yield self.graph_finding(
                graph,
                first,
                f"{len(weights)} of {len(stored.wide)} matrices are bfloat16, which {target.label} only emulates; "
                f"the first is {title(first)}",
                why=f"{WHY} Loaded as it is stored, the model computes in bfloat16.",
                help="Load it as float16 on this device, where its values fit, or as float32.",
                confidence=Confidence.MEDIUM,
            )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the bfloat16 that the target emulates, or, without a target, that no check keeps from older GPUs."""
        found = choices(trace)
        float8 = {choice.file.document.path for choice in found if choice.dtype == "float8"}  # which asks for a GPU that has bfloat16
        emulated = {c.file.document.path for c in found if counts_emulation(c.path)}
        for choice in found:
            target, file = targets_of(trace, choice).hardware, choice.file
            if choice.dtype != "bfloat16" or not choice.fits("cuda") or (target is not None and target.bf16_native is not False):
                continue
            if asks_capability(trace, choice) or is_asked(choice.path) or excludes(choice.path, "cuda"):
                continue
            asked_for = is_requested(trace, choice.path, "bfloat16")
            if target is not None:
                yield self._on_target(trace, choice, target, file.is_test or asked_for)
            elif asked_for or file.is_test or file.document.path in float8 | emulated:
                continue  # who asks for bfloat16 by name knows the GPU
            elif choice.kind == "sharding" or (choice.kind == "autocast" and choice.device == "cuda"):
                yield self._anywhere(trace, choice)

    def check_config(self, file: ConfigFile) -> Iterator[Finding]:
        """Yield the bfloat16 of a configuration file that the target emulates."""
        target = file.targets.hardware
        if target is None or target.bf16_native is not False:
            return
        for setup in file.trainers:
            for mode in modes(setup):
                if mode.dtype == "bfloat16" and mode.fits("cuda"):
                    yield self.finding(
                        file,
                        mode.option.place,
                        f"{setup.title} uses bfloat16, which {target.label} only emulates",
                        why=f"{target.label[0].upper()}{target.label[1:]} has no bfloat16 units: they came with compute capability 8.0.",
                        help="Use float16 on this device.",
                        severity=Severity.INFO if file.is_test else None,
                        confidence=Confidence.HIGH if target.sure else Confidence.MEDIUM,
                    )

    def _on_target(self, trace: Trace, choice: Choice, target: Target, asked_for: bool) -> Finding:
        lacks = f"{target.label[0].upper()}{target.label[1:]} has no bfloat16 units"
        since = ", which came with compute capability 8.0 (Ampere)" if target.capability else ""
        counted = ", and `is_bf16_supported` counts emulation as support" if counts_emulation(choice.path) else ""
        return self.finding(
            choice.file,
            choice.span,
            f"`{choice.name}` uses bfloat16, which {target.label} only emulates{choice.verdict.condition()}",
            why=f"{lacks}{since}{counted}.",
            help="Use mixed_float16 on this device." if choice.kind == "policy" else HELP,
            severity=Severity.INFO if asked_for else None,
            confidence=Confidence.HIGH if choice.verdict.proven and target.sure else Confidence.MEDIUM,
            related=effect(trace, choice),
        )

    def _anywhere(self, trace: Trace, choice: Choice) -> Finding:
        scaler = float16_twin(trace, choice)
        if scaler is None:
            return self.finding(
                choice.file,
                choice.span,
                f"`{choice.name}` uses bfloat16, and nothing checks that the GPU has it{choice.verdict.condition()}",
                why=WHY,
                help=HELP,
                severity=Severity.INFO,
                confidence=Confidence.MEDIUM,
                related=effect(trace, choice),
            )
        return self.finding(
            choice.file,
            choice.span,
            "the default dtype of this program is bfloat16, whatever the GPU",
            why=WHY,
            help=HELP,
            confidence=Confidence.MEDIUM,
            related=(*effect(trace, choice), (trace.location(scaler), "for float16 the loss is scaled, so other GPUs are meant as well")),
        )


def float16_twin(trace: Trace, choice: Choice) -> Place | None:
    """The loss scaler that the setting turns on when it says float16 whose default this is; None where something else decides."""
    decided = {key[1] for key, sense in choice.path if key[0] == "in" and sense and "bfloat16" in map(str, key[2])}
    if any(not AVAILABLE.search(text) for text, _, values in texts(choice.path) if not values):
        return None
    for event in choice.entry.of("scaler made"):
        for path, atom in possible(event.data["enabled"], event.path):  # type: ignore[arg-type]
            keys = [(atom.key, atom.sense)] if type(atom) is Test else list(path)
            for key, sense in keys:
                values = set(map(str, key[2])) if key[0] == "in" and sense and key[1] in decided else set()
                if "float16" in values and "bfloat16" not in values:
                    return event.place
    return None
