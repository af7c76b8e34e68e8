"""The models of all lists in one run, by every converter: `python benchmarks/all_contacts.py FOLDER OUT.jsonl`.

FOLDER is that of real_models.py; the exported ones of fourth_contacts.py lie in it. What is not there is left out, and of equal files all
but one. Small models come first. A line that stands in OUT.jsonl already is not done again. `python benchmarks/contacts_table.py OUT.jsonl`
makes the table.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from planning_time import every
from real_models import CONVERTERS, Real, judged

SECONDS = 300


def present(folder: Path) -> list[tuple[Real, Path]]:
    """The models that are there, with their files, small ones first."""
    found: dict[str, tuple[Real, Path]] = {}
    for real in every():
        source = next(folder.glob(f"*/{real.file}"), None) or next(folder.glob(f"exported/{real.file}"), None)
        if source is not None:
            found.setdefault(hashlib.sha256(source.read_bytes()).hexdigest(), (real, source))
    return sorted(found.values(), key=lambda one: one[1].stat().st_size)


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    if len(sys.argv) > 3:  # one model in a process of its own
        real = next(one for one in every() if one.package == sys.argv[3] and one.file == sys.argv[4])
        source = next(folder.glob(f"*/{real.file}"))
        print(json.dumps(judged(real, source, folder, sys.argv[5])))
        return
    done = (
        {(line["package"], line["file"], line["converter"]) for line in map(json.loads, out.read_text().splitlines())}
        if out.exists()
        else set()
    )
    for real, _ in present(folder):
        for who in CONVERTERS:
            if (real.package, real.file, who) in done:
                continue
            asked = [sys.executable, __file__, str(folder), str(out), real.package, real.file, who]
            failed = {"package": real.package, "file": real.file, "converter": who, "valid": False, "accurate": False}
            try:
                told = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=False)
                lines, why = told.stdout.strip().splitlines(), told.stderr.strip()[-200:]
            except subprocess.TimeoutExpired:
                lines, why = [], f"not done after {SECONDS} s"
            with open(out, "a", encoding="utf-8") as stream:
                stream.write((lines[-1] if lines and lines[-1].startswith("{") else json.dumps({**failed, "died": why})) + "\n")


if __name__ == "__main__":
    main()
