"""What the C++ and CUDA sources of a checkout say of its compiled functions: whether they take half beside float32 by declaration."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from mplint.program.project import Project
from mplint.python.roots import begins_project

SOURCES = (".cpp", ".cu", ".cuh", ".h", ".hpp", ".cc")
MOST_FILES = 2_000
MOST_BYTES = 400_000
DIRECTION = re.compile(r"_?(?:forward|backward|fwd|bwd|grad|wrapper|fast|stack|cuda|gpu|kernel|launcher)(?=_|$)")
TWO_TYPES = re.compile(r"DISPATCH\w*\s*\((?:[^;{}]*?scalar_type\(\)){2}")  # one macro chooses by the dtypes of two tensors
HALF_TYPE = re.compile(r"DISPATCH\w*HALF\w*|DISPATCH\w*FLOAT16\w*|\b(?:at|c10)::Half\b")
READ_AS_FLOAT = re.compile(r"(?:data_ptr|data|packed_accessor(?:32|64)?|accessor)\s*<\s*float\b")
FLOATING = re.compile(r"\bAT_DISPATCH_FLOATING_TYPES\s*\(")  # raises for half: "not implemented for 'Half'"
ANY_HALF = re.compile(r"\b(?:__half2?|half2?|nv_bfloat16|c10::BFloat16|at::BFloat16|kHalf|kBFloat16|ScalarType::Half)\b")
ROOTS = (".git", "setup.py", "pyproject.toml")
KEPT = "sources of kernels"


def takes_both(project: Project, path: str, name: str) -> bool | None:
    """Whether a compiled function, called in the program of a path, takes half tensors beside float32 ones, as its sources say.

    None where the repository does not hold them: kernels of other packages may take weights in float32 beside half inputs on purpose.
    """
    near = sources_of(project, path, name)
    if not near:
        return None
    return any(TWO_TYPES.search(text) or (HALF_TYPE.search(text) and READ_AS_FLOAT.search(text)) for text in near)


def lacks_half(project: Project, path: str, name: str) -> bool:
    """Whether the sources of a compiled function, called in the program of a path, choose among float32 and float64 alone."""
    near = sources_of(project, path, name)
    return any(FLOATING.search(text) for text in near) and not any(HALF_TYPE.search(text) or ANY_HALF.search(text) for text in near)


def sources_of(project: Project, path: str, name: str) -> list[str]:
    """The texts of the sources that speak of a compiled function, called in the program of a path, as far as the repository holds them."""
    held = project.kept.setdefault(KEPT, {})
    assert isinstance(held, dict)
    root = root_around(path)
    if root not in held:
        held[root] = list(sources_below(project, root))
    last = name.rpartition(".")[2]
    stem = DIRECTION.sub("", last).strip("_")
    homes = {os.path.dirname(source) for source, text in held[root] if last in text}
    return [text for source, text in held[root] if stem in text and any(is_below(source, home) for home in homes)]


def is_below(path: str, folder: str) -> bool:
    """Whether a file stands in a folder, or further down."""
    return not folder or path.startswith(f"{folder}/")


def root_around(path: str) -> str:
    """The folder of the repository, or of what builds a distribution, around a file; else the file's own."""
    folder = own = os.path.dirname(path)
    for _ in range(8):
        if begins_project(folder, ROOTS):
            return folder
        if folder in ("", ".", "/") or folder.endswith(".."):
            break
        folder = os.path.dirname(folder)
    return own


def sources_below(project: Project, root: str) -> Iterator[tuple[str, str]]:
    """The sources of kernels below a folder, with their texts."""
    count = 0
    for folder, inner, names in os.walk(root or "."):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "build", "third_party", "node_modules")))
        for name in sorted(names):
            place = os.path.join(folder, name)
            if not name.endswith(SOURCES) or count >= MOST_FILES:
                continue
            count += 1
            project.looked_up.add(place)
            try:
                with open(place, encoding="utf-8", errors="replace") as file:
                    yield os.path.normpath(place).replace("\\", "/"), file.read(MOST_BYTES)
            except OSError:
                continue
