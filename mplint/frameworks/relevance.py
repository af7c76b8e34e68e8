"""Which code speaks of mixed precision at all, by the identifiers that it uses."""

from __future__ import annotations

from mplint.program.lower import SECTION_WORDS

# a region, a scaler, or half names: what trains or runs in half precision
REGIONS = frozenset(
    [
        "autocast",
        "GradScaler",
        "ShardedGradScaler",
        "unscale_",
        "scaler",
        "grad_scaler",
        "loss_scaler",
        "set_autocast_enabled",
        "custom_fwd",
        "custom_bwd",
        "amp",
        "FSDP",
        "FullyShardedDataParallel",
        "fully_shard",
        "AMPTrainer",
        "DefaultTrainer",
        "fp8_autocast",
        "_scaled_mm",
    ]
)
ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
HALVES = frozenset(
    [
        "getattr(torch,",
        "float16",
        "bfloat16",
        "half",
        "fp16",
        "bf16",
        "mixed_precision",
        "precision",
        "mixed_float16",
        "mixed_bfloat16",
        "torch_dtype",
    ]
)
STEPS = frozenset(
    ["backward", "step", "optimizer", "optim", "fit", "Trainer", "Accelerator", "GradientTape", "apply_gradients", *ARGUMENTS]
)
CASTS = frozenset(["float16", "bfloat16", "half"])  # what may cast a model,
RUNS = frozenset(["load_state_dict", "eval", "no_grad", "inference_mode"])  # and what such a program does with it
NUMBERS = frozenset(  # operations whose results half precision may lose, and what makes tensors that are trained
    [
        *("log", "log2", "log10", "log1p", "exp", "softmax", "log_softmax", "logsumexp", "pow", "square", "sqrt", "rsqrt", "reciprocal"),
        *("sum", "cumsum", "mean", "norm", "var", "std", "reduce_sum", "reduce_mean", "matmul", "einsum", "clamp", "clip", "where"),
        *("masked_fill", "masked_fill_", "full", "placeholder", "Parameter", "add_weight", "Variable", "cross_entropy", "mse_loss"),
    ]
)
POLICIES = frozenset(
    [
        "set_global_policy",
        "set_dtype_policy",
        "Policy",
        "DTypePolicy",
        "LossScaleOptimizer",
        "set_policy",
        "mixed_float16",
        "mixed_bfloat16",
    ]
)

# Keras: classes that are layers or models, what makes tensors in them, and policies as objects
KERAS = frozenset(["keras", "tensorflow", "tf"])
TENSORS = frozenset(
    [
        "cast",
        "constant",
        "zeros",
        "ones",
        "Variable",
        "convert_to_tensor",
        "random",
        "floatx",
        "TensorArray",
        "float32",
        "add_weight",
        "one_hot",
        "range",
        "arange",
        "linspace",
        "eye",
        "fill",
        "dtype",
        "compute_dtype",
        "random_normal",
        "random_uniform",
        "random_bernoulli",
        "softmax",
        "Dense",
        "Activation",
        "Conv2D",
        "Sequential",
        "Input",
        "layers",
        "matmul",
        "einsum",
    ]
)
# what builds a model of Keras out of layers, whatever imports them
BUILDERS = frozenset(["Input", "Sequential", "Model", "add"])
LAYERS = frozenset(["Dense", "Activation", "Softmax", "Conv1D", "Conv2D", "Conv3D", "GlobalAveragePooling2D", "TimeDistributed"])
RESUMES = frozenset(["load_model", "fit"])  # what trains a stored model on
KERAS_PROTOCOL = frozenset(
    [
        "GradientTape",
        "apply_gradients",
        "dtype_policy",
        "global_policy",
        "get_scaled_loss",
        "scale_loss",
        "get_unscaled_gradients",
        "set_floatx",
        "experimental_mixed_precision",
    ]
)

FOREIGN = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "tensorflow",
        "keras",
        "keras_core",
        "tf_keras",
        "tf",
        "numpy",
        "scipy",
        "accelerate",
        "transformers",
        "diffusers",
        "peft",
        "lightning",
        "pytorch_lightning",
        "deepspeed",
        "apex",
        "bitsandbytes",
        "onnx",
        "onnxruntime",
        "jax",
        "flax",
        "optax",
        "tqdm",
        "wandb",
        "einops",
        "sklearn",
        "pandas",
        "matplotlib",
    ]
)

# those of them that drive loops and hold no kernels or optimizers of their own: their sources say what they do
LAYERED = frozenset(["accelerate", "lightning", "pytorch_lightning"])

# in the names of models, and classes whose objects are tensors
MODELS = (
    *("model", "module", "net", "transformer", "backbone", "generator", "discriminator", "critic", "encoder", "decoder", "classifier"),
    *("detector", "vae", "bert", "gpt", "clip", "vgg", "teacher", "student", "policy", "actor"),
)
TENSOR_CLASSES = ("Tensor()", "Variable()", "Parameter()")

# calls that choose float16
OFFERS = (
    "Arguments(fp16=",
    "Arguments(bf16=",
    "Arguments(tf32=",
    "Arguments(**",
    "Config(fp16=",
    "Config(bf16=",
    "Trainer(fp16=",
    "Trainer(precision=",
    "Trainer(amp=",
    "trainer(amp_mode=",
    "Trainer(amp_backend=",
    "Trainer(amp_level=",
    "Trainer(**",
    "Fabric(precision=",
    "Fabric(**",
    "Accelerator(mixed_precision=",
    "Accelerator(fp16=",
    "Accelerator(**",
    "LightningCLI(trainer_defaults=",
    "Precision(scaler=",
    "from_argparse_args(precision=",
    "(fused=",
)
# calls whose configuration says in which precision they train
CONFIGURED = (
    frozenset({"deepspeed", "initialize"}),
    frozenset({"hydra", "instantiate", "fit"}),
    *(frozenset({"HfArgumentParser", name}) for name in ARGUMENTS),
)
# what a DeepSpeed configuration holds, and an optimizer that trainers refuse under float16
SECTIONS = SECTION_WORDS | {"LBFGS"}


TURNS = frozenset(["cos", "sin", "polar"])  # tables of positions
HALF_NAMES = frozenset(["float16", "bfloat16", "half"])
MANAGERS = frozenset(["accelerator", "fabric", "model_engine"])  # what trainers are called that scale in the user's loop
LOOPS = frozenset(["backward", "prepare", "setup"])
FROM_OPTIONS = frozenset(["from_argparse_args"])  # trainers whose precision is an option of the command line


# what says in a test that it is about half precision
PRECISE = (
    REGIONS
    | HALVES
    | CASTS
    | POLICIES
    | MANAGERS
    | FROM_OPTIONS
    | SECTIONS
    | (KERAS_PROTOCOL - {"GradientTape", "apply_gradients"})
    | {"compute_dtype", "_compute_dtype"}
)


def speaks_of_precision(words: frozenset[str]) -> bool:
    """Whether code speaks of half precision, or of what scales losses for it."""
    return not words.isdisjoint(PRECISE) or any("autocast" in word or word.endswith(OFFERS) or casts_model(word) for word in words)


def speaks_of_training(words: frozenset[str]) -> bool:
    """Whether code enters regions, scales losses, trains or runs models in half, or is a layer or model of Keras."""
    if not words.isdisjoint(KERAS_PROTOCOL) or is_keras(words):
        return True
    if not words.isdisjoint(REGIONS) or not words.isdisjoint(POLICIES):
        return True
    if not words.isdisjoint(HALVES) and not words.isdisjoint(STEPS):
        return True
    if not words.isdisjoint(CASTS) and not words.isdisjoint(RUNS):
        return True
    if not words.isdisjoint(MANAGERS) and not words.isdisjoint(LOOPS):
        return True
    if not words.isdisjoint(FROM_OPTIONS):
        return True
    if not words.isdisjoint(SECTIONS):
        return True
    if any(calls <= words for calls in CONFIGURED):
        return True
    if "arange" in words and not words.isdisjoint(TURNS) and not words.isdisjoint(HALF_NAMES):
        return True
    return any("autocast" in word or word.endswith(OFFERS) or casts_model(word) for word in words)


def casts_model(word: str) -> bool:
    """Whether a word is that of a cast of what is called like a model, "model.half(dtype)", or of an object that is made there."""
    name = word.partition(".")[0] if word.endswith("(dtype)") else ""
    made = name.endswith("()") and name[:1].isupper() and not name.endswith(TENSOR_CLASSES)
    return made or any(part in name.lower() for part in MODELS)


def casts_numbers(words: frozenset[str]) -> bool:
    """Whether code casts to half by itself and computes with that, follows the compute dtype of a layer or the dtype of a tensor in its
    tables of positions, or takes losses of what layers give.
    """
    if not words.isdisjoint(CASTS) and not words.isdisjoint(NUMBERS):
        return True
    if {"dtype", "cos"} <= words and not words.isdisjoint(("einsum", "outer", "ger", "matmul", "freqs", "inv_freq")):
        return True
    if {"cast", "float32"} <= words and not words.isdisjoint(("softmax", "log_softmax", "sigmoid")):
        return True
    return not words.isdisjoint(("compute_dtype", "_compute_dtype")) or {"bfloat16", "finfo"} <= words or {"keras", "losses"} <= words


def is_keras(words: frozenset[str]) -> bool:
    """Whether code is a layer of Keras that makes tensors, or a file that imports Keras and holds layers or models."""
    if "def call" in words:
        return not words.isdisjoint(TENSORS)
    if not words.isdisjoint(BUILDERS) and not words.isdisjoint(LAYERS):
        return True
    if words.isdisjoint(KERAS):
        return False
    if "def train_step" in words or words >= RESUMES or "losses" in words:
        return True
    return not words.isdisjoint(("Layer", "layers", "Model", "Sequential", "models")) and not words.isdisjoint(TENSORS)
