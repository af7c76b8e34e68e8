"""The Python API: check and fix text or paths with the same engine as the command line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence

from mplint.config import Config
from mplint.engine.changes import check_changes
from mplint.engine.fix import fix_paths
from mplint.engine.results import FixResult
from mplint.engine.run import CheckResult, check_paths
from mplint.errors import InternalErrorWarning, UsageError
from mplint.findings import Finding


def check(target: object, config: Config | None = None, *, since: str | None = None) -> CheckResult:
    """Check files, folders and globs, one or several, or a model: a live keras.Model or torch.nn.Module, or a ModelGraph.

    With `since`, a commit that git knows, only findings on lines changed since then, and those that were not there then.
    Raises UsageError for a missing path, an unknown code or an unknown commit, GraphError for an object that is no model.
    """
    config = config or Config()
    if isinstance(target, str | os.PathLike):
        target = [target]
    if isinstance(target, list | tuple | set | frozenset):
        paths = [os.fsdecode(path) for path in target]
        return check_paths(paths, config) if since is None else check_changes(paths, config, since)[0]
    if since is not None:
        raise UsageError("`since` goes with files, not with a model")
    from mplint.graph.load import load_graph

    return check_paths([], config, models=[load_graph(target)])


def check_text(
    text: str, path: str = "<stdin>", targets: Mapping[str, str] | None = None, select: Collection[str] = ("ALL",)
) -> list[Finding]:
    """The findings in a program given as text; `path` says what kind of file it is.

    `targets` may hold "torch", "keras" and "tensorflow" versions and a hardware name under "target". A rule that fails is
    an InternalErrorWarning, and the findings of the others are returned.
    """
    result = check_paths([], config_for(targets or {}, select), given={path: text.encode()})
    _warn_of(result.faults)
    return list(result.findings)


def fix(paths: Sequence[str], config: Config | None = None, *, unsafe: bool = False, apply: bool = False) -> FixResult:
    """Fix files, folders and globs, the safe fixes only or the unsafe ones too; nothing is written without `apply`."""
    return fix_paths(paths, config or Config(), unsafe=unsafe, apply=apply)


def fix_text(
    text: str, path: str = "<stdin>", targets: Mapping[str, str] | None = None, select: Collection[str] = ("ALL",), *, unsafe: bool = True
) -> str:
    """A program given as text after its fixes; the arguments are those of `check_text`, and unsafe fixes are taken unless refused."""
    config = config_for(targets or {}, select)
    result = fix_paths([], config, unsafe=unsafe, apply=False, given={path: text.encode()})
    _warn_of(result.faults)
    return result.output[path].decode()


def config_for(targets: Mapping[str, str], select: Collection[str]) -> Config:
    """A configuration with these targets and this selection, and nothing read from files."""
    return Config(
        select=tuple(select),
        target=targets.get("target"),
        torch=targets.get("torch"),
        keras=targets.get("keras"),
        tensorflow=targets.get("tensorflow"),
        cache=False,
        isolated=True,
    )


def _warn_of(faults: Iterable[object]) -> None:
    for fault in faults:
        warnings.warn(str(fault), InternalErrorWarning, stacklevel=3)
