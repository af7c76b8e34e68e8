"""Lowered programs by the contents of their files, in one database of the user's cache folder that all runs share.

A run that has to interpret a project again, because one of its files has changed, takes all others from here: reading one back takes a
twentieth of the time that parsing and lowering it takes.
"""

from __future__ import annotations

import marshal
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

from mplint.engine.cache import cache_folder, fingerprint
from mplint.engine.results import digest_of
from mplint.program.lower import IR

NAME = "programs.sqlite"
TABLE = "CREATE TABLE IF NOT EXISTS lowered (key BLOB PRIMARY KEY, day INTEGER, program BLOB)"
PATIENCE = 2.0  # seconds for which another run may hold the database
MAX_BYTES = 200_000_000  # of the database; then the half that was not asked for longest is forgotten
DAY = 86_400


class LoweredPrograms:
    """The lowered programs of former runs; what this one adds is written at its end.

    A database that can't be read or written is no error: programs are lowered again. What stands there is compressed with a checksum,
    so that a damaged one is noticed before it is taken for a program.
    """

    def __init__(self, plugins: tuple[str, ...]) -> None:
        self.path = os.path.join(cache_folder(), NAME)
        self._made_by = fingerprint(plugins).encode()
        self._connection: sqlite3.Connection | None = None
        self._fresh: dict[bytes, bytes] = {}
        self._met: list[bytes] = []  # those that nobody had asked for today
        self._today = int(time.time() // DAY)
        self._open = os.path.exists(self.path)
        self._broken = False

    def key(self, path: str, digest: bytes) -> bytes:
        """What a program is known by, of a file whose bytes have a digest: what is read in them depends on its suffix as well."""
        kind = os.path.splitext(path)[1].encode("utf-8", "surrogateescape")
        return digest_of(b"\0".join((self._made_by, kind, digest)))

    def get(self, key: bytes) -> IR | None:
        """The program of a key, or None."""
        if not self._open:
            return None
        try:
            if self._connection is None:
                self._connection = connected(self.path)
            row = self._connection.execute("SELECT day, program FROM lowered WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            day, program = row
        except (OSError, sqlite3.Error) as error:
            self._open = False
            self._broken = is_broken(error)
            return None
        try:
            found: IR = marshal.loads(zlib.decompress(program))
        except (zlib.error, ValueError, EOFError, TypeError):
            return None
        if day != self._today:
            self._met.append(key)
        return found

    def add(self, key: bytes, program: IR | bytes) -> None:
        """Keep a program, marshalled or not, for the runs to come."""
        self._fresh[key] = zlib.compress(program if isinstance(program, bytes) else marshal.dumps(program), 1)

    def write(self) -> None:
        """Write what was added, and close the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if not self._fresh and not self._met:
            return
        rows = [(key, self._today, program) for key, program in self._fresh.items()]
        with suppress(OSError, sqlite3.Error):
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            try:
                if not self._broken:
                    write_rows(self.path, rows, self._met)
            except sqlite3.DatabaseError as error:
                self._broken = is_broken(error)
            if self._broken:
                os.unlink(self.path)
                write_rows(self.path, rows, ())


def is_broken(error: Exception) -> bool:
    """Whether an error says that a database is none, or damaged; not that somebody else writes to it, or that it is empty."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)


def connected(path: str) -> sqlite3.Connection:
    """A connection to a database that only its owner can read."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)


def write_rows(path: str, rows: Sequence[tuple[bytes, int, bytes]], met: Iterable[bytes]) -> None:
    """Add programs to a database at once, note which others were asked for today, and forget some where there are too many."""
    with closing(connected(path)) as database:
        database.execute("PRAGMA synchronous = OFF")  # what a power failure damages is made anew
        database.execute("BEGIN IMMEDIATE")
        database.execute(TABLE)
        database.executemany("INSERT OR REPLACE INTO lowered VALUES (?, ?, ?)", rows)
        database.executemany("UPDATE lowered SET day = ? WHERE key = ?", [(int(time.time() // DAY), key) for key in met])
        pages, free, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size"))
        if (pages - free) * size > MAX_BYTES:
            half = "SELECT key FROM lowered ORDER BY day LIMIT (SELECT count(*) / 2 FROM lowered)"
            database.execute(f"DELETE FROM lowered WHERE key IN ({half})")
        database.execute("COMMIT")
