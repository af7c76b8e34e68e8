"""Which settings of a trainer exclude each other: what MP109 knows of each trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TypeAlias

from mplint.configs.trainers.setup import BFLOAT_SUPPORT, Open, Option, Options, Setup, get, is_on
from mplint.findings import Applicability, Fix, Location, Severity, Span
from mplint.targets import Targets

from .conflict import Conflict as Conflict
from .named_files import deepspeed_beside

Built: TypeAlias = tuple[Span | Location, bool]  # where an optimizer is built that is LBFGS (True), or fused (False)
BOTH_FLAGS = (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval"))
DEEPSPEED_MODES = ("amp", "fp16", "torch_autocast", "bf16")  # of two the first one goes
BOTH_SINCE = "0.18.3"  # this release lets autocast run over weights in half precision
LOW_PRECISION_STATE = (("bf16", "bf16_master_weights_and_grads"), ("fp16", "fp16_master_weights_and_grads"))
LIGHTNING_MODES = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
SHARDED = ("32-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed")
STRATEGIES = {
    "ModelParallelStrategy": ("32-true", "bf16-mixed", "bf16-true", "16-true"),
    "FSDPStrategy": SHARDED, "fsdp": SHARDED, "DeepSpeedStrategy": SHARDED,
    "XLAStrategy": ("32-true", "16-true", "bf16-true"), "xla": ("32-true", "16-true", "bf16-true"),
}  # fmt: skip
FLOAT8_RECIPES = ("FP8RecipeKwargs", "TERecipeKwargs", "AORecipeKwargs", "MSAMPRecipeKwargs")
TPU_MODES = STRATEGIES["xla"]


def conflicts(setup: Setup, targets: Targets, built: Sequence[Built] = ()) -> Iterator[Conflict]:
    """The conflicts among the settings of one trainer, whose module builds these optimizers."""
    match setup.trainer:
        case "transformers":
            yield from _transformers(setup, targets)
        case "deepspeed":
            yield from _deepspeed(setup.options, targets)
        case "accelerate":
            yield from _accelerate(setup.options)
            yield from deepspeed_beside(setup, targets)
            yield from _float8(setup.options)
        case "lightning" | "fabric":
            yield from _plugins(setup.options)
            yield from _lightning(setup, targets, built)


def _transformers(setup: Setup, targets: Targets) -> Iterator[Conflict]:
    options = setup.options
    for fp16, bf16 in BOTH_FLAGS:
        half, asked = is_on(options, fp16), get(options, bf16)
        where_supported = asked is not None and _is_on_where_supported(asked)
        brain = is_on(options, bf16) if not where_supported else None
        if half is not None and brain is not None:
            went, kept = (brain, half) if _lacks_bfloat16(targets) else (half, brain)
            if went.fixed and not kept.fixed:
                went, kept = kept, went
            yield Conflict(
                went.place,
                f"`{fp16}` and `{bf16}` are both on, and `{setup.title}` takes one of them",
                'It raises ValueError: "At most one of fp16 and bf16 can be True, but not both".',
                "Keep `bf16` for Ampere and newer GPUs, `fp16` for older ones.",
                ((kept.place, "both are on"),),
                _without(options, went),
                sure=went.sure and kept.sure,
            )
        if half is not None and asked is not None and where_supported and not _lacks_bfloat16(targets):
            yield Conflict(
                asked.place,
                f"`{fp16}` is on, and so is `{bf16}` where the GPU has bfloat16: `{setup.title}` takes one of them",
                'There it raises ValueError: "At most one of fp16 and bf16 can be True, but not both".',
                f"Let `{fp16}` be on only where `{bf16}` is not.",
                ((half.place, "on whatever the GPU has"),),
                sure=False,
            )
    tf32, target = is_on(options, "tf32"), targets.hardware
    if tf32 is not None and target is not None and target.kind == "cuda" and not target.tf32:
        why = 'It raises ValueError: "--tf32 requires Ampere or a newer GPU arch, cuda>=11 and torch>=1.7".'
        message = f"`tf32` is on, and {target.label} has no TF32"
        yield Conflict(tf32.place, message, why, "Leave `tf32` out on this GPU.", fix=_without(options, tf32), sure=tf32.sure)
    yield from _deepspeed_mismatch(options)


def _deepspeed_mismatch(options: Options) -> Iterator[Conflict]:
    for flag, other in (("fp16", "bf16"), ("bf16", "fp16")):
        ours, theirs = is_on(options, flag), is_on(options, "deepspeed", other, "enabled")
        if ours is not None and theirs is not None and is_on(options, other) is None:
            yield Conflict(
                ours.place,
                f"`{flag}` is on, and the DeepSpeed configuration enables `{other}`",
                f'The trainer raises ValueError where the two differ ("ds {other}.enabled=True vs hf {other}=False").',
                'Write "auto" in the DeepSpeed configuration, which then follows the arguments.',
                ((theirs.place, f"`{other}` is enabled here"),),
            )


def _is_on_where_supported(option: Option) -> bool:
    """Whether a setting is what the machine says of its bfloat16; a text that nobody evaluates is true as well."""
    text = option.asked or (option.value if isinstance(option.value, str) else "")
    return BFLOAT_SUPPORT.fullmatch(text.strip()) is not None


def _deepspeed(options: Options, targets: Targets) -> Iterator[Conflict]:
    sections = {mode: mode for mode in DEEPSPEED_MODES} | {"bf16": "bf16" if get(options, "bf16") is not None else "bfloat16"}
    on = [(mode, option) for mode, name in sections.items() if (option := is_on(options, name, "enabled")) is not None]
    if _lacks_bfloat16(targets):
        on.sort(key=_bfloat16_first)
    pinned = targets.trainer("deepspeed")
    early = pinned is not None and pinned.below(BOTH_SINCE)
    mixes = (pinned is not None and pinned.at_least(BOTH_SINCE)) or any(get(options, *path) is not None for path in LOW_PRECISION_STATE)
    gone: set[str] = set()
    for (mode, first), (other, second) in combinations(on, 2):
        autocast = "torch_autocast" in (mode, other)
        if mode in gone or (autocast and mixes and "amp" not in (mode, other)):
            continue
        gone.add(mode)
        section = get(options, sections[mode])
        yield Conflict(
            first.place,
            f"DeepSpeed's `{mode}` and `{other}` are both enabled",
            _deepspeed_says(mode, other),
            "Enable one of them: `bf16` for Ampere and newer GPUs, `fp16` for older ones.",
            ((second.place, f"`{other}` is enabled here"),),
            _off(section.section if section is not None else None, first, f"switch `{mode}` off"),
            severity=Severity.WARNING if autocast and not early else None,
            sure=first.sure and second.sure,
        )
    stage, amp = get(options, "zero_optimization", "stage"), is_on(options, "amp", "enabled")
    if amp is not None and "amp" not in gone and stage is not None and stage.text in ("1", "2", "3"):
        why = 'It raises AssertionError: "Amp and ZeRO are not currently compatible, please use (legacy) fp16 mode".'
        related = ((stage.place, "ZeRO is in use"),)
        yield Conflict(amp.place, "DeepSpeed's `amp` does not go with ZeRO", why, "Enable `bf16` or `fp16` in place of `amp`.", related)
    master = is_on(options, "fp16", "fp16_master_weights_and_grads")
    if early and master is not None and is_on(options, "fp16", "enabled") and stage is not None and stage.text in ("0", "1", "3"):
        why = 'It raises AssertionError: "Fp16_master_weights_and_grads is only supported with ZeRO Stage 2 for now".'
        message = f"`fp16_master_weights_and_grads` does not go with ZeRO stage {stage.text}"
        yield Conflict(master.place, message, why, "Switch it off, or use stage 2.", ((stage.place, "the stage is set here"),))


def _bfloat16_first(item: tuple[str, Option]) -> int:
    return 0 if item[0] in ("bf16", "amp") else 1


def _deepspeed_says(mode: str, other: str) -> str:
    if "torch_autocast" in (mode, other) and "amp" not in (mode, other):
        named = {"bf16": "bfloat16"}.get(other, other) if mode == "torch_autocast" else mode
        return f'Before DeepSpeed {BOTH_SINCE} it raises AssertionError: "Cannot enable both torch autocast and {named}"; then both cast.'
    if "amp" in (mode, other):
        return 'It raises NotImplementedError: "Cannot enable both amp with (legacy) fp16 or bfloat16 mode".'
    return 'It raises AssertionError: "bfloat16 and fp16 modes cannot be simultaneously enabled".'


def _accelerate(options: Options) -> Iterator[Conflict]:
    mode = get(options, "mixed_precision")
    if mode is None or mode.text != "fp16":
        return
    cpu = is_on(options, "cpu") or is_on(options, "use_cpu")
    if cpu is not None:
        change = options.set(mode, "bf16")
        yield Conflict(
            mode.place,
            "`fp16` has no effect on the CPU",
            "accelerate neither casts nor scales there and says nothing: training runs in float32.",
            "Use `bf16`, which the CPU computes in, or `no`.",
            ((cpu.place, "the CPU is asked for here"),),
            Fix("use `bf16`", Applicability.UNSAFE, (change,)) if change is not None else None,
            severity=Severity.WARNING,
        )


def _float8(options: Options) -> Iterator[Conflict]:
    mode, handlers = get(options, "mixed_precision"), get(options, "kwargs_handlers")
    recipe = next((name for name in handlers.held if name in FLOAT8_RECIPES), "") if handlers is not None else ""
    if mode is not None and handlers is not None and recipe and mode.text is not None and mode.text != "fp8":
        message = f"`{recipe}` is given, and the precision is {mode.text}"
        why = 'accelerate raises ValueError: recipes for float8 are taken with `mixed_precision` "fp8" only.'
        help = 'Write "fp8", or leave the recipe out.'
        yield Conflict(mode.place, message, why, help, ((handlers.place, "the recipe is given here"),))


def _plugins(options: Options) -> Iterator[Conflict]:
    """A precision and a precision plugin, which is one, too."""
    precision, plugins = get(options, "precision"), get(options, "plugins")
    if precision is None or plugins is None or precision.value is None or isinstance(precision.value, Open):
        return
    named = [name for name in (plugins.made, *plugins.held) if is_precision(name)]
    if named:
        change = None if precision.fixed or plugins.varies else options.remove(precision)
        yield Conflict(
            precision.place,
            f"`precision` and the plugin `{named[0]}` are both given",
            'Lightning raises ValueError, since the plugin is a precision, too: "Received both `precision` and `plugins`. Choose one."',
            "Give the plugin alone; it names the precision.",
            ((plugins.place, "the plugin is given here"),),
            Fix("leave `precision` out", Applicability.SAFE, (change,)) if change is not None else None,
        )


def is_precision(name: str) -> bool:
    """Whether a class of that name is a precision plugin."""
    return name.endswith(("Precision", "PrecisionPlugin"))


def _lightning(setup: Setup, targets: Targets, built: Sequence[Built]) -> Iterator[Conflict]:
    options = setup.options
    precision = get(options, "precision")
    if precision is None or precision.text is None:
        return
    mode = LIGHTNING_MODES.get(precision.text, precision.text)
    strategy, accelerator = get(options, "strategy"), get(options, "accelerator")
    taken = STRATEGIES.get((strategy.made or strategy.text or "") if strategy is not None else "")
    place = strategy
    if taken is None and accelerator is not None and accelerator.text == "tpu":
        taken, place = TPU_MODES, accelerator
    if taken is not None and place is not None and mode not in taken and not (taken is TPU_MODES and mode.startswith("16")):
        yield _refused(options, precision, mode, place, taken)
    elif accelerator is not None and accelerator.text == "cpu" and mode == "16-mixed":
        asked, new = ("16", "bf16") if _is_lightning_1(options, targets) else ("16-mixed", "bf16-mixed")
        by_apex = (backend := get(options, "amp_backend")) is not None and backend.text == "apex"
        change = options.set(precision, new) if not by_apex else None
        yield Conflict(
            precision.place,
            f"{asked} does not run on the CPU",
            "Lightning raises an error, since apex needs a GPU." if by_apex else f"Lightning warns and computes in {new} instead.",
            f"Write `{new}`, and leave `amp_backend` out." if by_apex else f"Write `{new}`, which is what runs.",
            ((accelerator.place, "the CPU is asked for here"),),
            Fix(f"use {new}", Applicability.SAFE, (change,)) if change is not None else None,
            severity=Severity.WARNING,
        )
    elif mode == "16-mixed" and setup.trainer == "lightning":
        yield from _optimizers(setup, precision, built)


def _is_lightning_1(options: Options, targets: Targets) -> bool:
    """Whether the project may run under Lightning 1, which knows no "-mixed": by its requirements, or by an option that 2.0 removed."""
    pinned = targets.trainer("lightning")
    return any(get(options, name) is not None for name in ("amp_backend", "amp_level")) or (pinned is not None and pinned.before("2.0"))


def _refused(options: Options, precision: Option, mode: str, place: Option, taken: tuple[str, ...]) -> Conflict:
    named = place.made or place.text
    true = mode.replace("-mixed", "-true")
    change = options.set(precision, true) if mode == "bf16-mixed" and true in taken else None
    return Conflict(
        precision.place,
        f"the precision {mode} does not go with {'the accelerator ' if place.name == 'accelerator' else ''}`{named}`",
        f"Lightning raises ValueError: it takes {', '.join(taken)} there.",
        f"Choose one of {', '.join(taken)}.",
        ((place.place, f"`{named}` is chosen here"),),
        Fix(f"use {true}", Applicability.UNSAFE, (change,)) if change is not None else None,
    )


def _optimizers(setup: Setup, precision: Option, built: Sequence[Built]) -> Iterator[Conflict]:
    """LBFGS, and fused optimizers whose gradients are clipped: both need gradients that 16-mixed has scaled."""
    clip = get(setup.options, "gradient_clip_val")
    clips = clip is not None and clip.text not in (None, "0", "0.0")
    found: list[Built] = list(built)
    if setup.root is not None and (optimizer := get(setup.root, "optimizer")) is not None:
        fused = is_on(setup.root, "optimizer", "init_args", "fused")
        found = [(optimizer.key, True)] if optimizer.made == "LBFGS" else [(fused.place, False)] if fused is not None else []
    for place, is_lbfgs in found:
        if is_lbfgs:
            why = "Lightning raises MisconfigurationException: LBFGS computes several losses a step, which a GradScaler can't follow."
            message = "16-mixed does not go with LBFGS"
            yield Conflict(precision.place, message, why, "Use bf16-mixed or 32-true.", ((place, "LBFGS is built here"),))
        elif clips:
            why = "Lightning raises RuntimeError: a fused optimizer unscales inside its step, after the clipping."
            message = "16-mixed does not go with gradient clipping and a fused optimizer"
            help = "Leave `fused=True` out, or use bf16-mixed."
            yield Conflict(precision.place, message, why, help, ((place, "the optimizer is fused"),))


def _lacks_bfloat16(targets: Targets) -> bool:
    return targets.hardware is not None and targets.hardware.bf16_native is False


def _without(options: Options, option: Option) -> Fix | None:
    change = None if option.fixed else options.remove(option) or options.set(option, False)
    return Fix(f"take `{option.name}` out", Applicability.SAFE, (change,)) if change is not None and option.sure else None


def _off(section: Options | None, option: Option, title: str) -> Fix | None:
    change = section.set(option, False) if section is not None else None
    return Fix(title, Applicability.SAFE, (change,)) if change is not None and option.sure else None
