"""What speaks against converting a model, by its graph alone: known before any of the work, with the numbers."""

from __future__ import annotations

from collections.abc import Iterator

from mplint.graph.facts import GraphFacts
from mplint.graph.model import ModelGraph, OpKind
from mplint.graph.work import LAUNCH, busiest
from mplint.targets import Targets


def outlook(graph: ModelGraph) -> Iterator[str]:
    """Why a model gains nothing from half, or little."""
    facts = GraphFacts(graph, Targets())
    whole = sum(node.kind is OpKind.QUANTIZE for node in facts.nodes)
    most = busiest(facts.heavy, graph.graph.inputs)
    if not facts.is_float:
        return
    if not facts.heavy and not whole and facts.nodes:
        yield (
            f"advised against: none of its {len(facts.nodes)} operations is a matmul, a convolution or a recurrent layer, "
            "which are what half makes faster"
        )
    elif most is not None and most.flops < LAUNCH:
        yield (
            f"advised against: the largest of its {len(facts.heavy)} matmuls and convolutions, {most.node.described}, does "
            f"{most.flops / 1e6:.3g} million operations{most.batch}; below {LAUNCH / 1e6:.0f} million the launch of a kernel takes longer "
            "than its work, in any precision"
        )
