"""What rules write in Python's words, in R's: the code in messages, and what a fix puts into the program."""

from __future__ import annotations

import re
from functools import lru_cache

from mplint.findings import AddImport, Change, Finding, Fix, InsertStatements, Related, RemoveImport, Replace, WrapStatements

TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<equals>(?<![=<>!:])\s*=\s*(?!=))"
    r"|(?P<open>[(\[])|(?P<close>[)\]])"
    r"|(?P<other>\s+|[\d.]+(?:e[+-]?\d+)?|.)",
    re.IGNORECASE | re.DOTALL,
)
WORDS = {"True": "TRUE", "False": "FALSE", "None": "NULL"}
ONLY_PYTHON = frozenset(
    ("if", "else", "for", "in", "is", "not", "and", "or", "lambda", "with", "as", "import", "from", "def", "class", "return", "yield")
)
OWN = re.compile(r"(?<![\w.$@])[A-Za-z]\w*(?:\.\w+)+")
QUOTED = re.compile(r"`([^`\n]+)`")
SILENT = re.compile(r"#.*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
ASSIGNMENT = re.compile(r"(\s*)([A-Za-z_][\w.$]*) = (.+)", re.DOTALL)


class NotInR(Exception):
    """Code that has no counterpart in R."""


@lru_cache(maxsize=4)
def spelling(source: str) -> Spelling:
    """The spelling of a program."""
    return Spelling(source)


class Spelling:
    """Spells in R; `source` is the program's text, whose names may have dots in them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.own = frozenset(OWN.findall(SILENT.sub("", source)))

    def finding(self, found: Finding) -> Finding:
        """A finding in R's words; without its fix where that can't be written in R."""
        try:
            fix = self.fix(found.fix) if found.fix is not None else None
        except NotInR:
            fix = None
        related = tuple(Related(place, self.prose(text)) for place, text in found.related)
        return found._replace(
            message=self.prose(found.message), why=self.prose(found.why), help=self.prose(found.help), related=related, fix=fix
        )

    def fix(self, fix: Fix) -> Fix:
        """A fix in R's words; raises NotInR."""
        return fix._replace(title=self.prose(fix.title), changes=tuple(self.change(change) for change in fix.changes))

    def change(self, change: Change) -> Change:
        """One change in R's words; raises NotInR."""
        match change:
            case Replace(span, text):
                return Replace(span, self.code(text))
            case InsertStatements():
                return change._replace(lines=tuple(self.statement(line) for line in change.lines))
            case WrapStatements():
                return change._replace(header=self.header(change.header))
            case AddImport() | RemoveImport():
                raise NotInR
        return change

    def prose(self, text: str) -> str:
        """A text with the code in it spelled in R, but for what the program says so itself."""
        return QUOTED.sub(lambda found: f"`{self.quoted(found[1])}`", text)

    def quoted(self, code: str) -> str:
        """Code in a message."""
        if code in self.source or "--" in code or re.search(r"\w\s+\w", SILENT.sub('""', code)):
            return code
        try:
            return self.statement(code)
        except NotInR:
            return code

    def statement(self, line: str) -> str:
        """A line of code: an assignment, or an expression."""
        found = ASSIGNMENT.fullmatch(line)
        if found is None:
            return self.code(line)
        return f"{found[1]}{self.code(found[2])} <- {self.code(found[3])}"

    def header(self, text: str) -> str:
        """`with x as y:`, as R's call that is left open; raises NotInR."""
        found = re.fullmatch(r"with (.+?)(?: as (\w+))?:", text)
        if found is None:
            raise NotInR
        return f"with({self.code(found[1])}{f' %as% {found[2]}' if found[2] else ''}, {{"

    def code(self, text: str) -> str:
        """Python's (or R's) code in R; raises NotInR."""
        if text in self.source and "." not in text:
            return text
        parts: list[str] = []
        depth: list[tuple[int, str]] = []
        for token in TOKEN.finditer(text):
            part = token[0]
            match token.lastgroup:
                case "name":
                    part = self.name(part)
                case "equals":
                    part = " = " if part.strip() == part else part
                case "open":
                    depth.append((len(parts), part))
                case "close" if depth:
                    part = self.closed(parts, *depth.pop(), part)
            parts.append(part)
        return "".join(parts)

    def name(self, text: str) -> str:
        """A dotted name: what follows a dot is taken of what stands before it, unless the program's own names have dots."""
        if text in ONLY_PYTHON:
            raise NotInR
        if text in WORDS:
            return WORDS[text]
        if any(text.endswith(f"_{own}") for own in self.own):  # a name that is made of one of the program's
            return text
        steps = text.split(".")
        own = next((n for n in range(len(steps), 1, -1) if ".".join(steps[:n]) in self.own), 1)
        return "$".join([".".join(steps[:own]), *steps[own:]])

    def closed(self, parts: list[str], start: int, bracket: str, closing: str) -> str:
        """The end of a pair of brackets: a list or a tuple is `c(…)`."""
        before = "".join(parts[:start]).rstrip()
        inner = "".join(parts[start + 1 :])
        follows = bool(before) and (before[-1].isalnum() or before[-1] in "_)]$`\"'.")
        if follows or (bracket == "(" and "," not in inner):
            return closing
        parts[start] = "c("
        return ")"
