"""Puts a page together: a template with everything escaped, our style and scripts, and a policy that lets nothing else run or load."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from mplint.about import VERSION
from mplint.report.page.prose import code_spans
from mplint.report.page.units import counted, number, percent, size

HERE = files("mplint.report.page")
# What HTML's reader of scripts may take for the end of one, or JavaScript for the end of a line.
_HARMLESS = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render(template: str, scripts: tuple[str, ...] = (), data: object = None, **context: object) -> str:
    """A page: `template` of this package with `context`, run by `scripts`, which read `data`."""
    sources = [_asset(f"assets/{name}") for name in ("theme.js", "page.js", *scripts)]
    allowed = " ".join(f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'" for source in sources)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        _environment()
        .get_template(template)
        .render(
            version=VERSION,
            policy=policy,
            style=Markup(_asset("assets/page.css")),
            scripts=[Markup(source) for source in sources],
            data=Markup(embedded(data)),
            **context,
        )
    )


def embedded(data: object) -> str:
    """JSON that may stand in a script element, whatever texts it holds."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_HARMLESS)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FunctionLoader(lambda name: _asset(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"prose": code_spans, "size": size, "percent": percent, "number": number}
    made.globals["counted"] = counted
    return made


@cache
def _asset(name: str) -> str:
    return HERE.joinpath(*name.split("/")).read_text(encoding="utf-8")
