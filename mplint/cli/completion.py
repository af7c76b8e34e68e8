"""`mplint completion`: a script that completes commands, options, their values and rules in a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mplint.cli.arguments import Parser
from mplint.cli.terminal import CLEAN

EPILOG = """\
  bash   mplint completion bash > ~/.local/share/bash-completion/completions/mplint
  zsh    mplint completion zsh > "${fpath[1]}/_mplint"
  fish   mplint completion fish > ~/.config/fish/completions/mplint.fish

Or in this shell alone: eval "$(mplint completion bash)"."""

_RULES = ("RULES", "RULE")  # what stands for codes and names of rules in a help


class Completed(NamedTuple):
    """An option: its spellings, what it is for, and the values to offer; None where it takes none, () where it takes a file or a text."""

    flags: tuple[str, ...]
    about: str
    values: tuple[str, ...] | None


def add_options(parser: Parser) -> None:
    """The options of `mplint completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(options: argparse.Namespace) -> int:
    """Print the script of a shell."""
    from mplint.config import Config
    from mplint.engine.select import known_rules

    known = known_rules(Config())
    rules = tuple(word for code, rule in known.items() for word in (code, rule.name))
    parsers: dict[str, Parser] = options.parsers()
    about = {name: parser.description or "" for name, parser in parsers.items()}
    flags = {name: [completed(action, rules) for action in parser._actions if action.option_strings] for name, parser in parsers.items()}
    words = {name: [word for action in parser._actions for word in _words(action, rules)] for name, parser in parsers.items()}
    sys.stdout.write(SHELLS[options.shell](about, flags, words))
    return CLEAN


def completed(action: argparse.Action, rules: Sequence[str]) -> Completed:
    """What to complete of an option."""
    values = None if action.nargs == 0 else tuple(map(str, action.choices or (rules if action.metavar in _RULES else ())))
    return Completed(tuple(action.option_strings), (action.help or "").replace("%%", "%"), values)


def _words(action: argparse.Action, rules: Sequence[str]) -> Iterable[str]:
    """What to offer where an argument without a flag stands."""
    if action.option_strings:
        return ()
    return map(str, action.choices or (rules if action.metavar in _RULES else ()))


Flags = Mapping[str, Sequence[Completed]]
Words = Mapping[str, Sequence[str]]


def bash(commands: Mapping[str, str], flags: Flags, words: Words) -> str:
    """The script for bash."""
    values = [
        f"        {'|'.join(_quoted(f'{name} {flag}') for flag in option.flags)}) words={_quoted(' '.join(option.values))} ;;"
        for name, options in flags.items()
        for option in options
        if option.values
    ]
    files = [_quoted(f"{name} {f}") for name, options in flags.items() for o in options if o.values == () for f in o.flags]
    listed = [
        f"            {name}) words={_quoted(' '.join(flag for option in options for flag in option.flags))} ;;"
        for name, options in flags.items()
    ]
    plain = [f"            {name}) words={_quoted(' '.join(found))} ;;" for name, found in words.items() if found]
    return "\n".join(
        [
            "_mplint() {",
            '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            "    COMPREPLY=()",
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f'        COMPREPLY=($(compgen -W {_quoted(" ".join(commands))} -- "$current"))',
            "        return",
            "    fi",
            '    case "${COMP_WORDS[1]} $before" in',
            *values,
            f"        {'|'.join(files)}) return ;;",
            "    esac",
            '    if [ -z "$words" ] && [[ "$current" == -* ]]; then',
            '        case "${COMP_WORDS[1]}" in',
            *listed,
            "        esac",
            '    elif [ -z "$words" ]; then',
            '        case "${COMP_WORDS[1]}" in',
            *plain,
            "        esac",
            "    fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _mplint mplint",
            "",
        ]
    )


def zsh(commands: Mapping[str, str], flags: Flags, words: Words) -> str:
    """The script for zsh."""
    cases = []
    for name, options in flags.items():
        specs = [_zsh_spec(flag, option) for option in options for flag in option.flags]
        rest = f"'*:argument:({' '.join(words[name])})'" if words[name] else "'*:file:_files'"
        cases += [
            f"        {name})",
            "            _arguments -s \\",
            *(f"                {spec} \\" for spec in specs),
            f"                {rest}",
            "            ;;",
        ]
    described = [f"        {_quoted(f'{name}:{about}')}" for name, about in commands.items()]
    return "\n".join(
        [
            "#compdef mplint",
            "_mplint() {",
            "    local -a commands",
            "    commands=(",
            *described,
            "    )",
            "    if (( CURRENT == 2 )); then",
            "        _describe command commands",
            "        return",
            "    fi",
            '    local command="${words[2]}"',
            "    shift words",
            "    (( CURRENT-- ))",
            '    case "$command" in',
            *cases,
            "    esac",
            "}",
            'if [ "$funcstack[1]" = "_mplint" ]; then _mplint "$@"; else compdef _mplint mplint; fi',
            "",
        ]
    )


def _zsh_spec(flag: str, option: Completed) -> str:
    about = option.about.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = "" if option.values is None else f":value:({' '.join(option.values)})" if option.values else ":value:_files"
    return _quoted(f"*{flag}[{about}]{value}")


def fish(commands: Mapping[str, str], flags: Flags, words: Words) -> str:
    """The script for fish."""
    lines = [f"complete -c mplint -n __fish_use_subcommand -f -a {name} -d {_fish(about)}" for name, about in commands.items()]
    for name, options in flags.items():
        when = f"complete -c mplint -n '__fish_seen_subcommand_from {name}'"
        for option in options:
            spelled = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.flags)
            value = "" if option.values is None else f" -x -a {_fish(' '.join(option.values))}" if option.values else " -r"
            lines.append(f"{when}{spelled}{value} -d {_fish(option.about)}")
        if words[name]:
            lines.append(f"{when} -f -a {_fish(' '.join(words[name]))}")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """Text as one word of bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(text: str) -> str:
    """Text as one word of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
