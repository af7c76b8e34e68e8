"""Everything that mplint knows of other packages, as one library, and programs read with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

from mplint.frameworks import batches, filepaths, packages, parts, python, registries, releases
from mplint.frameworks.given import Usual
from mplint.frameworks.keras import vocabulary as keras
from mplint.frameworks.library import Frameworks
from mplint.frameworks.options import vocabulary as options
from mplint.frameworks.releases import Supported
from mplint.frameworks.relevance import FOREIGN, LAYERED, casts_numbers, speaks_of_precision, speaks_of_training
from mplint.frameworks.stated import name_settings
from mplint.frameworks.torch import vocabulary as torch
from mplint.frameworks.torch.callers import Callers
from mplint.frameworks.torch.contexts import run_in_context
from mplint.frameworks.trainers import vocabulary as trainers
from mplint.program.entries import Again, trace
from mplint.program.event import Event
from mplint.program.lower import IR
from mplint.program.machine import Recorder
from mplint.program.modules import ImportGraph
from mplint.program.project import Project
from mplint.program.trace import Ask, Trace
from mplint.python.document import is_test_path


@cache
def frameworks() -> Frameworks:
    """The library with every vocabulary, those that know more of a name first."""
    return Frameworks(
        (
            filepaths.vocabulary,
            releases.vocabulary,
            batches.vocabulary,
            *options.vocabularies(),
            registries.vocabulary,
            parts.vocabulary,
            *trainers.vocabularies(),
            *keras.vocabularies(),
            *torch.vocabularies(),
            python.vocabulary,
            packages.vocabulary,
        )
    )


def project_of(
    paths: Sequence[str],
    lowered: Callable[[str], IR | None],
    root: str | None,
    graph: ImportGraph | None = None,
) -> Project:
    """A project whose imports of known packages lead out of it; `graph` tells what its programs import."""
    return Project(paths, lowered, FOREIGN, root, graph, LAYERED)


BUILDING = ("sized layer made", "module handed on", "model called", "optimizer made")
TRAINING = ("backward", "optimizer step", "scaler step", "trainer step", "trainer backward")


def only_builds(events: Sequence[Event]) -> bool:
    """Whether models were made in what happened, and nothing was trained."""
    kinds = {event.kind for event in events}
    return not kinds.isdisjoint(BUILDING) and kinds.isdisjoint(TRAINING)


def is_model(bases: Iterable[str]) -> bool:
    """Whether a class with some bases of other packages is a model, and trains nothing itself."""
    return not MODELS.isdisjoint(bases)


MODELS = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "keras.layers.Layer", "tensorflow.keras.layers.Layer"})
AGAIN = Again(only_builds, is_model)


def interpret(
    project: Project,
    named: Sequence[str],
    ask: Ask,
    recorder: Recorder | None = None,
    clipping: Sequence[str] = (),
    supported: Supported | None = None,
    relevant: Callable[[frozenset[str]], bool] = speaks_of_training,
    within: Sequence[str] | None = None,
) -> Trace:
    """The trace of the named programs of a project and of what they import; `ask` answers questions about texts, `recorder` looks on.

    `clipping`: the programs that clip gradients, whether they are named or not. `supported`: the versions of a package that a program is
    for. `relevant`: what is of interest, by its words. `within`: the programs whose modules may be run where models are, by default all.
    """
    project.kept[releases.SUPPORTED] = supported
    project.kept["programs with parts"] = tuple(sorted({*named, *clipping}))
    after = partial(run_in_context, paths=project.paths if within is None else within, ask=ask)
    leading = [path for path in sorted(project.graph.above(named) - set(named)) if not is_test_path(path)]
    around = partial(parts.users_of_parts, clipping=clipping)
    offered = Callers(project, ask).libraries.is_distributed
    found = trace(
        project, frameworks(), relevant, named, after, recorder, leading, around, casts_numbers, speaks_of_precision, offered, AGAIN
    )
    found.usual = Usual(ask)
    name_settings(found, ask)
    return found
