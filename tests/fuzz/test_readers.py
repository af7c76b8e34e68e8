"""Whatever is read, it ends in findings: no fault of mplint's own, the same twice, and fixes that leave a program."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from changed_bytes import mutated
from scripts import Scripts

from mplint.config import Config, load_config
from mplint.engine.baseline import read as read_baseline
from mplint.engine.fix import fix_paths
from mplint.engine.run import check_paths
from mplint.errors import UsageError

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PROGRAMS = [path.read_bytes() for path in sorted(FIXTURES.rglob("*.py"))]
NOTEBOOKS = [path.read_bytes() for path in sorted(FIXTURES.rglob("*.ipynb"))]
JSONS = [path.read_bytes() for path in sorted(FIXTURES.rglob("*.json"))]
YAMLS = [path.read_bytes() for pattern in ("*.yaml", "*.yml") for path in sorted(FIXTURES.rglob(pattern))]
EVERY = Config(select=("ALL",), target="Tesla T4", cache=False, isolated=True)
SETTINGS = b'select = ["MP3"]\n[target]\ntorch = "2.3"\n[per-file-ignores]\n"tests/*" = ["MP1"]\n[options.MP403]\nleast-rows = 5000\n'


def complaints(path: str, data: bytes) -> str:
    """What is wrong with how a text was read, "" where nothing is."""
    result = check_paths([], EVERY, given={path: data})
    if result.faults:
        return str(result.faults[0])
    places = [(f.location.line, f.location.column) for f in result.findings]
    if any((line is not None and line < 1) or (column is not None and column < 1) for line, column in places):
        return "a place before the beginning"
    return ""


def shrunk(data: bytes, wrong: Callable[[bytes], str]) -> bytes:
    """Fewer lines that are wrong as well."""
    lines = data.split(b"\n")
    size = len(lines) // 2
    while size:
        start = 0
        while start < len(lines):
            fewer = lines[:start] + lines[start + size :]
            if wrong(b"\n".join(fewer)):
                lines = fewer
            else:
                start += size
        size //= 2
    return b"\n".join(lines)


def assert_right(seed: int, data: bytes, wrong: Callable[[bytes], str]) -> None:
    """Fail with the seed and a small text that shows what is wrong."""
    said = wrong(data)
    if said:
        small = shrunk(data, wrong)
        pytest.fail(f"MPLINT_FUZZ_SEED={seed}: {said}; so does this:\n{small.decode('utf-8', 'backslashreplace')[:4000]}")


def test_generated_scripts_are_read(seeds: Iterator[int]) -> None:
    for seed in seeds:
        text = Scripts(Random(seed)).script()
        ast.parse(text)
        assert_right(seed, text.encode(), lambda data: complaints("train.py", data))


def test_generated_scripts_are_fixed_into_programs_and_only_once(seeds: Iterator[int]) -> None:
    def fixes(data: bytes) -> str:
        first = fix_paths([], EVERY, unsafe=True, apply=False, given={"train.py": data})
        # Of calls in no order that a person writes, a fix may not mend what its rule says: then it is taken back.
        wrong = [said for said in (*first.faults, *first.failures) if "was taken back" not in said]
        if wrong:
            return wrong[0]
        try:
            ast.parse(data)
        except (SyntaxError, ValueError):
            return ""
        try:
            ast.parse(first.output["train.py"])
        except SyntaxError as error:
            return f"fixed into no program: {error}"
        return ""

    for seed in seeds:
        assert_right(seed, Scripts(Random(seed)).script().encode(), fixes)


@pytest.mark.parametrize(
    ("name", "files"),
    [("train.py", PROGRAMS), ("explore.ipynb", NOTEBOOKS), ("ds_config.json", JSONS), ("config.yaml", YAMLS)],
    ids=["programs", "notebooks", "json", "yaml"],
)
def test_damaged_files_are_read(name: str, files: list[bytes], seeds: Iterator[int]) -> None:
    for seed in seeds:
        chance = Random(seed)
        assert_right(seed, mutated(chance.choice(files), files, chance), lambda data: complaints(name, data))


def test_damaged_configurations_of_mplint_are_one_clear_line(seeds: Iterator[int], tmp_path: Path) -> None:
    for seed in seeds:
        chance = Random(seed)
        (tmp_path / "mplint.toml").write_bytes(mutated(SETTINGS, [SETTINGS], chance))
        try:
            load_config(str(tmp_path))
        except UsageError as error:
            assert "\n" not in str(error), seed


PINS = {
    "requirements.txt": b"torch>=2.3,<2.5  # pinned\nkeras==3.5.0; python_version >= '3.10'\n-r other.txt\n",
    "pyproject.toml": b"[project]\nname = 'x'\ndependencies = ['torch~=2.3', 'lightning>=2']\n[tool.poetry.dependencies]\ntorch = '^2.1'\n",
    "setup.py": b"from setuptools import setup\nN = 'torch>=2.0'\nsetup(name='x', install_requires=[N, 'tensorflow<2.16'])\n",
    "setup.cfg": b"[options]\ninstall_requires =\n    torch>=1.10\n    tensorflow==2.9.*\n",
    "environment.yml": b"dependencies:\n  - pytorch=2.1\n  - pip:\n    - keras>=3\n",
    "Pipfile.lock": b'{"default": {"torch": {"version": "==2.3.1"}, "keras": {}}}',
    ".gitignore": b"build/\n*.log\n!keep.log\n/data/**\n[abc]*\n",
}


@pytest.mark.parametrize("name", PINS)
def test_damaged_files_of_a_project_cost_no_finding(name: str, seeds: Iterator[int], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    for seed in seeds:
        (tmp_path / name).write_bytes(mutated(PINS[name], list(PINS.values()), Random(seed)))
        named = check_paths([str(tmp_path / "train.py")], EVERY._replace(ignore=("MP115",)))
        found = check_paths([str(tmp_path)], EVERY._replace(ignore=("MP115",)))
        assert not named.faults and not found.faults, f"MPLINT_FUZZ_SEED={seed}: {(*named.faults, *found.faults)[0]}"


def test_damaged_baselines_are_one_clear_line(seeds: Iterator[int], tmp_path: Path) -> None:
    keys = {"a.py": {"MP101": {"x = 1": 2}}}
    good = json.dumps({"version": 1, "findings": keys}).encode()
    for seed in seeds:
        (tmp_path / "b.json").write_bytes(mutated(good, [good], Random(seed)))
        try:
            read_baseline(str(tmp_path / "b.json"))
        except UsageError as error:
            assert "\n" not in str(error), seed


def onnx_model() -> bytes:
    """A model of four nodes."""
    import onnx

    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float16[N,64] x) => (float16[N,64] y) <float tiny = {1e-7}> {
        small = Cast <to = 10> (tiny)
        h = MatMul(x, x)
        s = Add(h, small)
        y = Softmax(s)
    }"""
    model: bytes = onnx.parser.parse_model(text).SerializeToString()
    return model


def test_damaged_models_are_read(seeds: Iterator[int], tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    pytest.importorskip("onnx")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "graph"))
    try:
        from model_files import FILES
    finally:
        sys.path.pop(0)
    made = {name: make() for name, make in FILES.items()} | {"model.onnx": onnx_model()}
    for seed in seeds:
        chance = Random(seed)
        name = chance.choice(sorted(made))
        path = tmp_path / Path(name).name
        path.write_bytes(mutated(made[name], list(made.values()), chance))
        result = check_paths([str(path)], EVERY)
        assert not result.faults, f"MPLINT_FUZZ_SEED={seed}: {result.faults[0]}"
        path.unlink()
