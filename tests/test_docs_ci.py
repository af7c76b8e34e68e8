"""The commands that docs/continuous-integration.md recommends are ones that mplint takes, and its recipes have the form that they need."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from mplint.cli import check
from mplint.cli.main import parse_arguments
from mplint.report.formats import FORMATS

PAGE = Path(__file__).parents[1] / "docs" / "continuous-integration.md"
COMMANDS = re.findall(r"mplint check ([^'\n`]*)", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_recommended_command_is_understood(command: str) -> None:
    arguments = shlex.split(command.split(">>")[0].split("&&")[0])
    assert parse_arguments("check", check, arguments)


def test_every_format_is_told() -> None:
    table = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("| `")]
    assert {name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])} == set(FORMATS)
    assert len(COMMANDS) >= 7


BLOCKS = re.findall(r"```(yaml|groovy)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def recipe(key: str) -> Any:
    """The one YAML recipe of the page that has a key at its top."""
    parsed = [yaml.safe_load(textwrap.dedent(text)) for language, text in BLOCKS if language == "yaml"]
    (found,) = [each for each in parsed if isinstance(each, dict) and key in each]
    return found


def written(command: str) -> str:
    """The file that a command writes its report to."""
    options = parse_arguments("check", check, shlex.split(command.partition("mplint check ")[2]))
    assert options.output_file is not None
    return str(options.output_file)


def test_every_recipe_of_yaml_can_be_parsed() -> None:
    assert len([text for language, text in BLOCKS if language == "yaml"]) >= 5
    assert all(yaml.safe_load(textwrap.dedent(text)) for language, text in BLOCKS if language == "yaml")


def test_the_job_of_github_has_what_a_job_needs() -> None:
    (job,) = recipe("jobs")["jobs"].values()
    assert job.keys() == {"runs-on", "steps"}
    assert all(step.keys() <= {"uses", "with", "run", "if"} and ("uses" in step) != ("run" in step) for step in job["steps"])
    assert next(step for step in job["steps"] if "checkout" in step.get("uses", ""))["with"]["fetch-depth"] == 0
    since = [step for step in job["steps"] if "--since" in step.get("run", "")]
    assert [step["if"] for step in since] == ["github.event_name == 'pull_request'"]


def test_the_job_of_gitlab_keeps_the_report_that_it_writes() -> None:
    job = recipe("mplint")["mplint"]
    assert job.keys() == {"image", "script", "artifacts"} and job["artifacts"].keys() == {"when", "reports"}
    assert job["artifacts"] == {"when": "always", "reports": {"codequality": written(job["script"][-1])}}


def test_the_steps_of_azure_are_tasks_and_scripts() -> None:
    steps = recipe("steps")["steps"]
    assert [step.keys() for step in steps] == [{"task", "inputs"}, {"script"}]
    assert "--output-format azure" in steps[1]["script"]


def test_the_stage_of_jenkins_reads_the_report_that_it_writes() -> None:
    (text,) = [text for language, text in BLOCKS if language == "groovy"]
    assert text.count("{") == text.count("}") and text.startswith("stage('mplint') {")
    (command,) = re.findall(r"sh '([^']*)'", text)
    assert re.findall(r"junit '([^']*)'", text) == [written(command)]


def test_the_hooks_of_pre_commit_are_there() -> None:
    (listed,) = [text for language, text in BLOCKS if "repo: https" in text]
    (entry,) = yaml.safe_load(re.sub(r"# (- id)", r"\1", listed))
    offered = {hook["id"] for hook in yaml.safe_load((PAGE.parents[1] / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    assert {hook["id"] for hook in entry["hooks"]} <= offered and entry.keys() == {"repo", "rev", "hooks"}
