"""Which inputs and outputs of an ONNX node follow its precision: type slots from the operator schemas at the model's own opset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx.defs


class Slot(NamedTuple):
    """A formal input or output: the type variable (or type) that it has, and whether it stands for all that follow."""

    type: str
    variadic: bool
    homogeneous: bool


class Schema(NamedTuple):
    """What an operator takes and gives: its slots, and the types that each type variable allows ("tensor(float)" …)."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    allowed: dict[str, frozenset[str]]

    def input(self, position: int) -> Slot | None:
        """The slot of the actual input at `position`."""
        return _at(self.inputs, position)

    def output(self, position: int) -> Slot | None:
        """The slot of the actual output at `position`."""
        return _at(self.outputs, position)

    def allows(self, variable: str, dtype: str) -> bool:
        """Whether a type variable may be a tensor of `dtype`, in ONNX's words ("float", "float16")."""
        return f"tensor({dtype})" in self.allowed.get(variable, ())


REWORKED = {"Resize": 19, "BatchNormalization": 15, "GridSample": 20}  # from when on these mean what they mean today
# Type variables that the schema leaves independent and the kernels want equal.
TIED = {
    ("", "Attention"): ("T1", "T2", "U"),
    ("", "RMSNormalization"): ("T", "V"),
    ("com.microsoft", "Attention"): ("T", "U"),
    ("com.microsoft", "GroupNorm"): ("T", "M"),
}
# Operators whose half form does not load or run although the schema allows it.
STAY_FLOAT = frozenset(
    ("MeanVarianceNormalization", "SequenceMap", "Optional", "Multinomial", "Bernoulli", "STFT", "DFT", "MelWeightMatrix")
)
SCATTERS = frozenset(("ScatterElements", "ScatterND", "Scatter"))
# Where the output dtype is an attribute, its name.
DTYPE_ATTRIBUTE = {
    "Cast": "to",
    **dict.fromkeys(("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "EyeLike"), "dtype"),
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), "output_datatype"),
}
DECISIVE = frozenset((*DTYPE_ATTRIBUTE.values(), "reduction", "value"))  # attributes that say whether a node can be half
FIRST_CAST = 6  # before, a Cast names its dtype in a string
# What a cast reads may be float32 or half, whichever is there.
ANY_INPUT = frozenset(("Cast",))


@cache
def schema_of(domain: str, op_type: str, version: int) -> Schema | None:
    """The schema of an operator in an opset, of ONNX or of ONNX Runtime's own domains; None where nobody knows it."""
    import onnx.defs

    domain = "" if domain == "ai.onnx" else domain
    try:
        found = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return _contributed().get((domain, op_type))
    return Schema(
        tuple(Slot(i.type_str, i.option == onnx.defs.OpSchema.FormalParameterOption.Variadic, i.is_homogeneous) for i in found.inputs),
        tuple(Slot(o.type_str, o.option == onnx.defs.OpSchema.FormalParameterOption.Variadic, o.is_homogeneous) for o in found.outputs),
        {c.type_param_str: frozenset(c.allowed_type_strs) for c in found.type_constraints},
    )


def casts_to(half: str, version: int) -> bool:
    """Whether the Cast of an opset knows a half dtype, by its number."""
    schema = schema_of("", "Cast", version)
    return version >= FIRST_CAST and schema is not None and any(schema.allows(slot.type, half) for slot in schema.outputs)


@cache
def _contributed() -> dict[tuple[str, str], Schema]:
    """The schemas of ONNX Runtime's own operators (com.microsoft and others), the newest version of each."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        return {}
    newest: dict[tuple[str, str], tuple[int, Schema]] = {}
    for found in state.get_all_operator_schema():
        if found.domain in ("", "ai.onnx"):
            continue
        key = (found.domain, found.name)
        schema = Schema(
            tuple(Slot(i.typeStr, "Variadic" in str(i.option), i.isHomogeneous) for i in found.inputs),
            tuple(Slot(o.typeStr, "Variadic" in str(o.option), o.isHomogeneous) for o in found.outputs),
            {c.type_param_str: frozenset(c.allowed_type_strs) for c in found.type_constraints},
        )
        if key not in newest or newest[key][0] < found.since_version:
            newest[key] = (found.since_version, schema)
    return {key: schema for key, (_, schema) in newest.items()}


def precision_slots(
    domain: str, op_type: str, schema: Schema, inputs: Sequence[str | None], outputs: Sequence[str | None], half: str
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The positions of the inputs and outputs that turn to half when the node does; None where the node can't.

    `inputs` and `outputs` are the actual dtypes in ONNX's words ("float", "int64"; None: absent, or no tensor).
    """
    slots_in = [schema.input(i) if dtype == "float" else None for i, dtype in enumerate(inputs)]
    slots_out = [schema.output(i) if dtype == "float" else None for i, dtype in enumerate(outputs)]
    leader = next((slot for slot in (*slots_out, *slots_in) if slot is not None), None)
    if leader is None or op_type in STAY_FLOAT or (leader.variadic and not leader.homogeneous):
        return None
    group = {leader.type, *(TIED.get((domain, op_type), ()) if leader.type in TIED.get((domain, op_type), ()) else ())}
    if not all(schema.allows(variable, half) and schema.allows(variable, "float") for variable in group if variable in schema.allowed):
        return None
    if leader.type not in schema.allowed:
        return None
    return (
        tuple(i for i, slot in enumerate(slots_in) if slot is not None and slot.type in group),
        tuple(i for i, slot in enumerate(slots_out) if slot is not None and slot.type in group),
    )


def _at(slots: tuple[Slot, ...], position: int) -> Slot | None:
    if position < len(slots):
        return slots[position]
    return slots[-1] if slots and slots[-1].variadic else None


def only_widened(op_type: str, old: int, new: int) -> bool:
    """Whether an operator is the same in both opsets but for the types that it takes and attributes that have defaults."""
    import onnx.defs

    try:
        one, other = onnx.defs.get_schema(op_type, old, ""), onnx.defs.get_schema(op_type, new, "")
    except onnx.defs.SchemaError:
        return False
    if one.since_version == other.since_version:
        return True
    if other.deprecated or one.since_version < REWORKED.get(op_type, 0):
        return False

    def formal(schema: onnx.defs.OpSchema) -> list[tuple[str, str]]:
        return [(p.name, str(p.option)) for p in (*schema.inputs, *schema.outputs)]

    shared = all(
        name in other.attributes
        and _default(one, name) == _default(other, name)
        and one.attributes[name].required == other.attributes[name].required
        for name in one.attributes
    )
    return (
        formal(one) == formal(other)
        and shared
        and not any(other.attributes[n].required for n in other.attributes if n not in one.attributes)
    )


def _default(schema: onnx.defs.OpSchema, name: str) -> bytes:
    return bytes(schema.attributes[name].default_value.SerializeToString())
