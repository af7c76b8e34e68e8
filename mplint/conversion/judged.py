"""What mplint's own rules say of a model: what half must never hold of it, and what they condemn in a result."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from mplint.catalog import catalog
from mplint.conversion.outlook import outlook
from mplint.conversion.policy import Options, Policy
from mplint.conversion.result import Conversion
from mplint.findings import Severity
from mplint.graph.facts import GraphFacts, first_output
from mplint.graph.load import load_graph
from mplint.graph.model import GraphError, ModelGraph, Node, OpKind
from mplint.graph.numerics import guarded_tensors
from mplint.targets import Targets

NUMERICS = "mplint.rules.numerics"
WRITTEN = {".h5": ".keras", ".hdf5": ".keras", ".pt": ".pt2", ".jit": ".pt2", ".ts": ".pt2"}  # what files are that become another kind
HALF_NAME = re.compile(r"_b?float16(_\d+)?$")  # what the half version of a tensor has after the name of the original
CASTS = 2  # a heavy operation, beyond which casts may cost more than it gains
LARGEST = 1 << 30  # bytes of a result that are written once more to be judged


class Verdict(NamedTuple):
    """What a rule says of a node, by the names that users know it by; `all_names` are those of all nodes that it says the same of."""

    code: str
    message: str
    names: tuple[str, ...]
    all_names: tuple[str, ...]


def obedient(source: object, ending: str, policy: Policy, options: Options, convert: Callable[[Options], Conversion]) -> Conversion:
    """What `convert` makes of a model where half never holds what the rules forbid, and the rules condemn nothing of it.

    The model is in a file, or live; files of results have the `ending`.

    What they condemn is planned again in float32; where that gives no proven result, it is said.
    """
    try:
        graph = load_graph(source)
    except GraphError:  # the converter says what is wrong
        return convert(options)
    against = list(outlook(graph))
    for line in against:
        options.warn(line)
    known = {(one.code, one.names) for one in condemned(graph)}
    last: list[tuple[Conversion, list[Verdict]]] = []

    def judge(result: Conversion) -> list[Verdict]:
        if not last or last[0][0] is not result:
            last[:] = [(result, condemned_in(result, ending, known))]
        return last[0][1]

    epsilons = {name: why for name, why in never_half(graph, policy).items() if options.half_of((name,), policy.half) == "float16"}
    reasons = {**options.reasons, **epsilons}
    options = replace(options, reasons=reasons, condemned=lambda result: said(judge(result)))
    result = convert(options)
    options.check_keep()
    left = judge(result)
    if left:
        other = convert(replace(options, reasons={**reasons, **said(left)}))
        still = judge(other)
        better = other.proven and len(still) < len(left)
        (result if better else other).close()
        result, left = (other, still) if better else (result, left)
    result.notes += [*against, *advised(result, graph)]
    result.notes += dict.fromkeys(f"`mplint check` says of the result ({one.code}): {one.message}" for one in left)
    return result


def said(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """What is said of nodes by their names."""
    return {name: f"{one.code}: {one.message}" for one in verdicts for name in one.all_names}


def advised(result: Conversion, graph: ModelGraph) -> Iterator[str]:
    """Why nothing was converted, and what speaks against what was."""
    facts = GraphFacts(graph, Targets())
    if not result.operations_half:
        whole = sum(node.kind is OpKind.QUANTIZE for node in facts.nodes)
        if facts.half and not facts.is_float:
            yield f"nothing converted: it computes in {' and '.join(sorted(facts.half))} already"
        elif whole:
            yield f"nothing converted: it is quantized ({whole} operations), and int8 is narrower than half"
        elif result.kept:
            why, count = Counter(reason for _, reason in result.kept).most_common(1)[0]
            yield f"nothing converted: {count} of {len(result.kept)} operations stay float32, since {why}"
        elif facts.heavy and facts.is_float:
            yield f"nothing converted: {facts.heavy[0].op_type} and what else it computes with have no {result.policy.half} form there"
        else:
            yield "nothing converted: nothing in it computes in float32"
    elif not result.heavy_half:
        yield f"advised against: no matmul or convolution turned to half, and {result.casts_added} casts were added"
    elif result.casts_added > CASTS * result.heavy_half:
        yield (
            f"advised against: {result.casts_added} casts for {result.heavy_half} matmuls and convolutions in half; each cast reads and "
            "writes a whole tensor, which may take longer than half saves"
        )
    elif result.size_after > result.size_before > 0:
        grown = result.size_after - result.size_before
        share = f"{grown / result.size_before:.0%}"
        yield f"advised against: the file grows by {grown} bytes ({share}): weights that float32 and half operations share are kept in both"


def never_half(graph: ModelGraph, policy: Policy) -> dict[str, str]:
    """The names of the nodes that make or take what an epsilon keeps from 0 and half would not, each with the reason."""
    if policy.half != "float16":  # the range of bfloat16 is that of float32
        return {}
    found: dict[str, str] = {}
    for tensor, epsilon in guarded_tensors(GraphFacts(graph, Targets(policy=policy.name))):
        why = f"in {policy.half} the epsilon {epsilon.value:.3g} is 0, and nothing guards {epsilon.guarded.described}"
        for node in (*([tensor.producer] if tensor.producer is not None else []), *tensor.consumers):
            found.update({name: why for name in names_of(node) if name not in found})
    return found


def condemned(graph: ModelGraph, known: Iterable[tuple[str, tuple[str, ...]]] = ()) -> list[Verdict]:
    """What the rules on numbers say of the nodes of a model, without what is known."""
    facts = GraphFacts(graph, Targets())
    nodes = {node.name: node for node in facts.nodes}
    found = []
    for entry in catalog().values():
        if not entry.graphs or not entry.module.startswith(NUMERICS):
            continue
        for finding in entry.load()().check_graph(facts):
            node = nodes.get(finding.node or "")
            if node is not None and finding.severity.rank >= Severity.WARNING.rank and (entry.code, names_of(node)) not in known:
                alike = facts.alike.get((entry.code, node.name), (node,))
                given = [name for one in (node, *alike) for name in names_of(one)]
                names = dict.fromkeys((*given, *(HALF_NAME.sub("", name) for name in given)))
                found.append(Verdict(entry.code, finding.message, names_of(node), tuple(names)))
    return found


def names_of(node: Node) -> tuple[str, ...]:
    """What converters may call a node."""
    return tuple(dict.fromkeys((node.name, first_output(node), f"{node.layer}/{node.name}" if node.layer else node.name)))


def condemned_in(result: Conversion, ending: str, known: Iterable[tuple[str, tuple[str, ...]]]) -> list[Verdict]:
    """What the rules say of a result as a file of it is read; nothing of one that is too large to be written twice, or did not change."""
    if not result.operations_half:
        return []
    with reread(result, ending) as graph:
        try:
            return [] if graph is None else condemned(graph, known)
        except GraphError:  # weights that a rule asked for
            return []


@contextmanager
def reread(result: Conversion, ending: str) -> Iterator[ModelGraph | None]:
    """A result as a file of it is read, for as long as that file is there; None for one that is too large to be written twice."""
    if result.size_after > LARGEST:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        path = os.path.join(folder, f"result{WRITTEN.get(ending, ending)}")
        try:
            result.save(path)
            graph = load_graph(path)
        except (GraphError, OSError):
            graph = None
        yield graph
