"""Options that several commands have, and the configuration that they and the files make together."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from mplint.config import Config, Given, PerFileIgnores, load_config, with_given
from mplint.errors import UsageError, nearest
from mplint.findings import Confidence, Severity

EXIT_EPILOG = """\
RULES are codes (MP304), prefixes of codes (MP3), names (clip-before-unscale)
or ALL, separated by commas. Default: every rule of severity error or warning.

exit status:
  0  nothing found, or only below the failing severity (--fail-on)
  1  findings at or above it
  2  misuse, or an input that could not be read"""


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal; told its width, argparse need not import shutil to ask."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        try:
            width = int(columns) if columns.isdecimal() else os.get_terminal_size().columns
        except (OSError, ValueError):
            width = 80
        super().__init__(prog, width=max(40, min(width, 100)) - 2)


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, raised as UsageError."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += nearest(str(value), map(str, action.choices or ()))
            raise

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def configuration(options: argparse.Namespace) -> Config:
    """The configuration for a `check` or `fix`: the files, overridden by the options."""
    given = Given(
        select=_split(options.select),
        extend_select=_split(options.extend_select),
        ignore=_split(options.ignore),
        per_file_ignores=_per_file_ignores(options.per_file_ignores),
        target=options.target,
        min_confidence=Confidence(options.min_confidence) if options.min_confidence else None,
        policy=getattr(options, "policy", None),
        runtime=known_runtime(getattr(options, "runtime", None)),
        input_ranges=tuple(map(input_range, getattr(options, "input_range", ()))),
    )
    config = with_given(load_config(_start(options), file=options.config, isolated=options.isolated), given)
    return config._replace(
        given=given,
        exclude=config.exclude + tuple(options.exclude),
        force_exclude=config.force_exclude or options.force_exclude,
        per_file_ignores=config.per_file_ignores + given.per_file_ignores,
        isolated=options.isolated,
        baseline=None if options.no_baseline else options.baseline or config.baseline,
        cache=config.cache and not options.no_cache,
        fail_on=Severity(ends_on) if (ends_on := getattr(options, "fail_on", None)) else config.fail_on,
        jobs=options.jobs,
    )


class Asked(NamedTuple):
    """What a `check` or `fix` was asked: files, folders and globs, and texts by path: what standard input holds, named by the user."""

    config: Config
    paths: tuple[str, ...]
    given: dict[str, bytes]


def prepare(options: argparse.Namespace) -> Asked:
    """What the options ask for, every rule that they name looked up and standard input read."""
    from mplint.engine.select import expand, known_rules

    config = configuration(options)
    named = named_rules(options)
    rules = known_rules(config) if named else {}
    for option, selector in named:
        try:
            expand(selector, rules)
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from None
    paths = tuple(path for path in options.paths if path != "-")
    if len(paths) == len(options.paths) and getattr(options, "stdin_filename", None) is not None:
        raise UsageError("--stdin-filename names what is read from standard input: give `-` as well")
    if len(paths) == len(options.paths):
        return Asked(config, paths or (".",), {})
    return Asked(config, paths, {getattr(options, "stdin_filename", None) or "<stdin>": sys.stdin.buffer.read()})


def named_rules(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Every rule that an option names, with that option: they are looked up before those of the files, so that errors name the option."""
    groups = (("--select", options.select), ("--extend-select", options.extend_select), ("--ignore", options.ignore))
    named = [(option, selector) for option, values in groups for selector in _split(values)]
    ignores = _per_file_ignores(options.per_file_ignores)
    return named + [("--per-file-ignores", selector) for _, selectors in ignores for selector in selectors]


def _start(options: argparse.Namespace) -> str:
    first = options.paths[0] if options.paths else "."
    return (getattr(options, "stdin_filename", None) or ".") if first == "-" else first


PATHS = "files, folders, globs, or - for standard input (default: the current folder)"


def add_paths(parser: Parser, told: str = PATHS) -> None:
    """The files and folders that a command is for, as `told`."""
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help=told)  # a default: else it counts among what is missing


def add_common(parser: Parser) -> None:
    """The options of `check` and `fix`: which rules, which files, for what, and how they end."""
    files = add_choice(parser)
    files.add_argument("--stdin-filename", metavar="NAME", help="the name of what is read from standard input")
    exits = parser.add_argument_group("exit status")
    exits.add_argument(
        "--fail-on", choices=[s.value for s in Severity], metavar="SEVERITY", help="error, warning or info (default: warning)"
    )
    exits.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever is found, files that can't be read too")


def add_choice(parser: Parser) -> argparse._ArgumentGroup:
    """The options that say which rules look at which files, for what and how; gives the group of those on files."""
    choose = parser.add_argument_group("which rules")
    choose.add_argument("--select", action="append", default=[], metavar="RULES", help="check only these")
    choose.add_argument("--extend-select", action="append", default=[], metavar="RULES", help="check these too")
    choose.add_argument("--ignore", action="append", default=[], metavar="RULES", help="don't check these")
    choose.add_argument(
        "--per-file-ignores", action="append", default=[], metavar="GLOB:RULES", help='don\'t check these there, e.g. "tests/*:MP3,MP401"'
    )
    choose.add_argument(
        "--min-confidence", choices=[c.value for c in Confidence], metavar="LEVEL", help="high, medium or low (default: medium)"
    )
    files = parser.add_argument_group("which files")
    files.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="leave these out, besides what configuration excludes"
    )
    files.add_argument("--force-exclude", action="store_true", help="leave them out where they are named, too")
    parser.add_argument(
        "--target", metavar="HARDWARE", help='a GPU ("Tesla T4"), a compute capability ("7.5"), tpu, cpu, or auto to ask this machine'
    )
    known = parser.add_argument_group("which findings")
    known.add_argument("--baseline", metavar="FILE", help="leave out the findings that FILE holds (see `mplint baseline --help`)")
    known.add_argument("--no-baseline", action="store_true", help="read no baseline, though configuration names one")
    add_source_of_configuration(parser)
    parser.add_argument(
        "-j", "--jobs", type=_jobs, metavar="N", help="use at most N processes (default: as many as there are processors for this one)"
    )
    parser.add_argument("--no-cache", action="store_true", help="don't use or write the cache")
    add_color(parser)
    return files


def add_source_of_configuration(parser: Parser) -> None:
    """Where the configuration stands."""
    parser.add_argument("--config", metavar="FILE", help="read this configuration file, not the nearest one")
    parser.add_argument("--isolated", action="store_true", help="read no configuration file")


def add_ranges(group: argparse._ArgumentGroup) -> None:
    """The values that the inputs of models take."""
    group.add_argument(
        "--input-range", action="append", default=[], metavar="NAME=LOW:HIGH", help="the values that an input takes, e.g. x=0:255"
    )


def add_color(parser: Parser) -> None:
    """Whether text is colored."""
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", metavar="WHEN", help="auto, always or never (default: auto)"
    )


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of processes, 1 or more')
    return int(text)


def known_runtime(name: str | None) -> str | None:
    """The runtime of that name; raises UsageError for one that the table does not know."""
    if name is not None:
        from mplint.graph.runtimes import runtimes

        if name not in runtimes():
            raise UsageError(f'--runtime: unknown runtime "{name}"{nearest(name, runtimes()) or "; known are " + ", ".join(runtimes())}')
    return name


def input_range(text: str) -> tuple[str, tuple[float, float]]:
    """The name of an input and the least and largest value that it takes, of NAME=LOW:HIGH."""
    name, _, bounds = text.rpartition("=")
    low, colon, high = bounds.partition(":")
    try:
        limits = float(low), float(high)
    except ValueError:
        limits = (1.0, 0.0)
    if not name or not colon or not limits[0] <= limits[1]:
        raise UsageError(f'--input-range: "{text}" is not NAME=LOW:HIGH, such as "x=0:255"')
    return name, limits


def _split(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _per_file_ignores(values: Iterable[str]) -> PerFileIgnores:
    ignores: list[tuple[str, tuple[str, ...]]] = []
    for value in values:
        for part in _split([value]):
            pattern, colon, selector = part.rpartition(":")
            if colon and pattern and selector.strip():
                ignores.append((pattern, (selector.strip(),)))
            elif ignores and not colon:
                pattern, selectors = ignores.pop()
                ignores.append((pattern, (*selectors, part)))
            else:
                raise UsageError(f'--per-file-ignores: "{part}" is not GLOB:RULES, such as "tests/*:MP3"')
    return tuple(ignores)
