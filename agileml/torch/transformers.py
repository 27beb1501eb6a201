"""`from_transformers`: trains what a Hugging Face `Trainer` would train, on many nodes.

The Trainer's `train` and `evaluate` are not called, but its loaders, its loss, its optimizer and
its schedule are.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, isclose
from typing import TYPE_CHECKING, Any, NamedTuple

from agileml.errors import BadArgument, BadTrainer
from agileml.params.layout import Array
from agileml.torch.course import (
    LOGGED,
    TRAINING,
    Course,
    LoggedRow,
    LoggedValues,
    LogKey,
    Note,
    OptimizerStep,
    SteppedSchedules,
)
from agileml.torch.framework import NORM, BatchShare, FrameworkTrainer, PreparedTraining
from agileml.torch.orders import LoaderOrders, RandomState, loops_of, surroundings
from agileml.torch.transformers_arguments import check_trainer

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer


def from_transformers(
    trainer: Any,
    *,
    parts: int = 8,
    threads: int = 1,
    tolerance: float = 0.02,
    loss_every: int = 0,
    redraw: bool = False,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
) -> TransformersTrainer:
    """A trainer that does what `trainer.train()` does in one process.

    A batch is divided into `parts` for different nodes. Samples come in the order that the Trainer
    would draw if its training began now. BadArgument or BadTrainer names what is not carried.
    `redraw` and `on_step` are as for `from_lightning`.
    """
    ignored = check_trainer(trainer)
    kind = type(trainer)
    return TransformersTrainer(
        trainer.model,
        trainer,
        kind.compute_loss,
        kind.create_optimizer,
        SteppedSchedules.of,
        parts=parts,
        batch_size=parts,
        device=str(trainer.args.device),
        threads=threads,
        tolerance=tolerance,
        loss_every=loss_every,
        name=type(trainer.model).__name__,
        clip_norm=trainer.args.max_grad_norm or _UNCLIPPED,
        accumulate=trainer.args.gradient_accumulation_steps,
        ignored=ignored,
        redraw=redraw,
        on_step=on_step,
        begins=RandomState.now(),
    )


def made_by(function: Callable[[], Any]) -> TransformersTrainer:
    """The trainer of the Trainer that a function makes. Random numbers without a seed are the same
    on all nodes.
    """
    with surroundings(0, 0):
        made = function()
        if isinstance(made, TransformersTrainer):
            return made
        return from_transformers(made)


class Inputs(NamedTuple):
    """A share of a batch, and what the Trainer counts in all batches of the step, if its loss is
    divided by that.
    """

    inputs: dict[str, Any]
    items: Any
    batches: int


@dataclass(frozen=True, eq=False)
class TransformersTrainer(FrameworkTrainer):
    """Calls the parts of a Hugging Face Trainer, which is its `dataset`. `begins` is the random
    state of the process that would call `train`."""

    begins: RandomState | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        # An accelerator belongs to its process, and has weak references after a training.
        trainer = copy.copy(self.dataset)
        for name in ("accelerator", "gather_function"):
            vars(trainer).pop(name, None)
        return {**super().__getstate__(), "dataset": trainer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.dataset.create_accelerator_and_postprocess()

    def prepare(self) -> PreparedTraining:
        """Asks for the loaders, as `train` does."""
        assert self.begins is not None
        trainer = self.dataset
        state = copy.copy(self.begins)
        with state.drawing():
            model = trainer.model
            if trainer.model_init is not None:
                from transformers import set_seed

                set_seed(trainer.args.seed)
                model = trainer.call_model_init()
            train = self.usable(trainer.get_train_dataloader())

        course = _course(self.name, trainer.args, train)
        given = trainer.eval_dataset if course.validated else None
        names = list(given) if isinstance(given, dict) else [None] if given is not None else []
        validation = [self.usable(trainer.get_eval_dataloader(name)) for name in names]
        counts = list(map(len, validation))
        course = Course(
            course.batches,
            course.accumulate,
            course.steps,
            course.validated,
            sum(counts),
            self.parts,
        )

        loaders = [train, *validation]
        loader_orders = LoaderOrders(loaders, loops_of(course, counts), state)
        return PreparedTraining(model, loaders, loader_orders, course, counts)

    # -- one batch ---------------------------------------------------------------------------------

    def shares(
        self, step: OptimizerStep, part: int, where: str, parts: int = 0, luck: int = 0
    ) -> Iterator[BatchShare]:
        """Parts of whole batches: these are padded as in one process, and what counts is counted in
        all of them.
        """
        import torch

        trainer = self.dataset
        parts = parts or self.divided
        numbers = self.numbers(step)
        # All nodes draw the same.
        with surroundings(2 * step.number + luck, self.threads):
            batches = [self.data[0].fetch(some, where) for some in numbers]
        items = trainer._get_num_items_in_batch(batches, torch.device("cpu"))

        for place, (batch, some) in enumerate(zip(batches, numbers, strict=True)):
            if not isinstance(batch, Mapping):
                kind = type(batch).__name__
                raise BadTrainer(
                    f"the data collator makes {kind}; a Trainer's batches are dicts of tensors"
                )
            low = len(some) * part // parts
            high = len(some) * (part + 1) // parts
            if low < high:
                inputs = {
                    name: self._cut(name, value, len(some), low, high)
                    for name, value in batch.items()
                }
                content = Inputs(inputs, items, len(batches))
                counts = high - low, len(some), step.number - 1, step.epoch
                yield BatchShare(content, step.first + place, *counts)

    def _cut(self, name: str, value: Any, size: int, low: int, high: int) -> Any:
        """The samples of an entry of a batch."""
        shape = getattr(value, "shape", None)
        if (shape or (0,))[:1] == (size,) or (
            isinstance(value, list | tuple) and len(value) == size
        ):
            return value[low:high]

        kind = type(value).__name__ if shape is None else f"a tensor of shape {tuple(shape)}"
        raise BadTrainer(
            f"{self.name}: {name!r} of a batch of {size} samples is {kind}, which cannot be "
            "divided; let the collator make tensors with a row for each sample, or use parts=1"
        )

    def training_loss(self, module: Any, batch: BatchShare) -> torch.Tensor:
        trainer = self._at(batch)
        given = batch.content
        inputs = trainer._prepare_inputs(dict(given.inputs))
        loss: torch.Tensor = trainer.compute_loss(module, inputs, num_items_in_batch=given.items)
        self.notes.append(Note(_LOSS, float(loss.detach())))
        return loss

    def validate(self, module: Any, batch: BatchShare) -> None:
        trainer = self._at(batch)
        loss, *_ = trainer.prediction_step(module, batch.content, prediction_loss_only=True)
        if loss is not None:
            given = self.dataset.eval_dataset
            name = (
                f"eval_{list(given)[batch.loader]}_loss" if isinstance(given, dict) else "eval_loss"
            )
            note = Note(LogKey(batch.loader, name, False, True), float(loss))
            self.notes.append(note)

    def _at(self, batch: BatchShare) -> Any:
        """The Trainer, whose state says where the training is."""
        state = self.dataset.state
        state.global_step = batch.step
        state.max_steps = self.prepared.course.steps
        if batch.loader == TRAINING:
            state.epoch = batch.epoch + batch.batch / self.prepared.course.batches
        else:
            state.epoch = None
        return self.dataset

    def weight(self, share: BatchShare) -> float:
        given = share.content
        if self._counts_items:
            return 1.0

        # Whether the Trainer takes its loss for one that is divided by what is counted in all
        # batches of a step.
        trainer = self.dataset
        is_scaled = getattr(trainer, "loss_is_scaled_for_ga", None)
        if is_scaled is None:
            counts = trainer.model_accepts_loss_kwargs and given.items is not None
            is_scaled = counts or trainer.compute_loss_func is not None
        return share.samples / share.of / (1 if is_scaled else given.batches)

    @cached_property
    def _counts_items(self) -> bool:
        """Whether the loss is a sum divided by a given count: it is computed with two counts to
        find out.
        """
        import torch

        from agileml.torch.first_clock import WithoutChance

        share = next(self.shares(self.prepared.course.step(1), 0, self.name))
        given = share.content
        module = self.build(0).to(self._device).eval()
        if given.items is None:
            return False

        losses = []
        with surroundings(0, self.threads), torch.no_grad(), WithoutChance(frozen_norms=True):
            for times in (1, 2):
                inputs = self.dataset._prepare_inputs(dict(given.inputs))
                losses.append(
                    float(
                        self.dataset.compute_loss(
                            module, inputs, num_items_in_batch=times * given.items
                        )
                    )
                )

        if isclose(losses[0], 2 * losses[1], rel_tol=1e-4):
            return True
        if isclose(losses[0], losses[1], rel_tol=1e-4):
            return False
        raise BadTrainer(
            f"{self.name}: compute_loss gives {losses[0]:g} for num_items_in_batch={given.items}, "
            f"and {losses[1]:g} for"
            " twice as many; it must be a sum divided by that, or a mean that does not depend on it"
        )

    # -- the optimizer and what is logged ----------------------------------------------------------

    def build(self, seed: int) -> torch.nn.Module:
        module: torch.nn.Module = super().build(seed)
        arguments = self.dataset.args
        if arguments.activation_checkpointing:
            settings = dict(arguments.activation_checkpointing_kwargs or {})
            named = {
                name: settings.pop(name)
                for name in ("every_n_layers", "offload")
                if name in settings
            }
            enable: Any = module.activation_checkpointing_enable
            enable(activation_checkpointing_kwargs=settings or None, **named)

        if arguments.bf16:
            accelerator = self.dataset.accelerator
            accelerator.prepare_model(module)
            accelerator._models.clear()

        return module

    def build_optimizers(self, module: Any) -> list[Optimizer]:
        """The Trainer's optimizer for a copy of its model, with its schedule."""
        trainer = self.dataset
        before = trainer.model, trainer.optimizer, trainer.lr_scheduler
        trainer.model = module
        trainer.optimizer = None
        trainer.lr_scheduler = None
        try:
            trainer.create_optimizer_and_scheduler(self.prepared.course.steps)
            optimizer = trainer.optimizer
            scheduler = trainer.lr_scheduler
        finally:
            trainer.model, trainer.optimizer, trainer.lr_scheduler = before

        if type(scheduler).__name__ in {"ReduceLROnPlateau", "GreedyLR"}:
            raise BadTrainer(
                f"{self.name}: {type(scheduler).__name__} depends on evaluations, which servers do "
                "not know; use a lr_scheduler_type that depends on the number of steps alone"
            )

        SteppedSchedules.attach(
            optimizer, [] if scheduler is None else [(scheduler, "step", 1)], self.prepared.course
        )
        return [optimizer]

    def logged_steps(self) -> Sequence[int]:
        """The steps after which the Trainer logs; after the last one there is a row of what it has
        not logged.
        """
        steps = self.prepared.course.steps
        return [step for step in range(1, steps + 1) if step == steps or self._logs(step)]

    def _logs(self, step: int) -> bool:
        """Whether the Trainer logs after a step."""
        course = self.prepared.course
        arguments = self.dataset.args
        if step == 1 and arguments.logging_first_step:
            return True
        if arguments.logging_strategy == "epoch":
            return step % course.steps_of_epoch == 0 or step == course.steps
        every = arguments.logging_steps
        every = ceil(course.steps * every) if every < 1 else int(every)
        return arguments.logging_strategy == "steps" and step % every == 0

    sees_norm = True

    def rows_of(self, step: OptimizerStep, share: BatchShare) -> list[LoggedRow]:
        """The row of the next step that is logged, whose loss is the mean over the steps since the
        one before.
        """
        del share
        logged = self.table.logged
        return [LoggedRow(logged[bisect_left(logged, step.number)], "step")]

    def sums_of(self, note: Note, share: BatchShare, row: LoggedRow) -> tuple[float, float]:
        if row.kind != "step":
            return note.value * share.of, share.of
        if note.key.name == NORM:
            # Of the step that is logged itself.
            return 0.0, float(share.step + 1 == row.step)
        return note.value * self.weight(share), share.samples / share.of / share.content.batches

    def logged(self, model: Mapping[str, Array]) -> list[LoggedValues]:
        """The Trainer's `log_history` up to a model, such as `agileml.train(...).model`, without
        times.
        """
        course = self.prepared.course
        rows = list[LoggedValues]()
        total = 0.0
        before = 0
        epoch = 0.0
        for row, values in self.table.read(model[LOGGED]):
            step = course.step(row.step)
            epoch = step.epoch + step.last / course.batches if row.step else 0.0
            if row.kind != "step":
                rows.append(LoggedValues(row.step, epoch, values))
                continue
            total += values["loss"] * (row.step - before)
            before = row.step
            if self._logs(row.step):
                rate = self._optimizers.hyperparameters(row.step)[0][0]["lr"]
                rows.append(LoggedValues(row.step, epoch, {**values, "learning_rate": rate}))

        if before == course.steps:
            logged_values = LoggedValues(course.steps, epoch, {"train_loss": total / course.steps})
            rows.append(logged_values)
        return rows


_UNCLIPPED = 1e30
"""A norm that no gradient has: what is logged needs the norm also where nothing is clipped."""

_LOSS = LogKey(TRAINING, "loss", on_step=True, on_epoch=False)


def _course(name: str, arguments: Any, train: Any) -> Course:
    """The steps, and the evaluations after them, as the Trainer counts them."""
    batches = len(train)
    accumulate = arguments.gradient_accumulation_steps
    in_epoch = max(1, -(-batches // accumulate))
    steps = (
        arguments.max_steps
        if arguments.max_steps > 0
        else ceil(arguments.num_train_epochs * in_epoch)
    )

    if steps < 1 or not batches:
        raise BadArgument(
            f"{name}: it trains no step: see max_steps, num_train_epochs and the data"
        )

    validated: list[int] = []
    if arguments.eval_strategy == "steps":
        every = arguments.eval_steps
        delay = arguments.eval_delay
        every = ceil(steps * every) if every < 1 else int(every)
        validated = [step for step in {*range(every, steps + 1, every), steps} if step >= delay]
    elif arguments.eval_strategy == "epoch":
        ends = {*range(in_epoch, steps + 1, in_epoch), steps}
        validated = [step for step in ends if step / in_epoch >= arguments.eval_delay]

    if arguments.eval_on_start:
        validated.append(0)
    return Course(batches, accumulate, steps, sorted(validated), 1 if validated else 0)
