"""Derive the table of the R packages keras and keras3 from their sources: which object of Keras each function makes or calls."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mplint.python.r.grammar import tree_of

if TYPE_CHECKING:
    from tree_sitter import Node

PREFIXES = (
    *("activation_", "application_", "bidirectional", "callback_", "config_", "constraint_", "initializer_", "k_", "keras_input", "layer_"),
    *("learning_rate_", "loss_", "metric_", "op_", "optimizer_", "random_", "regularizer_", "time_distributed"),
)
PACKAGES = ("keras", "keras3")
FORMALS = 6  # of a function are kept: nobody gives more of them without their names
SKIPPED = re.compile(r"^(k_|op_)(map_fn|backend|is_|set_session|get_session|function)")


def derive(folder: Path, sources: Path) -> list[str]:
    """Write r_keras.json into the folder; `sources` holds checkouts of the R packages, in folders of their names."""
    functions: dict[str, dict[str, list[object]]] = {}
    for package in PACKAGES:
        exported = set(re.findall(r"^export\((\w+)\)", (sources / package / "NAMESPACE").read_text(), re.MULTILINE))
        for path in sorted((sources / package / "R").glob("*.R")):
            for name, (home, formals) in defined(path.read_text()):
                if name in exported and name.startswith(PREFIXES) and not SKIPPED.match(name):
                    functions.setdefault(name, {})[package] = [home, formals]
    kept = {name: by[max(by)] if len(by) == len(PACKAGES) and same(by) else by for name, by in sorted(functions.items())}
    origin = {package: f"github.com/rstudio/{package} at {commit(sources / package)}" for package in PACKAGES}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in kept.items())
    text = '{\n "source": ' + json.dumps(origin) + ',\n "functions": {\n' + lines + "\n }\n}\n"
    (folder / "r_keras.json").write_text(text)
    return [f"r: {len(kept)} functions"]


def same(by: dict[str, list[object]]) -> bool:
    """Whether every package defines a function alike."""
    return len(set(map(str, by.values()))) == 1


def commit(checkout: Path) -> str:
    """The commit of a checkout."""
    return subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def defined(text: str) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """The functions of an R source, with the object of Keras that each is about and the names of its arguments."""
    for statement in tree_of(text).root_node.children:
        left, right = statement.child_by_field_name("lhs"), statement.child_by_field_name("rhs")
        if statement.type != "binary_operator" or left is None or right is None or right.type != "function_definition":
            continue
        home = about(right.child_by_field_name("body"))
        parameters = right.child_by_field_name("parameters")
        if home is not None and parameters is not None:
            names = [text_of(name) for p in parameters.children if (name := p.child_by_field_name("name")) is not None]
            yield text_of(left), (home, names[:FORMALS])


def about(body: Node | None) -> str | None:
    """The first object of Keras that a function calls, or hands to what calls it, as a dotted path; else those that it chooses from."""
    stack, chosen = [body] if body is not None else [], dict[str, None]()
    while stack:
        node = stack.pop()
        if node.type == "call":
            function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            given = [a.child_by_field_name("value") for a in arguments.children if a.type == "argument"] if arguments is not None else []
            word = text_of(function) if function is not None else ""
            for candidate in (function, *(given[:1] if word in ("create_layer", "do.call") else ())):
                found = chain(candidate)
                if found is not None:
                    return found
        elif node.type == "extract_operator" and (found := chain(node)) is not None:
            chosen[found] = None
            continue
        stack += reversed(node.children)
    return "|".join(chosen) or None


def chain(node: Node | None) -> str | None:
    """The path after `keras` of an expression such as `keras$layers$Dense`."""
    text = text_of(node).replace(" ", "") if node is not None else ""
    found = re.fullmatch(r"(?:keras\$|(?=ops\$))(\w+(?:\$\w+)*)", text)
    return found[1].replace("$", ".") if found else None


def text_of(node: Node) -> str:
    """The text of a node."""
    return (node.text or b"").decode()
