"""What a folder holds where a project begins: its repository, or the files that build a distribution."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

BUILDS = "setup.py"
MAX_READ = 200_000
CALLS_SETUP = re.compile(r"(?<!def )\bsetup\s*\(")
# who has such a function: setuptools, distutils, and what extends or stands for them
TOOLS = re.compile(r"setuptools|distutils|skbuild|scikit_build|cx_Freeze|pbr\b", re.I)


def builds_distribution(text: str) -> bool:
    """Whether the text of a `setup.py` builds a distribution, and is no module of a program that is called so."""
    return CALLS_SETUP.search(text) is not None and TOOLS.search(text) is not None


def begins_project(folder: str, marks: Iterable[str]) -> bool:
    """Whether a folder holds one of the files or folders that a project begins with."""
    return any(_is_mark(folder, name) for name in marks)


def _is_mark(folder: str, name: str) -> bool:
    path = os.path.join(folder or ".", name)
    if name != BUILDS:
        return os.path.exists(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return builds_distribution(file.read(MAX_READ))
    except OSError:
        return False
