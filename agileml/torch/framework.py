"""Trainers made of a framework's own objects: what those of Lightning and of Hugging Face have in
common.

A clock is a step of the optimizer, whose batches are divided into parts for different nodes, or a
part of a validation.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from agileml.errors import BadTrainer, NotFinite
from agileml.params.commit import calling
from agileml.params.layout import Array, Params
from agileml.torch.course import (
    LOGGED,
    TRAINING,
    Course,
    LoggedRow,
    LoggedValues,
    LogKey,
    LogTable,
    Note,
    OptimizerStep,
    ValidationPart,
)
from agileml.torch.data import BatchPart, TorchData
from agileml.torch.network import BatchObjective, TorchNetwork, check_hooks, check_module, on_device
from agileml.torch.orders import LoaderOrders, checksum, surroundings
from agileml.torch.trainer import MAX_SEEDS, SEED, TorchModule
from agileml.trainer import ParamReader, ParamView, Sample
from agileml.user_code import beginning_of

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

LATEST = "(latest)"
"""The array of a model that holds what was logged last, for `on_step`."""

NORM = "grad_norm"
"""The name under which the norm of a step's gradient is logged, which no node knows."""

MAX_VALUE_TEXT = 80
"""Characters of a value in a message."""

LOG_TOLERANCE = 1e-4
"""Values that are logged of parts of a batch and of the whole may differ by this share: they have
32 bits."""


def shortened(value: object) -> str:
    """A value as a message has it, in one line."""
    text = " ".join(repr(value).split())
    if len(text) <= MAX_VALUE_TEXT:
        return text
    return f"{text[:MAX_VALUE_TEXT]}..."


class BatchShare(NamedTuple):
    """`samples` of the `of` samples of a batch; its number in its epoch or validation, and the
    steps done before it.
    """

    content: Any
    batch: int
    samples: int
    of: int
    step: int
    epoch: int
    loader: int = TRAINING


@dataclass(frozen=True)
class PreparedTraining:
    """A training as a process makes it of a description: the module before it, its loaders (the
    validation's after the first) with their orders, and the course of all clocks."""

    module: torch.nn.Module
    loaders: Sequence[DataLoader[Any]]
    orders: LoaderOrders
    course: Course
    validation_batches: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class FrameworkTrainer(TorchModule):
    """Trains as a framework does, on many nodes. The subclass calls the framework's steps.

    `accumulate` batches make a step, each with its mean divided by that number. Values are logged
    every `log_every` steps. Gradients are cut off at `clip_value`.
    """

    accumulate: int = 1
    log_every: int = 0
    clip_value: float | None = None
    ignored: Sequence[str] = ()
    """Arguments of the framework that were given and have no effect here."""
    redraw: bool = False
    """Whether a step may draw random numbers, which parts of a batch draw for themselves."""
    on_step: Callable[[int, Mapping[str, float]], None] | None = None
    """Called with the number of each step, and what it has logged, by the node that computes the
    first part."""
    notes: list[Note] = field(default_factory=list, init=False, repr=False)
    """The values that the framework's steps have logged since it was emptied."""

    # -- what the framework says -------------------------------------------------------------------

    reads_stream = False
    sees_norm = False
    """Whether what is logged has the norm of the gradient."""

    @abstractmethod
    def prepare(self) -> PreparedTraining:
        """Makes the training, in the order in which the framework does, so that the same random
        numbers are drawn.
        """

    @abstractmethod
    def training_loss(self, module: torch.nn.Module, batch: BatchShare) -> torch.Tensor:
        """The mean loss of a share of a batch, by the framework's step. Adds to the notes."""

    @abstractmethod
    def validate(self, module: torch.nn.Module, batch: BatchShare) -> None:
        """The framework's step for a batch of a validation. Adds to the notes."""

    def usable(self, loader: Any) -> DataLoader[Any]:
        """A loader whose samples nodes can fetch by their numbers."""
        from torch.utils.data import DataLoader, IterableDataset

        if not isinstance(loader, DataLoader):
            raise BadTrainer(
                f"{self.name}: a loader is {type(loader).__name__}; use one "
                "torch.utils.data.DataLoader"
            )
        if isinstance(loader.dataset, IterableDataset) or not hasattr(
            loader.dataset, "__getitem__"
        ):
            raise BadTrainer(
                f"{self.name}: {type(loader.dataset).__name__} has no samples by number, which "
                "nodes fetch; use a dataset with __len__ and __getitem__"
            )
        if loader.batch_sampler is None:
            raise BadTrainer(
                f"{self.name}: a DataLoader with batch_size=None makes no batches; give it a "
                "batch_size"
            )

        return loader

    # -- what it means -----------------------------------------------------------------------------

    @property
    def clocks(self) -> int:
        """The clocks of the whole training: steps of the optimizer and parts of validations."""
        return self.prepared.course.clocks

    @abstractmethod
    def logged(self, model: Mapping[str, Array]) -> list[LoggedValues]:
        """The log that the framework would have written up to a model, such as
        `agileml.train(...).model`.
        """

    def batch_of(self, clock: int, seed: int = 0, pieces: int = 1) -> list[object]:
        """The batches of a step as the framework's loader gives them, each cut into pieces."""
        del seed
        step = self.prepared.course.step(clock)
        where = f"{self.name}, step {clock}"
        cut = [
            some
            for numbers in self.numbers(step)
            for some in np.array_split(numbers, pieces)
            if len(some)
        ]

        with surroundings(0, self.threads):
            return [self.data[0].fetch(some, where) for some in cut]

    def check_start(self, seed: int) -> str:
        """How far the first steps differ from plain PyTorch; BadTrainer also for logged values that
        are no means.
        """
        note = super().check_start(seed)
        self._check_parts()
        if self.ignored:
            return f"{note}; without effect: {', '.join(self.ignored)}"
        return note

    # -- a trainer ---------------------------------------------------------------------------------

    @property
    def divided(self) -> int:
        """The parts of a batch: each has a sample."""
        return min(self.parts, self._sizes[0])

    @property
    def batch(self) -> int:
        """Samples of a part in a step, at most."""
        return self.accumulate * -(-max(self._sizes) // self.divided)

    @cached_property
    def _sizes(self) -> list[int]:
        """The numbers of samples of the first epoch's batches."""
        return list(map(len, self.prepared.orders.batches(0)))

    @property
    def is_whole(self) -> bool:
        return self.divided == 1

    def init(self, rng: np.random.Generator) -> Params:
        """The module's trained parameters, its running statistics, the empty log, and the seed."""
        module = TorchNetwork(self.build(0), self._optimizers.trained, "cpu")
        seed = np.array([[int(rng.integers(MAX_SEEDS)), 0, self._begin_mark, 0]])
        latest = (
            {} if self.on_step is None else {LATEST: np.zeros((max(1, len(self.table.keys)), 2))}
        )
        return {SEED: seed, LOGGED: self.table.empty(), **latest, **module.arrays()}

    def shards(self) -> Sequence[BatchPart]:
        return [BatchPart(number, self.batch) for number in range(self.divided)]

    def step(
        self,
        shard: BatchPart,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Adds this part's share of the gradient and of what is logged."""
        del lo, hi
        seed, _, mark, _ = params.read(SEED)[0].tolist()
        if mark != self._begin_mark:
            raise BadTrainer(
                f"{self.name}: this node begins with other weights or random numbers than the "
                "first one; seed them where the module is made"
            )

        network = self._load_network(seed, params)
        work = self.prepared.course.at(clock)
        where = f"{self.name}, clock {clock}, shard {shard.number}"
        if shard.number == 0:
            self._report(params, clock)
        logged: dict[str, dict[int, Array]] = {LOGGED: {}, LATEST: {}}

        with surroundings(int(rng.integers(2**62)), self.threads):
            if isinstance(work, OptimizerStep):
                self._train(network, work, shard.number, params, logged, where)
            elif work is not None:
                self._evaluate(network, work, shard.number, logged, where)

        for name, rows in logged.items():
            for row, values in sorted(rows.items()):
                params.update(name, [row], values[None])

    def _report(self, params: ParamReader, clock: int) -> None:
        """Tells `on_step` what the clock before this one has logged, if it was the last of a step
        or a validation.
        """
        if self.on_step is None or clock == 1:
            return

        work = self.prepared.course.at(clock - 1)
        following = self.prepared.course.at(clock)
        latest = params.read(LATEST)
        is_whole = (
            isinstance(work, OptimizerStep)
            or not isinstance(following, ValidationPart)
            or not following.part
        )

        if work is None or not is_whole:
            return

        of_step = isinstance(work, OptimizerStep)
        values = dict[str, float]()
        for key, (total, weight) in zip(self.table.keys, latest.tolist(), strict=False):
            if weight and (key.place == TRAINING) == of_step:
                if key.is_sum and not of_step:
                    values[key.named(step=of_step)] = total
                else:
                    values[key.named(step=of_step)] = total / weight

        number = work.number if isinstance(work, OptimizerStep) else work.step
        with calling(f"{self.name}: on_step"):
            self.on_step(number, values)

    def _train(
        self,
        network: TorchNetwork,
        step: OptimizerStep,
        part: int,
        params: ParamView,
        logged: dict[str, dict[int, Array]],
        where: str,
    ) -> None:
        for share in self.shares(step, part, where):
            self.notes.clear()
            weight = self.weight(share)
            gradients = network.gradients(self._objective, share, weight, where, owns=part == 0)
            for name, rows, values in gradients:
                try:
                    params.update(name, rows, values, owned=True)
                except NotFinite as error:
                    raise NotFinite(f"{error} ({beginning_of(self.objective)})") from error
            # The last part has a sample of each batch.
            if self.sees_norm and part == self.divided - 1 and share.batch == step.last - 1:
                note = Note(LogKey(TRAINING, NORM, on_step=True, on_epoch=False), 0.0)
                self.notes.append(note)
            self._add_notes(logged, share, self.rows_of(step, share))

    def _evaluate(
        self,
        network: TorchNetwork,
        work: ValidationPart,
        part: int,
        logged: dict[str, dict[int, Array]],
        where: str,
    ) -> None:
        import torch

        course = self.prepared.course
        network.module.eval()
        first = work.part * course.at_once
        for number in range(
            first + part, min(first + course.at_once, course.validation_batches), self.divided
        ):
            share = self._validation_share(work.number, number, where)
            self.notes.clear()
            with torch.no_grad(), calling(where):
                self.validate(network.module, on_device(share, self._device))
            batch = LoggedRow(work.step, "batch", share.loader, share.batch)
            self._add_notes(logged, share, [LoggedRow(work.step, "validation"), batch])

    def _validation_share(self, validation: int, number: int, where: str) -> BatchShare:
        """A batch of a validation, by its number among those of all loaders."""
        prepared = self.prepared
        loader = 0
        batch = number
        while batch >= prepared.validation_batches[loader]:
            batch -= prepared.validation_batches[loader]
            loader += 1

        course = prepared.course
        step = course.validated[validation]
        # Loops over loaders are counted: those of epochs, and of each validation before.
        earlier = validation * len(prepared.validation_batches)
        loop = course.epoch_after(step) + 1 + earlier + loader
        numbers = prepared.orders.batches(loop)[batch]
        content = self.data[1 + loader].fetch(numbers, where)
        size = len(numbers)
        epoch = course.epoch_after(step)

        return BatchShare(content, batch, size, size, step, epoch, loader)

    def _add_notes(
        self, logged: dict[str, dict[int, Array]], share: BatchShare, rows: Sequence[LoggedRow]
    ) -> None:
        """Adds the share of what was just logged to the rows where it belongs; the latest comes
        first.
        """
        table = self.table
        for note in self.notes:
            column = table.columns.get((note.key.place, note.key.name))
            if column is None:
                raise BadTrainer(
                    f"{self.name}: {note.key.name!r} is logged in step {share.step + 1}, but was "
                    "not in the first one; log the same names in every step"
                )
            for row in rows:
                number = table.rows.get(row)
                if number is None or not row.holds(note.key):
                    continue
                values = logged[LOGGED].setdefault(number, np.zeros(2 * len(table.keys)))
                values[column : column + 2] += self.sums_of(note, share, row)
            is_latest = rows[0].kind in {"step", "validation"} and rows[0].holds(note.key)
            if self.on_step is not None and is_latest:
                logged[LATEST].setdefault(column // 2, np.zeros(2))[:] += self.sums_of(
                    note, share, rows[0]
                )

    def rows_of(self, step: OptimizerStep, share: BatchShare) -> list[LoggedRow]:
        """The rows in which a batch of a step counts: that of the step, if it is the last, and that
        of the epoch.
        """
        course = self.prepared.course
        end = min((step.epoch + 1) * course.steps_of_epoch, course.steps)
        last = [LoggedRow(step.number, "step")] if share.batch == step.last - 1 else []
        return [*last, LoggedRow(end, "epoch")]

    def sums_of(self, note: Note, share: BatchShare, row: LoggedRow) -> tuple[float, float]:
        """The amounts that a note adds to the sum and to the weight of a row."""
        # Parts have the batch's own size in a mean over an epoch.
        size = share.of if note.size in (None, share.samples) else note.size
        weight = share.samples / share.of * (1 if row.of_step else size or 1)
        return (note.value if note.key.is_sum and not row.of_step else note.value * weight), weight

    def apply_all(
        self,
        parts: Sequence[tuple[str, Array, Array, Sequence[Array]]],
        clock: int,
        norm: float = 0.0,
    ) -> None:
        """Runs the optimizer on rows of parameters, in clocks that do a step. `norm` is that of the
        whole gradient.
        """
        work = self.prepared.course.at(clock)
        trained = self._optimizers.trained
        most = self.clip_value

        for name, values, update, _ in parts:
            if name == SEED:
                values[:, 3] = clock
            elif name == LATEST:
                # Of a validation, all parts are summed.
                goes_on = isinstance(work, ValidationPart) and work.part
                touched = update[:, 1] > 0
                values[touched] = update[touched] + (values[touched] if goes_on else 0)

        parts = [part for part in parts if part[0] != LATEST]
        if not isinstance(work, OptimizerStep):
            others = [part for part in parts if part[0] not in trained]
            super().apply_all(others, work.step if work else self.prepared.course.steps)
            return

        if most is not None:
            parts = [
                (name, values, update.clip(-most, most) if name in trained else update, slots)
                for name, values, update, slots in parts
            ]

        super().apply_all(parts, work.number)
        column = self.table.columns.get((TRAINING, NORM))
        for name, values, update, _ in parts:
            if name == LOGGED and column is not None:
                # Rows whose weight was added in this clock.
                values[update[:, column + 1] > 0, column] += norm

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """The mean loss of the framework's step over samples of the first batch, without
        dropout."""
        seed, step, _, clock = params.read(SEED)[0].tolist()
        where = f"{self.name}, step {step}, loss"
        if clock == self.clocks and any(piece.shard.number == 0 for piece in sample):
            self._report(params, clock + 1)
        network = self._load_network(seed, params)
        first = self.prepared.course.step(1)

        with surroundings(seed, self.threads):
            shares = [
                next(self.shares(first, piece.shard.number, where))
                for piece in sample
                if len(piece)
            ]
            losses = network.mean_losses(self._objective, shares, where)

        total = sum(loss * share.samples for loss, share in zip(losses, shares, strict=True))
        return total / sum(share.samples for share in shares)

    # -- the comparison with plain PyTorch ---------------------------------------------------------

    def pieces(self, seed: int, clock: int) -> list[tuple[float, Any]]:
        """The shares of a step, with their weights."""
        del seed
        step = self._step_near(clock)
        shares = [
            share for part in range(self.divided) for share in self.shares(step, part, self.name)
        ]
        return [(self.weight(share), share) for share in shares]

    def whole(self, seed: int, clock: int) -> object:
        """The batches of a step, as one process computes them, with their weights."""
        del seed
        batches = self.shares(self._step_near(clock), 0, self.name, parts=1)
        return [(self.weight(share), share) for share in batches]

    def objective_at(self, clock: int) -> BatchObjective:
        del clock
        return self._objective

    def _step_near(self, clock: int) -> OptimizerStep:
        course = self.prepared.course
        return course.step(1 + (clock - 1) % course.steps)

    def _check_parts(self) -> None:
        """BadTrainer if what is logged, or a running statistic, is another for a batch than for its
        parts together.
        """
        from agileml.torch.first_clock import WithoutChance

        module = self.build(0).to(self._device).train()
        step = self.prepared.course.step(1)
        if not self.redraw and self._draws(module, step):
            raise BadTrainer(
                f"{self.name}: a step draws random numbers (dropout, noise, random samples), and "
                "parts of a batch draw"
                " others than the whole; with redraw=True, results are those of the framework in "
                "distribution only"
            )

        calm = WithoutChance(frozen_norms=True)
        logs = list[dict[LogKey, float]]()
        for parts in (1, self.divided):
            sums: dict[LogKey, Array] = {}
            for part in range(parts):
                share = next(self.shares(step, part, self.name, parts))
                self.notes.clear()
                with surroundings(0, self.threads), calm:
                    self._objective(module, on_device(share, self._device))
                for note in self.notes:
                    row = LoggedRow(step.number, "epoch" if note.key.is_sum else "step")
                    sums[note.key] = sums.get(note.key, 0.0) + np.array(
                        self.sums_of(note, share, row)
                    )
            logs.append(
                {
                    key: total if key.is_sum else total / weight
                    for key, (total, weight) in sums.items()
                }
            )

        if calm.normalized and self.divided > 1:
            raise BadTrainer(
                f"{self.name}: batch normalization computes means over a batch, and those over its "
                "parts are others; use parts=1, so that one node computes each batch"
            )

        for key, value in logs[0].items():
            together = logs[1].get(key)
            if together is None or not np.isclose(
                value, together, rtol=LOG_TOLERANCE, atol=1e-6, equal_nan=True
            ):
                raise BadTrainer(
                    f"{self.name}: {key.name!r} is logged as {value:g} for a batch, and as"
                    f" {'nothing' if together is None else format(together, 'g')} for its parts "
                    "together; log means"
                    " over samples (or, with reduce_fx='sum', sums), or use parts=1"
                )

    def _draws(self, module: torch.nn.Module, step: OptimizerStep) -> bool:
        """Whether the loss of the first batch is another one with other random numbers."""
        losses = []
        for luck in (0, 1):
            with surroundings(luck, self.threads):
                share = next(self.shares(step, 0, self.name, 1, luck))
                losses.append(self._objective(module, on_device(share, self._device)).item())
        return losses[0] != losses[1]

    # -- what is made from the description, once in each process -----------------------------------

    @cached_property
    def prepared(self) -> PreparedTraining:
        with calling(self.name):
            return self.prepare()

    @cached_property
    def _begin_mark(self) -> int:
        """Equal on all nodes that begin with the same weights and draw the same orders."""
        state = self.prepared.orders.state
        tensors = self.prepared.module.state_dict().values()
        mark = crc32(repr(state.python).encode(), checksum(state.torch))
        mark = crc32(state.numpy[1].tobytes(), mark)
        for tensor in tensors:
            mark = crc32(str(checksum(tensor)).encode(), mark)
        return mark

    @cached_property
    def data(self) -> list[TorchData]:
        """The data of each loader."""
        return [
            TorchData(self.name, loader.dataset, loader.collate_fn, 1, 1, 1, False, 0, self.threads)
            for loader in self.prepared.loaders
        ]

    @cached_property
    def table(self) -> LogTable:
        import torch

        # The names that are logged for the first batch, and for the first of each validation
        # loader.
        prepared = self.prepared
        course = prepared.course
        module = self.build(0).to(self._device)
        self.notes.clear()
        with surroundings(0, self.threads):
            self._objective(
                module.train(),
                on_device(next(self.shares(course.step(1), 0, self.name)), self._device),
            )
            counts = prepared.validation_batches if course.validated else ()
            for number in [sum(counts[:loader]) for loader, count in enumerate(counts) if count]:
                share = self._validation_share(0, number, self.name)
                with torch.no_grad(), calling(self.name):
                    self.validate(module.eval(), on_device(share, self._device))

        keys = list(dict.fromkeys(note.key for note in self.notes))
        if self.sees_norm:
            keys.append(LogKey(TRAINING, NORM, on_step=True, on_epoch=False))
        return LogTable(
            self.name,
            course,
            keys,
            self.logged_steps(),
            prepared.validation_batches,
        )

    def logged_steps(self) -> Sequence[int]:
        """The steps whose values are logged."""
        if self.log_every:
            return range(self.log_every, self.prepared.course.steps + 1, self.log_every)
        return ()

    @cached_property
    def _objective(self) -> BatchObjective:
        @wraps(self.objective)
        def objective(module: torch.nn.Module, batch: Any) -> torch.Tensor:
            if isinstance(batch, list):
                total: torch.Tensor = sum(
                    weight * self.training_loss(module, share) for weight, share in batch
                )
                return total
            return self.training_loss(module, batch)

        return objective

    def build(self, seed: int) -> torch.nn.Module:
        """A new module with its initial weights, on the same data."""
        import torch
        from torch.utils.data import DataLoader, Dataset

        del seed
        module = self.prepared.module
        held = {
            id(value): value
            for value in vars(module).values()
            if isinstance(value, Dataset | DataLoader)
        }

        try:
            made = copy.deepcopy(module, held)
        except Exception as error:
            raise BadTrainer(
                f"{self.name}: {type(module).__name__} cannot be copied "
                f"({' '.join(str(error).split())}); open files"
                " and connections when they are used"
            ) from error

        assert isinstance(made, torch.nn.Module)
        with calling(self.name):
            if not self.is_whole:
                check_hooks(module)
            return check_module(made)

    def numbers(self, step: OptimizerStep) -> Sequence[Array]:
        """The samples of each batch of a step."""
        # Loops over loaders are counted: the epochs before this one, and their validations. One
        # before the first step comes after the loop of the first epoch has begun.
        course = self.prepared.course
        validations = 0
        if step.epoch:
            validations = bisect_right(course.validated, step.epoch * course.steps_of_epoch)
        loop = step.epoch + len(self.prepared.validation_batches) * validations
        return self.prepared.orders.batches(loop)[step.first : step.last]

    def shares(
        self, step: OptimizerStep, part: int, where: str, parts: int = 0, luck: int = 0
    ) -> Iterator[BatchShare]:
        """The samples of a part in each batch of a step that has any for it, with random numbers of
        this `luck`.
        """
        del luck
        parts = parts or self.divided
        for place, numbers in enumerate(self.numbers(step)):
            chosen = numbers[len(numbers) * part // parts : len(numbers) * (part + 1) // parts]
            if len(chosen):
                content = self.data[0].fetch(chosen, where)
                yield BatchShare(
                    content,
                    step.first + place,
                    len(chosen),
                    len(numbers),
                    step.number - 1,
                    step.epoch,
                )

    def weight(self, share: BatchShare) -> float:
        return share.samples / share.of / self.accumulate
