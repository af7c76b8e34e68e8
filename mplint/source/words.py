"""Words by which a program shows what it may do, for questions that need no syntax tree."""

# What a program mentions that may put half precision in force, in any framework and through any library.
ENABLING = (
    "autocast(", "@autocast", "amp.autocast", "torch.autocast", "partial(autocast", "= autocast", "set_autocast_enabled", "float16",
    "fp16", "bf16", ".half", "HalfTensor", "set_global_policy", "set_policy", "set_dtype_policy", "set_floatx", "precision=",
    "auto_mixed_precision", "MIXED_PRECISION", "apex", "deepspeed", "accelerat", "lightning", "fastai", "mmengine",
)  # fmt: skip

# What a Keras program mentions that has mixed precision in mind, for itself or for those that import it.
AWARE = ("mixed_precision", "mixed_float16", "mixed_bfloat16", "compute_dtype", "set_global_policy", "dtype_policy", "fp16", "float16")
