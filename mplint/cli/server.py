"""`mplint server`: findings and fixes in an editor, over the language server protocol."""

from __future__ import annotations

from argparse import Namespace

from mplint.cli.arguments import Parser
from mplint.cli.terminal import CLEAN
from mplint.errors import UsageError

EPILOG = """\
Editors start it and speak with it over standard input and output:
docs/editors.md says how to set them up. It needs the extra `lsp`:

  python -m pip install "mplint[lsp]"
"""


def add_options(parser: Parser) -> None:
    """`mplint server` has no options: configuration is that of the project."""


def run(options: Namespace) -> int:
    """Answer an editor until it leaves."""
    try:
        from mplint.server.server import make_server
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise UsageError('the editor server needs pygls: python -m pip install "mplint[lsp]"') from None
    make_server().start_io()
    return CLEAN
