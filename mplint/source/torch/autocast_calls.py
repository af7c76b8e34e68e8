"""Calls that build an autocast: where it is from, for which device and dtype, and whether it is on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from mplint.python.syntax import argument, has_star
from mplint.source.torch.default_dtypes import default_dtype
from mplint.source.torch.trainers import Trainers
from mplint.source.values import HALF, UNKNOWN

if TYPE_CHECKING:
    from mplint.findings import Location
    from mplint.source.file import SourceFile
    from mplint.source.torch.trainers import Built

NEW_HOMES = {"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"}
OLD_HOMES = {f"torch.{device}.amp.{path}autocast": device for device in ("cuda", "cpu") for path in ("", "autocast_mode.")}
MAX_DEPTH = 4
PARTIALS = {"functools.partial", "functools.partialmethod"}
PARAMETERS = {True: ("enabled", "dtype", "cache_enabled"), False: ("device_type", "dtype", "enabled", "cache_enabled")}
# torch.get_autocast_dtype by device; the tests compare it with data/autocast_ops.toml.
DEFAULT_DTYPES = {
    "cpu": "bfloat16", "cuda": "float16", "xpu": "float16", "mps": "float16", "hpu": "bfloat16", "xla": "bfloat16",
    "mtia": "float16", "maia": "bfloat16", "ipu": "float16", "privateuseone": "float16",
}  # fmt: skip


class Autocast(NamedTuple):
    """One place that builds an autocast.

    `node` is the construction (a call, `functools.partial(...)` included, or the name of a bare decorator), `call` the call or None.
    `old` tells the homes whose first parameter is `enabled`. `devices` holds device types ("cuda", …), "?" for one that can't be told.
    `dtypes` are the dtypes it may run in while enabled, "?" likewise; `default` is the one of them that a setting has by default, where
    one decides, and `setting` how messages name that ("--dtype float16"). `enabled` is True, False or "maybe" (then `guard` is the text of
    the deciding expression, "" where there is none). `cache_enabled` is None where it is not given or open. `place` is where another file
    builds it; then `node` is what stands for it here.
    """

    node: ast.expr
    call: ast.Call | None
    name: str
    old: bool
    devices: frozenset[str]
    dtypes: frozenset[str]
    enabled: bool | Literal["maybe"] = True
    guard: str = ""
    cache_enabled: bool | None = None
    partial: bool = False
    default: str = ""
    setting: str = ""
    place: Location | None = None

    @property
    def new(self) -> bool:
        """Whether it is built by torch.autocast, whose first parameter is the device type (and not by a trainer's method)."""
        return self.name in NEW_HOMES

    @property
    def half(self) -> frozenset[str]:
        """The half dtypes ("?": one that can't be told) that it may put in force; empty where it is off or float32."""
        return frozenset() if self.enabled is False else self.dtypes & (HALF | {UNKNOWN})


def construction(file: SourceFile, call: ast.Call) -> Autocast | None:
    """The autocast that a call builds, or None."""
    name = home(file, call.func)
    if name is not None:
        return built(file, call, name, 0)
    if call.args and file.names.resolve(call.func) in PARTIALS and (name := home(file, call.args[0])) is not None:
        return built(file, call, name, 1)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "autocast":
        made = file.fact(Trainers).made(call.func.value)
        if made is not None and made.kind.prepares:
            return wrapped(call, made)
    return None


def bare_decorator(file: SourceFile, decorator: ast.expr) -> Autocast | None:
    """The autocast that a decorator without parentheses stands for, or None."""
    name = home(file, decorator)
    return None if name is None else Autocast(decorator, None, name, name in OLD_HOMES, *defaults(name))


def built(file: SourceFile, call: ast.Call, name: str, shift: int) -> Autocast:
    """What a call of torch builds; `shift` arguments stand before those of autocast (1 for functools.partial)."""
    old = name in OLD_HOMES
    spread = spread_keywords(file, call)
    star = has_star(call) and spread is None
    given = {p: argument(call, p, i + shift) or (spread or {}).get(p) for i, p in enumerate(PARAMETERS[old])}
    devices, dtypes = defaults(name) if old else (devices_of(file, given["device_type"]), frozenset())
    if given["dtype"] is not None and file.values.constant_or(given["dtype"], UNKNOWN) is not None:
        dtypes = chosen_dtypes(file, given["dtype"])
    elif star:
        dtypes = frozenset([UNKNOWN])
    elif not old:
        dtypes = frozenset(DEFAULT_DTYPES.get(d, UNKNOWN) for d in devices)
    enabled, guard = enabled_of(file, given["enabled"], star)
    if shift == 0 and not all(n in NEW_HOMES or n in OLD_HOMES for n in file.names.candidates(call.func)):
        enabled = enabled and "maybe"
    cache = file.values.constant_or(given["cache_enabled"])
    caches = cache if isinstance(cache, bool) else None
    chosen = default_dtype(file.values, given["dtype"]) if given["dtype"] is not None and len(dtypes | {UNKNOWN}) > 1 else None
    default, setting = chosen if chosen is not None else ("", "")
    return Autocast(call, call, name, old, devices, dtypes, enabled, guard, caches, shift > 0, default, setting)


def spread_keywords(file: SourceFile, call: ast.Call) -> dict[str, ast.expr] | None:
    """The keyword arguments that `**options` passes, where every dictionary behind it is written down and they agree; else None."""
    found: dict[str, ast.expr] = {}
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    for spread in [k.value for k in call.keywords if k.arg is None]:
        if is_filled_later(file, spread):
            return None
        for definition in file.values.definitions(spread):
            for name, value in written(definition) or (("", spread),):
                if not name or ast.dump(found.setdefault(name, value)) != ast.dump(value):
                    return None
    return found


def is_filled_later(file: SourceFile, options: ast.expr) -> bool:
    """Whether the file puts entries into the dictionary, or an option of autocast into any."""
    text = file.text(options)
    for item in file.syntax.all(ast.Subscript):
        if isinstance(item.ctx, (ast.Store, ast.Del)):
            key = item.slice.value if isinstance(item.slice, ast.Constant) else None
            if key in PARAMETERS[False] or file.text(item.value) == text:
                return True
    methods = ("update", "pop", "setdefault", "clear")
    return any(a.attr in methods and file.text(a.value) == text for a in file.syntax.all(ast.Attribute))


def written(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """The entries of a dictionary display or `dict(…)` call; none where one is open."""
    match node:
        case ast.Dict(keys=keys, values=values):
            entries = [(k.value, v) for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            return entries if len(entries) == len(keys) else []
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            entries = [(k.arg, k.value) for k in keywords if k.arg is not None]
            return entries if len(entries) == len(keywords) else []
    return []


def chosen_dtypes(file: SourceFile, node: ast.expr) -> frozenset[str]:
    """The dtypes that a dtype argument names; None beside others of them is how programs write "off"."""
    definitions = file.values.definitions(node)
    named = [d for d in definitions if not (isinstance(d, ast.Constant) and d.value is None)]
    if len(named) in (0, len(definitions)):
        return frozenset(file.values.dtypes(node))
    return frozenset(dtype for d in named for dtype in (file.values.dtypes(d) if isinstance(d, ast.expr) else {UNKNOWN}))


def home(file: SourceFile, node: ast.expr) -> str | None:
    """The dotted name where `node` names an autocast class of torch, else None."""
    return next((n for n in file.names.candidates(node) if n in NEW_HOMES or n in OLD_HOMES), None)


def wrapped(call: ast.Call, made: Built) -> Autocast:
    """What the `autocast()` method of a trainer object builds."""
    dtypes = frozenset(dtype if dtype in (*HALF, "float32") else UNKNOWN for dtype in made.dtypes)
    sure = UNKNOWN not in dtypes
    return Autocast(call, call, f"{made.kind.key}.autocast", False, frozenset([UNKNOWN]), dtypes, True if sure else "maybe")


def defaults(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Device and dtype of an old home, unknown for a new one."""
    device = OLD_HOMES.get(name, UNKNOWN)
    return frozenset([device]), frozenset([DEFAULT_DTYPES.get(device, UNKNOWN)])


def devices_of(file: SourceFile, node: ast.expr | None) -> frozenset[str]:
    """The device types that an expression may name, through `device.type`, `str(device)` and `torch.device(…)` too."""
    return frozenset(device_names(file, node, 0)) or frozenset([UNKNOWN])


def device_names(file: SourceFile, node: ast.expr | None, depth: int) -> Iterator[str]:
    """Each device type behind an expression, UNKNOWN for what can't be told."""
    for definition in file.values.definitions(node) if depth < MAX_DEPTH else ():
        match definition:
            case ast.Attribute(value=inner, attr="type") | ast.Call(func=ast.Name(id="str"), args=[inner], keywords=[]):
                yield from device_names(file, inner, depth + 1)
            case ast.Call(args=[inner, *_]) if depth and file.names.resolve(definition.func) == "torch.device":
                yield from device_names(file, inner, depth + 1)
            case ast.expr():
                value = file.values.constant_or(definition)
                yield value.partition(":")[0] if isinstance(value, str) else UNKNOWN
            case _:
                yield UNKNOWN


def enabled_of(file: SourceFile, node: ast.expr | None, star: bool) -> tuple[bool | Literal["maybe"], str]:
    """Whether autocast is on, and the text that decides where that is open."""
    if node is None:
        return ("maybe" if star else True), ""
    value = file.values.constant_or(node, UNKNOWN)
    return (bool(value), "") if isinstance(value, (bool, int)) else ("maybe", file.text(node))
