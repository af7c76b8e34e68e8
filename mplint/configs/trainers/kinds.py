"""Which trainer a section of settings is for, told by the names in it."""

from __future__ import annotations

from mplint.configs.trainers.setup import Options, get

# Names that DeepSpeed's configuration has and hardly anything else.
DEEPSPEED = frozenset(
    (
        *("zero_optimization", "train_micro_batch_size_per_gpu", "steps_per_print", "wall_clock_breakdown"),
        *(
            "zero_allow_untested_optimizer",
            "communication_data_type",
            "zero_force_ds_cpu_optimizer",
            "prescale_gradients",
            "fp32_allreduce",
            "sparse_gradients",
        ),
        *("activation_checkpointing", "flops_profiler", "tensorboard", "gradient_predivide_factor", "data_types", "aio", "autotuning"),
    )
)
DEEPSPEED_TOO = frozenset(("train_batch_size", "gradient_accumulation_steps", "gradient_clipping", "optimizer", "scheduler"))
DEEPSPEED_SECTIONS = ("fp16", "bf16", "bfloat16", "amp", "torch_autocast")
DEEPSPEED_SCALING = ("loss_scale_window", "initial_scale_power", "hysteresis", "min_loss_scale", "auto_cast", "opt_level")

ACCELERATE_ENVIRONMENTS = frozenset(("LOCAL_MACHINE", "AMAZON_SAGEMAKER"))
ACCELERATE_DISTRIBUTED = frozenset(
    (
        *("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON"),
        *("DEEPSPEED", "FSDP", "TP", "XLA", "TPU", "MEGATRON_LM", "MPS"),
    )
)
ACCELERATE = frozenset(
    (
        *("num_processes", "num_machines", "machine_rank", "main_training_function", "main_process_port", "main_process_ip"),
        *("downcast_bf16", "use_cpu", "rdzv_backend", "same_network", "gpu_ids", "dynamo_config", "deepspeed_config", "fsdp_config"),
        *("tpu_use_cluster", "tpu_use_sudo", "compute_environment", "distributed_type", "debug"),
    )
)

# Names that transformers' TrainingArguments has and hardly anything else.
TRANSFORMERS = frozenset(
    (
        *("per_device_train_batch_size", "per_device_eval_batch_size", "per_gpu_train_batch_size", "per_gpu_eval_batch_size"),
        *("num_train_epochs", "evaluation_strategy", "eval_strategy", "overwrite_output_dir", "remove_unused_columns"),
        *("load_best_model_at_end", "metric_for_best_model", "half_precision_backend", "fp16_opt_level", "fp16_backend"),
        *("fp16_full_eval", "bf16_full_eval", "dataloader_num_workers", "lr_scheduler_type", "save_total_limit"),
        *("ddp_find_unused_parameters",),
    )
)
TRANSFORMERS_TOO = frozenset(
    (
        *("output_dir", "do_train", "do_eval", "do_predict", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
        *("max_grad_norm", "max_steps", "warmup_ratio", "warmup_steps", "logging_dir", "logging_steps", "logging_strategy", "save_steps"),
        *("save_strategy", "eval_steps", "report_to", "run_name", "gradient_accumulation_steps", "gradient_checkpointing", "push_to_hub"),
        *("predict_with_generate", "group_by_length", "label_smoothing_factor", "deepspeed", "optim", "ddp_timeout", "seed"),
    )
)
# Frameworks of their own that take some of these names.
NOT_TRANSFORMERS = frozenset(("micro_batch_size", "num_epochs", "base_model", "pretrained_model_name_or_path", "train_batch_size"))

# Names that Lightning's Trainer has and hardly anything else.
LIGHTNING = frozenset(
    (
        *("accumulate_grad_batches", "check_val_every_n_epoch", "log_every_n_steps", "num_sanity_val_steps", "enable_checkpointing"),
        *("enable_progress_bar", "enable_model_summary", "limit_train_batches", "limit_val_batches", "limit_test_batches", "fast_dev_run"),
        *("gradient_clip_val", "gradient_clip_algorithm", "overfit_batches", "val_check_interval", "use_distributed_sampler"),
        *("reload_dataloaders_every_n_epochs", "sync_batchnorm", "default_root_dir", "replace_sampler_ddp", "amp_backend", "amp_level"),
        *("auto_lr_find", "auto_select_gpus", "progress_bar_refresh_rate", "weights_summary", "resume_from_checkpoint"),
        *("flush_logs_every_n_steps",),
        *("max_epochs", "inference_mode", "detect_anomaly"),
    )
)
LIGHTNING_TOO = frozenset(
    (
        *("accelerator", "strategy", "devices", "gpus", "num_nodes", "logger", "callbacks", "max_epochs", "min_epochs", "max_steps"),
        *("max_time", "deterministic", "benchmark", "profiler", "plugins", "precision", "num_processes", "tpu_cores", "barebones"),
    )
)
NOT_LIGHTNING = frozenset(("per_device_train_batch_size", "lr", "learning_rate", "batch_size", "epochs", "optimizer", "model", "amp"))

# One of these stands in every file that configures a trainer.
COMMON = frozenset(("enabled", "distributed_type", "compute_environment", "_target_", "class_path"))
MARKS = tuple(name.encode() for name in sorted(DEEPSPEED | TRANSFORMERS | LIGHTNING | COMMON))


def is_deepspeed(options: Options) -> bool:
    """Whether the settings are a DeepSpeed configuration that says something about precision."""
    sections = [section for name in DEEPSPEED_SECTIONS if (o := options.option(name)) is not None and (section := o.section) is not None]
    switched = [section for section in sections if section.option("enabled") is not None]
    if not switched:
        return False
    names = set(options.names)
    known = len(names & DEEPSPEED) * 2 + len(names & DEEPSPEED_TOO)
    scaling = any(section.option(name) is not None for section in switched for name in DEEPSPEED_SCALING)
    return known >= 2 or (known == 1 and ("train_batch_size" in names or scaling)) or len(switched) > 1


def is_accelerate(options: Options) -> bool:
    """Whether the settings are the configuration that `accelerate config` writes."""
    environment, distributed = options.option("compute_environment"), options.option("distributed_type")
    by_environment = environment is not None and environment.text in ACCELERATE_ENVIRONMENTS
    by_distribution = distributed is not None and (distributed.text in ACCELERATE_DISTRIBUTED or distributed.value is False)  # a bare NO
    return (by_environment or by_distribution) and len(ACCELERATE & set(options.names)) >= 2


def is_transformers(options: Options) -> bool:
    """Whether the settings are transformers' TrainingArguments."""
    names = set(options.names)
    if names & NOT_TRANSFORMERS:
        return False
    strong = len(names & TRANSFORMERS)
    return strong >= 1 and strong + len(names & TRANSFORMERS_TOO) >= 3


def is_lightning(options: Options) -> bool:
    """Whether the settings are those of Lightning's Trainer."""
    target = get(options, "_target_") or get(options, "class_path")
    if target is not None and isinstance(target.value, str):
        root, _, rest = target.value.partition(".")
        return root in ("lightning", "pytorch_lightning") and rest.endswith("Trainer")
    names = set(options.names)
    if names & NOT_LIGHTNING:
        return False
    strong = len(names & LIGHTNING)
    return strong >= 1 and strong + len(names & LIGHTNING_TOO) >= 4 and len(names - LIGHTNING - LIGHTNING_TOO) <= 3
