"""How the precision in force travels from the trainer to the code it runs, and the chain of places that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mplint.config import Config
from mplint.engine.run import check_paths
from mplint.findings import Finding

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, y, mask):
        scores = torch.matmul(x, y)
        return scores.masked_fill(mask, -1e9)
"""
STEP = """
import torch


def train(model, batches):
    for x, y, mask in batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x, y, mask).sum()
"""


def found_in(folder: Path, files: Mapping[str, str], code: str = "MP204") -> list[Finding]:
    """The findings of one rule in a project."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    result = check_paths([str(folder)], Config(select=(code,), cache=False, isolated=True, root=str(folder)))
    assert not result.faults
    return list(result.findings)


def chain(finding: Finding, folder: Path) -> list[str]:
    """The places that lead to a finding, as a reader sees them."""
    return [f"{Path(r.location.path).relative_to(folder).as_posix()}:{r.location.line} {r.message}" for r in finding.related]


WAYS = {
    "a model that is passed to a function": {
        "main.py": "from step import train\nfrom net import Net\n\ntrain(Net(), batches)\n",
        "step.py": STEP,
    },
    "a model that a trainer holds": {
        "main.py": "from trainer import Trainer\nfrom net import Net\n\nTrainer(model=Net()).run(batches)\n",
        "trainer.py": (
            "import torch\n\n\nclass Trainer:\n    def __init__(self, model):\n        self.model = model\n\n    def run(self, batches):\n"
            "        for x, y, mask in batches:\n            with torch.autocast('cuda', dtype=torch.float16):\n"
            "                self.model(x, y, mask)\n"
        ),
    },
    "a trainer that derives from another": {
        "main.py": "from trainer import Mine\nfrom net import Net\n\nMine(Net()).run(batches)\n",
        "trainer.py": (
            "import torch\n\n\nclass Trainer:\n    def __init__(self, model):\n        self.model = model\n\n\nclass Mine(Trainer):\n"
            "    def run(self, batches):\n        for x, y, mask in batches:\n"
            "            with torch.autocast('cuda', dtype=torch.float16):\n                self.step(x, y, mask)\n\n"
            "    def step(self, x, y, mask):\n        return self.model(x, y, mask)\n"
        ),
    },
    "a trainer that derives from one of another file": {
        "main.py": "from mine import Mine\nfrom net import Net\n\nMine(Net()).run(batches)\n",
        "trainer.py": "class Trainer:\n    def __init__(self, model):\n        self.model = model\n",
        "mine.py": (
            "import torch\nfrom trainer import Trainer\n\n\nclass Mine(Trainer):\n    def run(self, batches):\n"
            "        for x, y, mask in batches:\n"
            "            with torch.autocast('cuda', dtype=torch.float16):\n                self.model(x, y, mask)\n"
        ),
    },
    "a factory": {
        "main.py": "from step import train\nfrom build import build_model\n\ntrain(build_model('net'), batches)\n",
        "step.py": STEP,
        "build.py": "from net import Net\n\n\ndef build_model(name):\n    model = Net()\n    return model.cuda()\n",
    },
    "a table of classes": {
        "main.py": "from step import train\nfrom build import MODELS\n\ntrain(MODELS['net'](), batches)\n",
        "step.py": STEP,
        "build.py": "from net import Net\n\nMODELS = {'net': Net}\n",
    },
    "a factory with a table of its own": {
        "main.py": "from step import train\nfrom build import build_model\n\ntrain(build_model('net'), batches)\n",
        "step.py": STEP,
        "build.py": "from net import Net\n\nMODELS = {'net': Net}\n\n\ndef build_model(name):\n    return MODELS[name]()\n",
    },
    "getattr of a module": {
        "main.py": "import models\nfrom step import train\n\ntrain(getattr(models, 'Net')(), batches)\n",
        "step.py": STEP,
        "models/__init__.py": "from net import Net\n",
    },
    "the dictionary of a module": {
        "main.py": "import models\nfrom step import train\n\ntrain(models.__dict__['Net'](), batches)\n",
        "step.py": STEP,
        "models/__init__.py": "from net import *\n",
    },
    "a registry of decorated classes": {
        "main.py": "from step import train\nfrom registry import build_model\nimport net\n\ntrain(build_model('net'), batches)\n",
        "step.py": STEP,
        "registry.py": (
            "MODELS = {}\n\n\ndef register_model(name):\n    def add(cls):\n        MODELS[name] = cls\n        return cls\n"
            "    return add\n\n\n"
            "def build_model(name, **options):\n    return MODELS[name](**options)\n"
        ),
        "net.py": NET.replace("\n\nclass", "\nfrom registry import register_model\n\n\n@register_model('net')\nclass"),
    },
    "a registry object": {
        "main.py": "from step import train\nfrom registry import MODELS\nimport net\n\ntrain(MODELS.build(dict(type='Net')), batches)\n",
        "step.py": STEP,
        "registry.py": "from somewhere import Registry\n\nMODELS = Registry('models')\n",
        "net.py": NET.replace("\n\nclass", "\nfrom registry import MODELS\n\n\n@MODELS.register_module()\nclass"),
    },
    "a part of a model": {
        "main.py": "from step import train\nfrom whole import Whole\n\ntrain(Whole(), batches)\n",
        "step.py": STEP,
        "whole.py": (
            "from torch import nn\nfrom net import Net\n\n\nclass Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.layers = nn.ModuleList([Net() for _ in range(3)])\n\n    def forward(self, x, y, mask):\n"
            "        for layer in self.layers:\n            x = layer(x, y, mask)\n        return x\n"
        ),
    },
    "a method of the model": {
        "main.py": (
            "import torch\nfrom net import Net\n\nmodel = Net()\nfor x, y, mask in batches:\n"
            "    with torch.autocast('cuda', dtype=torch.float16):\n        model.attend(x, y, mask)\n"
        ),
        "net.py": NET.replace("def forward", "def attend"),
    },
    "a wrapper of the framework": {
        "main.py": (
            "import torch\nfrom step import train\nfrom net import Net\n\nmodel = torch.nn.parallel.DistributedDataParallel(Net().cuda())\n"
            "model = torch.compile(model)\ntrain(model, batches)\n"
        ),
        "step.py": STEP,
    },
    "a function that is called under autocast": {
        "main.py": (
            "import torch\nfrom net import attend\n\nfor x, y, mask in batches:\n"
            "    with torch.autocast('cuda', dtype=torch.float16):\n        attend(x, y, mask)\n"
        ),
        "net.py": "import torch\n\n\ndef attend(x, y, mask):\n    return torch.matmul(x, y).masked_fill(mask, -1e9)\n",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_autocast_reaches_the_model(way: str, tmp_path: Path) -> None:
    (finding,) = found_in(tmp_path, {"net.py": NET, **WAYS[way]})
    first = finding.related[0]
    assert finding.location.path.endswith("net.py") and not first.location.path.endswith("net.py")
    assert first.message.endswith("autocast runs in float16 here")


SILENT = {
    "bfloat16": {
        "main.py": "from step import train\nfrom net import Net\n\ntrain(Net(), batches)\n",
        "step.py": STEP.replace("torch.float16", "torch.bfloat16"),
    },
    "another model": {
        "main.py": "from step import train\nfrom net import Net\nfrom other import Other\n\ntrain(Other(), batches)\nNet()(1, 2, 3)\n",
        "step.py": STEP,
        "other.py": "from torch import nn\n\n\nclass Other(nn.Module):\n    def forward(self, x, y, mask):\n        return x\n",
    },
    "autocast switched off around the part": {
        "main.py": "from step import train\nfrom whole import Whole\n\ntrain(Whole(), batches)\n",
        "step.py": STEP,
        "whole.py": (
            "import torch\nfrom torch import nn\nfrom net import attend\n\n\nclass Whole(nn.Module):\n    def forward(self, x, y, mask):\n"
            "        with torch.autocast('cuda', enabled=False):\n            return attend(x.float(), y.float(), mask)\n"
        ),
        "net.py": "import torch\n\n\ndef attend(x, y, mask):\n    return torch.matmul(x, y).masked_fill(mask, -1e9)\n",
    },
    "a test that runs the model": {
        "test_net.py": "from net import Net\n" + STEP + "\n\ntrain(Net(), batches)\n",
    },
    "no autocast": {"main.py": "from net import Net\n\nNet()(1, 2, 3)\n"},
}


@pytest.mark.parametrize("case", SILENT)
def test_what_nothing_runs_in_float16_is_not_reported(case: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, {"net.py": NET, **SILENT[case]}) == []


def test_the_chain_names_every_place_from_the_autocast_to_the_code(tmp_path: Path) -> None:
    files = {
        "main.py": "from trainer import Trainer\nfrom whole import Whole\n\nTrainer(Whole()).run(batches)\n",
        "trainer.py": WAYS["a model that a trainer holds"]["trainer.py"],
        "whole.py": (
            "from torch import nn\nfrom block import Block\n\n\nclass Whole(nn.Module):\n    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.block = Block()\n\n    def forward(self, x, y, mask):\n        return self.block(x, y, mask)\n"
        ),
        "block.py": "from net import Net\n\n\nclass Block(Net):\n    pass\n",
        "net.py": NET,
    }
    (finding,) = found_in(tmp_path, files)
    assert chain(finding, tmp_path) == [
        "trainer.py:10 (1) autocast runs in float16 here",
        "trainer.py:11 (2) this call leads there",
        "whole.py:11 (3) this call leads there",
        "net.py:8 (4) `matmul` computes in float16 here",
    ]


def test_float16_wins_over_bfloat16_where_both_run_the_model(tmp_path: Path) -> None:
    files = {
        "a.py": "from net import Net\n" + STEP.replace("torch.float16", "torch.bfloat16") + "\n\ntrain(Net(), batches)\n",
        "b.py": "from net import Net\n" + STEP + "\n\ntrain(Net(), batches)\n",
        "net.py": NET,
    }
    (finding,) = found_in(tmp_path, files)
    assert chain(finding, tmp_path)[0].startswith("b.py:")


KERAS_NET = """
import keras
from keras import layers


def build():
    inputs = keras.Input((32,))
    outputs = layers.Dense(10, activation="softmax")(inputs)
    return keras.Model(inputs, outputs)
"""
SETS = 'import keras\n\nkeras.mixed_precision.set_global_policy("mixed_float16")\n'


def test_a_policy_of_another_file_is_shown_where_it_is_set(tmp_path: Path) -> None:
    files = {
        "main.py": "import setup_precision\nfrom models import build\n\nmodel = build()\nmodel.fit(x, y)\n",
        "setup_precision.py": SETS,
        "models/__init__.py": "from .net import build\n",
        "models/net.py": KERAS_NET,
    }
    (finding,) = found_in(tmp_path, files, "MP201")
    assert chain(finding, tmp_path)[0] == "setup_precision.py:3 the policy is mixed_float16 from here on"


def test_a_policy_that_a_package_sets_is_in_force_in_its_modules(tmp_path: Path) -> None:
    files = {"app/__init__.py": SETS, "app/net.py": KERAS_NET, "train.py": "from app.net import build\n\nbuild().fit(x, y)\n"}
    (finding,) = found_in(tmp_path, files, "MP201")
    assert finding.related[0].location.path.endswith("app/__init__.py")


def test_the_region_of_a_loss_is_shown_and_not_one_that_computed_features_before(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "fixtures/MP301/bad_region_of_features_before.py").read_text()
    (finding,) = found_in(tmp_path, {"probe.py": text}, "MP301")
    assert finding.related[0].location.line == 1 + text.splitlines().index('        with torch.autocast("cuda", dtype=torch.float16):')
