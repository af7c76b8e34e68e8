"""DataParallel's threads enter autocast without its dtype, and the dtype does not follow into a thread."""

import inspect
import threading

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework


def dtype_in_a_thread(**given) -> object:
    """The dtype of a matmul in a new thread that enters autocast as DataParallel's workers do, with `given` added."""
    x, found = torch.randn(2, 8), []

    def work() -> None:
        with torch.autocast("cpu", enabled=True, **given):
            found.append((x @ x.T).dtype)

    with torch.autocast("cpu", dtype=torch.float16):
        assert (x @ x.T).dtype is torch.float16
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    return found[0]


def test_a_thread_that_enters_autocast_without_the_dtype_gets_the_devices_default() -> None:
    assert dtype_in_a_thread() is torch.bfloat16


def test_a_thread_that_is_given_the_dtype_keeps_it() -> None:
    assert dtype_in_a_thread(dtype=torch.float16) is torch.float16


def test_the_workers_of_data_parallel_enter_autocast_without_a_dtype_and_its_default_on_cuda_is_float16() -> None:
    source = inspect.getsource(inspect.getmodule(torch.nn.parallel.parallel_apply))
    assert "autocast(" in source
    assert "dtype=" not in source.split("autocast(", 1)[1].split(")", 1)[0]
    assert torch.get_autocast_dtype("cuda") is torch.float16
