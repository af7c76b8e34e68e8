"""Linking: findings that rest on the rest of the project are kept where another file proves their context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mplint.engine.contexts import Contexts
from mplint.engine.modules import ImportGraph
from mplint.findings import Finding, Related
from mplint.source.summary import Policy, Summary
from mplint.source.values import UNKNOWN

Summarize = Callable[[Iterable[str]], Mapping[str, Summary]]
FLOAT16_POLICIES = ("mixed_float16", "float16")
HALF_POLICIES = (*FLOAT16_POLICIES, "mixed_bfloat16", "bfloat16")


def link(pending: Sequence[Finding], imports: dict[str, tuple[str, ...]], speaking: frozenset[str], summarize: Summarize) -> list[Finding]:
    """The findings of `pending` whose context the project proves, each with the chain of places that proves it.

    `imports` holds what every file imports, `speaking` the files that can put half precision in force, and `summarize` gives
    the summaries of files (the only step that reads them again).
    """
    graph = ImportGraph(imports)
    waiting = {finding.location.path for finding in pending}
    above = graph.above(waiting)
    around = graph.below(above)
    if not around & speaking:
        return []
    summaries = summarize(sorted(above | (around & speaking)))
    contexts = Contexts(summaries, graph.modules)
    proven = []
    for finding in pending:
        chain = calls_that_prove(finding, contexts) or policies_that_prove(finding, summaries, graph)
        if chain:
            proven.append(replace(finding, when=None, related=(*chain, *finding.related)))
    return proven


def calls_that_prove(finding: Finding, contexts: Contexts) -> tuple[Related, ...]:
    """The calls that bring float16 (or half) to the finding's function."""
    if finding.when is None or finding.location.path not in contexts.summaries:
        return ()
    cause = contexts.of(finding.location.path, finding.when.scope)
    if cause is None or (finding.when.kind == "float16" and "float16" not in cause.dtypes):
        return ()
    return cause.chain


def policies_that_prove(finding: Finding, summaries: Mapping[str, Summary], graph: ImportGraph) -> tuple[Related, ...]:
    """The policy that a file sets which is imported together with the finding's file.

    Where several policies are set around that file and not all of them fit, nothing is proven.
    """
    if finding.when is None:
        return ()
    wanted = FLOAT16_POLICIES if finding.when.kind == "float16" else HALF_POLICIES
    path = finding.location.path
    found: list[Policy] = []
    for entry in graph.above([path]):
        together = graph.below([entry])
        found += [policy for other in together if other in summaries for policy in summaries[other].policies if other != path]
    fitting = [policy for policy in found if policy.certain and policy.name in wanted]
    if not fitting or any(policy.name == UNKNOWN or (policy.name not in wanted and policy.name != "float32") for policy in found):
        return ()
    first = min(fitting, key=lambda policy: policy.place)
    return (Related(first.place, f"the policy {first.name} is in force where this module is used"),)
