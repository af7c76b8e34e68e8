"""A file that costs more than it may is MP001, and the others are checked."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from mplint.rules.api.deprecated_torch_amp import DeprecatedTorchAmp

from mplint.api import check
from mplint.config import Config
from mplint.engine import ceilings, tracing
from mplint.engine.ceilings import within_ceilings
from mplint.python.document import InputError

OLD = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
CONFIG = Config(select=("MP101",), cache=False, isolated=True)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither timers nor limits")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("a", "costly", "z"):
        (tmp_path / f"{name}.py").write_text(OLD)
    return tmp_path


def costly(monkeypatch: pytest.MonkeyPatch, cost) -> None:  # type: ignore[no-untyped-def]
    """Let the rule cost something in one of the files."""
    plain = DeprecatedTorchAmp.check_source

    def check_source(self, file, around):  # type: ignore[no-untyped-def]
        if file.document.path.endswith("costly.py"):
            cost()
        return plain(self, file, around)

    monkeypatch.setattr(DeprecatedTorchAmp, "check_source", check_source)


def spin() -> None:
    """Compute for ever, and take every exception for a fault."""
    while True:
        try:
            sum(range(1000))
        except Exception:
            continue


def test_a_file_that_takes_too_long_is_mp001(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costly(monkeypatch, spin)
    monkeypatch.setattr(ceilings, "SECONDS", 0.3)
    result = check([str(files)], CONFIG)
    assert [(Path(f.location.path).name, f.code) for f in result.findings] == [("a.py", "MP101"), ("costly.py", "MP001"), ("z.py", "MP101")]
    assert result.findings[1].message == "takes more than 0.3 seconds of processor time to check"
    assert not result.faults


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_a_file_that_takes_too_much_memory_is_mp001(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costly(monkeypatch, lambda: [bytearray(64 << 20) for _ in range(100)])
    monkeypatch.setattr(ceilings, "BYTES", 256 << 20)
    result = check([str(files)], CONFIG)
    assert [(Path(f.location.path).name, f.code) for f in result.findings] == [("a.py", "MP101"), ("costly.py", "MP001"), ("z.py", "MP101")]
    assert "more memory" in result.findings[1].message and not result.faults


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_interpreting_that_takes_too_much_memory_is_told(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "interpret", lambda *_: [bytearray(64 << 20) for _ in range(100)])
    monkeypatch.setattr(ceilings, "BYTES", 1 << 30)
    result = check([str(files)], Config(select=("MP101", "MP303"), cache=False, isolated=True))
    assert {f.code for f in result.findings} == {"MP101"}
    assert [fault.error for fault in result.faults] == ["it takes more than 1 GB of memory"]


def test_what_was_bounded_is_free_afterwards() -> None:
    import resource
    import signal

    before = signal.getsignal(signal.SIGVTALRM), resource.getrlimit(resource.RLIMIT_AS)
    assert within_ceilings(lambda: 3, seconds=0.05, memory=1 << 30) == 3
    with pytest.raises(InputError):
        within_ceilings(spin, seconds=0.05, memory=1 << 30)
    assert before == (signal.getsignal(signal.SIGVTALRM), resource.getrlimit(resource.RLIMIT_AS))
    begun = time.process_time()
    while time.process_time() - begun < 0.1:
        pass


def test_waiting_is_not_counted() -> None:
    assert within_ceilings(lambda: time.sleep(0.2), seconds=0.05) is None


def test_other_threads_are_not_bounded_and_fail_not() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(within_ceilings, lambda: 3, seconds=1.0).result() == 3
