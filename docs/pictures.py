"""Make the pictures of the documentation by the commands themselves: their pages, as headless Chromium shows them.

Run from the repository's root: `python docs/pictures.py [NAME …]`. Needs chromium, chromedriver and selenium.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "tests" / "pages"))


class Picture(NamedTuple):
    """What a command's page looks like; `height` of it is shown."""

    name: str
    command: tuple[str, ...]
    height: int


WANTED = (
    Picture("compare", ("compare", "fixtures/articles/gpu_performance/train.py", "--steps", "64", "--repeats", "2"), 1560),
    Picture("check", ("check", "fixtures/articles/gpu_performance/without_the_steps.py", "--isolated", "--no-cache", "--quiet"), 1100),
    Picture("adopt", ("convert", "fixtures/articles/gpu_performance/train.py", "--policy", "mixed_float16"), 900),
)


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
            done = subprocess.run(words, cwd=ROOT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True)
            if not page.exists():
                raise SystemExit(f"{' '.join(picture.command)}: {done.stderr}")
            browser.open(str(page), width=1180, height=picture.height)
            browser.driver.save_screenshot(str(PICTURES / f"{picture.name}.png"))  # type: ignore[attr-defined]
            print(picture.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
