"""Keep what the commands of the articles' pages print that run a training (`compare`, `doctor`) or take long (`estimate`).

Run from the repository's root: `python docs/recorded.py [PAGE …]` (`--new`: only what was never run; `--estimates`: only these), then
`python docs/generate.py`, which puts the outputs into the pages.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARTICLES = ROOT / "docs" / "articles"
KEPT = ARTICLES / "recorded.json"
COMMAND = re.compile(r"```console\n\$ (mplint (?:compare|doctor|estimate) [^\n]+)\n")


def recorded() -> dict[str, str]:
    """What the commands printed, by the command."""
    found: dict[str, str] = json.loads(KEPT.read_text(encoding="utf-8"))["commands"] if KEPT.exists() else {}
    return found


def wanted(pages: list[str]) -> list[str]:
    """The commands of the pages of these names, or of all."""
    files = [ARTICLES / f"{page}.md" for page in pages] or sorted(ARTICLES.glob("*.md"))
    return [command for file in files for command in COMMAND.findall(file.read_text(encoding="utf-8"))]


def ran(command: str) -> str:
    """What a command prints on a terminal of 80 columns without color."""
    quiet = {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-m", "mplint", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", env={**os.environ, **quiet})
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout


def main() -> int:
    """Run the commands and keep what they print; those that no page has any more are dropped."""
    known, every = recorded(), wanted([])
    pages = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    for command in wanted(pages):
        if command in known and "--new" in sys.argv:
            continue
        if "--estimates" in sys.argv and not command.startswith("mplint estimate "):
            continue
        known[command] = ran(command)
        print(command)
        kept = {each: known[each] for each in every if each in known}
        machine = f"{platform.machine()}, {os.cpu_count()} processors, no GPU"
        KEPT.write_text(json.dumps({"machine": machine, "commands": kept}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
