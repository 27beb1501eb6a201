"""Three clocks of a script and of the trainer that is made of it, with the same batches.

The script runs as it is, in a process of its own, until its loop asks for the first batch. Then the
trainer is made, from the weights that the script has then, and the loop gets the trainer's batches.
After three clocks the weights w of both are compared, as a share of the way that the script went:

    difference = |w_trainer - w_script| / |w_script - w_first|

A trainer is only written if this is at most `TOLERANCE`: it must never train something else than
the script. What cannot be the same, such as data that are drawn without a seed, becomes a remark.
"""

import argparse
import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from agileml.errors import AgileMLError, BadTrainer
from agileml.user_code import described
from spotctl.files.script.reading import read_script
from spotctl.files.script.source import unwrapped
from spotctl.files.script.trainer_loop import ScriptTraining, training_of
from spotctl.files.script.trainer_text import MeasuredTraining, TrainerText

if TYPE_CHECKING:
    from agileml.torch import TorchModule

CLOCKS = 3
MAX_PARTS = 8
MAX_BATCHES = 20_000_000
"""Batches that are counted."""
MIN_COMPARED = 32
"""Numbers of a parameter whose mean and deviation say how they were drawn."""
TOLERANCE = 0.02
"""The largest difference, as a share of the way of the weights."""


@dataclass(frozen=True, slots=True)
class ComparedTrainer:
    """A trainer whose first clocks are those of its script, and how far they are apart."""

    text: str
    steps: int
    clocks: int
    """Clocks that were compared."""
    difference: float
    """That of the weights, as a share of the way that they went."""
    remarks: tuple[str, ...]


class _Enough(BaseException):
    """The script has taken as many steps as are compared."""


def compared_trainer(path: Path, folder: Path) -> ComparedTrainer:
    """Runs a script up to its third step. BadTrainer: it or its trainer cannot, or they differ."""
    script = read_script(path, folder)
    training = training_of(script)
    if training.uncarried:
        raise BadTrainer("; ".join(f"line {line}: {why}" for line, why in training.uncarried))

    trial = _Trial(path, training)
    trial.run_script()
    return trial.compare_with(TrainerText(script, training, trial.measured))


class _Trial:
    def __init__(self, path: Path, training: ScriptTraining) -> None:
        self._path, self._training = path, training
        self._arguments: Mapping[str, object] = {}
        self._names: dict[str, Any] = {}
        self._given = 0
        self.remarks: list[str] = []

    # -- the script

    def run_script(self) -> None:
        """Runs the script with batches of the trainer."""
        from agileml.torch.first_clock import WithoutChance

        self._calm = WithoutChance(frozen_norms=False)
        module = ModuleType("__main__")
        module.__dict__.update(__file__=str(self._path), _spotctl_batches=partial(_FedLoader, self))
        sys.modules["__main__"] = module
        sys.argv[:] = [str(self._path)]
        sys.path.insert(0, str(self._path.resolve().parent))

        usual = argparse.ArgumentParser.parse_args

        def parse_args(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            parsed = usual(parser, *args, **kwargs)
            plain = dict[str, object]()
            for name, value in vars(parsed).items():
                # What is written as it is read, the trainer's file can hold.
                with suppress(ValueError, SyntaxError):
                    if ast.literal_eval(repr(value)) == value:
                        plain[name] = value
            self._arguments = plain
            return parsed

        argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign, assignment]
        try:
            # The user's script.
            exec(compile(self._instrumented(), str(self._path), "exec"), module.__dict__)  # noqa: S102
        except _Enough:
            return
        except SystemExit as error:
            raise BadTrainer(
                f"{self._path} ended by itself (status {error.code}) before its third step"
            ) from error
        except AgileMLError:
            raise
        except Exception as error:
            raise BadTrainer(
                f"{self._path} fails before its third step: {described(error)}"
            ) from error
        finally:
            argparse.ArgumentParser.parse_args = usual  # type: ignore[method-assign]
            if self._given:
                self._calm.__exit__(None, None, None)  # type: ignore[no-untyped-call]

        if not self._given:
            raise BadTrainer(
                f"{self._path} did not reach its loop when it was run without arguments"
            )

    def _instrumented(self) -> ast.Module:
        training = self._training
        assert training.inner is not None
        place = training.inner.lineno, training.inner.col_offset

        class Loader(ast.NodeTransformer):
            def visit_For(self, node: ast.For) -> ast.For:
                if (node.lineno, node.col_offset) != place:
                    self.generic_visit(node)
                    return node

                parent, loader = node, unwrapped(node.iter)
                call = ast.Call(ast.Name("_spotctl_batches", ast.Load()), [loader], [])
                if loader is node.iter:
                    parent.iter = ast.copy_location(call, loader)

                for inner in ast.walk(node.iter):
                    if isinstance(inner, ast.Call) and inner is not call and loader in inner.args:
                        inner.args[inner.args.index(loader)] = ast.copy_location(call, loader)
                        break
                return node

        changed: ast.Module = Loader().visit(ast.parse(training.source.text))
        return ast.fix_missing_locations(changed)

    def fed(self, loader: Any, frame: FrameType) -> Iterator[object]:  # noqa: ANN401
        """The batches of the trainer, from where the last epoch ended."""
        if not self._given:
            self._begin(loader, frame)
            self._calm.__enter__()  # type: ignore[no-untyped-call]

        end = min(self._given + len(loader), len(self._feed))
        while self._given < end:
            batch = self._feed[self._given]
            self._given += 1
            yield batch

        if self._given >= len(self._feed):
            self._after = _copied(self._names[self._training.module].state_dict())
            raise _Enough

    def _begin(self, loader: Any, frame: FrameType) -> None:  # noqa: ANN401
        from torch.utils.data import DataLoader, IterableDataset

        training = self._training
        if not isinstance(loader, DataLoader):
            raise _refused(
                training,
                f"the loop takes its batches from a {type(loader).__name__}, not a DataLoader",
            )
        if isinstance(loader.dataset, IterableDataset):
            raise _refused(
                training,
                f"the samples of {type(loader.dataset).__name__} have no numbers; give its class "
                "__len__ and __getitem__, or write a TorchModule (docs/trainers.md)",
            )
        if loader.batch_size is None:
            raise _refused(training, "the DataLoader has no batch size")

        # The names of the script where its loop runs: those of callers count first, as they are
        # written out.
        outermost: dict[str, Any] = {}
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_filename == str(self._path):
                outermost = above.f_globals
                if above.f_locals is not above.f_globals:
                    self._names |= above.f_locals
            above = above.f_back
        self._names = {**outermost, **self._names}
        network = self._names[training.module]
        self._names[training.module] = getattr(network, "_orig_mod", network)

        self._loader = loader
        self.measured = self._measure(loader)
        self._before = _copied(self._names[training.module].state_dict())
        script = read_script(self._path, self._path.resolve().parent)
        trainer = self.made(TrainerText(script, training, self.measured), self.measured.per_step)
        self._compare_data(trainer, loader)
        self._compare_start(trainer)
        clocks = range(1, min(CLOCKS, self.measured.steps) + 1)
        self._feed = [
            batch
            for clock in clocks
            for batch in trainer.batch_of(clock, pieces=self.measured.per_step)
        ]

    def _measure(self, loader: Any) -> MeasuredTraining:  # noqa: ANN401
        from torch.utils.data import RandomSampler, SequentialSampler

        training, batches = self._training, len(loader)
        marks: list[tuple[str, int]] = []
        epochs: list[tuple[int, Any, int]] = []
        begins: list[int] = []
        counted = 0

        def mark(role: str, owner: Any = None, epoch: int = 0) -> None:  # noqa: ANN401
            nonlocal counted
            if role == "epoch":
                epochs.append((counted, owner, epoch))
                return
            if role == "begin":
                begins.append(counted)
                return
            if role != "batch":
                marks.append((role, counted))
                return

            counted += 1
            if counted > MAX_BATCHES:
                raise _refused(
                    training, f"the loop takes more than {MAX_BATCHES:,} batches; does it ever end?"
                )

        names = {**self._names, "mark": mark, "_batches": batches}
        # Counters of the user's script.
        exec(compile(training.count, "count", "exec"), names)  # noqa: S102
        steps = [count for role, count in marks if role == "step"]
        if not steps:
            raise _refused(training, "the optimizer takes no step")

        every = steps[0]
        regular = (
            steps == list(range(every, every * len(steps) + 1, every))
            and counted - steps[-1] < every
        )
        samples, size = len(loader.sampler), loader.batch_size
        whole = samples // size if loader.drop_last else samples / size
        if any(begin % batches for begin in begins):
            raise _refused(
                training,
                f"the loop leaves epochs of {batches} batches before their end; a trainer takes "
                "all: make the dataset as long as is used (torch.utils.data.Subset)",
            )

        if not regular or (every > 1 and whole % every):
            raise _refused(
                training,
                f"a step takes {every} batches of {size} samples, and {samples:,} samples are no "
                "multiple of that",
            )

        schedule = self._schedule_every(marks)
        norm = None
        if training.clip is not None:
            clip = ast.fix_missing_locations(ast.Expression(training.clip))
            code = compile(clip, "expression", "eval")
            # An expression of the user's script.
            norm = float(eval(code, dict(self._names)))  # noqa: S307

        own_order = type(loader.sampler) not in (SequentialSampler, RandomSampler)
        own_order |= loader.generator is not None
        own_order |= getattr(loader.sampler, "generator", None) is not None
        return MeasuredTraining(
            size,
            batches,
            every,
            len(steps),
            schedule,
            norm,
            self._arguments,
            own_order,
            self._first_epoch(loader, epochs, range(0, counted, batches)),
        )

    def _first_epoch(
        self,
        loader: Any,  # noqa: ANN401
        epochs: Sequence[tuple[int, Any, int]],
        begins: Sequence[int],
    ) -> int | None:
        """The epoch that the sampler gets first, if it gets each; None if it gets none."""
        samplers = [loader.sampler, loader.batch_sampler]
        if any(owner is loader.dataset for _, owner, _ in epochs):
            raise _refused(
                self._training, "the dataset gets the epochs; a trainer does not set them there"
            )
        own = [
            (at, number) for at, owner, number in epochs if any(owner is each for each in samplers)
        ]
        if not own:
            return None

        first = int(getattr(loader.sampler, "epoch", 0))
        numbers = [[first, *(number for at, number in own if at <= begin)][-1] for begin in begins]
        if numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
            shown = ", ".join(map(str, numbers[:4]))
            raise _refused(
                self._training,
                f"its sampler gets the epochs {shown} ...; a trainer's gets one more each time",
            )
        return numbers[0]

    def _schedule_every(self, marks: list[tuple[str, int]]) -> int:
        if not self._training.scheduler:
            return 0

        steps, after = 0, []
        for role, _ in marks:
            if role == "step":
                steps += 1
            else:
                after.append(steps)

        every = after[0] if after else 0
        # The last steps of the loop may come before another of the schedule.
        if (
            not every
            or after != list(range(every, every * len(after) + 1, every))
            or steps - after[-1] >= every
        ):
            raise _refused(
                self._training,
                f"{self._training.scheduler} does not step after every, or every n-th, step",
            )

        return every

    def _compare_data(self, trainer: "TorchModule", loader: Any) -> None:  # noqa: ANN401
        """Whether the trainer reads the samples of the script."""
        import torch

        from agileml.torch.orders import EpochOrders, RandomState, surroundings

        size = min(loader.batch_size, len(loader.dataset))

        def first(dataset: Any, numbers: Iterable[int] = range(size)) -> object:  # noqa: ANN401
            with surroundings(0, 0):
                return loader.collate_fn([dataset[number] for number in numbers])

        ours = _seeded(trainer.dataset, 0)
        if len(ours.dataset) != len(loader.dataset):
            raise BadTrainer(
                f"dataset() has {len(ours.dataset):,} samples, and the script "
                f"{len(loader.dataset):,}"
            )

        if not _equal(first(ours.dataset), first(loader.dataset)):
            if _equal(first(ours.dataset), first(_seeded(trainer.dataset, 1).dataset)):
                raise _refused(self._training, "dataset() makes other samples than the script")
            self.remarks.append(
                "the script draws its data without a seed, so the trainer's are others of the same "
                "kind"
            )

        is_other = isinstance(loader.sampler, torch.utils.data.RandomSampler)
        if self.measured.own_order:
            order = EpochOrders(
                str(self._path),
                loader,
                RandomState.now(),
                loader.batch_size,
                len(loader.dataset),
                self.measured.first_epoch,
            )
            expected = first(ours.dataset, order.epoch(0)[:size].tolist())
            is_other = not _equal(expected, trainer.batch_of(1, pieces=self.measured.per_step)[0])

        if is_other:
            self.remarks.append("samples come in a random order, but not in that of the script")

    def _compare_start(self, trainer: "TorchModule") -> None:
        """Whether the trainer's network is that of the script; its first weights may be other
        random numbers.
        """
        network, theirs = _seeded(trainer.module, 0), self._names[self._training.module]
        ours_frozen, their_frozen = (
            {name for name, parameter in each.named_parameters() if not parameter.requires_grad}
            for each in (network, theirs)
        )
        if ours_frozen != their_frozen:
            raise _refused(self._training, "network() freezes other parameters than the script")

        first = _copied(network.state_dict())
        if first.keys() != self._before.keys():
            raise _refused(self._training, "network() has other layers than the script")

        other = None
        for name, values in first.items():
            if _drawn_otherwise(values, self._before[name]):
                other = name
                break

        if other is not None:
            raise _refused(
                self._training, f"network() begins with other values of {other} than the script"
            )

        again = _seeded(trainer.module, 1).state_dict()
        if _equal(first, _copied(again)) and not _equal(first, self._before):
            self.remarks.append(
                "its first weights are drawn in the same way, but with other random numbers"
            )

    # -- the trainer

    def made(self, text: TrainerText, parts: int) -> "TorchModule":
        """The trainer, which starts from the weights of the script."""
        module = ModuleType(f"{self._path.stem}_trainer")
        sys.modules[module.__name__] = module
        try:
            exec(compile(text.text(parts), module.__name__, "exec"), module.__dict__)  # noqa: S102
            made: TorchModule = module.trainer()
        except AgileMLError:
            raise
        except Exception as error:
            raise BadTrainer(f"the trainer cannot be made: {described(error)}") from error

        loss = made.objective

        @wraps(loss)
        def objective(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with self._calm:
                return loss(*args, **kwargs)

        def dataset() -> Any:  # noqa: ANN401
            loader = made.dataset()
            # Processes that read ahead would outlive this one.
            loader.num_workers = 0
            return loader

        return replace(made, state=self._before, objective=objective, dataset=dataset)

    def compare_with(self, text: TrainerText) -> ComparedTrainer:
        """The trainer with the most parts that trains as the script does."""
        if text.problems:
            raise BadTrainer("; ".join(text.problems))

        from agileml.reference import run

        self.remarks += text.left_out
        samples, per_step = self.measured.samples, self.measured.per_step
        clocks = min(CLOCKS, self.measured.steps)
        most = max(parts for parts in range(1, MAX_PARTS + 1) if samples % parts == 0)
        reason = ""

        for parts in dict.fromkeys((most, per_step)):
            trainer = self.made(text, parts)
            try:
                trainer.check_start(0)
                after = trainer.state_dict(run(trainer, clocks, seed=0))
            except AgileMLError as error:
                reason = str(error)
                continue

            apart = way = 0.0
            for name, values in self._after.items():
                if values.is_floating_point():
                    ours, first = after[name].double(), self._before[name].double()
                    apart += float((ours - values.double()).square().sum())
                    way += float((values.double() - first).square().sum())
            difference = (apart / way) ** 0.5 if way else float(apart > 0)
            if difference <= TOLERANCE:
                if reason:
                    few = f"{parts} parts"
                    if parts == 1:
                        few = "one part: one machine computes each batch"
                    self.remarks.append(f"{few}, because with {most}, {reason}")
                return ComparedTrainer(
                    text.text(parts), self.measured.steps, clocks, difference, tuple(self.remarks)
                )
            reason = (
                f"after {clocks} clocks, the weights differ by {difference:.1%} of the way that "
                "they went"
            )

        raise BadTrainer(reason)


class _FedLoader:
    """Stands for the script's loader in its loop."""

    def __init__(self, trial: _Trial, loader: Any) -> None:  # noqa: ANN401
        self._trial, self._loader = trial, loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[object]:
        return self._trial.fed(self._loader, sys._getframe(1))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._loader, name)


def _seeded(make: Callable[[], Any], seed: int) -> Any:  # noqa: ANN401 - data, or a network
    """Has a part of a trainer make something, with random numbers from this seed."""
    from agileml.torch.orders import surroundings

    with surroundings(seed, 0):
        return make()


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values.detach().cpu().clone() for name, values in state.items()}


def _equal(left: Any, right: Any) -> bool:  # noqa: ANN401 - batches
    import torch

    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_equal, left, right))

    return bool(left == right)


def _drawn_otherwise(values: Any, expected: Any) -> bool:  # noqa: ANN401 - tensors
    """Whether two tensors look as if they were not drawn alike: by shape, mean and deviation."""
    if values.shape != expected.shape:
        return True
    if values.numel() < MIN_COMPARED or not values.is_floating_point():
        return False
    here, there = values.double(), expected.double()
    low, high = sorted((float(here.std()), float(there.std())))
    apart = abs(float(here.mean() - there.mean()))
    return bool(high > 2 * low or apart > 1e-6 + 8 * high / values.numel() ** 0.5)


def _refused(training: ScriptTraining, reason: str) -> BadTrainer:
    line = training.inner.lineno if training.inner is not None else 1
    return BadTrainer(f"line {line}: {reason}")
