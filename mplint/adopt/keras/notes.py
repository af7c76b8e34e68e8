"""What is said of the changes of an adoption, and of what it can't do."""

from __future__ import annotations

from mplint.catalog import rule_of
from mplint.findings import Finding, Replace, Severity

SCALED = {
    2: "the loss is scaled in the tape, and the gradients are unscaled after it (Keras 2, {by})",
    3: "the loss is scaled by `scale_loss`, and the optimizer unscales (Keras 3, {by})",
}


def is_fatal(finding: Finding) -> bool:
    """Whether a program with this finding must not be written: it would raise, or train wrongly."""
    fatal = rule_of(finding).adoption.fatal
    return finding.severity is Severity.ERROR if fatal is None else fatal


def text_of_done(finding: Finding, major: int, known_by: str) -> str:
    """What the fix of a finding did."""
    adoption = rule_of(finding).adoption
    if adoption.scaling and not adoption.note:
        texts = [change.text for change in finding.fix.changes if isinstance(change, Replace)] if finding.fix is not None else []
        wrapped = "the optimizer becomes a LossScaleOptimizer, " if any("LossScaleOptimizer(" in text for text in texts) else ""
        clips = "which clips in the place of the loop, " if any("clipnorm=" in text or "clipvalue=" in text for text in texts) else ""
        return wrapped + clips + SCALED[major].format(by=known_by)
    return adoption.note or (finding.fix.title if finding.fix is not None else finding.message)


def text_of_left(finding: Finding, policy: str) -> str:
    """A finding that stays, as something for the user to do; `help` says what."""
    advice = finding.help[:1].lower() + finding.help[1:].rstrip(".") if finding.help[1:2].islower() else finding.help.rstrip(".")
    adoption = rule_of(finding).adoption
    if adoption.speed:
        return f"for speed, {advice[:1].lower()}{advice[1:]}: {finding.message} ({finding.code})"
    text = f"under {policy} {finding.message}" + (f": {advice}" if advice else "")
    if adoption.scaling and policy == "mixed_float16":
        text += "; or use mixed_bfloat16, which needs no scaling"
    return f"{text} ({finding.code})"
