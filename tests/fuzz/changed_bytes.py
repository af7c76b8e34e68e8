"""What becomes of files in the world: pieces lost, doubled, moved, mixed with others, and bytes turned."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

INTERESTING = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\t",
    b"\\",
    b"'''",
    b'"""',
    b"(",
    b")",
    b"{",
    b"[",
    b":",
    b"#",
    b"%",
    b"-1",
    b"9" * 400,
)
INTERESTING += (
    b"1e999",
    b"nan",
    b"null",
    b"{}",
    b"[]",
    b"\xed\xa0\x80",
    b"float16",
    b"\x80\x04",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"lambda",
)


def mutated(data: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """A file that a few accidents have happened to; pieces of `others` may get into it."""
    for _ in range(chance.choice((1, 1, 2, 4, 9))):
        kind = chance.randrange(9)
        start, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        end = min(end, start + chance.choice((1, 8, 80, 4000)))
        if kind == 0:
            data = data[:start] + data[end:]
        elif kind == 1:
            data = data[:end] + data[start:end] * chance.choice((1, 2, 30)) + data[end:]
        elif kind == 2:
            data = data[:start] + chance.choice(INTERESTING) + data[start if chance.random() < 0.5 else end :]
        elif kind == 3 and data:
            data = data[:start] + bytes((data[start % len(data)] ^ (1 << chance.randrange(8)),)) + data[start + 1 :]
        elif kind == 4:
            data = data[: chance.randint(0, len(data))]
        elif kind == 5:
            other = chance.choice(others)
            cut = chance.randint(0, len(other))
            data = data[:start] + other[cut : cut + chance.choice((20, 200, 2000))] + data[end:]
        else:
            data = by_line(data, others, kind, chance)
    return data


def by_line(data: bytes, others: Sequence[bytes], kind: int, chance: Random) -> bytes:
    """The same, line by line: one lost, two exchanged, one moved in or out by a level."""
    lines = data.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    if kind == 6:
        lines.pop(one)
    elif kind == 7:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines[one] = b"    " + lines[one] if chance.random() < 0.5 else lines[one].removeprefix(b"    ")
    return b"\n".join(lines)
