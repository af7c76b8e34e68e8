"""Models at addresses, such as s3://bucket/model.onnx: which lie there, how they come here to be read, and how results go back."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

from mplint.errors import UsageError, describe
from mplint.graph.load import BESIDE
from mplint.graph.names import INDEX, MODELS, SAVEDMODEL, is_address
from mplint.python.document import InputError
from mplint.python.suffixes import PROGRAMS

LOCAL = ("file", "local")
CHECKPOINTS = (".safetensors", INDEX, ".bin", ".pt", ".pth")  # beside which the state of an optimizer may lie
_MAGIC = re.compile(r"[*?[]")


class There(NamedTuple):
    """A model at an address, and what it is called in the folder, or behind the part of a glob, that was asked for."""

    address: str
    name: str


class Store:
    """What holds an address: a file system, and the path there. Raises UsageError for one that nothing installed can reach."""

    def __init__(self, address: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise UsageError(f'{address} needs fsspec: pip install "mplint[addresses]"') from None
        try:
            self.files, self.path = url_to_fs(address)
        except ImportError as error:  # such as: Install s3fs to access S3
            raise UsageError(f"{address}: {error}") from None
        except Exception as error:  # of any kind: an unknown protocol, or an address that a store refuses
            raise UsageError(f"{address}: {_told(error)}") from None
        protocol = self.files.protocol
        self.local = bool(set(LOCAL) & {protocol, *(protocol if isinstance(protocol, tuple) else ())})

    def address(self, path: str) -> str:
        """The address of a path of the same store."""
        return str(self.files.unstrip_protocol(path))


def expanded(address: str) -> list[There]:
    """The models that an address stands for: itself, those in a folder, or those that a glob matches; raises UsageError for none."""
    if address.endswith(PROGRAMS):
        raise UsageError(f"{address}: models are read from addresses, programs from paths")
    store = Store(address)
    try:
        if _MAGIC.search(store.path):
            base = store.path[: _first(store.path)].rpartition("/")[0]
            found = store.files.glob(store.path)
        elif not store.files.isdir(store.path):
            if not store.files.exists(store.path):
                raise UsageError(f"{address}: no such file or folder")
            return [There(address, _last(store.path))]
        else:
            base = store.path.rstrip("/")
            if store.files.exists(f"{base}/{SAVEDMODEL}"):
                return [There(address, _last(base))]
            found = store.files.find(base)
    except UsageError:
        raise
    except Exception as error:  # of any kind: a store may be anything
        raise UsageError(f"{address}: {_told(error)}") from None
    models = sorted(path for path in found if path.endswith(MODELS))
    if not models:
        raise UsageError(f"{address}: no model {'matches' if _MAGIC.search(store.path) else 'lies there'}")
    return [There(store.address(path), path[len(base) :].lstrip("/")) for path in models]


@contextmanager
def at_hand(address: str) -> Iterator[str]:
    """The path of a model while it is read: where it lies, if that is on this machine, else that of a copy with the files it leans on.

    Raises InputError where it can't be read there.
    """
    store = Store(address)
    if store.local:
        yield store.path
        return
    with tempfile.TemporaryDirectory(prefix="mplint-") as folder:
        try:
            path = _fetched(store, folder)
        except Exception as error:  # of any kind: a store may be anything
            raise InputError(f"can't be read there: {_told(error)}") from None
        yield path


def _fetched(store: Store, folder: str) -> str:
    """The path of a copy, in a folder, of a model and of what it leans on."""
    above, _, name = store.path.rstrip("/").rpartition("/")
    if name == SAVEDMODEL or store.files.isdir(store.path):
        top = above if name == SAVEDMODEL else f"{above}/{name}"
        home = os.path.join(folder, _last(top) or "model")
        for path in store.files.find(top):
            _get(store, path, home, path[len(top) :].lstrip("/"))
        return os.path.join(home, SAVEDMODEL) if name == SAVEDMODEL else home
    here = _get(store, store.path, folder, name)
    needed = [*_data_of(here), *(BESIDE if name.endswith(CHECKPOINTS) and name not in BESIDE else ())]
    for other in needed:
        if store.files.exists(f"{above}/{other}"):
            _get(store, f"{above}/{other}", folder, other)
    return here


def _get(store: Store, path: str, folder: str, name: str) -> str:
    """Copy a file of a store into a folder; a name that leads out of it is refused."""
    here = os.path.join(folder, name)
    if os.path.isabs(name) or ".." in name.split("/"):
        raise OSError(f'"{name}" leads out of its folder')
    os.makedirs(os.path.dirname(here), exist_ok=True)
    store.files.get_file(path, here)
    return here


def _data_of(path: str) -> list[str]:
    """The names of the files beside a model that hold its weights; what is no model has none, and its reader says so."""
    names: set[str] = set()
    with suppress(Exception):
        if path.endswith(INDEX):
            import json

            with open(path, encoding="utf-8") as stream:
                names = {str(name) for name in json.load(stream)["weight_map"].values()}
        elif path.endswith(".onnx"):
            import onnx
            from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, uses_external_data

            model = onnx.load(path, load_external_data=False)
            names = {ExternalDataInfo(tensor).location for tensor in _get_all_tensors(model) if uses_external_data(tensor)}
    return sorted(name for name in names if name and not os.path.isabs(name) and ".." not in name.split("/"))


def put(folder: str, address: str) -> None:
    """Bring the files of a folder to where a path or an address leads, each as a whole; what others lean on goes before them.

    The folder holds one model by the last name of the address, and the files beside it. Raises UsageError where they can't be written.
    """
    store = Store(address if is_address(address) else "file://" + os.path.abspath(address))
    above, _, last = store.path.rstrip("/").rpartition("/")
    names = [os.path.relpath(os.path.join(at, name), folder).replace(os.sep, "/") for at, _, found in os.walk(folder) for name in found]
    try:
        for name in sorted(names, key=lambda name: (name == last or name.endswith(SAVEDMODEL), name)):
            target = f"{above}/{name}"
            store.files.makedirs(target.rpartition("/")[0], exist_ok=True)
            if store.local:
                half = f"{target}.{uuid4().hex[:8]}.part"
                try:
                    store.files.put_file(os.path.join(folder, name), half)
                    os.replace(half, target)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(half)
            else:
                store.files.put_file(os.path.join(folder, name), target)
    except Exception as error:  # of any kind: a store may be anything
        raise UsageError(f"{address} can't be written: {_told(error)}") from None


def _first(path: str) -> int:
    found = _MAGIC.search(path)
    return found.start() if found else len(path)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _told(error: Any) -> str:
    """What went wrong in a store, in one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text.strip().splitlines() or [describe(error)])[0]
