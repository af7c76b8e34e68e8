"""Checking repositories and converting models on the workers of a dask cluster: each once, whatever becomes of workers and scheduler."""

from __future__ import annotations

import logging
import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from mplint.engine.errand import Done, Errand, carried_out_here, run_errand
from mplint.engine.far import check_parcel
from mplint.engine.job import Job
from mplint.engine.parcel import Answer, Unsendable, pack
from mplint.engine.progress import SILENT
from mplint.engine.results import CheckResult
from mplint.engine.run import Checked, Part, in_turn, size_of, together
from mplint.engine.targets import TargetResolver
from mplint.engine.workers import held_signals
from mplint.errors import UsageError
from mplint.graph.names import is_address, is_model

if TYPE_CHECKING:
    from mplint.config import Config

CONNECT = 20.0  # seconds in which a scheduler has to answer
PATIENCE = 60.0  # seconds without any worker after which the rest is checked here
TICK = 2.0  # seconds between two looks at whether the cluster is still there
AHEAD = 2  # parcels for each thread of the cluster that are under way at once
RETRIES = 2  # of a parcel that failed, before it is checked here
LOCAL = "local"
# What a worker here begins with: Ctrl-C reaches every process of a terminal, and the first one ends the others.
UNSTOPPED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"

Task = TypeVar("Task", Part, Errand)


class Cluster:
    """The cluster at an address, `dask://HOST:PORT`, or one of so many processes here, `dask://local?workers=N`.

    `tell` is called with what a user should know of. Raises UsageError where no scheduler or worker answers, or distributed is missing.
    """

    def __init__(self, address: str, tell: Callable[[str], None]) -> None:
        self._address = urlsplit(address)
        self._name, self._tell, self._open = address, tell, ExitStack()
        if self._address.scheme != "dask" or not self._address.hostname:
            raise UsageError(f'--executor: "{address}" is not dask://HOST:PORT or dask://local?workers=N')
        if self._address.hostname == LOCAL:
            self._workers = _number(self._address.query, address)
        elif self._address.port is None:
            raise UsageError(f'--executor: "{address}" names no port, such as dask://{self._address.hostname}:8786')

    def __enter__(self) -> Cluster:
        try:
            import distributed
        except ImportError as error:
            raise UsageError(f'--executor {self._name} needs {error.name}: pip install "mplint[dask]"') from None
        self._dask: Any = distributed
        logging.disable(logging.CRITICAL)  # what becomes of a worker is told in words of our own
        self._open.callback(logging.disable, logging.NOTSET)
        try:
            place: object = f"tcp://{self._address.netloc}"
            if self._address.hostname == LOCAL:
                with held_signals("SIGINT"):  # broken off in the middle, it would leave processes behind
                    local = self._dask.LocalCluster(
                        n_workers=self._workers,
                        threads_per_worker=1,
                        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # None would take port 8787
                        silence_logs=logging.CRITICAL,
                        preload=[UNSTOPPED],
                    )
                place = self._open.enter_context(local)
            self._client = self._open.enter_context(self._dask.Client(place, timeout=CONNECT, set_as_default=False))
            self._client.wait_for_workers(1, timeout=CONNECT)
        except (OSError, TimeoutError) as error:
            self._open.close()
            reason = "it has no worker" if hasattr(self, "_client") else str(error) or "no answer"
            raise UsageError(f"--executor {self._name}: {reason}") from None
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(Exception):  # of a cluster that is gone already
            self._open.close()

    def check(self, parts: Sequence[Part], job: Job, resolver: TargetResolver) -> Checked:
        """The results of parts, as they come; what the cluster can't do is done here, and models of repositories are read here."""
        begun: dict[Part, int] = {}

        def submit(part: Part) -> Any:
            begun[part] = time.time_ns()
            return self._submit(part, job)

        order = sorted(parts, key=lambda part: -size_of(part.files, math.inf))
        left = dict.fromkeys(order)
        for part, answer in self._spread(order, submit, "checked"):
            if isinstance(answer, str):
                self._leave(part.repository or "what lies in no repository", "checked", answer)
                continue
            assert isinstance(answer, Answer)
            if answer.result is None:
                raise UsageError(f"--executor {self._name}: a worker runs another mplint: {answer.another}")
            del left[part]
            yield part, part.keep(job, _with_models(answer.result, part, job, resolver), answer.others, begun[part])
        yield from in_turn(list(left), job._replace(progress=SILENT), resolver)

    def carry(self, errands: Sequence[Errand]) -> Generator[tuple[Errand, Done], None, None]:
        """What came of errands, as they come; what the cluster can't do is done here."""
        left = dict.fromkeys(errands)
        for errand, answer in self._spread(errands, self._send, "converted"):
            if isinstance(answer, str):
                self._leave(errand.source, "converted", answer)
                continue
            assert isinstance(answer, Done)
            if answer.another:
                raise UsageError(f"--executor {self._name}: a worker runs another mplint: {answer.another}")
            del left[errand]
            yield errand, answer
        yield from ((errand, carried_out_here(errand)) for errand in left)

    def _send(self, errand: Errand) -> Any:
        return self._client.submit(run_errand, pickle.dumps(errand), pure=False, retries=RETRIES)

    def _spread(self, tasks: Sequence[Task], submit: Callable[[Task], Any], done: str) -> Generator[tuple[Task, object], None, None]:
        """What the cluster answers to tasks, as it comes, or in words why it gives no answer; tasks of which nothing is told are left.

        `done` says what is done with a task.
        """
        waiting = deque(tasks)
        running: dict[Any, Task] = {}
        seen = time.monotonic()
        try:
            while waiting or running:
                threads = self._threads()
                seen = time.monotonic() if threads else seen
                if threads is None or time.monotonic() - seen > PATIENCE:
                    reason = "the scheduler is lost" if threads is None else "no worker is left"
                    self._tell(f"note: {self._name}: {reason}; what it has not {done} is {done} here")
                    return
                while waiting and len(running) < AHEAD * max(1, threads):
                    task = waiting.popleft()
                    try:
                        running[submit(task)] = task
                    except Unsendable as error:
                        yield task, str(error)
                for future in self._ended(list(running)):
                    yield running.pop(future), _answer(future)
        finally:
            for future in running:
                with suppress(Exception):
                    future.cancel()

    def _submit(self, part: Part, job: Job) -> Any:
        """The future of a part. Raises Unsendable where it has to be checked here."""
        parcel = pack(part._replace(files=tuple(path for path in part.files if not _is_large(path))), job)
        return self._client.submit(check_parcel, parcel, pure=False, retries=RETRIES)

    def _leave(self, what: str, done: str, reason: str) -> None:
        """Say why something is done here."""
        self._tell(f"note: {what} is {done} here: {reason}")

    def _threads(self) -> int | None:
        """How many parcels can be checked at once; None where the scheduler is gone."""
        if self._client.status != "running":
            return None
        try:
            threads: int = sum(self._client.nthreads().values())
        except Exception:
            return None
        return threads

    def _ended(self, futures: Sequence[Any]) -> list[Any]:
        """Those of some futures that are done, failed or lost; waits a little for the first."""
        with suppress(Exception):
            self._dask.wait(futures, timeout=TICK, return_when="FIRST_COMPLETED")
        return [future for future in futures if future.status != "pending"]


def check_config(config: Config) -> None:
    """Raise UsageError where workers elsewhere could not do what a configuration asks."""
    if config.baseline is not None:
        raise UsageError("--executor goes without a baseline: check the repository that has one by itself, or give --no-baseline")
    if config.plugins:
        raise UsageError("--executor goes without plugins: workers have only the rules of mplint")
    if config.target == "auto":
        raise UsageError("--executor goes with a named target: `auto` would ask the machines of the workers")


def _with_models(result: CheckResult, part: Part, job: Job, resolver: TargetResolver) -> CheckResult:
    """The result of a part of which all but the models was checked elsewhere: these are large, and read here."""
    models = tuple(path for path in part.files if _is_large(path))
    if not models:
        return result
    return together([result, part._replace(files=models).examine(job._replace(progress=SILENT), resolver)[0]])


def _is_large(path: str) -> bool:
    """Whether a file is a model that lies here, and is not sent."""
    return is_model(path) and not is_address(path)


def _answer(future: Any) -> object:
    """What a future that has ended gives; where it gives nothing, in words why."""
    try:
        return pickle.loads(future.result(timeout=CONNECT))
    except Exception as error:  # of any kind: a worker that was lost too often, or a scheduler
        return (str(error).strip() or type(error).__name__).splitlines()[0]


def _number(query: str, address: str) -> int:
    asked = parse_qs(query, keep_blank_values=True)
    text = asked.pop("workers", ["2"])[-1]
    if asked or not text.isdecimal() or not int(text):
        raise UsageError(f'--executor: "{address}" is not dask://local?workers=N, with N of 1 or more')
    return int(text)
