"""`Elastic`: a training loop of the user's own, on as many nodes as there are at the moment.

Every node runs the script in a thread of its own, up to the loop. There it waits for work: an
iteration of the loop is one part of the batch of a step, with the weights, the random numbers and
the declared state of that step and part, so that any node can do it, and do it again. `LoopTrainer`
asks for iterations, and trains with what they compute.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any, cast

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

from agileml.errors import BadArgument, BadTrainer, TrainerFailed
from agileml.params import FULL
from agileml.torch.data import OF_JOB
from agileml.torch.loop_state import (
    StepRates,
    check_rates,
    content_of,
    objects_of,
    restore,
    set_rates,
)
from agileml.torch.loop_variables import LoopVariables, variables_set
from agileml.torch.orders import RandomState
from agileml.user_code import is_own

CURE = (
    "keep what the loop changes in objects that state=... names, numbers in a dict, or name in "
    "ignored=... a variable on which no result depends"
)

_here = threading.local()
"""Has the `LoopThread` whose function this thread runs, if it runs one."""


@dataclass(frozen=True, slots=True)
class Work:
    """An iteration: the part of a step, what it begins with, and whether to look at the loop's
    variables after it.

    `rates` are those of the optimizer before it and after it. `function_modes` intercept PyTorch's
    functions.
    """

    clock: int
    part: int
    batch: object
    state: bytes
    rates: tuple[StepRates, StepRates]
    function_modes: Sequence[TorchFunctionMode] = ()
    looks: bool = False


@dataclass(frozen=True, slots=True)
class Computed:
    """The result of an iteration: the gradients of the model's parameters, the loss, and the state
    after it.
    """

    gradients: Sequence[torch.Tensor | None]
    loss: float
    state: bytes
    variables: LoopVariables | None


class Elastic:
    """The batches of a training loop whose machines come and go.

        elastic = Elastic(model, optimizer, dataset, batch_size=64)
        for step, batch in elastic:
            loss = cross_entropy(model(batch[0]), batch[1])
            loss.backward()
            elastic.step()

    A batch is divided into `parts`, and an iteration gets one of them: its loss must be the mean
    over the samples that it gets. `elastic.step()` takes the place of the optimizer's: it hands
    over the gradients, and the new weights are there in the next iteration. `step` counts from 0.
    `dataset` is one with a length and access by index, or a DataLoader, whose batch size and
    collate_fn are used. Samples come in an order that is drawn for the seed of the job; with
    `order="loader"`, in that of the DataLoader in a loop of one process.

    `state` is what the loop changes, an object or several: schedulers, dicts, lists, tensors,
    generators of random numbers, and what has a `state_dict`. A part of the batch goes on with the
    state that it left in the step before. Other objects and variables must not change from step to
    step, or the job is refused; name in `ignored` a variable on which no result depends.
    `clip_norm` is the largest norm of a batch's gradient.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,  # noqa: ANN401 - a dataset, or a DataLoader
        *,
        batch_size: int | None = None,
        parts: int = 8,
        state: object = (),
        ignored: Sequence[str] = (),
        shuffle: bool = True,
        collate: Callable[[list[Any]], Any] | None = None,
        clip_norm: float | None = None,
        workers: int = 0,
        threads: int = 1,
        wire: str = FULL,
        order: Any = OF_JOB,  # noqa: ANN401 - a name, or a sampler
        tolerance: float = 0.02,
    ) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise BadArgument(
                f"Elastic: optimizer is {type(optimizer).__name__}; pass one of torch.optim"
            )
        if batch_size is None and not isinstance(dataset, DataLoader):
            raise BadArgument(
                "Elastic: batch_size is missing; pass it, or a DataLoader, which has one"
            )

        self.model = model
        self.optimizer = optimizer
        self.settings: dict[str, Any] = {
            "dataset": dataset,
            "batch_size": dataset.batch_size if batch_size is None else batch_size,
            "parts": parts,
            "shuffle": shuffle,
            "collate": collate,
            "clip_norm": clip_norm,
            "workers": workers,
            "threads": threads,
            "wire": wire,
            "order": order,
            "tolerance": tolerance,
        }

        """The settings of the `TorchModule`."""
        given = objects_of(state)
        self.schedulers = [each for each in given if isinstance(each, LRScheduler)]
        self.declared = [each for each in given if not isinstance(each, LRScheduler)]
        self.code: CodeType | None = None
        """The function with the loop, once it has begun."""
        self._overwritten = frozenset[str]()
        """Variables of the loop's function that each iteration sets before it reads them."""
        self._ignored = frozenset([ignored] if isinstance(ignored, str) else ignored)
        self._parameters = dict(model.named_parameters())
        self._loop: LoopThread | None = None
        self._work: Work | None = None
        self._gradients: list[torch.Tensor | None] | None = None
        self._loss = 0.0
        self._versions: dict[str, int] = {}
        """PyTorch's counts of changes to the gradients, after the last `backward`."""
        self._weights: list[int] = []
        """Its counts of changes to the parameters, at the beginning of the iteration."""
        self._around = ExitStack()
        self._is_done = False

    @property
    def is_first(self) -> bool:
        """Whether this is the first part of its batch, so that what is printed for it is printed
        once for a step.
        """
        return self._work is not None and self._work.part == 0

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        loop: LoopThread | None = getattr(_here, "loop", None)
        if loop is None:
            raise BadTrainer(
                "Elastic: this process is no node of a job; start the script with `spotctl lab "
                "train FILE.py`, with a"
                " job file that has app: FILE.py, or with agileml.train('FILE.py')"
            )
        if self._is_done:
            # A loop over epochs goes on after the training.
            return iter(())
        if loop.elastic is not None:
            raise BadTrainer(
                "Elastic: a second loop has begun, but a job has one; go on in the first"
            )

        torch.set_num_threads(self.settings["threads"] or torch.get_num_threads())
        for scheduler in self.schedulers:
            # It would ask why the optimizer takes no steps.
            vars(scheduler.optimizer)["_opt_called"] = True

        if self.settings["order"] != OF_JOB:
            # A loop of one process would draw the order of the first epoch now.
            self.settings["dataset"] = partial(RandomState.now().left, self.settings["dataset"])

        self._modes = [(layer, layer.training) for layer in self.model.modules()]
        frame = self._frames()[0]
        carried, overwritten = variables_set(frame.f_code.co_filename, frame.f_lineno)
        carried = carried - self._ignored
        if carried:
            raise BadTrainer(
                f"Elastic: {min(carried)!r} goes from one iteration to the next, but another node "
                f"may do that one: {CURE}"
            )

        self.code = frame.f_code
        self._overwritten = overwritten
        self._loop = loop
        loop.elastic = self
        return self

    def __next__(self) -> tuple[int, Any]:
        assert self._loop is not None
        work = self._loop.exchange(self._end())
        if work is None:
            self._is_done = True
            raise StopIteration

        # Gives the loop what belongs to a step and a part.
        self._work = work
        self._loss = 0.0
        self._versions.clear()
        self._forget_gradients()
        self._weights = [parameter._version for parameter in self._parameters.values()]
        restore(self._where, self.declared, work.state)
        set_rates(self.optimizer, self.schedulers, work.rates[0])
        for layer, is_training in self._modes:
            layer.training = is_training
        for mode in work.function_modes:
            self._around.enter_context(mode)
        self._around.enter_context(self._noting_losses())
        return work.clock - 1, work.batch

    def step(self) -> None:
        """Hands over the gradients of the iteration."""
        if self._work is None or self._gradients is not None:
            raise BadTrainer(
                f"{self._where}: elastic.step() was called twice; call it once in each iteration"
            )

        self.leave()
        for name, parameter in self._parameters.items():
            gradient = parameter.grad
            if (
                gradient is not None
                and gradient._version != self._versions.get(name)
                and self.settings["parts"] > 1
            ):
                raise BadTrainer(
                    f"{self._where}: the loop changed the gradient of {name!r} after backward(), "
                    "but that is the"
                    " gradient of a part of the batch; pass clip_norm=... to clip that of the "
                    "batch, or parts=1"
                )

        if all(parameter.grad is None for parameter in self._parameters.values()):
            raise BadTrainer(
                f"{self._where}: no parameter has a gradient; call backward() before elastic.step()"
            )

        self._gradients = [parameter.grad for parameter in self._parameters.values()]
        self._forget_gradients()
        self._around.enter_context(_OldWeights(self._where, self._parameters.values()))

    def leave(self) -> None:
        """Ends what holds within an iteration."""
        self._around.close()

    # -- one iteration -----------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        if self._work:
            return f"Elastic, step {self._work.clock - 1}"
        return "Elastic, before the first step"

    def _end(self) -> Computed | None:
        """The result of the iteration that ends; None before the first."""
        work = self._work
        gradients = self._gradients
        if work is None:
            return None

        self.leave()
        if gradients is None:
            raise BadTrainer(
                f"{self._where}: the loop went on without elastic.step(); call it in each iteration"
            )

        for (name, parameter), version in zip(self._parameters.items(), self._weights, strict=True):
            if parameter._version != version:
                raise BadTrainer(
                    f"{self._where}: the loop changed {name!r}, but its optimizer runs on the "
                    "servers; remove optimizer.step() and what else changes parameters"
                )

        check_rates(self._where, self.optimizer, self.schedulers, work.rates[1])
        state = content_of(self._where, self.declared)
        if work.looks:
            variables = LoopVariables.of(
                self._frames(), self._known, self._ignored, self._overwritten
            )
        else:
            variables = None

        self._work = self._gradients = None
        return Computed(gradients, self._loss, state, variables)

    @contextmanager
    def _noting_losses(self) -> Iterator[None]:
        """Notes the losses that `backward` is called for, and the state of the gradients after
        it."""
        usual = torch.autograd.backward

        def backward(tensors: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
            usual(tensors, *arguments, **named)
            losses = [tensors] if isinstance(tensors, torch.Tensor) else tensors
            self._loss += sum(float(loss.detach().sum()) for loss in losses)
            gradients = {name: parameter.grad for name, parameter in self._parameters.items()}
            self._versions = {
                name: each._version for name, each in gradients.items() if each is not None
            }

        torch.autograd.backward = backward
        try:
            yield
        finally:
            torch.autograd.backward = usual

    def _forget_gradients(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def _frames(self) -> list[FrameType]:
        """The frames of the user's code that lead to the loop, from the innermost on."""
        frames = list[FrameType]()
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code is not LoopThread.run.__code__:
            frame = frame.f_back
            if is_own(frame.f_code.co_filename):
                frames.append(frame)
        return frames

    @cached_property
    def _known(self) -> list[object]:
        """Objects whose changes are seen otherwise, or belong to the loop."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return [self, self.optimizer, *self.schedulers, *self.declared, *tensors]


class _OldWeights(TorchFunctionMode):
    """Refuses all functions of PyTorch that read weights, as a loop would expect the new ones after
    its step.
    """

    def __init__(self, where: str, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._where = where
        self._weights = {id(weight) for weight in weights}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the function returns
        del types
        given = [*args, *(kwargs or {}).values()]
        given += [
            each for several in given if isinstance(several, list | tuple) for each in several
        ]

        # Others set a gradient to nothing, or ask for a shape.
        reads = (
            func is torch.Tensor.data.__get__ or getattr(func, "__name__", "") not in _NOT_READING  # type: ignore[attr-defined]
        )
        if reads and any(id(each) in self._weights for each in given):
            raise BadTrainer(
                f"{self._where}: the weights are used after elastic.step(), but the new ones are "
                "there in the next iteration only; use the model before backward()"
            )

        return func(*args, **(kwargs or {}))


_NOT_READING = frozenset(
    "__get__ __set__ __hash__ numel size dim is_floating_point requires_grad_ zero_".split()
)


class _LoopEnded(BaseException):
    """Raised in the loop: there is no further work, and the code after it is not for this
    process."""


class LoopThread:
    """Runs the user's function in a thread of its own, up to its training loop. From then on, the
    loop does the work that another thread asks for, one part at a time."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._asked: SimpleQueue[Work | _LoopEnded | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._is_over = False
        self.elastic: Elastic | None = None
        """The `Elastic` of the loop, once it has begun."""

    def start(self) -> object:
        """Starts the thread: returns what the function returns, or None once it has come to its
        loop.
        """
        # By the same name: where this thread is at work, its caller is.
        threading.Thread(target=self.run, name=threading.current_thread().name, daemon=True).start()
        return self._answer()

    def run(self) -> None:
        """The thread."""
        _here.loop = self
        try:
            answer: tuple[str, Any] = "ended", self._function()
        except _LoopEnded:
            return
        except SystemExit as error:
            when = "before its loop" if self.elastic is None else "in its loop, which the job ends"
            answer = "failed", TrainerFailed(f"the script called sys.exit({error.code!r}) {when}")
        except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
            answer = "failed", error
        finally:
            if self.elastic is not None:
                self.elastic.leave()

        self._is_over = True
        self._answers.put(answer)

    def exchange(self, computed: Computed | None) -> Work | None:
        """Called by the loop: hands over what it has computed, and waits for work; None if the
        training is done.
        """
        self._answers.put(("computed", computed))
        work = self._asked.get()
        if isinstance(work, _LoopEnded):
            raise work
        return work

    def compute(self, work: Work) -> Computed:
        """Called by the other thread: has the loop do an iteration. BadTrainer if the loop has
        ended.
        """
        if not self._is_over:
            self._asked.put(work)
            computed = self._answer()

        if self._is_over:
            raise BadTrainer(
                f"Elastic, step {work.clock - 1}: the loop has ended by itself; the job says when "
                "it ends, such as stop: {clocks: 1000}"
            )

        return cast("Computed", computed)

    def finish(self) -> None:
        """Called by the other thread: the training is done; returns once the code after the loop
        is.
        """
        self._asked.put(None)
        self._answer()

    def end(self) -> None:
        """Called by any thread: there is no further work."""
        self._asked.put(_LoopEnded())

    def _answer(self) -> Any:  # noqa: ANN401 - what the function returns
        what, value = self._answers.get()
        if what == "failed":
            raise value
        return value
