"""MP501: a low-precision dtype that the target device can't run, or runs no faster than float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mplint.configs.trainers.config_file import ConfigFile
from mplint.findings import Confidence, Finding, Severity
from mplint.frameworks.choices import Choice, asks_capability, choices, effect, excludes, is_asked, is_requested, targets_of
from mplint.frameworks.trainers.modes import modes
from mplint.program.trace import Trace
from mplint.rule import Consequence, Rule

if TYPE_CHECKING:
    from mplint.graph.facts import GraphFacts
    from mplint.graph.stored import Stored
    from mplint.hardware import Target

NEEDS_FLOAT8 = "float8 needs compute capability 8.9 (Ada, Hopper) or an Instinct MI300"
FAST = 1.0  # float16 operations a core does for each one in float32, above which float16 gains something


class UnsupportedHardware(Rule):
    """A dtype that the target device can't run, or that hardly pays there

    ## What it does
    With a known target (`--target "Tesla P100"`, `--target 6.1`, `--target auto`, or `target` in the configuration), finds float8 that
    the device can't compute in, and float16 on devices without Tensor Cores: NVIDIA GPUs below compute capability 7.0, GTX 16xx and their
    like, CPUs. The finding says what float16 comes to there: twice the float32 rate at best, no gain, or 1/64 of it. Looks at autocast,
    Keras policies, the precision options of trainers (Lightning, transformers, trl, accelerate) in programs and in their JSON and YAML
    files, sharding policies and float8 libraries. Says nothing without a target, nor where the file reads the compute capability itself.
    In model graphs: what the products and convolutions compute in, also where float8 comes as scaled products or as pairs that round and
    widen; as advice, what weights are stored in.

    ## Why is this bad?
    float16 is fast because of Tensor Cores: 65 against 8.1 TFLOPS on a Tesla T4. A Tesla P100 (6.0) and a GTX 1660 (7.5) have none; their
    cores do two float16 operations in the time of one in float32, and products that are summed in float32 gain nothing. A Tesla P40 or a
    GTX 1080 (6.1) computes float16 at 1/64 of its float32 rate, a Tesla M40 (5.2) and a CPU convert it to float32 and back: there the casts
    and the loss scaling are pure cost, and what remains is the smaller memory. float8 needs compute
    capability 8.9: below, transformer_engine and `torch._scaled_mm` raise. The harm needs that hardware; on another target the same line
    is right.

    ## Example
    ```python
    # fixture: target=Tesla P40
    import torch

    def step(model, batch):
        with torch.autocast("cuda", dtype=torch.float16):
            return model(batch)
    ```

    ## Use instead
    ```python
    # fixture: target=Tesla P40
    import torch

    fast_half = torch.cuda.get_device_capability() >= (7, 0)

    def step(model, batch):
        with torch.autocast("cuda", dtype=torch.float16, enabled=fast_half):
            return model(batch)
    ```

    ## Evidence
    Shows only on a GPU without the units in question. The capabilities come from NVIDIA's table and the whitepapers of the GPUs below.

    ## References
    - <https://developer.nvidia.com/cuda-gpus>
    - <https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html>
    - <https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#arithmetic-instructions>
    - <https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/examples/fp8_primer.html>
    """

    code = "MP501"
    name = "unsupported-hardware"
    severity = Severity.ERROR
    needs_target = True
    program = True
    configs = True
    frameworks = ("keras", "torch")
    graphs = True
    weights = True
    tokens = ("autocast", "float16", "fp16", "fp8", "float8", "precision", "_scaled_mm")
    adoption = Consequence(fatal=True)

    def check_graph(self, graph: GraphFacts) -> Iterator[Finding]:
        """Yield, once a dtype, what a model computes in that the target does not reward, or refuses."""
        target = graph.targets.hardware
        if target is None:
            return
        if graph.stored is not None:
            yield from self._stored(graph, graph.stored, target)
            return
        among = graph.heavy or graph.working
        of = f"of {len(among)} {'heavy ' if graph.heavy else ''}nodes"
        nodes = [n for n in among if n.compute_dtype == "float16"] if target.half_fast is False else []
        if nodes:
            yield self.graph_finding(
                graph,
                nodes[0],
                f"{len(nodes)} {of} compute in float16, the first is {nodes[0].described}; that {pace(target)} on {target.label}",
                why=slowness(target),
                help=shipping(target),
                severity=Severity.WARNING,
                confidence=Confidence.HIGH if target.sure else Confidence.MEDIUM,
            )
        if target.fp8 is False:
            yield from self._eight_bit(graph, target, of)

    def _eight_bit(self, graph: GraphFacts, target: Target, of: str) -> Iterator[Finding]:
        """Products that raise without the units, pairs that only cost there, and, as advice, weights that are widened."""
        from .eight_bit import EightBit, eight_bit

        said = {
            EightBit.PRODUCT: ("multiply float8 as it is", "There is no such product without the units: it raises", None),
            EightBit.ROUNDED: (
                "multiply what was rounded to float8 and widened again",
                "Without the units the product runs in the wider dtype, and the rounding costs time and accuracy",
                Severity.WARNING,
            ),
            EightBit.STORED: (
                "read weights stored in float8",
                "They are widened before each product: that saves memory and no time",
                Severity.INFO,
            ),
        }
        for how, nodes in eight_bit(graph).items():
            what, why, severity = said[how]
            yield self.graph_finding(
                graph,
                nodes[0],
                f"{len(nodes)} {of} {what}, the first is {nodes[0].described}; {target.label} has no float8 units",
                why=f"{NEEDS_FLOAT8}{has(target)}. {why}.",
                help="Ship a float16 or bfloat16 model for this device.",
                severity=severity,
                confidence=Confidence.HIGH if target.sure else Confidence.MEDIUM,
            )

    def _stored(self, graph: GraphFacts, stored: Stored, target: Target) -> Iterator[Finding]:
        """Storage alone asks for no units: whoever loads the weights may widen them."""
        from mplint.graph.sizes import title

        wider = "float32" if target.half_fast is False else "float16"
        for dtype, fast, lacks, why in (
            ("float16", target.half_fast, f"which {pace(target)} on {target.label}", slowness(target)),
            ("float8", target.fp8, f"a dtype that {target.label} has no units for", f"{NEEDS_FLOAT8}{has(target)}."),
        ):
            weights = stored.held_in(dtype) if fast is False else []
            if weights:
                first = weights[0]
                yield self.graph_finding(
                    graph,
                    first,
                    f"{len(weights)} of {len(stored.wide)} matrices are stored in {first.dtype}, {lacks}; the first is {title(first)}",
                    why=f"{why} Storage alone costs nothing: it saves memory.",
                    help=f"Load them as {wider} to compute on this device.",
                    severity=Severity.INFO,
                    confidence=Confidence.HIGH if target.sure else Confidence.MEDIUM,
                )

    def check_program(self, trace: Trace) -> Iterator[Finding]:
        """Yield the choices that the target does not reward, or refuses."""
        for choice in choices(trace):
            target = targets_of(trace, choice).hardware
            if target is None or asks_capability(trace, choice) or is_asked(choice.path):
                continue
            device = "cpu" if target.kind == "cpu" else "cuda"
            if not choice.fits(device) or excludes(choice.path, device):
                continue
            asked_for = choice.file.is_test or is_requested(trace, choice.path, choice.dtype)
            if choice.dtype == "float8" and target.fp8 is False:
                yield self._float8(trace, choice, target, asked_for)
            elif choice.dtype == "float16" and target.half_fast is False and choice.kind != "weights":
                yield self._float16(trace, choice, target, asked_for)

    def check_config(self, file: ConfigFile) -> Iterator[Finding]:
        """Yield the dtypes that a configuration file chooses and the target does not reward."""
        target = file.targets.hardware
        if target is None:
            return
        device = "cpu" if target.kind == "cpu" else "cuda"
        for setup in file.trainers:
            for mode in modes(setup):
                if not mode.fits(device):
                    continue
                message = why = ""
                if mode.dtype == "float16" and target.half_fast is False:
                    message = f"{setup.title} computes in float16, which {pace(target)} on {target.label}"
                    why = slowness(target)
                elif mode.dtype == "float8" and target.fp8 is False:
                    message = f"{setup.title} is set to float8, and {target.label} has no float8 units"
                    why = f"{NEEDS_FLOAT8}{has(target)}."
                if message:
                    yield self.finding(
                        file,
                        mode.option.place,
                        message,
                        why=why,
                        help="Turn it off on this device; keep it where the smaller memory is the point.",
                        severity=Severity.INFO if file.is_test else Severity.WARNING,
                        confidence=Confidence.HIGH if target.sure else Confidence.MEDIUM,
                    )

    def _float8(self, trace: Trace, choice: Choice, target: Target, asked_for: bool) -> Finding:
        runs = choice.kind != "float8"
        outcome = "is no faster there: the framework falls back to a wider dtype" if runs else "can't run there"
        return self._report(
            trace,
            choice,
            target,
            f"`{choice.name}` asks for float8, and {target.label} has no float8 units",
            why=f"float8 needs compute capability 8.9 (Ada, Hopper) or an Instinct MI300; it {outcome}{has(target)}.",
            help="Use bfloat16 or float16 on this device, or ask for `torch.cuda.get_device_capability() >= (8, 9)`.",
            severity=Severity.INFO if asked_for else Severity.WARNING if runs else Severity.ERROR,
        )

    def _float16(self, trace: Trace, choice: Choice, target: Target, asked_for: bool) -> Finding:
        keras = choice.kind == "policy"
        ask = '`tf.config.experimental.get_device_details(gpu)["compute_capability"]`' if keras else "`torch.cuda.get_device_capability()`"
        return self._report(
            trace,
            choice,
            target,
            f"`{choice.name}` computes in float16, which {pace(target)} on {target.label}",
            why=slowness(target),
            help="Use float32 there, or bfloat16 where the CPU has AVX512-BF16 or AMX."
            if target.kind == "cpu"
            else f"Turn mixed precision off on this device, or decide by {ask}; keep it where the smaller memory is the point.",
            severity=Severity.INFO if asked_for else Severity.WARNING,
        )

    def _report(self, trace: Trace, choice: Choice, target: Target, message: str, *, why: str, help: str, severity: Severity) -> Finding:
        return self.finding(
            choice.file,
            choice.span,
            message + choice.verdict.condition(),
            why=why,
            help=help,
            severity=severity,
            confidence=Confidence.HIGH if choice.verdict.proven and target.sure else Confidence.MEDIUM,
            related=effect(trace, choice),
        )


def has(target: Target) -> str:
    """ "; Tesla T4 has 7.5", or nothing where the target is named by its capability or has none."""
    return f"; {target.name} has {target.version}" if target.capability and target.label == target.name else ""


def pace(target: Target) -> str:
    """How fast float16 is on a device without matrix units for it: "runs at 1/64 of the float32 rate"."""
    if target.float16_rate is None or target.float16_rate == 0:
        return "is no faster than float32"
    return "runs at most twice as fast as float32" if target.float16_rate > FAST else "runs at 1/64 of the float32 rate"


def slowness(target: Target) -> str:
    """Why float16 is slow on a device where it is."""
    if target.kind == "cpu":
        return "A CPU without AVX512-FP16 or AMX-FP16 turns float16 into float32 and back around every operation."
    rate = target.float16_rate or 0
    if target.capability is not None and target.capability >= (7, 0):
        cores = "Its cores do two float16 operations in the time of one in float32, and products with float32 sums gain nothing."
        return f"It has compute capability {target.version} but, unlike other Turing GPUs, no Tensor Cores, which make it fast. {cores}"
    plain = "its cores convert float16 to float32 for every operation"
    if rate:
        plain = "its cores do two float16 operations in the time of one in float32, and products with float32 sums gain nothing"
    if 0 < rate < FAST:
        plain = "its cores compute float16 at 1/64 of their float32 rate"
    return f"Tensor Cores, which make float16 fast, came with compute capability 7.0; this device has {target.version}: {plain}."


def shipping(target: Target) -> str:
    """What to do with a float16 model for a device without matrix units for it."""
    if (target.float16_rate or 0) > FAST:
        return "Measure it there against the float32 model; the smaller memory is the surer gain."
    return "Ship the float32 model for this device; keep float16 where the smaller memory is the point."
