"""A fix is safe where nothing that worked can work otherwise after it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mplint.api import check, check_text, fix
from mplint.config import Config
from mplint.findings import Applicability

CONFIG = Config(isolated=True, cache=False)
OLD = """\
from torch.cuda.amp import GradScaler, autocast


def score(model, batch):
    with autocast():
        return model(batch)
"""
PLAIN = "import torch\n\nprint(torch.get_autocast_gpu_dtype())\n"
READERS = {
    "by name": "from regions import autocast\n\nwith autocast(False):\n    pass\n",
    "by another name, in a function": "def region():\n    from regions import GradScaler as Scaler\n\n    return Scaler(1024.0)\n",
    "by a star": "from regions import *\n\nscaler = GradScaler(1024.0)\n",
    "as an attribute": "import regions\n\nscaler = regions.GradScaler(1024.0)\n",
    "as an attribute of another name": "import regions as r\n\nscaler = r.GradScaler(1024.0)\n",
}
STRANGERS = {
    "another name": "from regions import score\n",
    "the same name from torch": "from regions import score\nfrom torch.amp import autocast\n\nwith autocast('cuda'):\n    pass\n",
    "an attribute of torch": "import regions\nimport torch\n\nwith torch.amp.autocast('cuda'):\n    regions.score(None, None)\n",
    "a star, and a name of its own": "from regions import *\n\nscore(None, None)\n",
}


def how(folder: Path, path: str) -> set[Applicability]:
    found = check([str(folder)], CONFIG).findings
    return {f.fix.applicability for f in found if f.fix is not None and f.location.path.endswith(path)}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_an_import_that_another_file_takes_names_from_is_moved_by_hand(tmp_path: Path, reader: str) -> None:
    (tmp_path / "regions.py").write_text(OLD, encoding="utf-8")
    (tmp_path / "train.py").write_text(reader, encoding="utf-8")
    assert how(tmp_path, "regions.py") == {Applicability.DISPLAY}
    titles = {f.fix.title for f in check([str(tmp_path)], CONFIG).findings if f.fix is not None and f.location.path.endswith("regions.py")}
    assert all("together with" in title and "train.py" in title for title in titles)
    assert fix([str(tmp_path / "regions.py"), str(tmp_path / "train.py")], CONFIG, unsafe=True, apply=True).mended == ()
    assert (tmp_path / "regions.py").read_text(encoding="utf-8") == OLD


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
def test_an_import_whose_names_nobody_else_takes_is_moved(tmp_path: Path, stranger: str) -> None:
    (tmp_path / "regions.py").write_text(OLD, encoding="utf-8")
    (tmp_path / "train.py").write_text(stranger, encoding="utf-8")
    assert how(tmp_path, "regions.py") == {Applicability.SAFE}


def test_readers_are_looked_for_beside_the_files_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "regions.py").write_text(OLD, encoding="utf-8")
    (tmp_path / "lab" / "plain.py").write_text(PLAIN, encoding="utf-8")
    (tmp_path / "train.py").write_text("from lab.regions import autocast\n", encoding="utf-8")
    result = fix(["lab/regions.py", "lab/plain.py"], CONFIG, unsafe=False, apply=True)
    assert [(path, code) for path, code, _ in result.mended] == [("lab/plain.py", "MP101")]
    assert {finding.fix.title.rpartition("together with ")[2] for finding in result.remaining if finding.fix is not None} == {
        "`train.py`, which takes `autocast` from here"
    }


HEAD = "import torch\n\n\ndef attend(scores, mask):\n    scores = scores.half()\n"
FILLED = f"{HEAD}    scores = scores.masked_fill(mask, -1e9)\n    return scores.softmax(-1)\n"
UNSURE = {
    "MP204": f"{HEAD}    scores = scores.masked_fill(mask, -1e9)\n    return scores.softmax(-1) * (scores != -1e9)\n",
    "MP204 of a name": FILLED.replace("-1e9", "LOW").replace("import torch\n", "import torch\n\nLOW = -1e9\n") + "\n\nprint(LOW < -1e8)\n",
    "MP204 asked by a method": f"{HEAD}    scores = scores.masked_fill(mask, -1e9)\n    return scores.softmax(-1) * scores.ne(-1e9)\n",
    "MP111": "import torch\n\nwith torch.autocast('cuda') and torch.no_grad():\n    pass\n",
    "MP116": "import keras\n\nkeras.mixed_precision.set_global_policy('mixed_float16')\n"
    "\n\ndef is_half():\n    return keras.mixed_precision.dtype_policy().name == 'float16'\n",
    "MP306": "import torch\n\nmodel = torch.nn.Linear(8, 8).cuda()\noptimizer = torch.optim.Adam(model.parameters())\n"
    "scaler = torch.amp.GradScaler('cuda')\nfor x in torch.utils.data.DataLoader([]):\n"
    "    with torch.autocast('cuda', dtype=torch.bfloat16):\n"
    "        loss = model(x).mean()\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
    "MP502": "import tensorflow as tf\n\ntf.tpu.experimental.initialize_tpu_system(None)\n"
    "tf.keras.mixed_precision.set_global_policy('mixed_float16')\n",
}
SURE = {
    "MP204": FILLED,
    "MP111": "import torch\n\nwith torch.no_grad() and torch.autocast('cuda'):\n    pass\n",
    "MP116": "import keras\nfrom keras import ops\n\nkeras.mixed_precision.set_global_policy('mixed_float16')\n"
    "\n\ndef positions(length):\n    return ops.cast(ops.arange(length), keras.mixed_precision.dtype_policy().name)\n",
}


@pytest.mark.parametrize("case", UNSURE)
def test_what_makes_a_program_compute_or_go_otherwise_is_unsafe(case: str) -> None:
    code = case.partition(" ")[0]
    found = [finding.fix for finding in check_text(UNSURE[case], "train.py", select=[code])]
    assert found and all(each is not None and each.applicability is Applicability.UNSAFE for each in found)


@pytest.mark.parametrize("case", SURE)
def test_what_could_not_run_or_had_no_effect_is_safe(case: str) -> None:
    found = [finding.fix for finding in check_text(SURE[case], "train.py", select=[case])]
    assert found and all(each is not None and each.applicability is Applicability.SAFE for each in found)
