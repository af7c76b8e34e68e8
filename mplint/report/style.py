"""How text looks in a terminal: colors, columns and wrapping."""

from __future__ import annotations

import os
import re
from typing import TextIO

MAX_WIDTH = 100
_CODES = {
    "bold": "1",
    "error": "1;31",
    "warning": "1;33",
    "info": "1;36",
    "gutter": "1;34",
    "related": "1;34",
    "added": "32",
    "removed": "31",
    "quiet": "2",
}
_CODE = re.compile(r"`[^`]*`")
_LONGEST_CODE = 44  # a longer piece of code may be broken at its spaces
_GLUE = "\x1f"  # stands for a space inside code while lines are wrapped


# What terminals set that show links (OSC 8); of VTE since version 0.50.
_LINKING = ("DOMTERM", "KITTY_WINDOW_ID", "WEZTERM_PANE", "WT_SESSION", "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID")
_LINKING_PROGRAMS = ("ghostty", "Hyper", "iTerm.app", "vscode", "WezTerm", "zed")
_LINKING_VTE = 5000


class Style:
    """Colors (or none), the width of the lines, and whether the terminal shows links."""

    def __init__(self, color: bool = False, width: int = 80, links: bool = False) -> None:
        self.color = color
        self.width = width
        self.links = links

    def link(self, text: str, address: str) -> str:
        """`text` that leads to an address; unchanged where there is none, or the terminal shows no links."""
        return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\" if self.links and text and address else text

    def file_link(self, text: str, path: str) -> str:
        """`text` that leads to a file on disk; unchanged where there is none, or no links are shown."""
        if not self.links or not os.path.exists(path):
            return text
        from pathlib import Path

        return self.link(text, Path(path).resolve().as_uri())

    def paint(self, text: str, kind: str) -> str:
        """`text` in the color of `kind`; unchanged where colors are off."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.color and text else text

    def wrap(self, text: str, first: str = "", rest: str = "") -> list[str]:
        """`text` in lines of the width, the first line after `first` and the others after `rest`; no word or short code is broken."""
        import textwrap

        glued = _CODE.sub(lambda match: match[0].replace(" ", _GLUE) if len(match[0]) <= _LONGEST_CODE else match[0], text)
        lines = textwrap.wrap(
            glued, self.width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )
        return [line.replace(_GLUE, " ") for line in lines] or [first.rstrip()]


def style_for(stream: TextIO, color: str) -> Style:
    """The style for a stream; `color` is "always", "never" or "auto" (a terminal, unless NO_COLOR says otherwise)."""
    try:
        terminal = stream.isatty()
        width = os.get_terminal_size(stream.fileno()).columns if terminal else 80
    except (OSError, ValueError):
        terminal, width = False, 80
    if color == "auto":
        wanted = bool(os.environ.get("FORCE_COLOR")) or (terminal and os.environ.get("TERM") != "dumb")
        colored = wanted and not os.environ.get("NO_COLOR")
    else:
        colored = color == "always"
    return Style(colored, max(40, min(width, MAX_WIDTH)) if width else 80, shows_links(terminal))


def shows_links(terminal: bool) -> bool:
    """Whether links are shown: in a terminal that is known to, unless FORCE_HYPERLINK says otherwise ("0" is no)."""
    forced = os.environ.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced not in ("", "0")
    if not terminal or os.environ.get("TERM") == "dumb" or os.environ.get("CI"):
        return False
    version = os.environ.get("VTE_VERSION", "")
    known = os.environ.get("TERM_PROGRAM") in _LINKING_PROGRAMS or any(name in os.environ for name in _LINKING)
    return known or (version.isdecimal() and int(version) >= _LINKING_VTE)


def display_units(line: str) -> list[tuple[str, int]]:
    """What a terminal shows for each character of a line, and in how many columns.

    Tabs become spaces up to the next stop of four, wide characters take two columns, combining ones
    none, and what would steer the terminal is replaced.
    """
    if line.isascii() and line.isprintable():
        return [(char, 1) for char in line]
    from unicodedata import combining, east_asian_width

    units: list[tuple[str, int]] = []
    column = 0
    for char in line:
        if char == "\t":
            stop = 4 - column % 4
            unit = (" " * stop, stop)
        elif combining(char) or char in "\u200d\ufe0f":
            unit = (char, 0)
        elif not char.isprintable():
            unit = ("\ufffd", 1)
        else:
            unit = (char, 2 if east_asian_width(char) in "WF" else 1)
        units.append(unit)
        column += unit[1]
    return units
