"""Write what is made from the code: docs/rules/*.md, tables in other pages, the README's example of a report, mplint/catalog_table.py,
the schema of the configuration, the events.

Run from the repository's root: `python docs/generate.py`; with `--check` it only says what is out of date.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import counted
import recorded
import schema
import shown

from mplint.catalog import read_entries, rule_files
from mplint.rule import Rule, registry

ROOT = Path(__file__).resolve().parent.parent
COMMAND = re.compile(r"(```console\n\$ (mplint [^\n]+)\n).*?(```)", re.S)
CATALOG = """\
# ruff: noqa: E501
\"""What the files of the rules hold, by their size when this was made; written by docs/generate.py.\"""

from __future__ import annotations

Row = tuple[str, str, str, tuple[str, ...], tuple[str, ...], bool, str, bool, bool, bool, bool]

# fmt: off
FILES: dict[str, tuple[int, tuple[Row, ...]]] = {{
{}}}
"""
SIZE = re.compile(r"(?<=\.py'): \(\d+")


def pages() -> Iterator[tuple[Path, str]]:
    """Every generated file and what must stand in it."""
    rules = registry()
    for rule in rules.values():
        yield ROOT / "docs" / "rules" / f"{rule.name}.md", page(rule)
    yield ROOT / "mplint" / "catalog_table.py", catalog_table()
    yield ROOT / "mplint" / "data" / "config.schema.json", schema.schema_text()
    yield filled(ROOT / "docs" / "writing-rules.md", events=events_table())
    yield filled(ROOT / "docs" / "configuration.md", settings=schema.settings_table(), options=schema.options_table())
    yield filled(ROOT / "docs" / "field-report.md", counted=counted.table())
    yield filled(ROOT / "docs" / "rules" / "index.md", rules=table(list(rules.values())))
    for page_of_commands in (
        ROOT / "README.md",
        ROOT / "docs" / "r.md",
        *(ROOT / "docs" / "start" / name for name in ("torch.md", "keras.md")),
    ):
        text = page_of_commands.read_text(encoding="utf-8")
        yield page_of_commands, COMMAND.sub(lambda m: m[1] + output(m[2]) + m[3], text)
    kept = recorded.recorded()
    for article in sorted(recorded.ARTICLES.glob("*.md")):
        text = article.read_text(encoding="utf-8")
        yield article, COMMAND.sub(lambda m: m[1] + (kept[m[2]] if m[2] in kept else shown_of_run(m[2])) + m[3], text)


def filled(path: Path, **tables: str) -> tuple[Path, str]:
    """A page with its tables, each between two comments that name it."""
    text = path.read_text(encoding="utf-8")
    for name, made in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        assert found and closed, f"{path}: no place for {name}"
        text = before + begin + made + end + after
    return path, text


def page(rule: type[Rule]) -> str:
    """The documentation page of one rule."""
    facts = [f"severity {rule.severity.value}", f"fix: {rule.fix.value if rule.fix else 'none'}"]
    if rule.frameworks:
        facts.append(", ".join(rule.frameworks))
    text, references, rest = rule.documentation().partition("## References")
    parts = [
        text.rstrip() + "\n",
        options(rule),
        shown.witness(rule.code),
        shown.field(rule.code),
        references + rest + "\n" if references else "",
    ]
    body = "\n".join(part for part in parts if part)
    return f"# {rule.name} ({rule.code})\n\n_{'; '.join(facts)}_\n\n{body}"


def options(rule: type[Rule]) -> str:
    """The section on what a rule leaves to the user; "" where it leaves nothing."""
    rows = [f"| `{option.name}` | {option.default} | {schema.capital(option.about)} |" for option in rule.options]
    if not rows:
        return ""
    where = f"Under `[tool.mplint.options.{rule.code}]` of the [configuration](../configuration.md):"
    return "\n".join(["## Options", "", where, "", "| option | default | what it says |", "|---|---|---|", *rows, ""])


def catalog_table() -> str:
    """The module that tells of every rule without its source being read."""
    lines = []
    for family, item in rule_files(str(ROOT / "rules")):
        entries = read_entries(item.path, f"mplint.rules.{family}.{item.name[:-3]}")
        rows = tuple((*e[:2], e.severity.name, *e[3:6], *e[7:]) for e in entries)
        lines.append(f"    {f'{family}/{item.name}'!r}: ({item.stat().st_size}, {rows!r}),\n")
    return CATALOG.format("".join(sorted(lines)))


def events_table() -> str:
    """The kinds of events that the interpreter emits, their data, and what the functions that emit them say of themselves."""
    data: dict[str, set[str]] = {}
    tellers: dict[str, dict[str, None]] = {}
    for path in sorted((ROOT / "mplint").rglob("*.py")):
        for kind, names, teller in emitted(ast.parse(path.read_text(encoding="utf-8")), path.stem):
            data.setdefault(kind, set()).update(names)
            tellers.setdefault(kind, {})[teller] = None
    rows = ["| event | data | when |", "|---|---|---|"]
    for kind in sorted(data):
        names = ", ".join(f"`{name}`" for name in sorted(data[kind]))
        rows.append(f"| {kind} | {names} | {' '.join(tellers[kind])} |")
    return "\n".join(rows) + "\n"


def emitted(tree: ast.AST, teller: str) -> Iterator[tuple[str, list[str], str]]:
    """The events that code emits: kind, data and the first line about the innermost function that says something."""
    for node in ast.iter_child_nodes(tree):
        said = teller
        if isinstance(node, ast.FunctionDef):
            text = ast.get_docstring(node)
            said = text.splitlines()[0] if text else f"`{node.name}` of {teller}." if teller.isidentifier() else teller
        match node:
            case (
                ast.Call(func=ast.Attribute(attr="emit"), args=[kind, *_], keywords=keywords)
                | ast.Call(func=ast.Name(id="emit_on"), args=[_, _, kind, *_], keywords=keywords)
            ):
                names = [k.arg for k in keywords if k.arg is not None]
                constants = [n.value for n in ast.walk(kind) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
                yield from ((word, names, said) for word in constants)
        yield from emitted(node, said)


def table(rules: list[type[Rule]]) -> str:
    """The table of rules."""
    rows = ["| code | name | severity | fix | what it finds |", "|---|---|---|---|---|"]
    for rule in rules:
        link = f"[{rule.name}]({rule.name}.md)"
        rows.append(f"| {rule.code} | {link} | {rule.severity.value} | {rule.fix.value if rule.fix else ''} | {rule.summary()} |")
    return "\n".join(rows) + "\n"


def shown_of_run(command: str) -> str:
    """What a command prints that takes no run of a training; the others are run by docs/recorded.py."""
    if recorded.COMMAND.match(f"```console\n$ {command}\n"):
        raise SystemExit(f"run `python docs/recorded.py`: it has not run `{command}`")
    return output(command)


def output(command: str) -> str:
    """What a command of a page prints, run in the repository's root; what it says on standard error stands last."""
    arguments = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "mplint", *arguments], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", env=environment()
    )
    return done.stdout + done.stderr


def environment() -> dict[str, str]:
    """A terminal of 80 columns without color."""
    import os

    return {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def differs(path: Path, text: str) -> bool:
    """Whether a file holds something else than `text`; checks allow for other sizes in the catalog, which only cost the time to read."""
    was = path.read_text(encoding="utf-8")
    return SIZE.sub("", was) != SIZE.sub("", text) if "--check" in sys.argv else was != text


def main() -> int:
    """Write what differs, or with `--check` name it and return 1."""
    stale = [(path, text) for path, text in pages() if not path.exists() or differs(path, text)]
    for path, text in stale:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
