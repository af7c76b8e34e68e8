"""Which files are the user's own: those of the project that a script belongs to."""

from __future__ import annotations

import os

from mplint.python.roots import begins_project

MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
FOREIGN = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NEVER = (os.path.join(os.path.dirname(os.path.abspath(os.__file__)), ""), os.path.join(PACKAGE, ""))  # Python's library, and what watches


def project_of(script: str) -> str:
    """The folder of the project that a script belongs to: the nearest above it with the marks of one, else the script's own."""
    own = folder = os.path.dirname(os.path.abspath(script))
    while not begins_project(folder, MARKS):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return own
    return folder


def is_own(path: str, project: str) -> bool:
    """Whether an absolute path is one of the project's files, and of no package that is installed in it."""
    return path.startswith(os.path.join(project, "")) and not path.startswith(NEVER) and not any(part in path for part in FOREIGN)
