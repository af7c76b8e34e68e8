"""Old and wrong spellings of a trainer's precision: what MP110 knows of each trainer's settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mplint.configs.trainers.duties import UNKNOWN, trainer
from mplint.configs.trainers.setup import Option, Options, Setup, get, is_on
from mplint.findings import Applicability, Change, Fix, Severity, Span
from mplint.targets import Targets
from mplint.versions import Versions

LIGHTNING_OLD = {"16": "16-mixed", "bf16": "bf16-mixed"}  # 32 and 64 are turned into 32-true and 64-true without a warning
LIGHTNING_WRONG = {
    "fp16": "16-mixed", "float16": "16-mixed", "half": "16-mixed", "mixed": "16-mixed", "16-bit": "16-mixed", "16_mixed": "16-mixed",
    "fp16-mixed": "16-mixed", "16bit": "16-mixed", "mixed-16": "16-mixed", "amp": "16-mixed", "16mixed": "16-mixed",
    "mixed_precision": "16-mixed", "mixed_float16": "16-mixed", "f16": "16-mixed",
    "bfloat16": "bf16-mixed", "bf16_mixed": "bf16-mixed", "mixed-bf16": "bf16-mixed", "bfloat16-mixed": "bf16-mixed",
    "mixed_bfloat16": "bf16-mixed", "fp16-true": "16-true", "16_true": "16-true", "bf16_true": "bf16-true",
    "fp32": "32-true", "float32": "32-true", "full": "32-true", "single": "32-true", "32_true": "32-true", "32-mixed": "32-true",
    "fp64": "64-true", "float64": "64-true", "double": "64-true",
}  # fmt: skip
ACCELERATE_WRONG = {
    "float16": "fp16", "16": "fp16", "half": "fp16", "16-mixed": "fp16", "mixed": "fp16", "f16": "fp16",
    "bfloat16": "bf16", "bf16-mixed": "bf16", "fp32": "no", "float32": "no", "32": "no", "none": "no", "None": "no", "off": "no",
}  # fmt: skip
COMPOSER_WRONG = {
    "amp": "amp_fp16", "fp16": "amp_fp16", "16": "amp_fp16", "float16": "amp_fp16", "half": "amp_fp16", "bf16": "amp_bf16",
    "bfloat16": "amp_bf16", "float32": "fp32", "32": "fp32", "full": "fp32", "fp8": "amp_fp8",
}  # fmt: skip
COMPOSER_OLD = ("amp", "fp16", "bf16")  # until 0.11, and with a warning in 0.12
NATIVE = ("auto", "amp", "cuda_amp", "cpu_amp", "native")


class Spelling(NamedTuple):
    """One setting that is written the old or the wrong way."""

    place: Span
    message: str
    why: str
    help: str
    fix: Fix | None = None
    severity: Severity | None = None
    name: str = ""  # of the setting whose value it is


def spellings(setup: Setup, targets: Targets) -> Iterator[Spelling]:
    """The old and wrong spellings among the settings of one trainer."""
    match setup.trainer:
        case "transformers":
            yield from _transformers(setup, targets)
        case "deepspeed":
            yield from _deepspeed(setup.options, targets)
        case "accelerate":
            yield from _accelerate(setup.options, targets)
        case "composer":
            yield from _composer(setup.options, targets)
        case "lightning" | "fabric":
            yield from _lightning(setup, targets)


def _lightning(setup: Setup, targets: Targets) -> Iterator[Spelling]:
    options = setup.options
    pinned = targets.trainer("lightning")
    level = _level_without_apex(options) if pinned is None or not pinned.below("1.5") else None
    if level is not None:
        yield _refused(level, pinned)
    if pinned is not None and pinned.before("2.0"):
        return
    precision, lightning = get(options, "precision"), trainer("lightning")
    if precision is not None and precision.text is not None:
        text = precision.text
        own = setup.root is not None  # programs may compare with what a configuration file says
        if text in LIGHTNING_OLD and not is_written_for_1(options, pinned):
            new = LIGHTNING_OLD[text]
            yield Spelling(
                precision.place,
                f"`precision` {_shown(precision)} is Lightning's old spelling of {new}",
                "Lightning 2.0 renamed the precisions: the old one works, with a warning, for historical reasons.",
                f'Write "{new}".',
                _change(f"write {new}", options.set(precision, new), Applicability.UNSAFE if own else Applicability.SAFE),
                name="precision",
            )
        elif lightning.mode(text) == UNKNOWN and text in LIGHTNING_WRONG:
            yield _unknown(options, precision, LIGHTNING_WRONG[text], "Lightning", f'ValueError: "Precision {text!r} is invalid"')
    for name in ("amp_backend", "amp_level"):
        old = get(options, name)
        if old is not None and not (level is not None and name == "amp_level"):
            yield _dropped(options, old, "Lightning 2.0 removed it with apex: the call raises TypeError.", native=NATIVE)


def _level_without_apex(options: Options) -> Option | None:
    """The level of apex for a trainer that is not told to use apex; None where there is none, or the backend is not in sight."""
    level, backend = get(options, "amp_level"), get(options, "amp_backend")
    native = options.complete if backend is None else backend.text == "native"
    return level if level is not None and isinstance(level.value, str) and native else None


def _refused(level: Option, pinned: Versions | None) -> Spelling:
    return Spelling(
        level.place,
        f'`amp_level` {_shown(level)} without `amp_backend="apex"`',
        "Lightning 1.5 to 1.9 raise MisconfigurationException, whatever the precision, and 2.0 no longer has the argument.",
        "Leave it out: native mixed precision, the default, has no levels.",
        severity=Severity.ERROR if pinned is None or pinned.at_least("1.5") else None,
        name="amp_level",
    )


def is_written_for_1(options: Options, pinned: Versions | None) -> bool:
    """Whether other settings are those of Lightning 1.x, which refuses the new spellings, and no pin says that it runs with a later one."""
    removed = trainer("lightning").removed - {"amp_backend", "amp_level"}
    return not removed.isdisjoint(options.names) and not (pinned is not None and pinned.at_least("2.0"))


def _transformers(setup: Setup, targets: Targets) -> Iterator[Spelling]:
    options, pinned = setup.options, targets.trainer("transformers")
    early = pinned is not None and pinned.before("5.0")
    backend = get(options, "half_precision_backend") or get(options, "fp16_backend")
    apex = backend is not None and backend.text == "apex"
    for name in ("fp16_backend", "half_precision_backend", "fp16_opt_level"):
        old = get(options, name)
        if old is None or (early and name != "fp16_backend") or (pinned is not None and pinned.before("4.12")):
            continue
        if early:
            change = options.rename(old, "half_precision_backend")
            yield Spelling(
                old.place,
                "`fp16_backend` is the old name of `half_precision_backend`",
                "transformers 4 warns and reads it; version 5 raises TypeError.",
                "Write `half_precision_backend`.",
                _change("write `half_precision_backend`", change),
            )
            continue
        yield _dropped(
            options,
            old,
            "transformers 5 removed it with apex: the call raises TypeError.",
            native=() if apex else (*NATIVE, "O1", "O2", "O0", "O3") if name == "fp16_opt_level" else NATIVE,
        )


def _accelerate(options: Options, targets: Targets) -> Iterator[Spelling]:
    pinned = targets.trainer("accelerate")
    if pinned is not None and pinned.before("0.6"):
        return
    mode, old = get(options, "mixed_precision"), get(options, "fp16")
    if old is not None and isinstance(old.value, bool):
        new = "fp16" if old.value else "no"
        yield Spelling(
            old.place,
            "`fp16` is the old spelling of `mixed_precision`",
            "accelerate no longer has the argument: the call raises TypeError, and of a configuration file only old ones are read for it.",
            f'Write `mixed_precision` "{new}".',
            None if mode is not None else _renamed(options, old, "mixed_precision", new),
        )
    if (
        mode is not None
        and mode.text is not None
        and trainer("accelerate").mode(mode.text.lower()) == UNKNOWN
        and mode.text in ACCELERATE_WRONG
    ):
        said = f'ValueError: "Unknown mixed_precision mode: {mode.text}"'
        yield _unknown(options, mode, ACCELERATE_WRONG[mode.text], "accelerate", said)


def _composer(options: Options, targets: Targets) -> Iterator[Spelling]:
    pinned, mode = targets.trainer("composer"), get(options, "precision")
    if mode is None or mode.text is None or trainer("composer").mode(mode.text.lower()) != UNKNOWN:
        return
    text = mode.text.lower()
    new = COMPOSER_WRONG.get(text)
    if new is None or (text in COMPOSER_OLD and pinned is not None and pinned.before("0.12")):
        return
    if text in COMPOSER_OLD and pinned is not None and pinned.below("0.13"):
        yield Spelling(
            mode.place,
            f"`precision` {_shown(mode)} is Composer's old spelling of {new}",
            "Composer 0.12 takes it with a warning, and 0.13 raises ValueError.",
            f'Write "{new}".',
            _change(f"write {new}", options.set(mode, new)),
            name="precision",
        )
        return
    yield _unknown(options, mode, new, "Composer", f'ValueError: "Value {mode.text} not found in Precision"')


def _deepspeed(options: Options, targets: Targets) -> Iterator[Spelling]:
    pinned = targets.trainer("deepspeed")
    old, new = get(options, "bfloat16"), get(options, "bf16")
    if old is not None and old.section is not None and not (pinned is not None and pinned.before("0.6")):
        yield Spelling(
            old.key,
            "`bfloat16` is DeepSpeed's old name of the section `bf16`",
            "DeepSpeed reads it only where `bf16` is missing; tools that fill the file in, transformers and accelerate, look for `bf16`.",
            "Write `bf16`.",
            _change("write `bf16`", options.rename(old, "bf16")) if new is None else None,
        )
    amp = is_on(options, "amp", "enabled")
    others = ("fp16", "bf16", "bfloat16", "torch_autocast")
    zero = get(options, "zero_optimization", "stage")
    if (
        amp is not None
        and not any(is_on(options, name, "enabled") for name in others)
        and (zero is None or zero.text not in ("1", "2", "3"))
    ):
        why = "DeepSpeed hands the model to `apex.amp.initialize`, which current apex no longer has: training does not start."
        message = "DeepSpeed's `amp` section needs apex.amp, which was removed"
        yield Spelling(amp.place, message, why, "Enable `bf16` or `fp16` in its place.")
    power = get(options, "fp16", "initial_scale_power")
    if power is not None and power.text == "32" and is_on(options, "fp16", "enabled") is not None:
        section = get(options, "fp16")
        change = section.section.set(power, 16) if section is not None and section.section is not None else None
        yield Spelling(
            power.place,
            "an initial loss scale of 2**32, the default of old DeepSpeed releases",
            "Every gradient overflows float16 until the scale has been halved to about 2**16: the first 16 steps and more are skipped.",
            "Write 16, today's default.",
            _change("write 16", change),
            Severity.INFO,
        )


def _unknown(options: Options, option: Option, new: str, trainer: str, said: str) -> Spelling:
    return Spelling(
        option.place,
        f"{trainer} knows no precision {_shown(option)}",
        f"It raises {said}.",
        f'Write "{new}".',
        _change(f"write {new}", options.set(option, new)),
        Severity.ERROR,
    )


def _dropped(options: Options, option: Option, why: str, native: tuple[str, ...]) -> Spelling:
    default = option.value is None or (option.text or "") in native
    change = options.remove(option) if default and not option.fixed else None
    help = "Leave it out: native mixed precision is all there is." if default else "Leave it out; native mixed precision replaces apex."
    return Spelling(option.place, f"`{option.name}` was removed", why, help, _change(f"leave `{option.name}` out", change))


def _renamed(options: Options, option: Option, name: str, value: str) -> Fix | None:
    changes = (options.rename(option, name), options.set(option, value))
    if option.fixed or changes[0] is None or changes[1] is None:
        return None
    return Fix(f"write `{name}`", Applicability.SAFE, (changes[0], changes[1]))


def _change(title: str, change: Change | None, applicability: Applicability = Applicability.SAFE) -> Fix | None:
    return Fix(title, applicability, (change,)) if change is not None else None


def _shown(option: Option) -> str:
    value = f'"{option.value}"' if isinstance(option.value, str) else str(option.value)
    return f"{value} ({option.setting})" if option.setting else value
