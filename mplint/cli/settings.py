"""Configuration as text: what is in force, and a first file for a project."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mplint.config import Config

if TYPE_CHECKING:
    from mplint.targets import Targets
    from mplint.versions import Versions

# Folders that usually hold code of others.
FOREIGN = ("extern", "external", "externals", "submodules", "third-party", "third_party", "thirdparty", "vendor", "vendored")


SCHEMA = "https://raw.githubusercontent.com/mplint/mplint/main/mplint/data/config.schema.json"


def settings_text(config: Config, targets: Targets) -> str:
    """Every setting that is in force, as TOML, with the versions that pins give where none is configured."""
    lines = [f"# from {config.source}" if config.source else "# no configuration file"]
    plain = {
        "select": config.select,
        "extend-select": config.extend_select,
        "ignore": config.ignore,
        "exclude": config.exclude,
        "force-exclude": config.force_exclude,
        "min-confidence": config.min_confidence.value,
        "fail-on": config.fail_on.value,
        "policy": config.policy,
        "baseline": config.baseline,
        "plugins": config.plugins,
        "cache": config.cache,
    }
    lines += [f"{key} = {_toml(value)}" for key, value in plain.items() if value is not None]
    lines += _table("per-file-ignores", dict(config.per_file_ignores))
    lines += _table("severity", {selector: severity.value for selector, severity in config.severities})
    for rule, numbers in config.options:
        lines += _table(f"options.{rule}", dict(numbers))
    configured = {"torch": config.torch, "keras": config.keras, "tensorflow": config.tensorflow}
    lines.append("\n[target]")
    if config.target is not None:
        lines.append(f"hardware = {_toml(config.target)}")
    for (library, version), pinned in zip(configured.items(), targets.libraries[:3], strict=True):
        if version is not None:
            lines.append(f"{library} = {_toml(version)}")
        else:
            lines.append(f"# {library}: {_pinned(pinned)}")
    return "\n".join(lines) + "\n"


def first_configuration(files: Sequence[str], targets: Targets, folder: str) -> str:
    """A commented mplint.toml for a project of these files."""
    from mplint.graph.names import is_model
    from mplint.report.summary import counted

    found = _frameworks(files)
    models = sum(map(is_model, files))
    excluded = sorted(name for name in FOREIGN if os.path.isdir(os.path.join(folder, name)))
    used = ", ".join(found) or "no framework yet"
    lines = [
        f"#:schema {SCHEMA}",
        f"# mplint: {counted(len(files), 'file')}{f', {models} of them models' if models else ''}; {used}.",
        "# A setting with a # before it is not set; what stands behind it is an example. All of them: docs/configuration.md.",
        "",
        '# Rules to check: codes, prefixes, names or "ALL". Default: every rule of severity error or warning.',
        '# select = ["MP1", "MP2", "MP3"]',
        "# Advice that is not checked by default, such as compiling with XLA:",
        '# extend-select = ["MP404"]',
        "# Rules to leave out, everywhere or in some files:",
        "# ignore = []",
        '# per-file-ignores = {"tests/*" = ["MP1"]}',
        "",
        "# What is not the project's own code." if excluded else "# Files and folders to leave out:",
        f"exclude = {_toml(excluded)}" if excluded else '# exclude = ["third_party/"]',
        "",
        "# The exit status is 1 from this severity on: error, warning or info.",
        '# fail-on = "warning"',
        "# Severities of your own:",
        '# severity = {MP101 = "info"}',
        "",
        "# Known findings that are not reported: `mplint baseline create` writes the file.",
        '# baseline = "mplint-baseline.json"',
        "",
        "[target]",
        '# The GPU that programs are for: "Tesla T4", a compute capability ("7.5"), "tpu", "cpu". Rules about hardware wait for it.',
        '# hardware = "Tesla T4"',
        *_versions(found, targets),
    ]
    return "\n".join(lines) + "\n"


def _pinned(versions: Versions | None) -> str:
    bounds = versions.requirement() if versions is not None else ""
    return f"{bounds}, by the pins of the project" if bounds else "any version"


def _versions(found: Iterable[str], targets: Targets) -> list[str]:
    lines = ["# Versions that the code must work with; without them the pins of the project count."]
    for library, pinned in zip(("torch", "keras", "tensorflow"), targets.libraries[:3], strict=True):
        if pinned is not None and pinned.requirement():
            lines.append(f'# {library} = "…"  (by the pins: {pinned.requirement()})')
        elif library in found:
            lines.append(f'# {library} = ">={_EXAMPLES[library]}"  (nothing pins it)')
    return lines


_EXAMPLES = {"torch": "2.4", "keras": "3.5", "tensorflow": "2.16"}


def _frameworks(files: Iterable[str]) -> list[str]:
    """The frameworks that some file imports, by their words in it."""
    wanted = dict.fromkeys(("torch", "tensorflow", "keras"), False)
    for path in files:
        if path.endswith((".py", ".ipynb")) and not all(wanted.values()):
            try:
                with open(path, "rb") as stream:
                    text = stream.read()
            except OSError:
                continue
            wanted |= {name: True for name in wanted if b"import " + name.encode() in text or b"from " + name.encode() in text}
    return [name for name, used in wanted.items() if used]


def _table(name: str, entries: Mapping[str, object]) -> list[str]:
    return [f"\n[{name}]", *(f"{json.dumps(key)} = {_toml(value)}" for key, value in entries.items())] if entries else []


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
