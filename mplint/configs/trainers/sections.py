"""The trainers that a JSON or YAML file configures."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mplint.configs.file import ConfigText
from mplint.configs.nodes import Entry, Mapping, Node, Scalar, Sequence
from mplint.configs.trainers.kinds import is_accelerate, is_deepspeed, is_lightning, is_transformers
from mplint.configs.trainers.setup import OPEN, Constant, Open, Option, Options, Setup, get
from mplint.findings import Change, Replace, Span

MAX_SECTIONS = 500  # sections looked at in one file
MAX_NESTED = 6
TRAINER_SECTIONS = ("trainer", "Trainer", "pl_trainer", "lightning_trainer", "trainer_args", "init_args")
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*")
_LIKE_OTHER = re.compile(r"(?i)(?:y|n|yes|no|on|off|true|false|null|~|[-+]?[\d_.]+(?:e[-+]?\d+)?)")
_COMMENT = re.compile(r"#|//|/\*")


def setups(file: ConfigText) -> list[Setup]:
    """What each recognized section of the file sets for which trainer, in the order of the text."""
    found = []
    for name, options, root in sections(file):
        if is_deepspeed(options):
            found.append(Setup("deepspeed", "DeepSpeed", options, "deepspeed", root))
        elif options is root and is_accelerate(options):
            other = deepspeed_file(file, options)
            found.append(
                Setup("accelerate", "accelerate", options, "accelerate", root)
                if other is None
                else Setup("accelerate", "accelerate", options, "accelerate", root, other, other.file.location)
            )
        elif is_transformers(options):
            found.append(Setup("transformers", "TrainingArguments", options, "transformers", root))
        elif (name in TRAINER_SECTIONS or options is root) and is_lightning(options):
            found.append(Setup("lightning", "Trainer", options, "lightning", root))
    return sorted(found, key=_position)


def deepspeed_file(file: ConfigText, options: ConfigOptions) -> ConfigOptions | None:
    """The settings in the DeepSpeed file that an accelerate configuration names, where it lies beside it or in a folder around it."""
    named = get(options, "deepspeed_config", "deepspeed_config_file")
    other = file.other(named.text) if named is not None and named.text is not None else None
    root = other.roots[0] if other is not None and other.roots else None
    return ConfigOptions(other, root) if other is not None and isinstance(root, Mapping) else None


def _position(setup: Setup) -> Span:
    return setup.options.place


def sections(file: ConfigText) -> Iterator[tuple[str, ConfigOptions, ConfigOptions]]:
    """Every mapping of the file with its name and the document around it, outer ones first."""
    seen: set[int] = set()
    for document in file.roots:
        if not isinstance(document, Mapping):
            continue
        root = ConfigOptions(file, document)
        queue: list[tuple[str, Node, int]] = [("", document, 0)]
        while queue and len(seen) < MAX_SECTIONS:
            name, node, depth = queue.pop(0)
            if depth > MAX_NESTED or id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Sequence):
                queue += [(name, item, depth + 1) for item in node.items if not isinstance(item, Scalar)]
            elif isinstance(node, Mapping):
                yield name, root if node is document else ConfigOptions(file, node), root
                queue += [(str(e.key.value), e.value, depth + 1) for e in node.entries if not isinstance(e.value, Scalar)]


def made_by(node: Node) -> str:
    """The last name of the class that a section with `class_path` or `_target_` is an instance of."""
    for entry in node.entries if isinstance(node, Mapping) else ():
        if entry.key.value in ("class_path", "_target_") and isinstance(entry.value, Scalar):
            return str(entry.value.value).rpartition(".")[2]
    return ""


class ConfigOptions:
    """The settings in one mapping of a JSON or YAML file."""

    complete = True

    def __init__(self, file: ConfigText, node: Mapping) -> None:
        self.file = file
        self.node = node
        self._entries = {str(entry.key.value): entry for entry in node.entries}

    @property
    def place(self) -> Span:
        """Where the section stands."""
        return self.node.span

    @property
    def names(self) -> tuple[str, ...]:
        """The keys, in the order of the text."""
        return tuple(self._entries)

    def option(self, name: str) -> Option | None:
        """The setting of that key."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        value: Constant | Options | Open = OPEN
        if isinstance(entry.value, Mapping):
            value = ConfigOptions(self.file, entry.value)
        elif isinstance(entry.value, Scalar):
            value = entry.value.value
            if isinstance(value, str) and "${" in value:
                value = OPEN
        fixed = entry.merged or entry.value.shared or entry.key.shared or self.node.shared
        start, end = entry.key.span, entry.value.span
        place = Span(start.line, start.column, end.end_line, end.end_column) if isinstance(entry.value, Scalar) and not fixed else start
        held = tuple(made_by(item) for item in entry.value.items) if isinstance(entry.value, Sequence) else ()
        return Option(name, entry.key.span, value, place, fixed, made=made_by(entry.value), held=held)

    def set(self, option: Option, value: Constant) -> Change | None:
        """Write another value in the style of the old one."""
        entry = self._own(option)
        if entry is None or not isinstance(entry.value, Scalar):
            return None
        return Replace(entry.value.span, self._written(value, entry.value))

    def rename(self, option: Option, name: str) -> Change | None:
        """Write another key in the quotes of the old one; none where that key exists."""
        entry = self._own(option)
        if entry is None or name in self._entries or option.name in self.node.repeated:
            return None
        quote = self.file.text(entry.key.span)[0] if entry.key.quoted else ""
        return Replace(entry.key.span, f"{quote}{name}{quote}")

    def remove(self, option: Option) -> Change | None:
        """Take out the lines of a setting, or where it shares a line its text with one comma."""
        entry = self._own(option)
        if entry is None or option.name in self.node.repeated:
            return None
        own = [e for e in self.node.entries if not e.merged]
        at = own.index(entry)
        following = own[at + 1] if at + 1 < len(own) else None
        previous = own[at - 1] if at else None
        if not self.node.flow:
            return self._cut_block(entry, following, alone=len(own) == 1)
        return self._cut_flow(entry, previous, following)

    def _own(self, option: Option) -> Entry | None:
        entry = self._entries.get(option.name)
        return None if option.fixed or entry is None or entry.value.shared else entry

    def _cut_block(self, entry: Entry, following: Entry | None, *, alone: bool) -> Change | None:
        first, last = entry.key.span.line, entry.value.span.end_line
        lines = self.file.lines
        if alone:
            return None
        if lines[first - 1][: entry.key.span.column].strip():  # the first key of a list's item
            return self._between(entry, following) if following is not None else None
        if last < len(lines):
            return Replace(Span(first, 0, last + 1, 0), "")
        return Replace(Span(first - 1, len(lines[first - 2]), last, len(lines[last - 1])), "") if first > 1 else None

    def _cut_flow(self, entry: Entry, previous: Entry | None, following: Entry | None) -> Change | None:
        start, end = entry.key.span, entry.value.span
        if following is not None:
            lines = self.file.lines
            before, after = lines[start.line - 1][: start.column], lines[end.end_line - 1][end.end_column :]
            if not before.strip() and after.strip().startswith(",") and (after.strip() == "," or _COMMENT.match(after.strip()[1:].strip())):
                return Replace(Span(start.line, 0, end.end_line + 1, 0), "")
            return self._between(entry, following)
        if previous is None:
            return Replace(Span(start.line, start.column, end.end_line, end.end_column), "")
        last = previous.value.span
        span = Span(last.end_line, last.end_column, end.end_line, end.end_column)
        return None if _COMMENT.search(self._source(Span(*span[:2], *start[:2]))) else Replace(span, "")

    def _between(self, entry: Entry, following: Entry) -> Change | None:
        span = Span(*entry.key.span[:2], *following.key.span[:2])
        rest = Span(*entry.value.span[2:], *following.key.span[:2])
        return None if _COMMENT.search(self._source(rest)) else Replace(span, "")

    def _source(self, span: Span) -> str:
        lines = self.file.lines[span.line - 1 : span.end_line]
        lines[-1] = lines[-1][: span.end_column]
        lines[0] = lines[0][span.column :]
        return "\n".join(lines)

    def _written(self, value: Constant, old: Scalar) -> str:
        """`value` as the file would have it: in JSON's words, or in YAML in the style of the value that it replaces."""
        source = self.file.text(old.span)
        if isinstance(value, bool):
            word = "true" if value else "false"
            if self.file.is_json:
                return word
            if source.lower() in ("yes", "no", "on", "off"):
                word = {"yes": ("no", "yes"), "no": ("no", "yes")}.get(source.lower(), ("off", "on"))[value]
            return word.upper() if source.isupper() else word.capitalize() if source[:1].isupper() else word
        if isinstance(value, str):
            if self.file.is_json:
                return f'"{value}"'
            if old.quoted and source[:1] in "'\"":
                return f"{source[0]}{value}{source[0]}"
            return value if _PLAIN.fullmatch(value) and not _LIKE_OTHER.fullmatch(value) else f"'{value}'"
        return "null" if value is None else str(value)
