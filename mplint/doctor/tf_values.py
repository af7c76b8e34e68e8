"""Watches the operations of TensorFlow, which must run eagerly for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mplint.doctor.values import CASTING, Ends, Operation, Tensors, Values
from mplint.doctor.work import Product
from mplint.limits import HALF_MAX, HALF_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator

# What TensorFlow calls operations that have another name in torch; of others the letters are made small.
NAMES = {
    "AddV2": "add",
    "AddN": "addn",
    "BatchMatMulV2": "bmm",
    "BiasAdd": "add",
    "Cast": "cast",
    "ClipByValue": "clamp",
    "ConcatV2": "cat",
    "Const": "full",
    "DivNoNan": "div",
    "Fill": "fill",
    "Greater": "gt",
    "GreaterEqual": "ge",
    "L2Loss": "square",
    "Less": "lt",
    "LessEqual": "le",
    "Log": "log",
    "MatMul": "mm",
    "Max": "amax",
    "Mean": "mean",
    "Min": "amin",
    "OnesLike": "ones_like",
    "Pack": "stack",
    "RealDiv": "div",
    "Reciprocal": "reciprocal",
    "Select": "where",
    "SelectV2": "where",
    "Sum": "sum",
    "ZerosLike": "zeros_like",
}
VIEWS = ("identity", "reshape", "squeeze", "expanddims", "stopgradient", "transpose", "preventgradient", "stridedslice")
UNWATCHED = (
    *("iterator", "optional", "assign", "varhandle", "destroyresource", "isfinite", "isnan", "isinf", "shape", "readvariable", "resource"),
    *("anonymous", "makeiterator", "deleteiterator", "optionalgetvalue", "varisinitialized", "placeholder", "stateless"),
)


def dtype_of(value: Any) -> str:
    """The name of a tensor's dtype, "" for what is no tensor of numbers."""
    name = getattr(getattr(value, "dtype", None), "name", "")
    return name if isinstance(name, str) and name not in ("resource", "variant", "string") else ""


def array(value: Any) -> Any:
    """A tensor's values in float32, or its own dtype where that is no half one; flat."""
    values = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    return (values.astype("float32") if dtype_of(value) in HALF_MAX else values).reshape(-1)


def ends(value: Any) -> Ends:
    """The ends of the magnitudes of a tensor."""
    dtype = dtype_of(value)
    if not dtype or dtype in ("bool", "complex64", "complex128") or not hasattr(value, "numpy") or 0 in value.shape:
        return 0.0, 0.0
    values = abs(array(value))
    return float(values.min()), float(values.max())


def _whole(value: Any) -> bool:
    values = array(value)
    return values.size > 1 and bool((values == values.round()).all())


TENSORS = Tensors(dtype_of, lambda value: tuple(int(size) for size in value.shape), ends, _whole)


class Operations:
    """Calls `look` with every operation while it is entered; the values pass through those that only give another view.

    `took` is told how long that took, and is false where no more is to be looked at.
    """

    def __init__(self, look: Callable[[Operation, Product | None], None], values: Values, took: Callable[[float], bool]) -> None:
        self._look = look
        self._took = took
        self._off = False
        self._pass_on = values.pass_on
        self._is_made = values.of
        self._lost: dict[int, tuple[Any, float]] = {}
        self._before = 0.0
        self._within = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Look at every operation inside."""
        from tensorflow.python.framework import constant_op, op_callbacks

        original = constant_op.convert_to_eager_tensor

        def converting(value: Any, context: Any, dtype: Any = None) -> Any:
            result = original(value, context, dtype)
            if isinstance(value, int | float) and not isinstance(value, bool) and not self._off:
                self._converted(float(value), result)
            return result

        constant_op.convert_to_eager_tensor = converting
        op_callbacks.add_op_callback(self._called)
        self._before = time.perf_counter()
        try:
            yield
        finally:
            op_callbacks.remove_op_callback(self._called)
            constant_op.convert_to_eager_tensor = original
            self._lost.clear()

    def _converted(self, value: float, result: Any) -> None:
        """Keep the number that a half tensor could not take."""
        dtype = dtype_of(result)
        if dtype in HALF_MAX and value != 0 and (abs(value) <= HALF_ZERO[dtype] or HALF_MAX[dtype] * 1.001 < abs(value) < float("inf")):
            self._lost[id(result)] = (result, value)

    def _infinite(self, name: str, value: Any) -> bool:
        """A number of the program that TensorFlow has made a half tensor itself, and infinite."""
        alone = name in ("mul", "sub") and value.shape == () and dtype_of(value) in HALF_MAX and id(value) not in self._lost
        return alone and not self._is_made(value) and abs(float(array(value)[0])) == float("inf")

    def _called(
        self, op_type: str | bytes, inputs: Sequence[Any], attributes: Any, outputs: Sequence[Any], op_name: Any = None, graph: Any = None
    ) -> None:
        if self._off:
            return
        entered = time.perf_counter()
        seconds = entered - self._before
        kind = op_type.decode() if isinstance(op_type, bytes) else op_type
        name = NAMES.get(kind, kind.lower())
        if graph is not None or self._within or name.startswith(UNWATCHED):
            self._before = time.perf_counter()
            return
        self._within = True  # what is read of values are operations as well
        try:
            given = [value for value in inputs if dtype_of(value)]
            results = [value for value in outputs if dtype_of(value) and hasattr(value, "numpy")]
            if name in VIEWS:
                self._pass_on(given[:1], results)
            elif results:
                numbers = [self._lost[id(value)][1] for value in given if id(value) in self._lost]
                numbers += [float("inf") for value in given if self._infinite(name, value)]
                kept = [value for value in given if id(value) not in self._lost]
                tensors = given if name in CASTING or not kept else kept
                self._look(Operation(name, tensors, numbers, results, (), seconds), _product(name, given, results, attributes))
        finally:
            self._within = False
            self._before = time.perf_counter()
        self._off = not self._took(self._before - entered)


def _product(name: str, given: Sequence[Any], results: Sequence[Any], attributes: Sequence[Any]) -> Product | None:
    """The sizes and the work of a product."""
    if name in ("mm", "bmm") and len(given) == 2:
        options = dict(zip(attributes[::2], attributes[1::2], strict=False))
        rows, columns = (int(size) for size in results[0].shape[-2:])
        turned = options.get("transpose_a") or options.get("adj_x")
        inner = int(given[0].shape[-2 if turned else -1])
        batch = int(np.prod([int(size) for size in results[0].shape[:-2]])) if name == "bmm" else 1
        return Product((rows, inner, columns), 2.0 * batch * rows * inner * columns)
    if name == "conv2d" and len(given) > 1 and len(given[1].shape) == 4:
        taps = [int(size) for size in given[1].shape]
        positions = int(np.prod([int(size) for size in results[0].shape])) // max(1, taps[3])
        return Product((positions, taps[2], taps[3]), 2.0 * positions * float(np.prod(taps)))
    return None
