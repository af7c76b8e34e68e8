"""JSON and YAML texts become nodes whose places are exact, whatever is around them."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mplint.configs.file import parse_config
from mplint.configs.nodes import Mapping, Node, Scalar, Sequence
from mplint.configs.trainers.config_file import ConfigFile
from mplint.configs.trainers.sections import ConfigOptions
from mplint.findings import Replace, Span
from mplint.python.document import Document, InputError
from mplint.targets import Targets


def parse(text: str, path: str = "config.yaml") -> list[Node]:
    return parse_config(Document(path, text))


def root(text: str, path: str = "config.yaml") -> ConfigOptions:
    nodes = parse(text, path)
    assert isinstance(nodes[0], Mapping)
    return ConfigOptions(ConfigFile(Document(path, text), nodes, Targets()), nodes[0])


def plain(node: Node) -> object:
    """The value that a node stands for."""
    if isinstance(node, Mapping):
        return {str(entry.key.value): plain(entry.value) for entry in node.entries}
    return [plain(item) for item in node.items] if isinstance(node, Sequence) else node.value


def at(text: str, span: Span) -> str:
    lines = text.split("\n")
    return lines[span.line - 1][span.column : span.end_column]


def test_places_of_keys_and_values_in_json() -> None:
    text = '{\n  "fp16": {"enabled" : true},\n  "ä": "bf16", "x": -1.5e3\n}'
    options = root(text, "config.json")
    enabled = options.option("fp16").section.option("enabled")
    assert at(text, enabled.key) == '"enabled"'
    assert at(text, enabled.place) == '"enabled" : true'
    assert at(text, options.option("x").place) == '"x": -1.5e3'


def test_places_of_keys_and_values_in_yaml() -> None:
    text = "# ä\ntrainer:\n  precision:   16   # old\n  list: [1, {bf16: yes}]\n'quoted': \"x\"\n"
    options = root(text)
    assert at(text, options.option("trainer").section.option("precision").place) == "precision:   16"
    assert at(text, options.option("quoted").key) == "'quoted'"
    assert at(text, options.option("quoted").place) == "'quoted': \"x\""


def test_the_last_of_equal_keys_counts() -> None:
    assert root('{"fp16": true, "fp16": false}', "c.json").option("fp16").value is False
    assert root("fp16: true\nfp16: false\n").option("fp16").value is False


def test_own_keys_replace_merged_ones_and_the_first_source_wins() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc:\n  y: 3\n  <<: [*a, *b]\n"
    section = root(text).option("c").section
    assert {name: section.option(name).value for name in ("x", "y", "z")} == {"x": 1, "y": 3, "z": 2}
    assert section.option("x").fixed
    assert not section.option("y").fixed


def test_what_an_anchor_or_alias_shares_is_not_edited() -> None:
    options = root("a: &on true\nb: *on\nc: true\n")
    assert [options.set(options.option(name), False) for name in ("a", "b")] == [None, None]
    assert options.set(options.option("c"), False) == Replace(Span(3, 3, 3, 7), "false")


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: *nothing\n", "<<: *nothing\n", "? [1, 2]\n: 3\n"])
def test_odd_yaml_is_read(text: str) -> None:
    assert len(parse(text)) == 1


def test_several_documents_are_several_roots() -> None:
    assert [plain(node) for node in parse("a: 1\n---\nb: 2\n...\n---\n")] == [{"a": 1}, {"b": 2}, None]


def test_comments_and_trailing_commas_in_json_are_read_over() -> None:
    text = '{ // one\n  "a": 1, /* two */ "b": [1, 2,], # three\n}'
    assert plain(parse(text, "c.json")[0]) == {"a": 1, "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("{\n  'a': 1}", 2, 3),
        ('{"a": tru}', 1, 7),
        ('{"a": 1', 1, 8),
        ('{"a" 1}', 1, 6),
        ('{"a": 1} x', 1, 10),
        ('{"a": "b\n"}', 1, 7),
        ("", 1, 1),
    ],
)
def test_broken_json_is_said_where_it_breaks(text: str, line: int, column: int) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "c.json")
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize("text", ["a: [1, 2\nb: 3\n", "a: 'x\n", "a:\n\t- 1\n", "a: b: c\n", "[" * 5000, "a: \x01\n"])
def test_broken_yaml_is_an_input_error_with_a_place(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.line is not None


def test_deep_json_is_an_input_error() -> None:
    with pytest.raises(InputError, match="deep"):
        parse("[" * 100_000, "c.json")


def test_aliases_of_aliases_cost_nothing() -> None:
    lines = ["a0: &a0 [1, 2]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60))]
    file = ConfigFile(Document("c.yaml", "\n".join(lines)), parse("\n".join(lines)), Targets())
    assert file.trainers == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5), st.sampled_from([None, 0, 2]), st.booleans())
def test_json_is_read_as_the_standard_library_reads_it(value: dict[str, object], indent: int | None, escape: bool) -> None:
    assert plain(parse(json.dumps(value, indent=indent, ensure_ascii=escape), "c.json")[0]) == value


KEYS = st.sampled_from(["fp16", "bf16", "tf32", "seed", "optim", "lr", "out"])
SIMPLE = st.booleans() | st.integers(0, 99) | st.sampled_from(["auto", "O1", "a b", "x: y", "16", "no", ""])
SECTIONS = st.dictionaries(KEYS, SIMPLE | st.dictionaries(KEYS, SIMPLE, min_size=1, max_size=3), min_size=2, max_size=5)


def applied(text: str, change: Replace | None) -> str:
    """The text after a replacement."""
    if change is None:
        return text
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    start = starts[change.span.line - 1] + change.span.column
    end = starts[change.span.end_line - 1] + change.span.end_column
    return text[:start] + change.text + text[end:]


@given(SECTIONS, st.data(), st.sampled_from(["json", "inline", "block", "flow"]))
def test_an_edit_changes_its_setting_and_nothing_else(value: dict[str, object], data: st.DataObject, style: str) -> None:
    if style in ("json", "inline"):
        path, text = "c.json", json.dumps(value, indent=2 if style == "json" else None)
        read = json.loads
    else:
        path, text = "c.yaml", yaml.safe_dump(value, default_flow_style=style == "flow", sort_keys=False)
        read = yaml.safe_load
    options = root(text, path)
    name = data.draw(st.sampled_from(sorted(value)))
    option = options.option(name)
    removed = options.remove(option)
    assert removed is not None
    assert read(applied(text, removed)) == {key: item for key, item in value.items() if key != name}
    renamed = options.rename(option, "other")
    assert read(applied(text, renamed)) == {"other" if key == name else key: item for key, item in value.items()}
    if not isinstance(value[name], dict):
        for new in (False, 16, "16-mixed", "no"):
            assert read(applied(text, options.set(option, new))) == value | {name: new}


def test_the_style_of_a_value_is_kept() -> None:
    text = "a: True\nb: yes\nc: 'fp16'\nd: \"x\"\ne: fp16\n"
    options = root(text)
    written = {
        name: options.set(options.option(name), new).text for name, new in zip("abcde", (False, False, "bf16", "bf16", "no"), strict=True)
    }
    assert written == {"a": "False", "b": "no", "c": "'bf16'", "d": '"bf16"', "e": "'no'"}


def test_a_comment_between_two_settings_is_not_cut() -> None:
    text = '{"fp16": true, // why\n "bf16": true}'
    options = root(text, "c.json")
    assert options.remove(options.option("fp16")) is None
    assert isinstance(parse(text, "c.json")[0], Mapping)
    assert isinstance(options.node.entries[0].value, Scalar)
