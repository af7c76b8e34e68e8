"""`python -m mplint` is `mplint`."""

from mplint.cli.main import command

if __name__ == "__main__":  # processes that are started afresh import this module again
    command()
