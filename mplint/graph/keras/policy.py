"""Dtype policies as Keras writes them into files: a name, a dict, or a map from layer paths to policies."""

from __future__ import annotations

import re
from typing import NamedTuple

from mplint.graph.storage import Json

MIXED = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
MAX_PATH = 300
# A pattern that can't take long on a path: no repeated groups, few repeats.
_TAME = re.compile(r"(?:[^()*+?{}]|\((?:\?:)?|\)(?![*+?{])|(?<![()*+?{}])[*+?])*")


class Policy(NamedTuple):
    """A dtype policy: its name, the dtype that a layer computes in, the dtype of its variables."""

    name: str
    compute: str | None
    variable: str | None


def policy_of(value: Json, path: str = "") -> Policy | None:
    """The policy in a layer's "dtype" entry, for the layer at `path`; None where the file leaves it to the global policy."""
    match value:
        case str():
            return _named(value)
        case {"class_name": "DTypePolicyMap", "config": {"default_policy": default, "policy_map": dict(policies)}}:
            found = policy_of(_chosen(policies, path, default))
            general = policy_of(default)
            return found and Policy(f"map_{general.name if general else ''}", found.compute, found.variable)
        case {"config": {"mode": str(mode), "source_name": str(source)}}:
            return _named(f"{mode}_from_{source}")
        case {"config": {"name": str(name)}}:
            return _named(name)
        case _:
            return None


def _named(name: str) -> Policy:
    source = name.partition("_from_")[2] or name
    compute = MIXED.get(source)
    if compute is not None:
        return Policy(name, compute, "float32")
    source = {"half": "float16", "float": "float32", "double": "float64"}.get(source, source)
    return Policy(name, source, source)


def _chosen(policies: dict[str, Json], path: str, default: Json) -> Json:
    if path in policies:
        return policies[path]
    if len(path) > MAX_PATH:
        return default
    for pattern, policy in policies.items():
        if len(pattern) <= MAX_PATH and sum(pattern.count(c) for c in "*+?") <= 4 and _TAME.fullmatch(pattern):
            try:
                if re.fullmatch(pattern, path):
                    return policy
            except re.error:
                continue
    return default
