"""Every vocabulary of PyTorch, in the order in which they are asked."""

from __future__ import annotations

from mplint.frameworks.torch import (
    checkpoints,
    devices,
    functions,
    heirs,
    modules,
    offers,
    protocol,
    reports,
    runners,
    sharding,
    similarity,
    spectrograms,
    tensors,
)
from mplint.frameworks.vocabulary import Vocabulary


def vocabularies() -> tuple[Vocabulary, ...]:
    """Protocols first: what a scaler's or optimizer's methods do; then modules; tensors last."""
    return (
        offers.vocabulary,
        devices.vocabulary,
        reports.vocabulary,
        protocol.vocabulary,
        checkpoints.vocabulary,
        sharding.vocabulary,
        functions.vocabulary,
        runners.vocabulary,
        heirs.vocabulary,
        modules.vocabulary,
        similarity.vocabulary,
        spectrograms.vocabulary,
        tensors.vocabulary,
        checkpoints.fallback,
    )
