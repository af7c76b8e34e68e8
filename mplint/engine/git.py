"""What git knows of a checkout: which files changed since a commit, and what they held."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mplint.errors import UsageError
from mplint.graph.names import is_model
from mplint.python.suffixes import PROGRAMS, is_config

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class Changes(NamedTuple):
    """What lies between a commit and now, by absolute path.

    `before` holds what changed programs and configurations held (None: nothing, they are new; of a model None, too), `now` what they
    hold where that is not what lies on disk (None: nothing), `strangers` are the files that are no part of it.
    """

    before: Mapping[str, bytes | None]
    now: Mapping[str, bytes | None]
    strangers: frozenset[str]


def changes_since(ref: str) -> Changes:
    """What changed in the working tree since it left `ref`: from the last commit that both have; untracked files are new.

    Raises UsageError outside a repository and for an unknown commit.
    """
    top = _top()
    start = _ask(top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if start is None:
        raise UsageError(f'--since: git knows no commit "{ref}"{_of_shallow(top)}')
    base = _ask(top, "merge-base", ref, "HEAD")
    if base is None and (shallow := _of_shallow(top)):  # what both have may lie behind the end of this clone's history
        raise UsageError(f'--since: git knows no commit that "{ref}" and HEAD both have{shallow}')
    base = base or start
    new = _names(top, "ls-files", "--others", "--exclude-standard", "-z")
    changed = _names(top, "diff", "--name-only", "--no-renames", "-z", base.decode().strip())
    return Changes(_before(top, base.decode().strip(), [*changed, *new]), {}, frozenset())


def changes_staged() -> Changes:
    """What the next commit would change: the index against HEAD, whatever lies in the working tree.

    Raises UsageError outside a repository, and in the middle of a merge.
    """
    top = _top()
    head = _ask(top, "rev-parse", "--verify", "--quiet", "HEAD")
    base = head.decode().strip() if head else EMPTY_TREE
    if torn := _names(top, "diff", "--name-only", "--diff-filter=U", "-z"):
        raise UsageError(f"--staged: {torn[0]} has conflicts of a merge that are not resolved yet")
    changed = _names(top, "diff", "--cached", "--name-only", "--no-renames", "-z", base)
    unstaged = _names(top, "diff", "--name-only", "--no-renames", "-z")
    strangers = (os.path.join(top, name) for name in _names(top, "ls-files", "--others", "-z"))
    return Changes(_before(top, base, changed), _contents(top, "", filter(_is_text, unstaged)), frozenset(strangers))


def _of_shallow(top: str) -> str:
    """What a user of a clone without its history is told; nothing of others."""
    shallow = (_ask(top, "rev-parse", "--is-shallow-repository") or b"").strip() == b"true"
    return "; this clone is shallow: `git fetch --unshallow` fetches its history (in GitHub Actions: fetch-depth: 0)" if shallow else ""


def _top() -> str:
    top = _ask(".", "rev-parse", "--show-toplevel")
    if top is None:
        raise UsageError("--since and --staged need a git repository, and git")
    return os.fsdecode(top.rstrip(b"\n"))


def _ask(folder: str, *arguments: str, given: bytes = b"") -> bytes | None:
    """What git answers; None where it fails or is missing."""
    try:
        asked = subprocess.run(["git", "-C", folder, *arguments], input=given, capture_output=True, check=False)
    except OSError:
        return None
    return asked.stdout if asked.returncode == 0 else None


def _names(top: str, *arguments: str) -> list[str]:
    answer = _ask(top, *arguments)
    if answer is None:
        raise UsageError(f"git {arguments[0]} failed")
    return [os.fsdecode(name) for name in answer.split(b"\0") if name]


def _before(top: str, base: str, names: Sequence[str]) -> dict[str, bytes | None]:
    models: dict[str, bytes | None] = {os.path.join(top, name): None for name in names if is_model(name)}
    return models | _contents(top, base, filter(_is_text, names))


def _is_text(name: str) -> bool:
    return name.endswith(PROGRAMS) or is_config(name)


def _contents(top: str, commit: str, names: Iterable[str]) -> dict[str, bytes | None]:
    """What files held in a commit ("": the index); None for those that it lacks."""
    ordered = sorted(names)
    asked = b"".join(os.fsencode(f"{commit}:{name}") + b"\n" for name in ordered if "\n" not in name)
    answer = _ask(top, "cat-file", "--batch", given=asked)
    if answer is None:
        raise UsageError("git cat-file failed")
    found: dict[str, bytes | None] = {}
    start = 0
    for name in ordered:
        path = os.path.join(top, name)
        if "\n" in name:
            continue
        end = answer.index(b"\n", start)
        fields = answer[start:end].rsplit(b" ", 2)
        start = end + 1
        if len(fields) == 3 and fields[1] == b"blob":
            size = int(fields[2])
            found[path] = answer[start : start + size]
            start += size + 1
        else:
            found[path] = None
            if len(fields) == 3 and fields[2].isdigit():  # a submodule, or a folder in the place of a file
                start += int(fields[2]) + 1
    return found
