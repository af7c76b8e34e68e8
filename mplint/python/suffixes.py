"""Which files are programs, and which configuration."""

from __future__ import annotations

R_MARKDOWN = (".Rmd", ".rmd", ".qmd")
R_SOURCES = (".R", ".r")
R_MODULE = "~R"  # at the end of the dotted name by which a program in R runs another one: no name of Python's ends so
R_PROGRAMS = (".R", ".r", *R_MARKDOWN)
PROGRAMS = (".py", ".pyi", ".ipynb", *R_PROGRAMS)
SUFFIXES = (".json", ".yaml", ".yml")
MAX_CONFIG = 256_000  # a larger JSON or YAML file is data


def is_r(path: str) -> bool:
    """Whether a path names a program in R, or a document that may hold one."""
    return path.endswith(R_PROGRAMS)


def is_config(path: str) -> bool:
    """Whether a path names a JSON or YAML file."""
    return path.endswith(SUFFIXES)
