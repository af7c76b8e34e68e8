"""Words by which a program shows what it may do, for questions that need no syntax tree."""

from __future__ import annotations

from collections.abc import Container
from functools import cache

# What a program mentions that may put half precision in force, in any framework and through any library.
ENABLING = (
    "autocast(", "@autocast", "amp.autocast", "torch.autocast", "partial(autocast", "= autocast", "set_autocast_enabled", "float16",
    "fp16", "bf16", ".half", "HalfTensor", "set_global_policy", "set_policy", "set_dtype_policy", "set_floatx", "precision=",
    "auto_mixed_precision", "MIXED_PRECISION", "apex", "deepspeed", "accelerat", "lightning", "fastai", "mmengine",
)  # fmt: skip


# Kinds of words that a program may mention, by which questions about a whole project tell its files apart.
ENABLES = "enables"
WORDS = {ENABLES: ENABLING}

# Parts that many of the words asked about have in common: where one is missing, none of those is searched for.
COMMON = ("autocast", "half", "float16", "policy", "mixed_", "amp", "dtype", "scale", "Scaler", "precision", "softmax", "e-", "set_")


class Mentioned:
    """Which words a text holds, each looked up once."""

    __slots__ = ("_known", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._known: dict[object, bool] = {part: part in text for part in COMMON}

    def __contains__(self, word: object) -> bool:
        known = self._known.get(word)
        if known is None and isinstance(word, str):
            common = common_part(word)
            known = self._known[word] = (common is None or self._known[common]) and word in self.text
        return bool(known)


def words_of(text: Container[str]) -> frozenset[str]:
    """The kinds of words that a program mentions."""
    return frozenset(word for word, spellings in WORDS.items() if any(spelling in text for spelling in spellings))


@cache
def common_part(word: str) -> str | None:
    """The first of the common parts that a word holds."""
    return next((part for part in COMMON if part in word), None)
