"""Which programs have a word of the matter: what the others hold is not read any further."""

from __future__ import annotations

import os

WORDS = (
    "autocast",
    "custom_fwd",
    "Scaler",
    "scaler",
    "float16",
    "half",
    "mixed_precision",
    "fp16",
    "bf16",
    "precision",
    "Policy",
    "accelerator",
    "AMPTrainer",
    "DefaultTrainer",
    "keras",
    "tensorflow",
    "GradientTape",
    "apex",
    "deepspeed",
    "lightning",
    "TrainingArguments",
    "OptimWrapper",
    "amp=",
    "amp_mode",
)
ENCODED = tuple(word.encode() for word in WORDS)


def speaks_of_matter(data: bytes) -> bool:
    """Whether a program has any word of the matter."""
    return any(word in data for word in ENCODED)


def key_of(path: str) -> str:
    """A path as the project knows it."""
    return os.path.normpath(path).replace(os.sep, "/")
