"""Checking model files: each is read as a graph by its loader, never whole, and shown to the rules that look at graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mplint.engine import ceilings
from mplint.engine.builtin_rules import unreadable
from mplint.engine.ceilings import within_ceilings
from mplint.engine.results import Fault, FileResult
from mplint.errors import UsageError, describe
from mplint.findings import Finding
from mplint.graph.names import SAVEDMODEL, is_address, without_shards
from mplint.python.document import InputError

if TYPE_CHECKING:
    from mplint.catalog import Entry
    from mplint.engine.job import Job
    from mplint.engine.targets import TargetResolver
    from mplint.graph.facts import GraphFacts
    from mplint.graph.model import ModelGraph
    from mplint.targets import Targets


def check_models(paths: Sequence[str], job: Job, resolver: TargetResolver) -> list[FileResult]:
    """The results of model files, from the cache where neither they nor the files that they lean on have changed.

    Raises UsageError where a package is missing that a named file needs.
    """
    paths = without_shards(paths)
    if not paths:
        return []
    cache, known = None, {}
    if job.config.cache and not all(map(is_address, paths)):
        from mplint.engine.cache import Cache

        cache = Cache(job)
        known = cache.lookup(paths, resolver)
    job.progress.begin("reading models", len(paths))
    results = []
    fresh = []
    for path in paths:
        result = known.get(path)
        if result is None:
            result = check_model(path, resolver.targets(path), job.rules(path), named=os.path.abspath(path) in job.named)
            if not result.note and not is_address(path):
                fresh.append(result)
        results.append(result)
        job.progress.step()
    if fresh and cache is not None:
        cache.store(fresh, resolver)
    return results


def check_model(path: str, targets: Targets, rules: Sequence[Entry], *, named: bool) -> FileResult:
    """Check one model file. What can't be read, or costs too much, is an MP001 finding; a missing package is misuse for a `named` file,
    else a note.
    """
    if is_address(path):
        return check_elsewhere(path, targets, rules, named=named)
    try:
        return within_ceilings(lambda: check_unbounded(path, targets, rules, named=named), seconds=ceilings.MODEL_SECONDS)
    except InputError as error:
        return FileResult(path, (unreadable(path, error),))


def check_elsewhere(address: str, targets: Targets, rules: Sequence[Entry], *, named: bool) -> FileResult:
    """The same of a model at an address, as it is while it is checked."""
    from mplint.engine.addresses import at_hand
    from mplint.engine.moved import moved

    try:
        with at_hand(address) as here:
            folder = os.path.join(os.path.dirname(here), "")
            before, after = (folder, f"{address.rpartition('/')[0]}/") if folder != os.sep else (here, address)
            found = moved(check_model(here, targets, rules, named=named), before, after)
    except InputError as error:
        return FileResult(address, (unreadable(address, error),))
    assert isinstance(found, FileResult)
    return found._replace(sidecars=())


def check_unbounded(path: str, targets: Targets, rules: Sequence[Entry], *, named: bool) -> FileResult:
    """The same at any cost; raises MemoryError."""
    from mplint.graph.load import MissingExtra, load_graph
    from mplint.graph.model import GraphError, NotAModel

    try:
        model = load_graph(path)
    except MissingExtra as missing:
        if named:
            raise UsageError(f"{path}: {missing}") from None
        return FileResult(path, note=str(missing))
    except GraphError as error:
        return FileResult(path, (unreadable(path, InputError(str(error))),), doubtful=isinstance(error, NotAModel))
    except (MemoryError, RecursionError):
        return FileResult(path, (unreadable(path, InputError("needs more memory than there is, or nests too deeply")),))
    except Exception as error:  # one file's fault must not cost the others' findings
        return FileResult(path, faults=(Fault(path, "reading", describe(error)),))
    return check_graph(path, model, targets, rules)


def check_graph(path: str, model: ModelGraph, targets: Targets, rules: Sequence[Entry]) -> FileResult:
    """What the rules find in a model that was read, or that lives in memory."""
    from mplint.graph.facts import GraphFacts
    from mplint.graph.model import GraphError
    from mplint.graph.profile import profile

    graph = GraphFacts(model, targets)
    findings: set[Finding] = set()
    faults = []
    for entry in rules:
        if not entry.graphs:
            continue
        try:
            findings.update(entry.load()().check_graph(graph))
        except GraphError as error:  # weights that a rule asked for
            findings.add(unreadable(path, InputError(str(error)), f"what {entry.code} would say of this model is missing"))
        except MemoryError:
            raise
        except Exception as error:  # one rule's fault must not cost the others' findings
            faults.append(Fault(path, entry.code, describe(error)))
    ordered = tuple(sorted(findings, key=lambda f: f.sort_key))
    return FileResult(
        path,
        ordered,
        tuple(faults),
        sidecars=sidecars(path, model),
        profile=profile(graph),
        remarks=(*model.notes, *unbounded(model, targets)),
        unjudged=tuple(unjudged(graph, rules)),
    )


def unjudged(graph: GraphFacts, rules: Sequence[Entry]) -> Iterator[str]:
    """What nothing can be said of, whatever the rules found."""
    from mplint.graph.model import OpKind

    if graph.stored is not None:
        blind = [entry.code for entry in rules if entry.graphs and not entry.weights]
        if blind:
            yield f"it holds weights and no operations, so that these could not be judged: {', '.join(blind)}"
        yield from graph.stored.unclear()
        return
    if not graph.nodes:
        holds = "the state of an optimizer and no" if graph.model.optimizer is not None else "neither operations nor"
        yield f"it holds {holds} weights: nothing was judged"
    unknown = [node for node in graph.heavy if node.compute_dtype is None]
    if unknown:
        count = f"{len(unknown)} of {len(graph.heavy)} heavy operations"
        yield f"{count} compute in a dtype that the file does not tell, such as {unknown[0].name}"
    opaque = [node for node in graph.nodes if node.kind is OpKind.OPAQUE]
    if opaque:
        names = ", ".join(sorted({node.op_type for node in opaque})[:5])
        yield f"{len(opaque)} of {len(graph.nodes)} operations are of kinds that mplint does not know: {names}"


def unbounded(model: ModelGraph, targets: Targets) -> list[str]:
    """What to say where a range is declared for an input that the model does not have."""
    public = model.graph.public
    names = [public.get(id(tensor), tensor.name) for tensor in model.graph.inputs]
    known = {*names, *(tensor.name for tensor in model.graph.inputs)}
    has = ", ".join(names) or "none"
    return [f'It has no input "{name}" to bound; it has {has}.' for name in targets.input_ranges if name not in known]


def sidecars(path: str, model: ModelGraph) -> tuple[str, ...]:
    """The other files that a result depends on: those that hold weights, and the parts of a SavedModel."""
    own = os.path.abspath(path)
    tensors = (*model.constants(), *(model.optimizer.tensors if model.optimizer is not None else ()))
    found = {place for tensor in tensors if isinstance(place := getattr(tensor.weights, "path", None), str)}
    if os.path.basename(path) == SAVEDMODEL or os.path.isdir(path):
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        for part in (".", "variables"):
            try:
                found |= {os.path.join(folder, part, name) for name in os.listdir(os.path.join(folder, part))}
            except OSError:
                continue
    return tuple(sorted(found - {own, path}))
