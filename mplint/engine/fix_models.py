"""Fixing model files: what findings on their graphs ask for, proven on a copy and checked again, in the terms of a run over many files."""

from __future__ import annotations

from collections.abc import Sequence

from mplint.conversion.policy import Options
from mplint.engine.check_model import check_graph
from mplint.engine.job import Job
from mplint.engine.results import FixResult
from mplint.engine.run import conclude
from mplint.engine.targets import TargetResolver
from mplint.errors import describe
from mplint.findings import Applicability, Finding
from mplint.graph.model import ModelGraph
from mplint.mend import mend


def fix_models(
    result: FixResult,
    job: Job,
    resolver: TargetResolver,
    *,
    allowed: frozenset[Applicability],
    apply: bool,
    calibration: Sequence[str],
) -> FixResult:
    """The result of fixing programs, with the models mended as well; nothing is written without `apply`."""
    wanted = [f for f in result.remaining if f.fix is not None and f.fix.model and f.fix.applicability in allowed]
    for path in sorted({finding.location.path for finding in wanted}):
        targets = resolver.targets(path)
        options = Options(ranges=dict(targets.input_ranges), tell=job.progress)

        def check(graph: ModelGraph, path: str = path) -> Sequence[Finding]:
            return conclude([check_graph(path, graph, resolver.targets(path), job.rules(path))], job, {}).findings

        own = [finding for finding in result.remaining if finding.location.path == path]
        try:
            mended = mend(path, own, allowed, check, apply=apply, options=options, calibration=calibration)
        except Exception as error:  # one file's fault must not cost the others' fixes
            result = result._replace(faults=(*result.faults, f"mending {path} failed: {describe(error)}"))
            continue
        others = [finding for finding in result.remaining if finding.location.path != path]
        result = result._replace(
            applied=result.applied + mended.applied,
            remaining=tuple(sorted([*others, *mended.remaining], key=lambda f: f.sort_key)),
            failures=(*result.failures, *([mended.failure] if mended.failure else [])),
            changed=tuple(sorted({*result.changed, *([path] if mended.applied else [])})),
            models=(*result.models, *([mended.report] if mended.report else [])),
            unproven=(*result.unproven, *mended.unproven),
        )
    return result
