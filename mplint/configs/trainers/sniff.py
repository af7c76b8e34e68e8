"""Which JSON and YAML files may hold a trainer's precision: told from bytes, before anything is parsed."""

from __future__ import annotations

import os
import re
import stat

from mplint.configs.trainers.kinds import MARKS
from mplint.python.suffixes import MAX_CONFIG

_WORDS = (b"fp16", b"bf16", b"bfloat16", b"tf32", b"precision", b"torch_autocast", b'"amp', b"amp_")
_KEY = (
    rb"""(?:fp16|bf16|bfloat16|tf32|mixed_precision|precision|torch_autocast|amp|fp16_\w+|bf16_\w+|half_precision_backend|amp_\w+)"""
    rb"""["']?\s*:"""
)
# What stands in a trainer's configuration beside its precision: enough to say that a broken file was meant as one.
_MEANT = (
    r"""(?m)["']?\b(?:zero_optimization|train_micro_batch_size_per_gpu|train_batch_size|compute_environment|distributed_type"""
    r"""|per_device_(?:train|eval)_batch_size|num_train_epochs)["']?\s*:|^["']?trainer["']?\s*:"""
)
_TEMPLATE = r"\{\{|\{%|<%|\{#"


def may_be_trainer_file(path: str) -> bool:
    """Whether the file at `path` is small enough and mentions a key that sets a precision."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_CONFIG:
            return False
        with open(path, "rb") as stream:
            return may_set_precision(stream.read())
    except OSError:
        return False


def may_set_precision(data: bytes) -> bool:
    """Whether a JSON or YAML text is small enough, mentions a key that sets a precision, and one that a trainer has beside it."""
    if len(data) > MAX_CONFIG or not any(word in data for word in _WORDS) or re.search(_KEY, data) is None:
        return False
    return any(mark in data for mark in MARKS)


def meant_for_trainer(text: str) -> bool:
    """Whether a text that can't be parsed was meant as a trainer's configuration, and is no template of one."""
    return re.search(_MEANT, text) is not None and re.search(_TEMPLATE, text) is None
