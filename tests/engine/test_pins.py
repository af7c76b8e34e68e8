"""Library targets from a project's own pins."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mplint.engine.pins import LibraryVersions, project_pins, targets_with
from mplint.targets import Targets
from mplint.versions import Versions, parse_versions


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty repository; every test has its own, so nothing is cached between them."""
    (tmp_path / ".git").mkdir()
    return tmp_path


def pins(folder: Path, name: str, text: str) -> LibraryVersions:
    """The pins of a project with one file."""
    (folder / name).write_text(text)
    return project_pins(str(folder / "train.py"))


@pytest.mark.parametrize(
    ("requirement", "lower", "upper"),
    [
        (">=1.7", (1, 7, 0), None),
        ("==2.10", (2, 10, 0), (2, 10, 1)),
        ("==2.10.*", (2, 10, 0), (2, 11, 0)),
        ("== 2.4.0+cu118", (2, 4, 0), (2, 4, 1)),
        ("~=2.1", (2, 1, 0), (3, 0, 0)),
        ("~=2.1.3", (2, 1, 3), (2, 2, 0)),
        ("<2.4", None, (2, 4, 0)),
        ("<=2.3.1", None, (2, 3, 2)),
        (">=2.1, <3, !=2.2.0", (2, 1, 0), (3, 0, 0)),
        ("^2.1", (2, 1, 0), (3, 0, 0)),
        ("^0.4.1", (0, 4, 1), (0, 5, 0)),
        ("~2.1", (2, 1, 0), (2, 2, 0)),
        ("=2.1", (2, 1, 0), (2, 2, 0)),
        ("2.3", (2, 3, 0), (2, 4, 0)),
        ("2.3.1", (2, 3, 1), (2, 3, 2)),
        ("(>=2.0)", (2, 0, 0), None),
        ("^1.13 || ^2.0", (1, 13, 0), (3, 0, 0)),
        (">=2.0.0rc1", (2, 0, 0), None),
    ],
)
def test_requirements_become_ranges(requirement: str, lower: tuple[int, ...], upper: tuple[int, ...]) -> None:
    assert Versions.parse(requirement) == parse_versions(requirement) == Versions(lower, upper)


@pytest.mark.parametrize("text", ["", "*", "!=2.1", "@ git+https://x/y", "latest"])
def test_what_names_no_version_is_none(text: str) -> None:
    assert parse_versions(text) is None


def test_a_range_answers_only_what_it_knows() -> None:
    open_ended = Versions((1, 7, 0), None)
    assert open_ended.before("2.4") and not open_ended.at_least("2.4") and not open_ended.below("2.4")
    assert open_ended.at_least("1.7") and not open_ended.before("1.7")
    capped = Versions(None, (2, 4, 0))
    assert capped.below("2.4") and capped.before("2.4") and not capped.at_least("2.4")
    assert not capped.before("2.3") and not capped.below("2.3")


@given(st.lists(st.integers(0, 30), min_size=1, max_size=3), st.lists(st.integers(0, 30), min_size=1, max_size=3))
def test_at_least_and_before_exclude_each_other(lower: list[int], asked: list[int]) -> None:
    versions = parse_versions(">=" + ".".join(map(str, lower)))
    assert versions is not None
    version = ".".join(map(str, asked))
    assert versions.at_least(version) != versions.before(version)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "numpy\n# torch==1.0\ntorch[opt] >= 2.1  # why\n-r other.txt\n"),
        ("requirements-gpu.txt", 'torch>=2.1 ; python_version >= "3.8"\n'),
        ("requirements.txt", "torch>=2.1 --hash=sha256:00\n"),
        ("pyproject.toml", '[project]\ndependencies = ["torch>=2.1", "x"]\n'),
        ("pyproject.toml", '[project.optional-dependencies]\ntrain = ["torch >=2.1"]\n'),
        ("pyproject.toml", '[dependency-groups]\ndev = ["torch>=2.1", {include-group = "x"}]\n'),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.9"\ntorch = ">=2.1"\n'),
        ("pyproject.toml", '[tool.poetry.group.dev.dependencies]\ntorch = {version = ">=2.1", source = "pytorch"}\n'),
        ("Pipfile", '[packages]\ntorch = ">=2.1"\n'),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch>=2.1\n"),
        ("setup.py", "from setuptools import setup\nREQUIRES = ['numpy', 'torch>=2.1']\nsetup(install_requires=REQUIRES)\n"),
        ("setup.py", "setup(extras_require={'train': ['torch>=2.1']})\n"),
        ("environment.yml", "dependencies:\n  - python=3.9\n  - pytorch>=2.1\n  - torchvision=0.1\n"),
        ("environment.yaml", 'dependencies:\n  - pip:\n    - "torch>=2.1"\n'),
    ],
)
def test_every_common_file_is_read(repository: Path, name: str, text: str) -> None:
    assert pins(repository, name, text) == LibraryVersions(torch=Versions((2, 1, 0), None))


def test_conda_builds_are_no_part_of_the_version(repository: Path) -> None:
    assert pins(repository, "environment.yml", "- pytorch=2.1.0=py3.10_cuda11\n").torch == Versions((2, 1, 0), (2, 1, 1))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "torch\ntorch @ git+https://x/torch.git\ntorchvision==0.1\n"),
        ("pyproject.toml", "torch ="),
        ("setup.py", "print 'torch'"),
        ("notes.txt", "torch==1.0"),
        ("requirements.txt", "import torch\nthe torch == everything\n"),
    ],
)
def test_what_pins_nothing_is_unknown(repository: Path, name: str, text: str) -> None:
    assert pins(repository, name, text) == LibraryVersions()


def test_pins_of_one_folder_are_joined(repository: Path) -> None:
    (repository / "setup.py").write_text("setup(install_requires=['torch>=1.7'])")
    found = pins(repository, "requirements.txt", 'torch==2.1.0; sys_platform == "linux"\ntorch==2.0.0; sys_platform != "linux"\n')
    assert found.torch == Versions((1, 7, 0), None)


def test_the_nearest_pin_wins_up_to_the_root(repository: Path) -> None:
    deep = repository / "examples" / "vision"
    deep.mkdir(parents=True)
    (repository / "requirements.txt").write_text("torch>=1.7\nkeras>=3\n")
    (repository / "examples" / "requirements.txt").write_text("torch>=2.4\n")
    assert project_pins(str(deep / "train.py")) == LibraryVersions(Versions((2, 4, 0), None), Versions((3, 0, 0), None))


@pytest.mark.parametrize("name", ["ci", "build", "docker", "requirements"])
def test_a_project_may_have_the_name_of_a_folder_of_jobs(tmp_path: Path, name: str) -> None:
    (tmp_path / name / ".git").mkdir(parents=True)
    (tmp_path / name / "notes.txt").write_text("torch==1.2\n")
    found = pins(tmp_path / name, "pyproject.toml", '[project]\ndependencies = ["keras>=3"]\n')
    assert found == LibraryVersions(keras=Versions((3, 0, 0), None))


def test_pins_above_the_repository_are_a_strangers(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch>=1.7\n")
    (tmp_path / "inner" / ".git").mkdir(parents=True)
    assert project_pins(str(tmp_path / "inner")) == LibraryVersions()


def test_outside_of_a_repository_the_first_folder_with_pins_is_the_project(tmp_path: Path) -> None:
    deep = tmp_path / "download" / "pkg" / "sub"
    deep.mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text("torch>=1.7\n")
    (tmp_path / "download" / "requirements.txt").write_text("keras>=3\n")
    assert project_pins(str(deep)) == LibraryVersions(keras=Versions((3, 0, 0), None))


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("tensorflow==2.10\n", 2),
        ("tensorflow-gpu<2.16\n", 2),
        ("tensorflow>=2.16\n", 3),
        ("tensorflow>=2.4\n", None),
        ("keras>=3\n", 3),
        ("keras<3\ntensorflow>=2.4\n", 2),
        ("tensorflow>=2.16\ntf-keras\n", None),
        ("torch\n", None),
    ],
)
def test_tensorflow_says_which_keras(repository: Path, text: str, major: int | None) -> None:
    found = pins(repository, "requirements.txt", text)
    targets = Targets(torch=found.torch, keras=found.keras, tensorflow=found.tensorflow)
    assert targets.keras_major == major


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reqs.txt", "tensorflow==2.3.1\n"),
        ("requirements/gpu.txt", "numpy\ntensorflow-gpu==2.3.1\n"),
        ("requirements/base.in", "tensorflow == 2.3.1\n"),
        ("gpu_env.yml", "name: x\ndependencies:\n  - pip:\n    - tensorflow==2.3.1\n"),
        ("envs/train.yml", "dependencies:\n  - conda-forge::tensorflow=2.3.1\n"),
        ("setup.py", "setup(install_requires='numpy\\ntensorflow==2.3.1')\n"),
        ("setup.cfg", "[options]\ninstall_requires =\n    tensorflow==2.3.1\n"),
        ("Pipfile.lock", '{"default": {"tensorflow": {"version": "==2.3.1"}}}'),
        ("poetry.lock", '[[package]]\nname = "tensorflow"\nversion = "2.3.1"\n'),
        ("Dockerfile", "FROM tensorflow/tensorflow:2.3.1-gpu-jupyter\nRUN pip install pandas\n"),
        ("docker/gpu.Dockerfile", "FROM ubuntu\nARG TF=2.3.1\nRUN pip install -q \\\n    numpy \\\n    tensorflow==${TF} && rm -rf /tmp\n"),
        (".github/workflows/ci.yml", "jobs:\n  test:\n    steps:\n      - run: |\n          pip install 'tensorflow==2.3.1' pytest\n"),
        ("install.sh", "python -m pip install https://example.org/whl/tensorflow-2.3.1-cp38-cp38-manylinux2010_x86_64.whl\n"),
    ],
)
def test_pins_are_found_wherever_they_stand(repository: Path, name: str, text: str) -> None:
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    assert pins(repository, name, text).tensorflow == Versions((2, 3, 1), (2, 3, 2))


def test_a_base_image_without_patch_release_is_every_patch_release(repository: Path) -> None:
    assert pins(repository, "Dockerfile", "FROM pytorch/pytorch:1.9-cuda11.1-cudnn8-runtime\n").torch == Versions((1, 9, 0), (1, 10, 0))


def test_a_base_image_may_say_that_it_is_tensorflow_1(repository: Path) -> None:
    assert pins(repository, "Dockerfile", "FROM nvcr.io/nvidia/tensorflow:20.10-tf1-py3\n").tensorflow == Versions(None, (2, 0, 0))


@pytest.mark.parametrize("text", ["FROM nvidia/cuda:11.1-devel\n", "FROM pytorch/pytorch:latest\n", "# pip install torch==1.9\n"])
def test_a_container_without_a_version_pins_nothing(repository: Path, text: str) -> None:
    assert pins(repository, "Dockerfile", text).torch is None


def test_dependency_files_count_more_than_what_the_project_is_run_with(repository: Path) -> None:
    (repository / "Dockerfile").write_text("FROM tensorflow/tensorflow:2.3.1-gpu\n")
    assert pins(repository, "requirements.txt", "tensorflow>=2.4\n").tensorflow == Versions((2, 4, 0), None)


def test_a_lock_file_says_which_version_everybody_gets(repository: Path) -> None:
    (repository / "poetry.lock").write_text('[[package]]\nname = "tensorflow"\nversion = "2.4.1"\n')
    found = pins(repository, "pyproject.toml", '[tool.poetry.dependencies]\ntensorflow = ">=2.2"\n')
    assert found.tensorflow == Versions((2, 2, 0), (2, 4, 2))


@pytest.mark.parametrize(
    ("source", "lower", "upper"),
    [
        ("!pip install -q tensorflow-gpu==2.0\n", (2, 0, 0), (2, 0, 1)),
        ("%pip install 'tensorflow~=2.4.0' matplotlib\n", (2, 4, 0), (2, 5, 0)),
        ("!{sys.executable} -m pip install tensorflow==2.0.0-beta1\n", (2, 0, 0), (2, 0, 1)),
        ("!pip install tf-nightly==2.4.0.dev20200914\n", (2, 4, 0), (2, 4, 1)),
        ("%tensorflow_version 1.x\n", None, (2, 0, 0)),
        ("!pip install -U tensorflow\n", (2, 16, 0), None),
        ("!pip install tensorflow==2.3\n!pip install tensorflow==2.4.1\n", (2, 4, 1), (2, 4, 2)),
    ],
)
def test_a_notebook_installs_its_own_version(repository: Path, source: str, lower: tuple[int, ...], upper: tuple[int, ...]) -> None:
    (repository / "requirements.txt").write_text("tensorflow>=2.9\ntorch>=2\n")
    own = targets_with(str(repository), source, notebook=True)
    assert own is not None
    assert own.tensorflow == Versions(lower, upper)
    assert own.torch == Versions((2, 0, 0), None)


@pytest.mark.parametrize("source", ["!pip install tensorflow\n", "# !pip install tensorflow==2.0\n", "%tensorflow_version 2.x\n"])
def test_a_notebook_that_names_no_version_has_the_projects_pins(repository: Path, source: str) -> None:
    assert targets_with(str(repository), source, notebook=True) is None


@pytest.mark.parametrize(
    "source",
    [
        "get_ipython().system('pip install tensorflow==2.3.1')\n",
        "get_ipython().run_line_magic('pip', 'install tensorflow==2.3.1')\n",
        "import os\nos.system('pip install tensorflow==2.3.1')\n",
        '"""Original file is located at\nhttps://colab"""\n# !pip install tensorflow==2.3.1\n',
    ],
)
def test_an_exported_notebook_installs_its_own_version_too(repository: Path, source: str) -> None:
    own = targets_with(str(repository), source, notebook=False)
    assert own is not None
    assert own.tensorflow == Versions((2, 3, 1), (2, 3, 2))


def test_a_docstring_installs_nothing(repository: Path) -> None:
    assert targets_with(str(repository), '"""Install with `pip install tensorflow==2.3.1`."""\n', notebook=False) is None


def test_jobs_that_install_any_version_bound_nothing_from_above(repository: Path) -> None:
    (repository / ".github" / "workflows").mkdir(parents=True)
    (repository / ".github" / "workflows" / "cpu.yml").write_text("- run: pip install torch==1.8.2 -f https://x/cpu\n")
    assert pins(repository, ".github/workflows/gpu.yml", "- run: python3 -m pip install torch\n").torch == Versions((1, 8, 2), None)


@pytest.mark.parametrize(
    "text",
    [
        "REQUIRED = '>=2.6,<2.14'\nsetup(extras_require={'tf': ['tensorflow' + REQUIRED]})\n",
        "TF = '>=2.6,<2.14'\nsetup(install_requires=[f'tensorflow{TF}'])\n",
    ],
)
def test_requirements_that_a_setup_puts_together_are_read(repository: Path, text: str) -> None:
    assert pins(repository, "setup.py", text).tensorflow == Versions((2, 6, 0), (2, 14, 0))


def test_tensorflow_addons_run_with_keras_2_only(repository: Path) -> None:
    found = pins(repository, "requirements.txt", "tensorflow-addons\n")
    assert found.tensorflow == Versions(None, (2, 16, 0))
    assert found.keras == Versions((2, 0, 0), (3, 0, 0))


@pytest.mark.parametrize(
    "text",
    [
        "# Use\n```\npip install torch==1.8.1 torchvision==0.9.1\n```\n",
        "conda install pytorch==1.8.1 cudatoolkit=11.1 -c pytorch\n",
        "## Requirements\n- Python 3.7\n- PyTorch 1.8.1\n",
        "1. Install Python 3.7, **PyTorch** >= 1.8.1 and Tensorboard.\n",
        "Tested with PyTorch 1.8.1 and PyTorch 2.0.\n",
    ],
)
def test_a_readme_names_the_oldest_torch_and_bounds_nothing_from_above(repository: Path, text: str) -> None:
    assert pins(repository, "README.md", text).torch == Versions((1, 8, 1), None)


@pytest.mark.parametrize("text", ["pip install torch\n", "We beat the PyTorch 1.8 baseline.\n", "Install torchvision 0.9.\n", "torch\n"])
def test_a_readme_that_asks_for_no_version_pins_nothing(repository: Path, text: str) -> None:
    assert pins(repository, "README.md", text).torch is None


def test_a_readme_counts_where_nothing_else_bounds_torch(repository: Path) -> None:
    (repository / "README.md").write_text("pip install torch==1.8.1\n")
    (repository / "demo").mkdir()
    assert project_pins(str(repository / "demo" / "train.py")).torch == Versions((1, 8, 1), None)
    (repository / "model").mkdir()
    assert pins(repository / "model", "requirements.txt", "torch>=2.4\n").torch == Versions((2, 4, 0), None)


def test_a_readme_counts_beside_a_command_without_a_version(repository: Path) -> None:
    (repository / "README.md").write_text("- PyTorch 1.12+\n")
    workflows = repository / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "build.yml").write_text("jobs:\n  build:\n    steps:\n      - run: pip install torch\n")
    assert project_pins(str(repository / "train.py")).torch == Versions((1, 12, 0), None)


def test_outside_of_a_repository_the_first_readme_upwards_counts(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("pip install torch==1.6.0\n")
    (tmp_path / "project" / "models").mkdir(parents=True)
    (tmp_path / "project" / "README.md").write_text("Requires torch 1.8.1.\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("A model of pictures.\n")
    assert project_pins(str(tmp_path / "project" / "models" / "net.py")).torch == Versions((1, 8, 1), None)
    assert project_pins(str(tmp_path / "other" / "net.py")).torch is None
