"""Configuration: where it is found, what it may hold, and what is said when it is wrong."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mplint.config import Config, load_config
from mplint.engine.select import FileIgnores, asked_for, expand, glob_pattern, selected, severities
from mplint.errors import UsageError
from mplint.findings import Confidence, Severity
from mplint.rule import Rule


def rule(code: str, name: str, severity: Severity = Severity.ERROR) -> type[Rule]:
    return type(code, (Rule,), {"code": code, "name": name, "severity": severity})


RULES = {
    r.code: r
    for r in (
        rule("MP001", "unreadable-input"),
        rule("MP301", "missing-loss-scaling"),
        rule("MP304", "clip-before-unscale"),
        rule("MP401", "channels-not-multiple-of-8", Severity.WARNING),
        rule("MP404", "xla-not-enabled", Severity.INFO),
    )
}


def load(folder: Path, text: str, name: str = "mplint.toml") -> Config:
    (folder / name).write_text(text)
    return load_config(str(folder))


def codes(**settings: tuple[str, ...]) -> list[str]:
    return sorted(selected(Config(**settings), RULES) - {"MP001"})  # type: ignore[arg-type]


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        [tool.mplint]
        select = ["MP3"]
        extend-select = ["MP404"]
        ignore = ["clip-before-unscale"]
        exclude = ["old/"]
        plugins = ["acme.rules"]
        min-confidence = "low"
        fail-on = "error"
        cache = false
        policy = "mixed_bfloat16"
        options = {MP403 = {least-rows = 5000}}
        [tool.mplint.target]
        hardware = "Tesla T4"
        torch = "2.3"
        keras = "3.5"
        tensorflow = ">=2.16,<3"
        [tool.mplint.per-file-ignores]
        "tests/*" = ["MP4"]
        """,
        "pyproject.toml",
    )
    assert config == Config(
        select=("MP3",),
        extend_select=("MP404",),
        ignore=("clip-before-unscale",),
        per_file_ignores=(("tests/*", ("MP4",)),),
        exclude=("old/",),
        target="Tesla T4",
        torch="2.3",
        keras="3.5",
        tensorflow=">=2.16,<3",
        min_confidence=Confidence.LOW,
        fail_on=Severity.ERROR,
        plugins=("acme.rules",),
        cache=False,
        policy="mixed_bfloat16",
        options=(("MP403", (("least-rows", 5000),)),),
        folders=True,
        root=str(tmp_path),
        source=str(tmp_path / "pyproject.toml"),
    )
    assert pickle.loads(pickle.dumps(config)) == config


def test_target_may_be_the_hardware_alone(tmp_path: Path) -> None:
    assert load(tmp_path, 'target = "Tesla T4"').target == "Tesla T4"


def test_the_nearest_file_upwards_governs_and_a_pyproject_without_our_table_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "mplint.toml").write_text('ignore = ["MP1"]')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\nname = "uses-mplint"\n')
    (inner / "train.py").touch()
    assert load_config(str(inner / "train.py")).ignore == ("MP1",)
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.mplint]\nignore = ["MP2"]\n')
    assert load_config(str(inner / "train.py")).ignore == ("MP2",)


def test_mplint_toml_comes_before_pyproject_in_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.mplint]\nignore = ["MP2"]\n')
    assert load(tmp_path, 'ignore = ["MP1"]').ignore == ("MP1",)


def test_isolated_reads_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "mplint.toml").write_text("broken = [")
    assert load_config(str(tmp_path), isolated=True) == Config(isolated=True)


def test_a_broken_pyproject_that_does_not_name_us_is_not_our_business(tmp_path: Path) -> None:
    assert load(tmp_path, "[tool.other\n", "pyproject.toml").ignore == ()


def test_paths_of_configuration_are_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mplint.toml").touch()
    config = load_config("src")
    assert (config.source, config.root) == ("mplint.toml", ".")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('selct = ["MP3"]', 'unknown key "selct"; did you mean "select"?'),
        ('min_confidence = "low"', 'unknown key "min_confidence"; did you mean "min-confidence"?'),
        ("zzz = 1", 'unknown key "zzz"'),
        ('select = "MP3"', 'select must be a list of strings, not the string "MP3"'),
        ('select = ["MP3", 4]', "select must be a list of strings, not a list that holds the number 4"),
        ("cache = 1", "cache must be true or false, not the number 1"),
        ('fail-on = "errors"', 'fail-on must be "error", "warning" or "info", not "errors"; did you mean "error"?'),
        ("min-confidence = true", 'min-confidence must be "high", "medium" or "low", not true'),
        ("[target]\ntorch = 2.3", 'target.torch must be a string such as "2.3", not the number 2.3'),
        ('[target]\ntorch = "new"', 'target.torch: "new" is not a version such as "2.3" or ">=2.1,<3"'),
        ('[target]\npytorch = "2.3"', 'target: unknown key "pytorch"; did you mean "torch"?'),
        (
            "target = 7.5",
            'target must be a string such as "Tesla T4" or a table with hardware, torch, keras, tensorflow, not the number 7.5',
        ),
        ('[per-file-ignores]\n"tests/*" = "MP3"', 'per-file-ignores."tests/*" must be a list of strings, not the string "MP3"'),
        ("options = 3", "options must be a table of rules and their options, such as {MP403 = {least-rows = 5000}}, not the number 3"),
        ("[options]\nMP403 = 3", "options.MP403 must be a table of options, such as {least-rows = 5000}, not the number 3"),
        ('[options.MP403]\nleast-rows = "5"', 'options.MP403.least-rows must be a whole number, not the string "5"'),
        ("exclude = 2024-01-01", "exclude must be a list of strings, not a date or time"),
        ("tool.mplint = 3", "tool.mplint must be a table, not the number 3"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_file_the_key_and_the_nearest_right_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert str(error.value) == f"{tmp_path / 'mplint.toml'}: {message}"


def test_invalid_toml_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mplint\.toml: not valid TOML: .*line 2"):
        load(tmp_path, 'select = ["MP3"]\nignore = ]')


def test_a_named_configuration_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such configuration file"):
        load_config(file=str(tmp_path / "none.toml"))


def test_errors_and_warnings_are_selected_by_default_and_info_is_not() -> None:
    assert codes() == ["MP301", "MP304", "MP401"]


def test_rules_are_selected_by_code_prefix_name_and_all() -> None:
    assert codes(select=("MP301",)) == ["MP301"]
    assert codes(select=("mp3",)) == ["MP301", "MP304"]
    assert codes(select=("xla-not-enabled",)) == ["MP404"]
    assert codes(select=("ALL",)) == ["MP301", "MP304", "MP401", "MP404"]
    assert codes(extend_select=("MP404",)) == ["MP301", "MP304", "MP401", "MP404"]


def test_the_more_specific_selector_decides_and_ignore_wins_between_equals() -> None:
    assert codes(select=("MP301",), ignore=("MP3",)) == ["MP301"]
    assert codes(select=("MP3",), ignore=("missing-loss-scaling",)) == ["MP304"]
    assert codes(select=("MP3",), ignore=("MP3",)) == []
    assert codes(ignore=("ALL",)) == []


def test_advice_is_asked_for_by_naming_its_rule() -> None:
    assert asked_for(Config(), RULES) == frozenset()
    assert asked_for(Config(select=("MP4",), extend_select=("clip-before-unscale",)), RULES) == {"MP401", "MP404", "MP304"}


def test_unreadable_input_is_reported_whatever_is_selected_unless_it_is_ignored() -> None:
    assert "MP001" in selected(Config(select=("MP301",)), RULES)
    assert "MP001" not in selected(Config(ignore=("MP001",)), RULES)


def test_an_unknown_selector_names_its_origin_and_the_nearest_right_name() -> None:
    with pytest.raises(UsageError) as error:
        selected(Config(ignore=("clip-before-unscaled",), source="pyproject.toml"), RULES)
    assert str(error.value) == 'pyproject.toml: ignore: unknown rule "clip-before-unscaled"; did you mean "clip-before-unscale"?'
    with pytest.raises(UsageError, match="`mplint rules` lists them"):
        expand("", RULES)


def test_per_file_ignores_follow_globs_relative_to_the_configuration(tmp_path: Path) -> None:
    config = Config(root=str(tmp_path), per_file_ignores=(("tests/*", ("MP3",)), ("conftest.py", ("MP401",))))
    ignores = FileIgnores(config, RULES)
    assert ignores.codes(str(tmp_path / "tests" / "test_loop.py")) == {"MP301", "MP304"}
    assert ignores.codes(str(tmp_path / "a" / "conftest.py")) == {"MP401"}
    assert ignores.codes(str(tmp_path / "src" / "loop.py")) == frozenset()


@pytest.mark.parametrize(
    ("pattern", "matches", "differs"),
    [
        ("*.py", ["a.py", "x/a.py"], ["a.pyi"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "x/src/a.py"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_a.py"], ["src/a.py"]),
        ("old/", ["old/a.py", "x/old/a.py"], ["older/a.py"]),
        ("a[0-9]?.py", ["a1b.py"], ["abb.py"]),
        ("a[!0-9].py", ["ab.py"], ["a1.py"]),
        ("./src/a+b.py", ["src/a+b.py"], ["src/aab.py"]),
    ],
)
def test_globs_match_as_in_gitignore(pattern: str, matches: list[str], differs: list[str]) -> None:
    assert all(glob_pattern(pattern).fullmatch(path) for path in matches)
    assert not any(glob_pattern(pattern).fullmatch(path) for path in differs)


def test_severities_decide_what_is_checked_and_shown() -> None:
    config = Config(severities=(("MP3", Severity.WARNING), ("MP304", Severity.INFO), ("MP404", Severity.WARNING)))
    assert severities(config, RULES) == {"MP301": Severity.WARNING, "MP304": Severity.INFO, "MP404": Severity.WARNING}
    assert selected(config, RULES) >= {"MP301", "MP304", "MP404"} and asked_for(config, RULES) >= {"MP304"}
    with pytest.raises(UsageError, match='severity: unknown rule "MP9"'):
        selected(Config(severities=(("MP9", Severity.INFO),)), RULES)


def test_a_severity_that_is_none_is_told_with_its_rule(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'severity\.MP101 must be "error", "warning" or "info", not "inf"; did you mean'):
        load(tmp_path, '[severity]\nMP101 = "inf"\n')


def test_a_file_extends_another_and_overrides_it(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text('ignore = ["MP401"]\nfail-on = "error"\n[severity]\nMP301 = "info"\n')
    (tmp_path / "sub").mkdir()
    config = load(tmp_path / "sub", 'extend = "../team.toml"\nfail-on = "info"\n[severity]\nMP304 = "warning"\n')
    assert (config.ignore, config.fail_on) == (("MP401",), Severity.INFO)
    assert config.severities == (("MP301", Severity.INFO), ("MP304", Severity.WARNING))
    assert config.root == str(tmp_path / "sub")


@pytest.mark.parametrize(
    ("text", "wrong"), [('extend = "a.toml"', "no such"), ('extend = "mplint.toml"', "extends itself"), ("extend = 1", "number 1")]
)
def test_an_extension_that_leads_nowhere_is_an_error(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        load(tmp_path, text)


def test_nul_bytes_are_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes('[tool.mplint]\nignore = ["MP1"]\n'.encode("utf-16"))
    with pytest.raises(UsageError, match=r"pyproject\.toml: holds NUL bytes"):
        load_config(str(tmp_path))
