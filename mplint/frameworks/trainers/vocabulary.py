"""Every vocabulary of trainers, in the order in which they are asked."""

from __future__ import annotations

from mplint.frameworks.trainers import accelerate, configured, dassl, hosted, ignite, loops, managed, models, optimizers, settings, weights
from mplint.frameworks.vocabulary import Vocabulary


def vocabularies() -> tuple[Vocabulary, ...]:
    """What watches first: trainers, pretrained models, then the dtypes of parameters."""
    return (
        settings.vocabulary,
        hosted.vocabulary,
        managed.vocabulary,
        accelerate.vocabulary,
        configured.vocabulary,
        dassl.vocabulary,
        ignite.vocabulary,
        loops.vocabulary,
        models.vocabulary,
        weights.vocabulary,
        optimizers.vocabulary,
    )
