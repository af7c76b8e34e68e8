"""The command line: options, exit codes, the choice of reports, and what is said when something is wrong."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from report_findings import clip_before_unscale, write_program

from mplint import __version__
from mplint.cli.main import main
from mplint.config import Config, Given
from mplint.engine.results import Fault
from mplint.errors import UsageError
from mplint.findings import Applicability, Confidence, Finding, Fix, Location, Severity
from mplint.report.summary import place
from mplint.rule import registry


class Result(NamedTuple):
    findings: tuple[Finding, ...] = ()
    files: int = 3
    faults: tuple[Fault, ...] = ()
    diffs: tuple[str, ...] = ()
    applied: int = 0
    remaining: tuple[Finding, ...] = ()
    failures: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    output: dict[str, bytes] = {}
    models: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    mended: tuple[tuple[str, str, int], ...] = ()
    notes: tuple[str, ...] = ()
    profiles: tuple[object, ...] = ()
    known: int = 0
    shown: tuple[tuple[Finding, str], ...] = ()
    stale: dict[object, int] = {}
    older: int = 0
    unjudged: tuple[tuple[str, str], ...] = ()


@dataclass
class Engine:
    """Stands for the engine: gives one result and remembers how it was asked."""

    result: Result = field(default_factory=Result)
    error: BaseException | None = None
    paths: Sequence[str] = ()
    config: Config = field(default_factory=Config)
    options: dict[str, object] = field(default_factory=dict)

    def __call__(self, paths: Sequence[str], config: Config, **options: object) -> Result:
        self.paths, self.config, self.options = paths, config, options
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    fake = Engine()
    for name, function in (("run", "check_paths"), ("fix", "fix_paths")):
        module = ModuleType(f"mplint.engine.{name}")
        setattr(module, function, fake)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return fake


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(engine: Engine, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def unreadable() -> Finding:
    return clip_before_unscale(Location("x.py", 1, 1, 1, 2), code="MP001", name="unreadable-input", related=(), fix=None)


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"mplint {__version__}\n", "")


def test_help_of_every_command_fits_80_columns_and_names_the_exit_codes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["--help"], ["check", "--help"], ["fix", "--help"], ["explain", "--help"], ["rules", "--help"]):
        code, out, _ = run(*arguments)
        assert code == 0 and max(map(len, out.splitlines())) <= 80
        assert "exit status" in out or arguments[0] not in ("check", "fix")


def test_no_command_prints_the_help_as_misuse(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "") and "mplint check src/" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["chek"], 'unknown command "chek"; did you mean "check"?'),
        (["src"], 'unknown command "src"; did you mean `mplint check src`?'),
        (["check", "--selct", "MP3"], 'unknown option --selct; did you mean "--select"? (see `mplint check --help`)'),
        (["check", "--apply"], "unknown option --apply; `mplint fix` has it (see `mplint check --help`)"),
        (["fix", "--diff"], "unknown option --diff; `mplint fix` without `--apply` shows a diff and writes nothing"),
        (["check", "--zzz"], "unknown option --zzz (see `mplint check --help`)"),
        (["check", "--select"], "argument --select: expected one argument (see `mplint check --help`)"),
        (["check", "--fail-on", "x"], "argument --fail-on: invalid choice: 'x' (choose from 'error', 'warning', 'info')"),
        (["check", "--output-format", "jsn"], "argument --output-format: invalid choice: 'jsn' (choose from 'text', 'full', 'grouped',"),
        (["check", "--select", "MP1O1"], '--select: unknown rule "MP1O1"; did you mean "MP101"?'),
        (["explain", "mp3o4"], 'unknown rule "mp3o4"; did you mean "MP304"?'),
        (["check", "--stdin-filename", "a.py", "."], "--stdin-filename names what is read from standard input: give `-` as well"),
        (["check", "--select", "unredable-input"], '--select: unknown rule "unredable-input"; did you mean "unreadable-input"?'),
        (["check", "--per-file-ignores", "tests"], '--per-file-ignores: "tests" is not GLOB:RULES, such as "tests/*:MP3"'),
        (["check", "--config", "none.toml"], "none.toml: no such configuration file"),
        (["check", "--statistics", "--output-format", "json"], "--statistics goes with --output-format text, full, grouped, concise"),
        (["explain", "unused-supression"], 'unknown rule "unused-supression"; did you mean "unused-suppression"?'),
        (["explain"], "the following arguments are required: RULE"),
    ],
)
def test_misuse_is_one_clear_line_and_exit_code_2(run: Run, tmp_path: Path, argv: list[str], message: str) -> None:
    (tmp_path / "src").mkdir()
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"mplint: error: {message}") and err.count("\n") == 1


def test_what_the_engine_finds_wrong_with_the_request_is_exit_code_2(run: Run, engine: Engine) -> None:
    engine.error = UsageError("nope.py: no such file or folder")
    assert run("check", "nope.py") == (2, "", "mplint: error: nope.py: no such file or folder\n")


def test_paths_default_to_the_current_folder(run: Run, engine: Engine) -> None:
    assert run("check")[0] == 0
    assert list(engine.paths) == ["."]


def test_options_override_the_configuration(run: Run, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "mplint.toml").write_text('select = ["MP2"]\nignore = ["MP001"]\nexclude = ["a"]\ntarget = "cpu"\nfail-on = "info"\n')
    run("check", "--extend-select", "MP001, MP002", "--exclude", "b", "--no-cache", "src")
    assert engine.config._replace(given=Given()) == Config(
        select=("MP2",),
        extend_select=("MP001", "MP002"),
        ignore=("MP001",),
        exclude=("a", "b"),
        target="cpu",
        fail_on=Severity.INFO,
        cache=False,
        folders=True,
        source="mplint.toml",
    )
    run("check", "--select", "MP001", "--target", "7.5", "--fail-on", "error", "--min-confidence", "low", "--ignore", "MP002")
    changed = engine.config
    assert (changed.select, changed.ignore, changed.target) == (("MP001",), ("MP002",), "7.5")
    assert (changed.fail_on, changed.min_confidence) == (Severity.ERROR, Confidence.LOW)
    run("check", "--target", "")
    assert engine.config.target == ""


def test_per_file_ignores_take_several_rules_and_globs(run: Run, engine: Engine) -> None:
    run("check", "--per-file-ignores", "tests/*:MP001,MP002,conf.py:MP001", "--per-file-ignores", "a:ALL")
    assert engine.config.per_file_ignores == (("tests/*", ("MP001", "MP002")), ("conf.py", ("MP001",)), ("a", ("ALL",)))


def test_isolated_reads_no_configuration_and_config_names_one(run: Run, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "mplint.toml").write_text("broken = [")
    assert run("check", "--isolated")[0] == 0
    assert engine.config == Config(isolated=True)
    assert run("check")[0] == 2
    (tmp_path / "other.toml").write_text('target = "tpu"')
    run("check", "--config", "other.toml")
    assert engine.config.target == "tpu"


def test_configuration_is_sought_from_the_first_path(run: Run, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mplint.toml").write_text('target = "tpu"')
    run("check", "project/train.py")
    assert engine.config.target == "tpu"
    run("check", "-", "--stdin-filename", "project/train.py")
    assert engine.config.target == "tpu"


@pytest.mark.parametrize(
    ("severities", "argv", "code"),
    [
        ((), (), 0),
        ((Severity.ERROR,), (), 1),
        ((Severity.WARNING,), (), 1),
        ((Severity.INFO,), (), 0),
        ((Severity.WARNING,), ("--fail-on", "error"), 0),
        ((Severity.INFO,), ("--fail-on", "info"), 1),
        ((Severity.ERROR,), ("--exit-zero",), 0),
    ],
)
def test_exit_code_is_1_for_findings_at_or_above_the_failing_severity(
    run: Run, engine: Engine, severities: tuple[Severity, ...], argv: tuple[str, ...], code: int
) -> None:
    engine.result = Result(tuple(clip_before_unscale(severity=severity) for severity in severities))
    assert run("check", *argv)[0] == code


def test_an_unreadable_input_is_exit_code_2_and_0_with_exit_zero(run: Run, engine: Engine) -> None:
    engine.result = Result((unreadable(), clip_before_unscale()))
    assert (run("check")[0], run("check", "--exit-zero")[0]) == (2, 0)


def test_a_fault_of_mplint_is_exit_code_2_even_with_exit_zero(run: Run, engine: Engine) -> None:
    engine.result = Result(faults=(Fault("a.py", "MP304", "ValueError: bad"),))
    assert run("check", "--exit-zero")[0] == 2


def test_a_fault_of_a_rule_keeps_the_findings_and_asks_for_a_report(run: Run, engine: Engine) -> None:
    engine.result = Result((clip_before_unscale(),), faults=(Fault("a.py", "MP304", "ValueError: bad"),))
    code, out, err = run("check", "--output-format", "concise")
    assert code == 2 and "MP304[error]" in out
    assert err.startswith("mplint: internal error: MP304 failed on a.py: ValueError: bad\n") and "please report" in err


def test_an_unexpected_exception_is_no_traceback(run: Run, engine: Engine) -> None:
    engine.error = ValueError("bad\nworse")
    code, _, err = run("check")
    assert code == 2 and "Traceback" not in err
    assert err.startswith("mplint: internal error: ValueError: bad (in __call__ of test_cli_commands, line ") and "please report" in err


def test_a_broken_installation_is_no_traceback_either(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mplint.engine.run", None)
    code, _, err = run("check")
    assert code == 2 and err.startswith("mplint: internal error: ModuleNotFoundError: ") and "Traceback" not in err


def test_an_interrupt_is_told_and_a_closed_pipe_is_quiet(run: Run, engine: Engine) -> None:
    engine.error = KeyboardInterrupt()
    assert run("check") == (130, "", "mplint: interrupted while beginning; nothing is reported\n")
    engine.error = BrokenPipeError()
    assert run("check") == (141, "", "")


def test_standard_input_is_read_once_it_is_named(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"clip(x)\n")))
    engine.result = Result((clip_before_unscale(Location("src/a.py", 1, 1, 1, 8), related=()),))
    _, out, _ = run("check", "-", "--stdin-filename", "src/a.py")
    assert (engine.options["given"], engine.options["models"]) == ({"src/a.py": b"clip(x)\n"}, [])
    assert "1 | clip(x)\n" in out


@pytest.mark.parametrize(
    ("output_format", "start"),
    [("text", "error[MP304] clip"), ("concise", "src/train.py:7:5: "), ("json", "{"), ("github", "::error file="), ("sarif", "{")],
)
def test_output_format_chooses_the_report(run: Run, engine: Engine, tmp_path: Path, output_format: str, start: str) -> None:
    write_program(tmp_path)
    engine.result = Result((clip_before_unscale(),))
    code, out, err = run("check", "--output-format", output_format)
    assert (code, err) == (1, "") and out.startswith(start)
    if output_format in ("json", "sarif"):
        json.loads(out)


def test_statistics_replace_the_findings(run: Run, engine: Engine) -> None:
    engine.result = Result((clip_before_unscale(), clip_before_unscale(Location("b.py", 1, 1, 1, 2))))
    _, out, _ = run("check", "--statistics")
    assert out.startswith("2  MP304  clip-before-unscale  2 fixable\nFound 2 errors in 2 of 3 files.\n")


def test_color_is_off_in_a_pipe_and_on_where_it_is_asked_for(run: Run, engine: Engine) -> None:
    engine.result = Result((clip_before_unscale(),))
    assert "\x1b[" not in run("check")[1]
    assert "\x1b[" in run("check", "--color", "always")[1]


DIFF = "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-a\n+b\n"


def test_fix_prints_the_diff_alone_on_standard_output(run: Run, engine: Engine) -> None:
    engine.result = Result(diffs=(DIFF,), changed=("a.py",), applied=2)
    code, out, err = run("fix", "a.py")
    assert (code, out) == (1, DIFF)
    assert err == "Would fix 2 findings in 1 file; `mplint fix --apply a.py` writes it.\n"
    assert (engine.options["apply"], engine.options["unsafe"]) == (False, False)
    assert "\x1b[32m+b\x1b[0m\n" in run("fix", "a.py", "--color", "always")[1]


def test_fix_shows_beside_the_diff_what_is_to_be_done_by_hand(run: Run, engine: Engine) -> None:
    shown = clip_before_unscale(fix=Fix("Leave it out", Applicability.DISPLAY, ()))
    engine.result = Result(diffs=(DIFF,), changed=("a.py",), applied=1, remaining=(shown,), shown=((shown, DIFF),))
    _, out, err = run("fix", "a.py")
    assert out == DIFF
    where = place(shown.location)
    assert err.startswith(
        f"To be done by hand: MP304 {where}: Leave it out\n    @@ -1 +1 @@\n    -a\n    +b\nWould fix 1 finding in 1 file;"
    )


def test_fix_apply_reports_what_is_left(run: Run, engine: Engine, tmp_path: Path) -> None:
    write_program(tmp_path)
    engine.result = Result(diffs=(DIFF,), changed=("a.py",), applied=1, remaining=(clip_before_unscale(fix=unsafe_fix()),))
    code, out, err = run("fix", "--apply")
    assert (code, err) == (1, "")
    assert out.startswith("error[MP304]")
    assert out.endswith("Fixed 1 finding in 1 file.\n1 finding remains; `--unsafe-fixes` fixes 1 more, review the result.\n")
    engine.result = Result(diffs=(DIFF,), changed=("a.py",), applied=1)
    assert run("fix", "--apply", "--unsafe-fixes") == (0, "Fixed 1 finding in 1 file.\n", "")
    assert (engine.options["apply"], engine.options["unsafe"]) == (True, True)


def test_the_hint_of_fix_repeats_what_was_asked_for(run: Run, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "my src").mkdir()
    engine.result = Result(diffs=(DIFF,), changed=("a.py",), applied=2)
    _, _, err = run("fix", "--unsafe-fixes", "my src", "--select", "MP3")
    assert err == "Would fix 2 findings in 1 file; `mplint fix --apply --unsafe-fixes 'my src' --select MP3` writes it.\n"


def test_fix_apply_lists_what_it_fixed_before_what_remains(run: Run, engine: Engine, tmp_path: Path) -> None:
    write_program(tmp_path)
    mended = (("a.py", "MP101", 2), ("a.py", "MP304", 1), ("b.py", "MP101", 1))
    engine.result = Result(diffs=(DIFF,), changed=("a.py", "b.py"), applied=4, mended=mended, remaining=(clip_before_unscale(),))
    _, out, _ = run("fix", "--apply")
    assert out.startswith("Fixed a.py: MP101 (2), MP304\nFixed b.py: MP101\n\nerror[MP304]")
    assert "Fixed 4 findings in 2 files.\n" in out


def test_fix_apply_of_standard_input_prints_the_fixed_program_alone(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"clip(x)\r\n")))
    engine.result = Result(output={"<stdin>": b"unscale()\r\n"}, diffs=(DIFF,), changed=("<stdin>",), applied=1)
    assert run("fix", "--apply", "-") == (0, "unscale()\r\n", "Fixed 1 finding in 1 file.\n")


def test_fix_says_what_it_left_alone_and_fails_where_a_file_could_not_be_replaced(run: Run, engine: Engine) -> None:
    engine.result = Result(refused=("MP305: a comment stands in between",))
    assert run("fix") == (0, "", "Nothing to fix.\nLeft to you: MP305: a comment stands in between\n")
    engine.result = Result(failures=("a.py: permission denied; nothing was changed",))
    code, _, err = run("fix", "--apply")
    assert code == 2 and err == "mplint: error: a.py: permission denied; nothing was changed\n"


def test_fix_with_nothing_to_do_says_so(run: Run) -> None:
    assert run("fix") == (0, "", "Nothing to fix.\n")


def unsafe_fix() -> Fix:
    from mplint.findings import Applicability

    return Fix("move it", Applicability.UNSAFE)


def test_explain_takes_codes_names_and_prefixes(run: Run) -> None:
    code, out, _ = run("explain", "mp001")
    assert code == 0 and out.startswith("MP001 unreadable-input\nerror · no fix\n")
    assert run("explain", "unreadable-input")[1] == out
    assert "What it does\n" in out and "##" not in out and "```" not in out
    assert out.rstrip().endswith("docs/rules/unreadable-input.md")
    both = run("explain", "MP00", "MP001")[1]
    assert both.count("MP001 unreadable-input\n") == 1 and "MP002 unused-suppression\n" in both


def test_explain_all_prints_every_rule_within_80_columns_but_for_code(run: Run) -> None:
    _, out, _ = run("explain", "ALL")
    assert all(f"{rule.code} {rule.name}\n" in out for rule in registry().values())
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("    ") and "http" not in line)


def test_rules_lists_every_rule_with_its_severity_and_summary(run: Run) -> None:
    code, out, _ = run("rules")
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    assert all(rule.code in out and rule.name in out for rule in registry().values())


def test_rules_as_json(run: Run) -> None:
    entries = json.loads(run("rules", "--output-format", "json")[1])
    assert [entry["code"] for entry in entries] == list(registry())
    assert set(entries[0]) == {"code", "name", "severity", "fix", "frameworks", "summary", "url"}


def test_rules_of_a_plugin_are_known(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from mplint.findings import Severity\nfrom mplint.rule import Rule\nclass Ours(Rule):\n"
    source += "    '''Finds our mistakes.'''\n    code = 'ACME1'\n    name = 'our-mistake'\n    severity = Severity.INFO\n"
    (tmp_path / "acme_rules.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mplint.toml").write_text('plugins = ["acme_rules"]')
    assert "ACME1  our-mistake" in run("rules")[1]
    (tmp_path / "mplint.toml").write_text('plugins = ["acme_missing"]')
    assert run("rules") == (2, "", "mplint: error: mplint.toml: plugins: No module named 'acme_missing'\n")


def test_fix_shows_models_and_fails_where_a_fix_is_not_proven(run: Run, engine: Engine) -> None:
    engine.result = Result(models=("a.onnx: 1 node fewer\n    - up: float32[4] = Cast(b)\n",), unproven=("b.onnx: MP405 at up",), applied=1)
    code, out, err = run("fix", "--color", "always")
    assert (code, out) == (1, "a.onnx: 1 node fewer\n    \x1b[31m- up: float32[4] = Cast(b)\x1b[0m\n\n")
    assert "Not proven, and not written: b.onnx: MP405 at up\n" in err
    assert run("fix", "--exit-zero")[0] == 0
