"""The programs of a project that run a file: what they pass to it is what its functions get."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from mplint.engine.tracing import project_root
from mplint.python.document import is_test_path

MOST_LOOKED_AT = 1500
MOST_BYTES = 400_000
MOST = 8  # users of one file
LEVELS = 3
ASIDE = re.compile(r"\.|__pycache__$|node_modules$|site-packages$|v?env$|build$|dist$")


def users_of(path: str) -> list[str]:
    """The other programs of the project that import a file, at once or through others, as far as a look at their imports tells."""
    texts = {other: text for other in programs_below(project_root([path])) if other != path and (text := imports_in(other))}
    found: dict[str, None] = {}
    wanted = [path]
    for _ in range(LEVELS):
        names = {module_name(one) for one in wanted} - {""}
        if not names or len(found) >= MOST:
            break
        asked = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
        wanted = [other for other, text in texts.items() if other not in found and asked.search(text)]
        found.update(dict.fromkeys(wanted[: MOST - len(found)]))
    return list(found)


def module_name(path: str) -> str:
    """The last word of the name under which a file is imported."""
    folder, name = os.path.split(path)
    stem = os.path.splitext(name)[0]
    return os.path.basename(folder) if stem == "__init__" else stem


def programs_below(root: str) -> Iterator[str]:
    """The programs of a folder, those near its top first; no tests, and nothing that is installed or built there."""
    waiting, looked_at = [root], 0
    while waiting and looked_at < MOST_LOOKED_AT:
        folder = waiting.pop(0)
        try:
            entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            inside = os.path.join(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                waiting += [] if ASIDE.match(entry.name) else [inside]
            elif entry.name.endswith((".py", ".ipynb")) and entry.is_file():
                looked_at += 1
                if not is_test_path(inside):
                    yield inside


def imports_in(path: str) -> str:
    """The lines of a program that import something; "" where it can't be read, or is too large."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return "\n".join(line for line in file if "import " in line)
    except OSError:
        return ""
