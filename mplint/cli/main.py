"""The command `mplint`: which command was asked for, and how every way of failing ends."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn, Protocol

from mplint.about import VERSION
from mplint.cli.arguments import Help, Parser
from mplint.cli.terminal import CLEAN, FAILED, ask_for_report, complain
from mplint.errors import UsageError, describe, nearest

INTERRUPTED, CLOSED, ENDED = 130, 141, 143

COMMANDS = {
    "check": "find mistakes in programs, notebooks, configurations and models",
    "fix": "show the fixes as a diff, or apply them",
    "init": "write a first configuration for a project",
    "baseline": "write down the findings of now, so that only new ones are reported",
    "explain": "print the documentation of rules",
    "rules": "list the rules",
    "convert": "convert a model to a mixed-precision policy, and prove it",
    "estimate": "tell what training a model takes in each precision",
    "compare": "run your training in each precision, and measure it",
    "doctor": "run your training under instruments, and tell what goes wrong",
    "server": "answer an editor: findings as you type, fixes, hovers",
    "watch": "check again whenever a file changes",
    "completion": "print a script that completes commands and options in a shell",
    "dev": "work on mplint itself: make its data, see what it understands",
}

PASSING = ("compare", "doctor")  # commands that hand what stands after `--` on to a program of the user

_USAGE = "mplint COMMAND [OPTION ...] [PATH ...]"

_DESCRIPTION = """\
Finds, explains and fixes mixed-precision mistakes in Keras, TensorFlow and
PyTorch code and models.

commands:
""" + "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())

_EPILOG = """\
examples:
  mplint check src/                     find mistakes
  mplint fix src/                       show a diff of the safe fixes
  mplint fix --apply src/               write them
  mplint check --target "Tesla T4" .    also check for this GPU
  mplint explain clip-before-unscale    read about a rule

`mplint COMMAND --help` lists the options of a command. Settings may stand in
[tool.mplint] of pyproject.toml or in mplint.toml; options override them."""


class Command(Protocol):
    """What the module of a command offers."""

    @property
    def EPILOG(self) -> str | None:
        """What stands at the end of its help."""

    def add_options(self, parser: Parser) -> None:
        """Add the options of the command."""

    def run(self, options: argparse.Namespace) -> int:
        """Carry the command out and return the exit code; raises UsageError for misuse."""


def command() -> None:
    """The `mplint` command: run, and leave without tearing the interpreter down object by object."""
    import gc

    gc.disable()  # the engine collects between files; nothing else lives long enough to be worth it
    if sys.argv[1:2] != ["convert"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # values are only scanned, and numpy's idle threads cost 70 ms
    _end_on_signals()
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _end_on_signals() -> None:
    """Let an interruption and a request to end unwind what runs; a second interruption ends it at once. None leaves a process behind."""
    import signal

    def interrupted(*_: object) -> None:
        signal.signal(signal.SIGINT, insisted)
        raise KeyboardInterrupt

    def insisted(*_: object) -> None:
        if "multiprocessing" in sys.modules:
            for process in sys.modules["multiprocessing"].active_children():
                process.kill()
        os._exit(INTERRUPTED)

    def ended(*_: object) -> None:
        raise SystemExit(ENDED)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it to be ignored
        signal.signal(signal.SIGINT, interrupted)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, ended)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code; no traceback ever leaves it."""
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except UsageError as error:
        complain(f"error: {error}")
        return FAILED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else CLEAN
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _abandon_output()
        return CLOSED
    except Exception as error:
        complain(f"internal error: {describe(error)}")
        ask_for_report()
        return FAILED


def _run(argv: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end the run
    if not argv or argv[0] not in COMMANDS:
        _without_command(argv)
    name = argv[0]
    module = _module(name)
    return module.run(parse_arguments(name, module, argv[1:]))


def _module(name: str) -> Command:
    """The module of a command; only the one that is asked for is imported."""
    match name:
        case "check":
            from mplint.cli import check

            return check
        case "fix":
            from mplint.cli import fix

            return fix
        case "convert":
            from mplint.cli import convert

            return convert
        case "estimate":
            from mplint.cli import estimate

            return estimate
        case "baseline":
            from mplint.cli import baseline

            return baseline
        case "init":
            from mplint.cli import init

            return init
        case "compare":
            from mplint.cli import compare

            return compare
        case "doctor":
            from mplint.cli import doctor

            return doctor
        case "explain":
            from mplint.cli import explain

            return explain
        case "server":
            from mplint.cli import server

            return server
        case "watch":
            from mplint.cli import watch

            return watch
        case "completion":
            from mplint.cli import completion

            return completion
        case "dev":
            from mplint.cli import dev

            return dev
        case _:
            from mplint.cli import rules

            return rules


def parse_arguments(name: str, module: Command, argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command in `argv`; raises UsageError for misuse and SystemExit after --help."""
    summary = COMMANDS[name]
    description = f"{summary[0].upper()}{summary[1:]}."
    parser = Parser(prog=f"mplint {name}", description=description, epilog=module.EPILOG, formatter_class=Help, allow_abbrev=False)
    module.add_options(parser)
    own = list(argv)
    passed: list[str] = []
    if name in PASSING and "--" in own:
        own, passed = own[: own.index("--")], own[own.index("--") + 1 :]
    options, unknown = parser.parse_known_args(own)
    options.given_arguments, options.passed_on = tuple(argv), tuple(passed)
    options.parsers = lambda: {other: options_of(other) for other in COMMANDS}  # for who completes what the others take
    if unknown:
        parser.error(f"unknown option {unknown[0]}{_hint(name, unknown[0].split('=')[0], parser)}")
    return options


def _hint(name: str, option: str, parser: Parser) -> str:
    """The command that has an option which `name` has not, or an option of `name` that is written much the same.

    What other linters call so, and mplint does without a word, is told first.
    """
    if option == "--diff":
        return "; `mplint fix` without `--apply` shows a diff and writes nothing"
    for other in COMMANDS:
        theirs = options_of(other)
        if other != name and option in theirs._option_string_actions:
            return f"; `mplint {other}` has it"
    return nearest(option, (known for known in parser._option_string_actions if known[:4] == option[:4] or known[-4:] == option[-4:]))


def options_of(name: str) -> Parser:
    """A parser with the options of a command."""
    parser = Parser(prog=f"mplint {name}", description=COMMANDS[name])
    _module(name).add_options(parser)
    return parser


def _without_command(argv: Sequence[str]) -> NoReturn:
    """Answer --help and --version; anything else is misuse."""
    parser = Parser(prog="mplint", usage=_USAGE, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=Help, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"mplint {VERSION}")
    if not argv:
        parser.print_help(sys.stderr)
        raise SystemExit(FAILED)
    if argv[0].startswith("-"):
        _, unknown = parser.parse_known_args(argv)
        parser.error(f"options come after the command: mplint COMMAND {unknown[0]}" if unknown else "a command is missing")
    if os.path.exists(argv[0]):
        parser.error(f'unknown command "{argv[0]}"; did you mean `mplint check {argv[0]}`?')
    parser.error(f'unknown command "{argv[0]}"{nearest(argv[0], COMMANDS) or "; the commands are " + ", ".join(COMMANDS)}')


def _abandon_output() -> None:
    """Leave a closed pipe quietly: what Python would still flush at exit goes nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
