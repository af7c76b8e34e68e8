"""`python -m mplint` is `mplint`."""

from mplint.cli import command

command()
