"""Configuration as text: what is in force, and a first file for a project."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mplint.config import Config, load_config, origins

if TYPE_CHECKING:
    from mplint.targets import Targets
    from mplint.versions import Versions

# Folders that usually hold code of others.
FOREIGN = ("extern", "external", "externals", "submodules", "third-party", "third_party", "thirdparty", "vendor", "vendored")


SCHEMA = "https://raw.githubusercontent.com/mplint/mplint/main/mplint/data/config.schema.json"


def settings_text(config: Config, targets: Targets) -> str:
    """Every setting that is in force, as TOML, each with where it is from, and the rules that are checked.

    Where no version is configured, the one that pins give stands in its place.
    """
    lines = [f"# from {config.source}" if config.source else "# no configuration file"]
    said, unchanged = _said(config)
    before, now = _plain(unchanged), _plain(config)
    for key, value in now.items():
        if value is not None:
            origin = said.get(key, "default") if value == before[key] else "the command"
            lines.append(f"{key} = {_toml(value)}  # {origin}")
    for name, entries in _tables(config):
        origin = said.get(name.partition(".")[0], "the command")
        lines += _table(name, entries, origin)
    lines += ["", "[target]"]
    target = said.get("target", "the command")
    if config.target is not None:
        lines.append(f"hardware = {_toml(config.target)}  # {target if config.target == unchanged.target else 'the command'}")
    configured = {"torch": config.torch, "keras": config.keras, "tensorflow": config.tensorflow}
    for (library, version), pinned in zip(configured.items(), targets.libraries[:3], strict=True):
        lines.append(f"{library} = {_toml(version)}  # {target}" if version is not None else f"# {library}: {_pinned(pinned)}")
    return "\n".join([*lines, "", *_rules(config)]) + "\n"


def _said(config: Config) -> tuple[dict[str, str], Config]:
    """Which file says each setting, and the configuration without what the command says."""
    if config.source is None:
        return {}, Config()
    return origins(config.source), load_config(file=config.source)


def _plain(config: Config) -> dict[str, object]:
    return {
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


def _tables(config: Config) -> Iterator[tuple[str, Mapping[str, object]]]:
    yield "per-file-ignores", dict(config.per_file_ignores)
    yield "severity", {selector: severity.value for selector, severity in config.severities}
    for rule, numbers in config.options:
        yield f"options.{rule}", dict(numbers)


def _rules(config: Config) -> list[str]:
    """The rules that are checked, and those that are not, as comments."""
    from textwrap import wrap

    from mplint.engine.select import known_rules, selected

    known = known_rules(config)
    checked = sorted(selected(config, known))
    left = sorted(known.keys() - set(checked))
    lines = [f"rules: {len(checked)} of {len(known)}:", *wrap(" ".join(checked), 96)]
    if left:
        lines += ["not checked:", *wrap(" ".join(left), 96)]
    return [f"# {line}" for line in lines]


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


def _table(name: str, entries: Mapping[str, object], origin: str) -> list[str]:
    return [f"\n[{name}]  # {origin}", *(f"{json.dumps(key)} = {_toml(value)}" for key, value in entries.items())] if entries else []


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
