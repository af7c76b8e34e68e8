"""Make the pictures of the documentation by the commands themselves: their pages, as headless Chromium shows them.

Run from the repository's root: `python docs/pictures.py [NAME …]`. Needs chromium, chromedriver and selenium.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "tests" / "pages"))


class Picture(NamedTuple):
    """What a command's page looks like, or what it prints where it makes none; `height` of it is shown."""

    name: str
    command: tuple[str, ...]
    height: int
    printed: bool = False


WANTED = (
    Picture("compare", ("compare", "fixtures/articles/gpu_performance/train.py", "--steps", "64", "--repeats", "2"), 1560),
    Picture("check", ("check", "fixtures/articles/gpu_performance/without_the_steps.py", "--isolated", "--no-cache", "--quiet"), 1100),
    Picture("adopt", ("convert", "fixtures/articles/gpu_performance/train.py", "--policy", "mixed_float16"), 900),
    Picture("doctor", ("doctor", "train.py", "--steps", "40", "--color", "always"), 660, True),
    Picture("estimate", ("estimate", "model:perceptron", "--target", "Tesla T4", "--color", "always"), 1230, True),
)
CLIPPED = """\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    inputs, targets = torch.randn(32, 16), torch.randint(0, 4, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #1e1e24; color: #e4e4e8; }}
pre {{ margin: 0; padding: 24px 32px; font: 15px/1.45 "DejaVu Sans Mono", monospace; }}
.bold {{ font-weight: bold; }} .faint {{ opacity: .7; }}
.red {{ color: #ff7b72; }} .green {{ color: #7ee787; }} .yellow {{ color: #e3b341; }} .blue {{ color: #79c0ff; }}
.cyan {{ color: #76e3ea; }}
</style><pre>$ mplint {command}

{text}</pre>"""
LOOKS = {"1": "bold", "2": "faint", "31": "red", "32": "green", "33": "yellow", "34": "blue", "36": "cyan"}


def main() -> int:
    """Make the pictures of these names, or all."""
    from browser import opened

    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder, "profile")) as browser:
        for picture in WANTED:
            if sys.argv[1:] and picture.name not in sys.argv[1:]:
                continue
            page = Path(folder, f"{picture.name}.html")
            words = [sys.executable, "-m", "mplint", *picture.command, "--report", str(page)]
            words = words[:-2] if picture.printed else words
            surroundings = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
            place = Path(folder, picture.name)
            if picture.printed:
                place.mkdir()
                (place / "train.py").write_text(CLIPPED, encoding="utf-8")
                shutil.copy(ROOT / "fixtures" / "articles" / "gpu_performance" / "model.py", place)
            done = subprocess.run(words, cwd=place if picture.printed else ROOT, env=surroundings, capture_output=True, text=True)
            if picture.printed and done.returncode < 2:
                page.write_text(shown(picture.command, done.stdout), encoding="utf-8")
            if not page.exists():
                raise SystemExit(f"{' '.join(picture.command)}: {done.stderr}")
            browser.open(str(page), width=1180, height=picture.height)
            browser.driver.save_screenshot(str(PICTURES / f"{picture.name}.png"))  # type: ignore[attr-defined]
            print(picture.name)
    return 0


def shown(command: Sequence[str], printed: str) -> str:
    """What a command prints in a terminal, as a page."""
    text, is_open = "", False
    for number, part in enumerate(re.split(r"\x1b\[([0-9;]*)m", re.sub(r"\x1b\]8;;.*?\x1b\\\\", "", printed))):
        if number % 2 == 0:
            text += html.escape(part)
            continue
        text += "</span>" if is_open else ""
        names = " ".join(LOOKS[code] for code in part.split(";") if code in LOOKS)
        is_open = bool(names)
        text += f'<span class="{names}">' if names else ""
    return TERMINAL.format(
        command=html.escape(shlex.join(command).replace(" --color always", ""), quote=False), text=text + ("</span>" if is_open else "")
    )


if __name__ == "__main__":
    sys.exit(main())
