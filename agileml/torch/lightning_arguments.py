"""Arguments of Lightning's Trainer and hooks of its modules: which are carried, without effect, or
refused.

The lists of arguments and hooks are those of the installed Lightning. What is in none of the tables
here is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from agileml.errors import AgileMLError, BadArgument, BadTrainer, check_number, check_whole
from agileml.torch.course import Course
from agileml.torch.framework import shortened

_PRECISIONS: dict[Any, str] = {
    **dict.fromkeys((32, "32", "32-true"), "32-true"),
    **dict.fromkeys((64, "64", "64-true"), "64-true"),
    **dict.fromkeys(("bf16", "bf16-mixed"), "bf16-mixed"),
}

ArgumentCheck = Callable[[str, Any], None]


def _one_of(*choices: object) -> ArgumentCheck:
    def check(name: str, value: object) -> None:
        # Not `in`: 1 equals True.
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            listed = ", ".join(map(repr, choices))
            raise BadArgument(f"{name}={shortened(value)} is not carried; choose one of {listed}")

    return check


def _whole(least: int) -> ArgumentCheck:
    def check(name: str, value: object) -> None:
        if value is not None:
            check_whole(name, value, least)

    return check


def _share(name: str, value: object) -> None:
    """A number of batches, or a share of them."""
    if not isinstance(value, int | float):
        raise BadArgument(
            f"{name}={value!r} is not carried; write a number of batches, or a share of them"
        )
    check_number(name, value, 0.0, inf if isinstance(value, int) else 1.0)


def _bound(name: str, value: object) -> None:
    if value is not None:
        check_number(name, value, 0.0)


_CARRIED: dict[str, tuple[Any, ArgumentCheck]] = {
    "accelerator": ("auto", _one_of("auto", "cpu", "gpu", "cuda")),
    "precision": ("32-true", _one_of(*_PRECISIONS)),
    "max_epochs": (None, _whole(-1)),
    "max_steps": (-1, _whole(-1)),
    "limit_train_batches": (1.0, _share),
    "limit_val_batches": (1.0, _share),
    "val_check_interval": (1.0, _share),
    "check_val_every_n_epoch": (1, _whole(1)),
    "num_sanity_val_steps": (2, _whole(-1)),
    "log_every_n_steps": (50, _whole(0)),
    "accumulate_grad_batches": (1, _whole(1)),
    "gradient_clip_val": (None, _bound),
    "gradient_clip_algorithm": ("norm", _one_of("norm", "value")),
    "logger": (True, _one_of(True, False)),
}
"""The arguments that are carried, with the values that Lightning gives them if they are None or
left out."""

_WITHOUT_EFFECT = frozenset(
    "benchmark default_root_dir detect_anomaly deterministic enable_autolog_hparams "
    "enable_checkpointing"
    " enable_model_summary enable_progress_bar inference_mode limit_predict_batches "
    "limit_test_batches min_epochs"
    " min_steps model_registry profiler sync_batchnorm use_distributed_sampler".split()
)
"""Arguments that change no result of a training in one process that nothing ends early."""

_REFUSED = {
    "barebones": "what is logged is a part of the result; leave it out",
    "callbacks": "{hooks} would not be called; leave it out, and use on_step",
    "devices": "each machine computes on one device; say in the job how many machines there are",
    "fast_dev_run": "write max_steps, and limit_val_batches",
    "max_time": "the job says when it ends; write stop: {{minutes: 90}} there",
    "num_nodes": "say in the job how many machines there are",
    "overfit_batches": "write limit_train_batches, and a DataLoader without shuffle",
    "plugins": "none is called; leave them out",
    "reload_dataloaders_every_n_epochs": "nodes make the DataLoaders once; leave it out",
    "strategy": "machines are added and evicted as the job says; leave it out",
}
"""Arguments that are refused unless they have the value that Lightning gives them, with the
cure."""

_USUAL: dict[str, tuple[Any, ...]] = {
    "callbacks": ([],),
    "devices": (1, "1", [0]),
    "plugins": ([],),
}
"""Further values that say the same as the usual one."""

_HARMLESS_CALLBACKS = ("DeviceStatsMonitor", "ModelSummary", "ProgressBar")


def kept_arguments(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """All arguments that are carried, and the names of those given that have no effect."""
    lightning = lightning_package()
    kept = {name: default for name, (default, _) in _CARRIED.items()}
    ignored = []
    known = inspect.signature(lightning.Trainer.__init__).parameters
    for name, value in arguments.items():
        where = f"from_lightning: {name}"
        if name not in known or name == "self":
            raise BadArgument(f"{where} is no argument of lightning.Trainer, nor of from_lightning")
        default = known[name].default
        if name in _CARRIED:
            if value is not None or name == "check_val_every_n_epoch":
                _CARRIED[name][1](where, value)
                kept[name] = value
        elif (
            value is default
            or (type(value) is type(default) and value == default)
            or value in _USUAL.get(name, ())
        ):
            continue
        elif name in _WITHOUT_EFFECT or (
            name == "callbacks" and not any(map(_uncalled, listed(value)))
        ):
            ignored.append(name)
        elif name in _REFUSED:
            hooks = (
                [hook for each in listed(value) for hook in _uncalled(each)]
                if name == "callbacks"
                else []
            )
            cure = _REFUSED[name].format(hooks=", ".join(hooks))
            raise BadArgument(f"{where}={shortened(value)} is not carried: {cure}")
        else:
            raise BadArgument(
                f"{where} of lightning.Trainer {lightning.__version__} is not known to this "
                "version of spotctl; leave it out"
            )

    kept["precision"] = _PRECISIONS[kept["precision"]]
    if kept["max_epochs"] is None and kept["max_steps"] == -1:
        kept["max_epochs"] = 1000
    if kept["max_epochs"] in (None, -1) and kept["max_steps"] == -1:
        raise BadArgument("from_lightning: max_epochs=-1 has no end; set max_epochs or max_steps")

    return kept, ignored


def listed(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _uncalled(callback: Any) -> list[str]:
    """The hooks of a callback that `fit` would call, unless it only shows something."""
    name = type(callback).__name__
    parent = lightning_package().pytorch.Callback
    if any(kind.__name__ in _HARMLESS_CALLBACKS for kind in type(callback).__mro__):
        return []
    if not isinstance(callback, parent):
        return [name]

    own = [hook for hook in hooks_of(parent) if overrides(callback, parent, hook)]
    return [
        f"{name}.{hook}"
        for hook in own
        if hook not in _NOT_IN_FIT and not hook.startswith(_NOT_IN_FIT_BEGIN)
    ]


def lightning_package() -> Any:
    """The package, under either of its names for the Trainer; an error says how to install it."""
    try:
        import lightning
        import lightning.pytorch
    except ImportError as error:
        raise AgileMLError(
            f"from_lightning needs Lightning: pip install 'spotctl[lightning]' ({error})"
        ) from None
    return lightning


# -- the hooks of a module and of its data ---------------------------------------------------------

_CALLED = frozenset(
    "configure_model configure_optimizers forward on_after_batch_transfer on_before_batch_transfer "
    "prepare_data setup"
    " train_dataloader training_step transfer_batch_to_device val_dataloader validation_step".split()
)
_NOT_IN_FIT = frozenset(
    "from_datasets load_from_checkpoint load_state_dict on_exception on_load_checkpoint "
    "on_save_checkpoint"
    " predict_dataloader predict_step state_dict teardown test_dataloader test_step to_onnx "
    "to_tensorrt"
    " to_torchscript".split()
)
_NOT_IN_FIT_BEGIN = ("on_test_", "on_predict_")


def check_hooks(module: Any, data: Any) -> None:
    """BadTrainer names the first hook that would not be called."""
    pytorch = lightning_package().pytorch
    if not isinstance(module, pytorch.LightningModule):
        raise BadArgument(
            f"from_lightning: module is {type(module).__name__}; pass a LightningModule"
        )

    name = type(module).__name__
    if not module.automatic_optimization:
        raise BadTrainer(
            f"{name}: automatic_optimization is False, but steps of the optimizer are done by "
            "servers; return the loss from training_step instead"
        )

    for holder, parent in ((module, pytorch.LightningModule), (data, pytorch.LightningDataModule)):
        if not isinstance(holder, parent):
            continue
        for hook in hooks_of(parent):
            is_known = hook in _CALLED or hook in _NOT_IN_FIT or hook.startswith(_NOT_IN_FIT_BEGIN)
            if overrides(holder, parent, hook) and not is_known:
                raise BadTrainer(
                    f"{type(holder).__name__}: its {hook} would not be called: nodes compute parts "
                    "of a batch, and the"
                    " optimizer's steps are done by servers; move what it does into training_step, "
                    "validation_step or setup, or remove it"
                )

    for hook in ("training_step", "configure_optimizers"):
        if not overrides(module, pytorch.LightningModule, hook):
            raise BadTrainer(f"{name} has no {hook}, which every training needs")

    if "dataloader_iter" in inspect.signature(module.training_step).parameters:
        raise BadTrainer(
            f"{name}: training_step takes the loader itself (dataloader_iter); let it take a batch"
        )


def hooks_of(parent: type) -> list[str]:
    """Methods of a module or a data module of Lightning that are not those of every module of
    PyTorch.
    """
    import torch

    own = [
        kind
        for kind in parent.__mro__
        if kind is not object and not issubclass(torch.nn.Module, kind)
    ]

    return sorted(
        {
            name
            for kind in own
            for name, value in vars(kind).items()
            if callable(value) and not name.startswith("_")
        }
        | ({"forward"} if issubclass(parent, torch.nn.Module) else set())
    )


def overrides(holder: object, parent: type, hook: str) -> bool:
    own = inspect.unwrap(getattr(holder, hook))
    return getattr(own, "__func__", own) is not inspect.unwrap(getattr(parent, hook))


# -- the course of a training ----------------------------------------------------------------------


def limited(loader: Any, limit: float, name: str) -> int:
    """The batches of a loader that an epoch has: a share of them, or a number."""
    try:
        length = len(loader)
    except TypeError as error:
        raise BadTrainer(
            f"from_lightning: a DataLoader has no length ({error}); give its sampler one"
        ) from None

    count = min(length, limit) if isinstance(limit, int) else int(length * limit)
    if not count and limit:
        raise BadArgument(f"from_lightning: {name}={limit} of {length} batches is less than one")
    return int(count)


def course_of(
    name: str, arguments: Mapping[str, Any], batches: int, validation_batches: int, parts: int
) -> Course:
    """The steps and validations, as Lightning's loop counts them."""
    accumulate = arguments["accumulate_grad_batches"]
    most = arguments["max_steps"]
    in_epoch = -(-batches // accumulate)
    epochs = arguments["max_epochs"]
    steps = most if epochs in (None, -1) else in_epoch * epochs
    steps = steps if most == -1 else min(steps, most)

    if steps < 1:
        raise BadArgument(
            f"{name}: it trains no step: see max_epochs, max_steps, limit_train_batches and the "
            "data"
        )

    course = Course(batches, accumulate, steps)
    if not validation_batches:
        return course

    interval = arguments["val_check_interval"]
    every = arguments["check_val_every_n_epoch"]
    if every is None and not isinstance(interval, int):
        raise BadArgument(
            f"{name}: check_val_every_n_epoch=None needs a val_check_interval in batches, such as "
            "100"
        )

    check = interval if isinstance(interval, int) else max(1, int(batches * interval))
    if check > batches and every is not None:
        raise BadArgument(
            f"{name}: val_check_interval={interval} is more than the {batches} batches of an epoch"
        )

    validated = []
    through = range(check, course.epochs * batches + 1, check)
    for batch in through if every is None else _checks(course, check, every):
        epoch, within = divmod(batch - 1, batches)
        if (within + 1) % accumulate and within + 1 != batches:
            raise BadArgument(
                f"{name}: val_check_interval={interval} validates within the {accumulate} batches "
                "of a step (accumulate_grad_batches); use a multiple"
            )
        validated.append(epoch * in_epoch + -(-(within + 1) // accumulate))

    kept = [step for step in validated if step <= steps]
    return Course(batches, accumulate, steps, kept, validation_batches, parts)


def _checks(course: Course, check: int, every: int) -> Iterator[int]:
    """The batches, counted from the first epoch on, after which a validation comes."""
    for epoch in range(every - 1, course.epochs, every):
        yield from (
            epoch * course.batches + batch for batch in range(check, course.batches + 1, check)
        )


def configured(configuration: Any) -> tuple[list[Any], list[tuple[Any, str, int]]]:
    """The optimizers and schedules that `configure_optimizers` returned, in one of its forms.

    A schedule has its interval, `step` or `epoch`, and how many of these lie between two of its
    steps.
    """
    given = configuration
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], list):
        optimizers = given[0]
        schedules = listed(given[1])
    else:
        each = listed(given)
        optimizers = [entry["optimizer"] if isinstance(entry, Mapping) else entry for entry in each]
        schedules = [
            entry["lr_scheduler"]
            for entry in each
            if isinstance(entry, Mapping) and "lr_scheduler" in entry
        ]

    parsed = []
    for schedule in schedules:
        described = schedule if isinstance(schedule, Mapping) else {"scheduler": schedule}
        scheduler = described["scheduler"]
        if type(scheduler).__name__ == "ReduceLROnPlateau" or described.get("reduce_on_plateau"):
            raise BadTrainer(
                "configure_optimizers: ReduceLROnPlateau depends on logged values, which servers "
                "do not know; use a schedule that depends on the number of steps or epochs alone"
            )
        interval = described.get("interval", "epoch")
        frequency = described.get("frequency", 1)
        if interval not in ("step", "epoch"):
            raise BadTrainer(
                f"configure_optimizers: interval is {interval!r}; it must be 'step' or 'epoch'"
            )
        check_whole("configure_optimizers: frequency", frequency, 1)
        parsed.append((scheduler, interval, frequency))

    return optimizers, parsed
