"""What an operation computes, looked up by its format's own name in data/op_kinds.toml."""

from __future__ import annotations

from functools import cache

from mplint.graph.model import OpKind


def kind_of(section: str, name: str) -> OpKind:
    """The kind of operation that `name` is in the table's `section` ("keras", "torch", "onnx" …); OPAQUE for a name not in it."""
    return kinds(section).get(name, OpKind.OPAQUE)


@cache
def _table() -> dict[str, dict[str, str]]:
    import tomllib
    from pathlib import Path

    text = (Path(__file__).parents[1] / "data" / "op_kinds.toml").read_text("utf-8")
    return {name: section for name, section in tomllib.loads(text).items() if isinstance(section, dict)}


@cache
def kinds(section: str) -> dict[str, OpKind]:
    """The kind of every operation that the section names."""
    return {name: OpKind(kind) for kind, names in _table()[section].items() for name in names.split()}
