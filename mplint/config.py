"""Configuration: `[tool.mplint]` in pyproject.toml, or mplint.toml, becomes a `Config`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from mplint.errors import UsageError, nearest
from mplint.findings import Confidence, Severity

FILE_NAMES = ("mplint.toml", "pyproject.toml")

POLICIES = ("mixed_float16", "mixed_bfloat16")

PerFileIgnores = tuple[tuple[str, tuple[str, ...]], ...]
InputRanges = tuple[tuple[str, tuple[float, float]], ...]
RuleOptions = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


class Given(NamedTuple):
    """What the options of a command say over every configuration file that a run meets (see `Config` for the names).

    The patterns of `per_file_ignores` are relative to the root of the run.
    """

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: PerFileIgnores = ()
    target: str | None = None
    min_confidence: Confidence | None = None
    policy: str | None = None
    runtime: str | None = None
    input_ranges: InputRanges = ()


class Config(NamedTuple):
    """What to check and how to judge it.

    `select`, `extend_select`, `ignore` and the values of `per_file_ignores` hold codes, prefixes of
    codes, names or "ALL"; an empty `select` means the default rules. `exclude` leaves out what lies in folders, and with `force_exclude`
    files that are named as well. `root` is the folder that the
    patterns are relative to and `source` the file that the settings were read from (None: nowhere).
    `runtime` names what will run the models (see data/runtimes.toml) and `input_ranges` bounds their inputs.
    `policy` asks about float32 models as if they were converted to it (see `POLICIES`).
    `baseline` is the file of the findings that are known and not reported. `severities` pairs rules with the severity that their findings
    have here; those that a rule holds to be less severe than usual become no severer than that. `options` pairs rules with
    their own settings. With `folders`, configuration files of other folders hold for what lies in those; `given` is laid over each of
    them as over this one.
    `jobs` bounds the worker processes (None: as many as there are processors for this process).
    `target` names hardware; `torch`, `keras` and `tensorflow` are version requirements ("2.3", ">=2.1,<3").
    """

    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: PerFileIgnores = ()
    exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    target: str | None = None
    torch: str | None = None
    keras: str | None = None
    tensorflow: str | None = None
    min_confidence: Confidence = Confidence.MEDIUM
    fail_on: Severity = Severity.WARNING
    plugins: tuple[str, ...] = ()
    cache: bool = True
    runtime: str | None = None
    input_ranges: InputRanges = ()
    policy: str | None = None
    baseline: str | None = None
    severities: tuple[tuple[str, Severity], ...] = ()
    options: RuleOptions = ()
    isolated: bool = False
    folders: bool = False
    jobs: int | None = None
    given: Given = Given()
    root: str = "."
    source: str | None = None


def load_config(start: str = ".", *, file: str | None = None, isolated: bool = False) -> Config:
    """Read the configuration that governs `start` (a file or folder): the nearest one upwards, or `file` where it is given.

    Raises UsageError, with the file and the key, where the configuration is wrong.
    """
    if file is not None:
        if not os.path.isfile(file):
            raise UsageError(f"{file}: no such configuration file")
        return _parse(_read(file) or {}, file)
    if isolated:
        return Config(isolated=True)
    folder = os.path.abspath(start)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    while True:
        found = config_in(folder)
        if found is not None:
            return found
        parent = os.path.dirname(folder)
        if parent == folder:
            return Config(folders=True)
        folder = parent


def config_in(folder: str) -> Config | None:
    """The configuration that a folder holds itself, if it does; raises UsageError as `load_config` does."""
    for name in FILE_NAMES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            shown = _shown(path)
            table = _read(shown)
            if table is not None:
                return _parse(table, shown)._replace(folders=True)
    return None


def origins(source: str) -> dict[str, str]:
    """Which file says each setting of a configuration file, itself or one that it extends: the paths by key."""
    found: dict[str, str] = {}
    file: str | None = source
    while file is not None:
        table = _read(file) or {}
        found = {**dict.fromkeys(table, file), **found}
        base = table.get("extend")
        file = _extended(file, base) if isinstance(base, str) else None
    return found


def _extended(path: str, base: str) -> str:
    """The path of a configuration file that the one at `path` extends."""
    return os.path.normpath(os.path.join(os.path.dirname(path), os.path.expanduser(base)))


def with_given(config: Config, given: Given) -> Config:
    """A configuration with what the options of the command say laid over it, but for their patterns."""
    if given.select:
        config = config._replace(select=given.select, extend_select=(), ignore=())
    return config._replace(
        extend_select=config.extend_select + given.extend_select,
        ignore=config.ignore + given.ignore,
        target=config.target if given.target is None else given.target,
        min_confidence=given.min_confidence or config.min_confidence,
        policy=given.policy or config.policy,
        runtime=given.runtime or config.runtime,
        input_ranges=given.input_ranges or config.input_ranges,
    )


def _shown(path: str) -> str:
    """The path as the user would write it: relative where it lies below the current folder."""
    here = os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path


def _read(path: str) -> dict[str, object] | None:
    """The table of mplint in `path`, or None for a pyproject.toml that has none."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if b"\0" in data:
        raise UsageError(f"{path}: holds NUL bytes; TOML is text in UTF-8")
    own_file = os.path.basename(path) != "pyproject.toml"
    if not own_file and b"mplint" not in data:
        return None
    import tomllib

    try:
        document = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    tool = document.get("tool")
    table = tool.get("mplint") if isinstance(tool, dict) else None
    if table is None:
        return document if own_file else None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.mplint must be a table, not {_kind(table)}")
    return table


def _parse(table: dict[str, object], path: str) -> Config:
    return _with(Config(root=os.path.dirname(path) or ".", source=path), table, path, (os.path.realpath(path),))


def _with(config: Config, table: dict[str, object], path: str, extending: tuple[str, ...]) -> Config:
    """`config` with the settings of a table over those of the file that it extends; `extending` are the files on the way here."""
    table = dict(table)
    base = table.pop("extend", None)
    if base is not None:
        if not isinstance(base, str) or not base.strip():
            raise UsageError(f'{path}: extend must be a path such as "../mplint.toml", not {_kind(base)}')
        file = _extended(path, base)
        if not os.path.isfile(file):
            raise UsageError(f"{path}: extend: {file}: no such configuration file")
        if os.path.realpath(file) in extending:
            raise UsageError(f"{path}: extend: {file} extends itself")
        config = _with(config, _read(file) or {}, file, (*extending, os.path.realpath(file)))
    for key, value in table.items():
        setting = KEYS.get(key)
        if setting is None:
            raise UsageError(f'{path}: unknown key "{key}"{nearest(key, KEYS)}')
        try:
            config = setting.read(config, value)
        except _Wrong as wrong:
            raise UsageError(f"{path}: {key}{wrong}") from None
    return config


class _Wrong(Exception):
    """What is wrong with a value; the text continues its key."""


def _strings(value: object, at: str = "") -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    got = _kind(value) if not isinstance(value, list) else "a list that holds " + next(_kind(v) for v in value if not isinstance(v, str))
    raise _Wrong(f"{at} must be a list of strings, not {got}")


def _string(value: object, at: str, example: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Wrong(f'{at} must be a string such as "{example}", not {_kind(value)}')
    return value.strip()


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f" must be true or false, not {_kind(value)}")
    return value


def _choice(value: object, choices: Sequence[str]) -> str:
    *others, last = (f'"{choice}"' for choice in choices)
    allowed = f"{', '.join(others)} or {last}"
    if not isinstance(value, str):
        raise _Wrong(f" must be {allowed}, not {_kind(value)}")
    if value not in choices:
        raise _Wrong(f' must be {allowed}, not "{value}"{nearest(value, choices)}')
    return value


def _per_file_ignores(config: Config, value: object) -> Config:
    if not isinstance(value, dict):
        raise _Wrong(f' must be a table of patterns and lists, such as {{"tests/*" = ["MP3"]}}, not {_kind(value)}')
    return config._replace(per_file_ignores=tuple((pattern, _strings(codes, f'."{pattern}"')) for pattern, codes in value.items()))


def _severities(config: Config, value: object) -> Config:
    if not isinstance(value, dict):
        raise _Wrong(f' must be a table of rules and severities, such as {{MP101 = "info"}}, not {_kind(value)}')
    severities = dict(config.severities)
    for selector, severity in value.items():
        try:
            severities[selector] = Severity(_choice(severity, [s.value for s in Severity]))
        except _Wrong as wrong:
            raise _Wrong(f".{selector}{wrong}") from None
    return config._replace(severities=tuple(severities.items()))


def _options(config: Config, value: object) -> Config:
    if not isinstance(value, dict):
        raise _Wrong(f" must be a table of rules and their options, such as {{MP403 = {{least-rows = 5000}}}}, not {_kind(value)}")
    options = {rule: dict(settings) for rule, settings in config.options}
    for rule, settings in value.items():
        if not isinstance(settings, dict):
            raise _Wrong(f".{rule} must be a table of options, such as {{least-rows = 5000}}, not {_kind(settings)}")
        for name, number in settings.items():
            if not isinstance(number, int) or isinstance(number, bool):
                raise _Wrong(f".{rule}.{name} must be a whole number, not {_kind(number)}")
        options.setdefault(rule, {}).update(settings)
    return config._replace(options=tuple((rule, tuple(settings.items())) for rule, settings in options.items()))


def _target(config: Config, value: object) -> Config:
    if isinstance(value, str):
        return config._replace(target=_string(value, "", "Tesla T4"))
    if not isinstance(value, dict):
        raise _Wrong(f' must be a string such as "Tesla T4" or a table with {", ".join(_TARGETS)}, not {_kind(value)}')
    for key, item in value.items():
        if key not in _TARGETS:
            raise _Wrong(f': unknown key "{key}"{nearest(key, _TARGETS)}')
        text = _string(item, f".{key}", _TARGETS[key])
        if key != "hardware":
            _check_version(text, key)
        match key:
            case "hardware":
                config = config._replace(target=text)
            case "torch":
                config = config._replace(torch=text)
            case "keras":
                config = config._replace(keras=text)
            case _:
                config = config._replace(tensorflow=text)
    return config


def _check_version(text: str, key: str) -> None:
    from mplint.versions import parse_versions

    if parse_versions(text) is None:
        raise _Wrong(f'.{key}: "{text}" is not a version such as "{_TARGETS[key]}" or ">=2.1,<3"')


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'the string "{value}"' if value.strip() else "an empty string"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or time"


def _beside(config: Config, path: str) -> str:
    """A path that the configuration gives relative to its own folder."""
    return os.path.normpath(os.path.join(config.root, path))


_TARGETS = {"hardware": "Tesla T4", "torch": "2.3", "keras": "3.5", "tensorflow": "2.16"}


class Key(NamedTuple):
    """A setting: how it is read, what it means, an example in TOML, and its JSON schema; `of_run`: that of the run's own file holds."""

    read: Callable[[Config, object], Config]
    about: str
    example: str
    schema: Mapping[str, object]
    of_run: bool = False


_STRINGS: Mapping[str, object] = {"type": "array", "items": {"type": "string"}}
_BOOLEAN: Mapping[str, object] = {"type": "boolean"}
_NAME: Mapping[str, object] = {"type": "string", "pattern": r"\S"}


def _one_of(values: Iterable[str]) -> Mapping[str, object]:
    return {"enum": list(values)}


KEYS: dict[str, Key] = {
    "extend": Key(
        lambda config, value: config,
        "a configuration file to begin with; what stands here counts more, and patterns in it are relative to the folder of this file",
        '"../mplint.toml"',
        _NAME,
    ),
    "select": Key(
        lambda config, value: config._replace(select=_strings(value)),
        'the rules to check: codes, prefixes of codes, names or `"ALL"`; by default every rule of severity error or warning',
        '["MP1", "MP2", "clip-before-unscale"]',
        _STRINGS,
    ),
    "extend-select": Key(
        lambda config, value: config._replace(extend_select=_strings(value)),
        "rules to check as well, such as advice",
        '["MP404"]',
        _STRINGS,
    ),
    "ignore": Key(
        lambda config, value: config._replace(ignore=_strings(value)),
        "rules not to check; the more specific selector wins, so that a code in `select` counts more than a prefix here",
        '["MP403"]',
        _STRINGS,
    ),
    "per-file-ignores": Key(
        _per_file_ignores,
        "rules not to check in some files, by pattern as in .gitignore, relative to the folder of the file",
        '{"tests/*" = ["MP105"]}',
        {"type": "object", "additionalProperties": _STRINGS},
    ),
    "severity": Key(
        _severities,
        "severities of your own, for a code, a prefix, a name or ALL; a rule of severity info is checked then",
        '{MP101 = "info"}',
        {"type": "object", "additionalProperties": _one_of(s.value for s in Severity)},
    ),
    "options": Key(
        _options,
        "what single rules leave to you, by code or name (see [options of rules](#options-of-rules))",
        "{MP403 = {least-rows = 5000}}",
        {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}}},
    ),
    "min-confidence": Key(
        lambda config, value: config._replace(min_confidence=Confidence(_choice(value, [c.value for c in Confidence]))),
        "the least confidence of findings that are shown: high, medium or low; by default medium",
        '"high"',
        _one_of(c.value for c in Confidence),
    ),
    "exclude": Key(
        lambda config, value: config._replace(exclude=_strings(value)),
        "files and folders to leave out, by pattern as in .gitignore; so is, without a word here, what .gitignore names",
        '["third_party"]',
        _STRINGS,
    ),
    "target": Key(
        _target,
        'the hardware (`"Tesla T4"`, `"7.5"`, `"tpu"`, `"cpu"`), or a table of it and of library versions, which pins give otherwise',
        '{hardware = "Tesla T4", torch = "2.3"}',
        {"anyOf": [_NAME, {"type": "object", "additionalProperties": False, "properties": dict.fromkeys(_TARGETS, _NAME)}]},
    ),
    "policy": Key(
        lambda config, value: config._replace(policy=_choice(value, POLICIES)),
        "judge float32 models as if they were converted to this policy",
        '"mixed_float16"',
        _one_of(POLICIES),
    ),
    "force-exclude": Key(
        lambda config, value: config._replace(force_exclude=_boolean(value)),
        "leave out what `exclude` names though a command names it",
        "true",
        _BOOLEAN,
        True,
    ),
    "fail-on": Key(
        lambda config, value: config._replace(fail_on=Severity(_choice(value, [s.value for s in Severity]))),
        "the severity from which on the exit status is 1: error, warning or info; by default warning",
        '"error"',
        _one_of(s.value for s in Severity),
        True,
    ),
    "baseline": Key(
        lambda config, value: config._replace(baseline=_beside(config, _string(value, "", "mplint-baseline.json"))),
        "the file of known findings, which are not reported (`mplint baseline create`)",
        '"mplint-baseline.json"',
        _NAME,
        True,
    ),
    "plugins": Key(
        lambda config, value: config._replace(plugins=_strings(value)),
        "modules with rules of your own, which are imported",
        '["acme_rules"]',
        _STRINGS,
        True,
    ),
    "cache": Key(
        lambda config, value: config._replace(cache=_boolean(value)),
        "whether results are kept in the user's cache folder; by default true",
        "false",
        _BOOLEAN,
        True,
    ),
}
