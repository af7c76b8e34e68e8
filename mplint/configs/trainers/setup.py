"""What is set for a trainer, whether a call, a dict, a JSON or a YAML file says it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from mplint.findings import Change, Location, Span

Constant = bool | int | float | str | None


class Open:
    """A value that the text does not fix."""


OPEN = Open()


# what asks the machine for bfloat16
BFLOAT_SUPPORT = re.compile(r"([\w.]+\.)?(is_bf16_supported|is_torch_bf16_gpu_available|is_torch_bf16_available|is_bf16_available)\(\)")


class Option(NamedTuple):
    """One setting: where its name and its value stand, and the value.

    `value` is a constant, the settings of a section, or `OPEN`. `fixed`: no edit is offered, since the text stands for other places, too.
    `sure`: nothing but this text decides it (a flag's default is not sure; then `setting` names the flag or setting with its default).
    `place` is what a report underlines. `made` is the last name of the class that the value is an instance of, "" where it is none;
    `held` are those of a list's items. `varies`: it is something else on other ways through the program. `asked`: the expression that
    decides it when the program runs, as far as one is shown.
    """

    name: str
    key: Span
    value: Constant | Options | Open
    place: Span
    fixed: bool = False
    sure: bool = True
    made: str = ""
    held: tuple[str, ...] = ()
    setting: str = ""
    varies: bool = False
    asked: str = ""

    @property
    def on(self) -> bool:
        """Whether it is surely true."""
        return self.value is True

    @property
    def section(self) -> Options | None:
        """The settings of the section that it is, else None."""
        return None if self.value is None or isinstance(self.value, bool | int | float | str | Open) else self.value

    @property
    def text(self) -> str | None:
        """The value as a string ("16" for the number 16); None where it is open, a section, a bool or missing."""
        return str(self.value) if isinstance(self.value, str | int | float) and not isinstance(self.value, bool) else None


class Options(Protocol):
    """The settings of one section."""

    @property
    def place(self) -> Span:
        """Where the section stands."""

    @property
    def complete(self) -> bool:
        """Whether all of its settings are in sight."""

    @property
    def names(self) -> tuple[str, ...]:
        """The settings in sight, in the order of the text."""

    def option(self, name: str) -> Option | None:
        """The setting called `name`, or None where it is not in sight."""

    def set(self, option: Option, value: Constant) -> Change | None:
        """The change that gives a setting another value; None where none is safe."""

    def rename(self, option: Option, name: str) -> Change | None:
        """The change that gives a setting another name."""

    def remove(self, option: Option) -> Change | None:
        """The change that takes a setting out, with its comma or line."""


class Setup(NamedTuple):
    """The settings of one trainer: "transformers", "lightning", "fabric", "accelerate" or "deepspeed".

    `title` is how messages call it. `home` is the distribution that holds the trainer. `root` is what stands around the settings in a
    configuration file, where other sections may matter. `beside` are the settings in another file that these name, and `locate` turns its
    spans into places.
    """

    trainer: str
    title: str
    options: Options
    home: str
    root: Options | None = None
    beside: Options | None = None
    locate: Callable[[Span], Location] | None = None


def get(options: Options, *path: str) -> Option | None:
    """The setting at a path of sections."""
    option = None
    section: Options | None = options
    for name in path:
        if section is None or (option := section.option(name)) is None:
            return None
        section = option.section
    return option


def is_on(options: Options, *path: str) -> Option | None:
    """The setting at a path of sections where it is surely true."""
    option = get(options, *path)
    return option if option is not None and option.on else None
