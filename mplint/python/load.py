"""Bytes to a document: encodings, byte order marks, line ends; notebooks go to `mplint.python.notebook`."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import NamedTuple

from mplint.python.document import Document, InputError
from mplint.python.parse import parse as parse
from mplint.python.suffixes import R_MARKDOWN, R_PROGRAMS, SUFFIXES, is_config, is_r

# Larger programs are data; parsing one would take gigabytes.
MAX_PROGRAM = 10_000_000
MAX_NOTEBOOK = 500_000_000
BOM = b"\xef\xbb\xbf"
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_NO_CODE = re.compile(rb"^[ \t\f]*(?:#.*)?\r?$")


class Decoded(NamedTuple):
    """A file's text with its own line ends, and what is needed to write it back: its codec and whether a BOM stood first."""

    text: str
    encoding: str
    bom: bool


def read_file(path: str) -> bytes:
    """The bytes of a regular file; raises OSError for one that can't be read, and for pipes, devices and what is too large for memory."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):  # a pipe could be read once, and may never end
        raise OSError(errno.EINVAL, "not a regular file; standard input is read with `-`")
    if status.st_size > MAX_NOTEBOOK:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    with open(path, "rb") as stream:
        return stream.read()


def load(path: str, data: bytes) -> Document:
    """The document in `data`; `path` names it and its suffix says what it is. Raises InputError."""
    if path.endswith(".ipynb"):
        from mplint.python.notebook import load_notebook

        _check_size(data, MAX_NOTEBOOK)
        return load_notebook(path, decode(data, cookie=False).text)
    _check_size(data, MAX_PROGRAM)
    text = decode(data, cookie=has_cookie(path)).text
    if is_config(path):
        return Document(path, normalize(text))
    if path.endswith(R_MARKDOWN):
        from mplint.python.r.chunks import load_chunks

        return load_chunks(path, normalize(text))
    if is_r(path):
        return Document(path, normalize(text), language="r")
    if "\0" in text:
        raise InputError("the file holds a NUL byte: not a Python program", *place(text, text.index("\0")))
    return Document(path, normalize(text))


def has_cookie(path: str) -> bool:
    """Whether a comment of the file may declare its encoding: in Python source, not in JSON or YAML."""
    return not path.endswith((".ipynb", *SUFFIXES, *R_PROGRAMS))


def decode(data: bytes, *, cookie: bool = True) -> Decoded:
    """Decode as Python does: a BOM, else the PEP 263 cookie of the first two lines, else UTF-8. Raises InputError."""
    bom = data.startswith(BOM)
    encoding = "utf-8"
    head = data[: data.find(b"\n", data.find(b"\n") + 1) + 1 or len(data)]
    if cookie and b"coding" in head:
        encoding = _cookie(head[3:] if bom else head, bom)
    body = data[3:] if bom else data
    try:
        return Decoded(body.decode(encoding), encoding, bom)
    except UnicodeDecodeError as error:
        raise _undecodable(body, encoding, error) from None
    except (LookupError, UnicodeError, ValueError):
        raise InputError(f"unknown encoding {encoding!r}", 1, 1) from None


def normalize(text: str) -> str:
    """`text` with `\\n` line ends, as Python reads it."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of a character of `text`."""
    before = normalize(text[:offset])
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _check_size(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise InputError(f"the file has {len(data):,} bytes; more than {limit:,} are not read")


def _cookie(head: bytes, bom: bool) -> str:
    for number, line in enumerate(head.split(b"\n")[:2], 1):
        match = _COOKIE.match(line)
        if match:
            name = match[1].decode("ascii", "replace")
            normal = name[:12].lower().replace("_", "-")
            if normal in ("utf-8", "utf8") or normal.startswith("utf-8-"):
                return "utf-8"
            if bom:
                raise InputError(f"the file has a UTF-8 byte order mark but declares the encoding {name!r}", number, match.start(1) + 1)
            try:
                "".encode(name)
            except (LookupError, UnicodeError, ValueError):
                raise InputError(f"unknown encoding {name!r}", number, match.start(1) + 1) from None
            return name
        if not _NO_CODE.match(line):
            break
    return "utf-8"


def _undecodable(body: bytes, encoding: str, error: UnicodeDecodeError) -> InputError:
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return InputError("the file is UTF-16; save it as UTF-8", 1, 1)
    line, column = place(body[: error.start].decode(encoding, "replace"), error.start)
    message = f"byte 0x{body[error.start]:02x} is not valid {encoding}; save the file as UTF-8 or declare its encoding"
    return InputError(message, line, column)
