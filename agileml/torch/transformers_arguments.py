"""Arguments and methods of a Hugging Face `Trainer`: which are carried, without effect, or refused.

The lists of arguments and methods are those of the installed Transformers. What is in none of the
tables is refused.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Any

from agileml.errors import AgileMLError, BadArgument, BadTrainer
from agileml.torch.framework import shortened

_CARRIED = frozenset(
    "activation_checkpointing activation_checkpointing_kwargs adam_beta1 adam_beta2 adam_epsilon "
    "bf16 data_seed dataloader_drop_last eval_delay eval_on_start eval_steps eval_strategy "
    "gradient_accumulation_steps"
    " gradient_checkpointing gradient_checkpointing_kwargs label_names label_smoothing_factor "
    "learning_rate"
    " length_column_name logging_first_step logging_steps logging_strategy lr_scheduler_kwargs "
    "lr_scheduler_type"
    " max_grad_norm max_steps num_train_epochs optim optim_args per_device_eval_batch_size"
    " per_device_train_batch_size remove_unused_columns seed train_sampling_strategy use_cache "
    "use_cpu warmup_steps"
    " weight_decay".split()
)
_WITHOUT_EFFECT = frozenset(
    "average_tokens_across_devices batch_eval_metrics bf16_full_eval dataloader_in_order"
    " dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers "
    "dataloader_pin_memory"
    " dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers ddp_bucket_cap_mb "
    "ddp_find_unused_parameters"
    " ddp_static_graph ddp_timeout disable_tqdm do_eval do_predict do_train eval_accumulation_steps"
    " eval_do_concat_batches eval_use_gather_object fp16_full_eval full_determinism "
    "greater_is_better hub_always_push"
    " hub_model_id hub_private_repo hub_revision hub_strategy hub_token ignore_data_skip "
    "include_for_metrics local_rank"
    " log_level log_level_replica log_on_each_node logging_nan_inf_filter metric_for_best_model "
    "output_dir prediction_loss_only project report_to restore_callback_states_from_checkpoint "
    "resume_from_checkpoint run_name"
    " save_on_each_node save_only_model save_steps save_strategy save_total_limit"
    " torch_empty_cache_steps trackio_bucket_id trackio_space_id trackio_static_space_id".split()
)
_REFUSED = {
    "accelerator_config": "nodes read batches by themselves; leave it out",
    "auto_find_batch_size": "write per_device_train_batch_size",
    "debug": "its hooks would see parts of batches; leave it out",
    "deepspeed": "write parts=8, which divides each batch among nodes; leave it out",
    "enable_jit_checkpoint": "the job keeps checkpoints by itself; leave it out",
    "fp16": "its scale depends on the gradients of all nodes; use bf16",
    "fsdp": "nodes keep the whole model; leave it out",
    "fsdp_config": "nodes keep the whole model; leave it out",
    "include_num_input_tokens_seen": "no node counts all of them; leave it out",
    "liger_kernel_config": "leave it out",
    "load_best_model_at_end": "the result is the last model; leave it out",
    "neftune_noise_alpha": "its noise depends on the whole batch; leave it out",
    "optim_target_modules": "its optimizers are not those of torch.optim; leave it out",
    "parallelism_config": "nodes keep the whole model; leave it out",
    "push_to_hub": "push the result when it is there",
    "skip_memory_metrics": "what is logged would be the memory of one node; leave it out",
    "tf32": "it is a setting of the whole process; set it where the Trainer is made",
    "torch_compile": "compile the model yourself, or leave it out",
    "torch_compile_backend": "compile the model yourself, or leave it out",
    "torch_compile_mode": "compile the model yourself, or leave it out",
    "use_liger_kernel": "it replaces layers; leave it out",
}
"""Arguments that are refused unless they have their defaults, with the cure."""

_CALLED = frozenset(
    "compute_loss create_optimizer create_optimizer_and_scheduler create_scheduler "
    "get_decay_parameter_names"
    " get_eval_dataloader get_optimizer_cls_and_kwargs get_train_dataloader prediction_step".split()
)
_NOT_IN_TRAIN = frozenset(
    "create_model_card get_test_dataloader hyperparameter_search init_hf_repo is_local_process_zero"
    " is_world_process_zero num_examples on_init_end on_predict predict push_to_hub save_model".split()
)
_HARMLESS_CALLBACKS = (
    "DefaultFlowCallback",
    "NotebookProgressCallback",
    "PrinterCallback",
    "ProgressCallback",
)


def check_arguments(arguments: Any) -> list[str]:
    """The names of arguments that are not the defaults and have no effect. BadArgument names one
    that is refused.
    """
    ignored = []
    for field in fields(arguments):
        value = getattr(arguments, field.name)
        if field.name == "accelerator_config":
            default = type(value)()
        elif field.default_factory is MISSING:
            default = field.default
        else:
            default = field.default_factory()
        is_default = value == default or (not value and not default)

        if field.name in _CARRIED or is_default:
            continue
        if field.name in _WITHOUT_EFFECT:
            ignored.append(field.name)
            continue
        where = f"from_transformers: {field.name}={shortened(value)}"
        if field.name in _REFUSED:
            raise BadArgument(f"{where} is not carried: {_REFUSED[field.name]}")
        import transformers

        raise BadArgument(
            f"{where} of {type(arguments).__name__} (transformers {transformers.__version__}) is "
            "not known to this version of spotctl; leave it out"
        )

    return ignored


def check_trainer(trainer: Any) -> list[str]:
    """The names of arguments that have no effect. An error names the first argument, method or
    object of a Trainer that is not carried."""
    try:
        import transformers
    except ImportError as error:
        raise AgileMLError(
            f"from_transformers needs Transformers: pip install 'spotctl[transformers]' ({error})"
        ) from None

    kind = type(trainer).__name__
    if not isinstance(trainer, transformers.Trainer):
        raise BadArgument(f"from_transformers: trainer is {kind}; pass a transformers.Trainer")

    ignored = check_arguments(trainer.args)
    for name, method in inspect.getmembers(transformers.Trainer, inspect.isroutine):
        if (
            not name.startswith("__")
            and _differs(type(trainer), name, method)
            and name not in {*_CALLED, *_SAMPLERS}
        ):
            raise BadTrainer(
                f"{kind}: its {name} would not be called: nodes compute parts of a batch, and the "
                "optimizer's steps are"
                " done by servers; move what it does into compute_loss, or remove it"
            )

    if trainer.compute_metrics is not None:
        raise BadTrainer(
            f"{kind}: compute_metrics needs all predictions in one process; leave it out, and "
            "evaluate the result"
        )
    if trainer.optimizer is not None or trainer.lr_scheduler is not None:
        raise BadTrainer(
            f"{kind}: optimizers=(...) belong to this process's model, and each node has a copy; "
            "use args.optim, optimizer_cls_and_kwargs, or override create_optimizer"
        )

    events = inspect.getmembers(transformers.TrainerCallback, inspect.isfunction)
    for callback in map(type, trainer.callback_handler.callbacks):
        own = [
            f"{callback.__name__}.{event}"
            for event, method in events
            if _differs(callback, event, method)
        ]
        shows = {each.__name__ for each in callback.__mro__} & {*_HARMLESS_CALLBACKS}
        if own and not shows and not callback.__module__.startswith("transformers.integrations"):
            raise BadTrainer(
                f"{kind}: {own[0]} of a callback would not be called; remove it, and use on_step"
            )

    return ignored


def _differs(kind: type, name: str, method: object) -> bool:
    """Whether a class has a method of its own that a training would call."""
    return getattr(kind, name, None) is not method and name not in _NOT_IN_TRAIN


_SAMPLERS = ("_get_train_sampler", "_get_eval_sampler")
