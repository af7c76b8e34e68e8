"""The words for a dtype stand in one list, and what trainers take is among them."""

from __future__ import annotations

import pytest

from mplint.configs.trainers.duties import kinds
from mplint.precisions import dtypes, spellings


def test_a_word_means_one_dtype() -> None:
    every = [word for dtype in ("float16", "bfloat16", "float8", "float32") for pure in (False, True) for word in spellings(dtype, pure)]
    assert len(every) == len(set(every))
    assert dtypes("mixed", "pure").keys() == set(every)


SYSTEMS = ("amp", "apex")  # by which ignite computes in half, whatever the dtype


@pytest.mark.parametrize(("kind", "word", "dtype"), [(kind.key, word, dtype) for kind in kinds() for word, dtype in kind.modes])
def test_what_a_trainer_takes_means_the_same_there(kind: str, word: str, dtype: str) -> None:
    known = dtypes("mixed" if not dtype.startswith("pure ") else "pure")
    assert known.get(word) == dtype.removeprefix("pure ") or dtype in ("float64", "?") or word in SYSTEMS, kind
