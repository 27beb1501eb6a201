"""`from_lightning`: trains a LightningModule as Lightning's own `fit` does, on many nodes.

Lightning's loop is not called. What its Trainer would be given is carried, has no effect on
results, or is refused.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from agileml.errors import BadTrainer
from agileml.params.layout import Array
from agileml.torch.course import LOGGED, TRAINING, LoggedValues, LogKey, Note, SteppedSchedules
from agileml.torch.framework import BatchShare, FrameworkTrainer, PreparedTraining
from agileml.torch.lightning_arguments import (
    check_hooks,
    configured,
    course_of,
    kept_arguments,
    lightning_package,
    limited,
    listed,
    overrides,
)
from agileml.torch.orders import LoaderOrders, RandomState, loops_of, surroundings

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader


def from_lightning(  # noqa: PLR0913 - those of fit, and how nodes do it
    module: Any,
    data: Any = None,
    validation: Any = None,
    *,
    parts: int = 8,
    threads: int = 1,
    tolerance: float = 0.02,
    loss_every: int = 0,
    redraw: bool = False,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    **arguments: Any,
) -> LightningTrainer:
    """A trainer that does what `Trainer(**arguments).fit(module, data)` does in one process.

    `data` is a LightningDataModule or the DataLoader of the training, and `validation` a DataLoader
    or a list of them; without these, the module's own hooks make them. A batch is divided into
    `parts` for different nodes. Samples come in the order that Lightning's loop would draw if it
    began now. BadArgument or BadTrainer names what is not carried.

    With `redraw`, dropout and other random numbers of a step are drawn in each part for itself.
    `on_step` is called with the number of each step and what it has logged, and with a step and
    what the validation after it has logged, by the node that computes the first part; again, if a
    loss has undone the step.
    """
    kept, ignored = kept_arguments(arguments)
    check_hooks(module, data)
    cuts_values = kept["gradient_clip_algorithm"] == "value"
    most = kept["gradient_clip_val"] or None

    return LightningTrainer(
        module,
        data,
        type(module).training_step,
        type(module).configure_optimizers,
        SteppedSchedules.of,
        parts=parts,
        batch_size=parts,
        device={"gpu": "cuda"}.get(kept["accelerator"], kept["accelerator"]),
        threads=threads,
        tolerance=tolerance,
        loss_every=loss_every,
        name=type(module).__name__,
        clip_norm=None if cuts_values else most,
        clip_value=most if cuts_values else None,
        accumulate=kept["accumulate_grad_batches"],
        log_every=kept["log_every_n_steps"],
        ignored=ignored,
        redraw=redraw,
        on_step=on_step,
        validation=validation,
        arguments=kept,
        begins=RandomState.now(),
    )


_SEEN = {
    **dict.fromkeys(("datamodule", "logger", "progress_bar_callback"), None),
    **dict.fromkeys(("global_rank", "local_rank", "node_rank", "current_epoch", "global_step"), 0),
    **dict.fromkeys(("num_devices", "num_nodes", "world_size"), 1),
    **dict.fromkeys(
        ("barebones", "evaluating", "fast_dev_run", "predicting", "sanity_checking", "testing"),
        False,
    ),
    **dict.fromkeys(("should_stop", "training", "validating"), False),
    "is_global_zero": True,
    "place": TRAINING,
}
"""Attributes that are seen of a Trainer besides its arguments, before the training."""


class TrainerView:
    """The part of `self.trainer` that modules may read: the course of the training, and the place
    of a batch in it.
    """

    datamodule: Any
    training: bool
    place: int
    """The loader of the batch."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self._name = name
        vars(self).update({**arguments, **_SEEN, "callbacks": [], "loggers": []})

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise BadTrainer(
            f"{vars(self).get('_name')}: it reads trainer.{attribute}, which the nodes of a "
            "training do not have; use what the module itself knows"
        )

    def begin(self, batch: BatchShare) -> None:
        """Takes the place of a batch."""
        in_training = batch.loader == TRAINING
        moved = {"place": batch.loader, "training": in_training, "validating": not in_training}
        vars(self).update(moved, global_step=batch.step, current_epoch=batch.epoch)


def made_by(function: Callable[[], Any]) -> LightningTrainer:
    """The trainer of what a function makes: the arguments of `from_lightning`; the last may be a
    dict.

    Random numbers that it draws without a seed are the same on all nodes.
    """
    with surroundings(0, 0):
        made = function()
        if isinstance(made, LightningTrainer):
            return made
        given = list(made) if isinstance(made, list | tuple) else [made]
        named = given.pop() if isinstance(given[-1], dict) else {}
        if not 1 <= len(given) <= 3:
            raise BadTrainer(
                "the function returned nothing that from_lightning takes: return the "
                "LightningModule, or a tuple with"
                " it, its data, and a dict of the Trainer's arguments"
            )
        return from_lightning(*given, **named)


@dataclass(frozen=True, eq=False)
class LightningTrainer(FrameworkTrainer):
    """Calls the hooks of a LightningModule. `arguments` are those of Lightning's Trainer; `begins`
    is the random state of the process that would call `fit`."""

    validation: Any = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    begins: RandomState | None = field(default=None, repr=False)

    def prepare(self) -> PreparedTraining:
        """Calls hooks in the order of `fit`, and asks for the loaders."""
        assert self.begins is not None
        arguments = self.arguments
        state = copy.copy(self.begins)
        checks_first = bool(arguments["num_sanity_val_steps"])
        validation = []
        with state.drawing():
            module, source = self._set_up()
            # The check before the training leaves the random state as it was.
            with RandomState.now().drawing():
                validation = self._validation_loaders(module, source) if checks_first else []
            has_hook = self.dataset is None or source is not module
            train = self.usable(source.train_dataloader() if has_hook else self.dataset)
            if not checks_first:
                validation = self._validation_loaders(module, source)

        batches = limited(train, arguments["limit_train_batches"], "limit_train_batches")
        counts = [
            limited(loader, arguments["limit_val_batches"], "limit_val_batches")
            for loader in validation
        ]
        course = course_of(self.name, arguments, batches, sum(counts), self.parts)
        vars(self._view).update(
            estimated_stepping_batches=course.steps, num_training_batches=batches
        )
        orders = LoaderOrders([train, *validation], loops_of(course, counts), state)

        return PreparedTraining(module, [train, *validation], orders, course, counts)

    def _set_up(self) -> tuple[Any, Any]:
        """The module before training, and what has the loaders' hooks."""
        import torch

        # What hooks assign must not be there when another process begins; the datasets and loaders
        # that the module holds are shared by its copies.
        kinds = (torch.utils.data.Dataset, torch.utils.data.DataLoader)
        shared = {id(held): held for held in vars(self.module).values() if isinstance(held, kinds)}
        module: Any = copy.deepcopy(self.module, shared)
        data = self.dataset
        holders: list[Any] = [module]
        if isinstance(data, lightning_package().pytorch.LightningDataModule):
            holders.insert(0, copy.copy(data))
            self._view.datamodule = holders[0]

        for holder in holders:
            holder.trainer = self._view
        for holder in holders:
            holder.prepare_data()
        for holder in holders:
            holder.setup("fit")
        module.configure_model()
        if self.arguments["precision"] == "64-true":
            module.double()

        return module, holders[0]

    def _validation_loaders(self, module: Any, source: Any) -> list[DataLoader[Any]]:
        pytorch = lightning_package().pytorch
        parent = pytorch.LightningModule if source is module else pytorch.LightningDataModule
        given = self.validation
        if given is None and overrides(source, parent, "val_dataloader"):
            given = source.val_dataloader()
        if given is None or not overrides(module, pytorch.LightningModule, "validation_step"):
            return []
        return [self.usable(loader) for loader in listed(given)]

    def logged(self, model: Mapping[str, Array]) -> list[LoggedValues]:
        """The rows that Lightning would have given its logger up to a model, such as
        `agileml.train(...).model`.
        """
        course = self.prepared.course
        rows = []
        for row, values in self.table.read(model[LOGGED]):
            step = row.step - 1
            if row.kind == "batch":
                step = (
                    course.validated.index(row.step) * self.prepared.validation_batches[row.loader]
                    + row.batch
                )
            rows.append(LoggedValues(step, course.epoch_after(row.step), values))

        return rows

    # -- one batch ---------------------------------------------------------------------------------

    def training_loss(self, module: Any, batch: BatchShare) -> torch.Tensor:
        import torch

        for layer in self._evaluated:
            module.get_submodule(layer).training = False
        given = self._arguments(module, batch, module.training_step)
        with self._precision():
            output = module.training_step(*given)
        loss = output.get("loss") if isinstance(output, Mapping) else output

        if not isinstance(loss, torch.Tensor):
            raise BadTrainer(
                f"{self.name}: training_step returned {type(loss).__name__} instead of a loss; "
                "return a tensor, or a dict with 'loss', for every batch"
            )

        return loss

    def validate(self, module: Any, batch: BatchShare) -> None:
        given = self._arguments(module, batch, module.validation_step)
        with self._precision():
            module.validation_step(*given)

    def _arguments(self, module: Any, batch: BatchShare, step: Callable[..., Any]) -> list[Any]:
        """The arguments of a step of the module."""
        self._view.begin(batch)
        content = batch.content
        loader = max(batch.loader, 0)
        if self.arguments["precision"] == "64-true":
            content = _doubled(content)

        for hook in (
            "on_before_batch_transfer",
            "transfer_batch_to_device",
            "on_after_batch_transfer",
        ):
            holder = self._hook_holders.get(hook)
            if holder is not None:
                device = [module.device] if hook == "transfer_batch_to_device" else []
                content = getattr(module if holder == "module" else self._view.datamodule, hook)(
                    content, *device, loader
                )

        parameters = inspect.signature(step).parameters.values()
        takes_number = len(parameters) > 1 or any(
            each.kind is each.VAR_POSITIONAL for each in parameters
        )
        several = (
            [loader]
            if batch.loader != TRAINING and len(self.prepared.validation_batches) > 1
            else []
        )

        return [content, *([batch.batch] if takes_number else []), *several]

    @cached_property
    def _hook_holders(self) -> dict[str, str]:
        """Where hooks for batches are defined: the data module's come first."""
        pytorch = lightning_package().pytorch
        holders = {}
        for hook in (
            "on_before_batch_transfer",
            "transfer_batch_to_device",
            "on_after_batch_transfer",
        ):
            data = self._view.datamodule
            if data is not None and overrides(data, pytorch.LightningDataModule, hook):
                holders[hook] = "data"
            elif overrides(self.module, pytorch.LightningModule, hook):
                holders[hook] = "module"

        return holders

    @contextmanager
    def _precision(self) -> Iterator[None]:
        import torch

        if self.arguments["precision"] == "bf16-mixed":
            with torch.autocast(
                torch.device(self._device).type, dtype=torch.bfloat16, cache_enabled=False
            ):
                yield
        elif self.arguments["precision"] == "64-true":
            usual = torch.get_default_dtype()
            torch.set_default_dtype(torch.double)
            try:
                yield
            finally:
                torch.set_default_dtype(usual)
        else:
            yield

    @cached_property
    def _evaluated(self) -> list[str]:
        """The layers that are in evaluation mode before the training, and stay so."""
        return [name for name, layer in self.prepared.module.named_modules() if not layer.training]

    # -- what the module is given ------------------------------------------------------------------

    @cached_property
    def _view(self) -> TrainerView:
        return TrainerView(self.name, self.arguments)

    def build(self, seed: int) -> torch.nn.Module:
        module: Any = super().build(seed)
        module.trainer = self._view
        module.log = self._log
        made: torch.nn.Module = module
        return made

    def build_optimizers(self, module: Any) -> list[Optimizer]:
        """The optimizer, with its schedules attached."""
        import torch

        optimizers, schedules = configured(module.configure_optimizers())
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                kind = type(optimizer).__name__
                raise BadTrainer(
                    f"{self.name}: configure_optimizers returned {kind}; return an optimizer of "
                    "torch.optim"
                )

        if len(optimizers) != 1:
            raise BadTrainer(
                f"{self.name}: configure_optimizers returned {len(optimizers)} optimizers; return "
                "one"
            )

        SteppedSchedules.attach(optimizers[0], schedules, self.prepared.course)
        return list(optimizers)

    def _log(self, *arguments: Any, **named: Any) -> None:
        """Notes a value, in the place of `LightningModule.log`."""
        given = self._log_signature.bind(self.module, *arguments, **named).arguments
        name = given["name"]
        value = given["value"]
        reduction = given.get("reduce_fx", "mean")
        where = f"{self.name}: self.log({name!r})"
        reduction = getattr(reduction, "__name__", reduction)

        unknown = given.keys() - _OF_LOG
        if unknown:
            raise BadTrainer(
                f"{where} has an argument {min(unknown)!r} that is not known here; leave it out"
            )
        if given.get("logger") is False:
            return

        if reduction not in {"mean", "avg", "sum"}:
            raise BadTrainer(
                f"{where} has reduce_fx={reduction}, which is not carried; log means or sums"
            )
        if not isinstance(value, Real) and getattr(value, "numel", int)() != 1:
            raise BadTrainer(
                f"{where} has a {type(value).__name__}, whose state each node would have for "
                "itself; log the value for the batch, as a number"
            )

        in_training = self._view.training
        place = self._view.place
        levels = {"on_step": in_training, "on_epoch": not in_training}
        levels.update({level: given[level] for level in levels if given.get(level) is not None})
        several = (
            not in_training
            and len(self.prepared.validation_batches) > 1
            and given.get("add_dataloader_idx", True)
        )

        suffix = f"/dataloader_idx_{place}" if several else ""
        key = LogKey(place, name, levels["on_step"], levels["on_epoch"], reduction == "sum", suffix)
        number = value.detach() if hasattr(value, "detach") else value
        note = Note(key, float(number), given.get("batch_size"))
        self.notes.append(note)

    @cached_property
    def _log_signature(self) -> inspect.Signature:
        return inspect.signature(lightning_package().pytorch.LightningModule.log)


_OF_LOG = frozenset(
    "self name value prog_bar logger on_step on_epoch reduce_fx enable_graph sync_dist "
    "sync_dist_group"
    " add_dataloader_idx batch_size metric_attribute rank_zero_only".split()
)
"""The arguments of `LightningModule.log`; those about progress bars and other processes have no
effect."""


def _doubled(content: Any) -> Any:
    """The batch with its floats in double precision."""
    import torch

    if isinstance(content, torch.Tensor) and content.is_floating_point():
        return content.double()
    if isinstance(content, Mapping):
        return {key: _doubled(value) for key, value in content.items()}

    if isinstance(content, list | tuple):
        doubled = [_doubled(value) for value in content]
        if isinstance(content, list):
            return doubled
        if hasattr(content, "_fields"):
            return type(content)(*doubled)
        return tuple(doubled)

    return content
