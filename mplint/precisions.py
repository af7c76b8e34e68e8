"""How people write the dtype that they compute in, from `mplint/data/precisions.toml`."""

from __future__ import annotations

from functools import cache


@cache
def spellings(dtype: str, pure: bool = False) -> frozenset[str]:
    """The words for "float16", "bfloat16", "float8" or "float32"; `pure`: where the parameters themselves are cast."""
    return frozenset(_table()["pure" if pure else "mixed"].get(dtype, ()))


@cache
def dtypes(*kinds: str) -> dict[str, str]:
    """The dtype that each word means, of the kinds "mixed" and "pure"."""
    return {word: dtype for kind in kinds for dtype, words in _table()[kind].items() for word in words}


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    import tomllib
    from importlib.resources import files

    found: dict[str, dict[str, list[str]]] = tomllib.loads(files("mplint.data").joinpath("precisions.toml").read_text(encoding="utf-8"))
    return found
