"""Every vocabulary of Keras and TensorFlow, in the order in which they are asked."""

from __future__ import annotations

from mplint.frameworks.keras import composing, distributions, excerpts, guards, layers, loops, policies, tensors
from mplint.frameworks.vocabulary import Vocabulary


def vocabularies() -> tuple[Vocabulary, ...]:
    """Policies first, which layers take; then loops, layers and the tensors that they give."""
    modules = (policies, loops, layers, composing, guards, distributions, tensors, excerpts)
    return tuple(module.vocabulary for module in modules)
