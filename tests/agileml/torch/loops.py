"""Training loops as users write them, for the tests of `Elastic`: those that any node can continue,
and others.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, SequentialLR
from torch.utils.data import DataLoader, Subset, TensorDataset

from agileml.torch import Elastic
from tests.agileml.torch.nets import (
    PARTS,
    Normalized,
    Shared,
    Shares,
    adamw,
    data,
    momentum,
    objective,
)

SIZE = 2 * PARTS


def elastic_of(net: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Elastic:  # noqa: ANN401
    given = {"batch_size": SIZE, "parts": PARTS, "threads": 1, **options}
    return Elastic(net, optimizer, given.pop("dataset", data()), **given)


# -- loops that any node can continue --------------------------------------------------------------


def scheduled(seconds: float = 0.0) -> None:
    """Tied and frozen weights, groups, two schedulers after one another, and clipping."""
    net = Shared()
    optimizer = adamw(net)
    warm = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    scheduler = SequentialLR(optimizer, [warm, CosineAnnealingLR(optimizer, 20)], [3])
    elastic = elastic_of(net, optimizer, state=scheduler, clip_norm=0.5)
    for _, batch in elastic:
        optimizer.zero_grad()
        objective(net, batch).backward()
        elastic.step()
        scheduler.step()
        time.sleep(seconds)


class Recurrent(nn.Module):
    """Goes on with the state that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 4)
        self.cell = nn.GRUCell(4, 6)
        self.out = nn.Linear(6, 20)

    def forward(
        self, words: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.cell(self.words(words), hidden)
        return self.out(hidden), hidden


def stateful(seconds: float = 0.0) -> None:
    """A hidden state that goes from batch to batch, counts, a moving mean, noise of three
    generators, and dropout.
    """
    net, hidden = Recurrent(), torch.zeros(SIZE // PARTS, 6)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    counts, losses = {"seen": 0, "mean": 0.0}, list[float]()
    ours, theirs, drawn = (
        np.random.default_rng(5),
        random.Random(5),
        torch.Generator().manual_seed(5),
    )
    state = hidden, counts, losses, ours, theirs, drawn
    elastic = elastic_of(
        net, optimizer, dataset=TensorDataset(*data()[:64]), state=state, ignored="began"
    )
    began = time.monotonic()
    for step, (_, words, targets) in elastic:
        scores, after = net(words, hidden)
        noise = (
            ours.normal()
            + theirs.gauss(0, 1)
            + float(torch.randn(1, generator=drawn))
            + np.random.rand()
        )
        kept = nn.functional.dropout(scores, 0.2) * (1 + 0.01 * noise)
        loss = nn.functional.cross_entropy(kept, targets) / (1 + counts["seen"] / 1000)
        loss.backward()
        hidden.copy_(after.detach())
        counts["seen"] += len(words)
        counts["mean"] = 0.9 * counts["mean"] + 0.1 * loss.item()
        losses[:] = [*losses[-3:], loss.item()]
        if elastic.is_first and step % 100 == 99:
            # As users do.
            print(f"{time.monotonic() - began:.1f} s, loss {loss.item()}")  # noqa: T201
        elastic.step()
        if step % 100 == 99:
            began = time.monotonic()
        time.sleep(seconds)


def normalized(seconds: float = 0.0) -> None:
    """Batch normalization and dropout, a validation every other step, and a DataLoader."""
    net = Normalized(dropout=0.3)
    optimizer = momentum(net)
    elastic = elastic_of(
        net,
        optimizer,
        dataset=DataLoader(Subset(data(), range(64)), SIZE, shuffle=True),
        batch_size=None,
    )
    for step, batch in elastic:
        if step % 2 == 0:
            net.eval()
            with torch.no_grad():
                objective(net, data()[:8])
            net.train()
        loss = objective(net, batch)
        loss.backward()
        elastic.step()
        time.sleep(seconds)


def noting(file: str) -> None:
    """Notes each iteration with its process."""
    net = nn.Linear(4, 20)
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1), parts=4)
    for step, (numbers, _, targets) in elastic:
        with Path(file).open("a") as notes:
            notes.write(f"{os.getpid()} {step} {elastic.is_first}\n")
        nn.functional.cross_entropy(net(numbers), targets).backward()
        elastic.step()
        time.sleep(0.005)


def with_the_rest(file: str, rate: float = 0.1) -> None:
    """Code after the loop, which sees the trained weights and what the loop counted."""
    net, counts = nn.Linear(4, 20), {"steps": 0}
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=rate), state=[counts])
    for _ in range(3):
        for _, (numbers, _, targets) in elastic:
            nn.functional.cross_entropy(net(numbers), targets).backward()
            elastic.step()
            counts["steps"] += 1
    torch.save({"net": net.state_dict(), "steps": counts["steps"]}, file)


def with_a_failing_rest() -> None:
    _train()
    raise ValueError("there is no such folder")


def with_an_ignored_count() -> None:
    net, count = nn.Linear(4, 20), 0
    losses = list[float]()
    elastic = elastic_of(
        net, torch.optim.SGD(net.parameters(), lr=0.1), ignored=("count", "losses")
    )
    for _, (numbers, _, targets) in elastic:
        loss = nn.functional.cross_entropy(net(numbers), targets)
        loss.backward()
        elastic.step()
        count += 1  # noqa: SIM113 - as users do
        losses.append(loss.item())


def streamed(seconds: float = 0.0) -> None:
    """Samples without numbers, of a dataset that continues from a state."""
    net = Shared()
    elastic = elastic_of(net, adamw(net), dataset=Shares())
    for _, batch in elastic:
        objective(net, batch).backward()
        elastic.step()
        time.sleep(seconds)


GOOD: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (scheduled, stateful, normalized, streamed)
}


# -- loops with a state that other nodes do not have -----------------------------------------------

CALLS = 0


class Counting(nn.Linear):
    """Counts in an attribute, and on the class."""

    made = 0

    def __init__(self) -> None:
        super().__init__(4, 20)
        self.calls = 0

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(numbers) * (1 + self.calls / 10)


def _train(
    factor: Callable[[int, torch.Tensor], Any] = lambda step, numbers: 1,  # noqa: ARG005
    net: nn.Module | None = None,
    **options: Any,  # noqa: ANN401
) -> None:
    """A loop whose loss is multiplied by a factor that a test case computes."""
    net = net or nn.Linear(4, 20)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    elastic = elastic_of(net, optimizer, **options)
    for step, (numbers, _, targets) in elastic:
        loss = nn.functional.cross_entropy(net(numbers), targets) * factor(step, numbers)
        loss.backward()
        elastic.step()


def counter() -> None:
    net, count = nn.Linear(4, 20), 0
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for _, (numbers, _, targets) in elastic:
        count += 1  # noqa: SIM113 - as users do
        nn.functional.cross_entropy(net(numbers), targets).backward()
        elastic.step()


def growing() -> None:
    net, losses = nn.Linear(4, 20), list[float]()
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for _, (numbers, _, targets) in elastic:
        loss = nn.functional.cross_entropy(net(numbers), targets)
        loss.backward()
        elastic.step()
        losses.append(loss.item())


def enumerated() -> None:
    net = nn.Linear(4, 20)
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for number, (_, (numbers, _, targets)) in enumerate(elastic):
        (nn.functional.cross_entropy(net(numbers), targets) * (1 + number)).backward()
        elastic.step()


def hidden() -> None:
    net, state = Recurrent(), torch.zeros(SIZE // PARTS, 6)
    elastic = elastic_of(
        net, torch.optim.SGD(net.parameters(), lr=0.1), dataset=TensorDataset(*data()[:64])
    )
    for _, (_, words, targets) in elastic:
        scores, state = net(words, state)
        state = state.detach()
        nn.functional.cross_entropy(scores, targets).backward()
        elastic.step()


def previous() -> None:
    """The batch of the step before: the same when an iteration is computed again, after the first
    time.
    """
    net, before = nn.Linear(4, 20), torch.zeros(1, 4)
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for _, (numbers, _, targets) in elastic:
        (nn.functional.cross_entropy(net(numbers), targets) * (1 + before.mean())).backward()
        elastic.step()
        before = numbers


def sometimes() -> None:
    """A variable that a step sets and others read; computed again, an iteration is the same."""
    net, scale = nn.Linear(4, 20), 1.0
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for step, (numbers, _, targets) in elastic:
        (nn.functional.cross_entropy(net(numbers), targets) * scale).backward()
        elastic.step()
        if step == 1:
            scale = 2.0


def remembered() -> None:
    """A number that a step sets and others read, in an object."""
    scales = {"now": 1.0}

    def factor(step: int, _: torch.Tensor) -> float:
        if step:
            scales["now"] = 2.0
        return scales["now"]

    _train(factor)


def late() -> None:
    """Counts once the weights are others than those at the beginning."""
    torch.manual_seed(1)
    net = nn.Linear(4, 20)
    first, calls = net.weight.detach().clone(), {"late": 0}

    def factor(_: int, __: torch.Tensor) -> int:
        calls["late"] += int(not torch.equal(first, net.weight))
        return 1

    _train(factor, net)


def closure() -> None:
    def counted() -> Callable[[int, torch.Tensor], float]:
        calls = 0

        def factor(_: int, __: torch.Tensor) -> float:
            nonlocal calls
            calls += 1
            return 1 + calls / 10

        return factor

    _train(counted())


def numpy_generator() -> None:
    ours = np.random.default_rng(3)
    _train(lambda _, __: ours.random())


def attribute() -> None:
    _train(net=Counting())


def of_class() -> None:
    def factor(_: int, __: torch.Tensor) -> int:
        Counting.made += 1
        return 1

    _train(factor)


def of_module() -> None:
    def factor(_: int, __: torch.Tensor) -> int:
        global CALLS  # noqa: PLW0603
        CALLS += 1
        return CALLS

    _train(factor)


def generated() -> None:
    def falling() -> Iterator[float]:
        rate = 1.0
        while True:
            yield rate
            rate *= 0.9

    rates = falling()
    _train(lambda _, __: next(rates))


def iterated() -> None:
    rates = iter([1.0, 0.9, 0.8] * 100)
    _train(lambda _, __: next(rates))


BAD = {
    counter: r"'count' goes from one iteration to the next",
    growing: r"'losses' of growing changes each time",
    enumerated: r"'number' of enumerated changes each time",
    hidden: r"'state' goes from one iteration to the next",
    previous: r"'before' goes from one iteration to the next",
    sometimes: r"'scale' goes from one iteration to the next",
    remembered: r"the gradient of 'weight' is another one when the iteration is computed again",
    closure: r"'calls' of closure.<locals>.counted.<locals>.factor changes each time",
    numpy_generator: r"'ours' of numpy_generator changes each time",
    attribute: r"'net' of _train, attribute 'calls' changes each time",
    of_class: r"'made' of 'Counting' of loops.py changes each time",
    of_module: r"'CALLS' of loops.py changes each time",
    generated: r"'rate' of 'rates' of .* changes each time",
    iterated: r"'rates' of .* changes each time",
}


# -- loops that do something else ------------------------------------------------------------------


def _misused(
    what: Callable[[Elastic, nn.Module, torch.optim.Optimizer, int], None],
    **options: Any,  # noqa: ANN401
) -> None:
    net = nn.Linear(4, 20)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    elastic = elastic_of(net, optimizer, **options)
    for step, (numbers, _, targets) in elastic:
        nn.functional.cross_entropy(net(numbers), targets).backward()
        what(elastic, net, optimizer, step)


def stepless() -> None:
    _misused(lambda *_: None)


def twice() -> None:
    def step(elastic: Elastic, *_: object) -> None:
        elastic.step()
        elastic.step()

    _misused(step)


def own_step() -> None:
    def step(elastic: Elastic, _: nn.Module, optimizer: torch.optim.Optimizer, __: int) -> None:
        optimizer.step()
        elastic.step()

    _misused(step)


def own_rate() -> None:
    def slower(elastic: Elastic, _: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        elastic.step()
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 2)

    _misused(slower)


def by_epoch() -> None:
    net = nn.Linear(4, 20)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    elastic = elastic_of(net, optimizer, state=[scheduler, {"seen": 0}])
    for step, (numbers, _, targets) in elastic:
        nn.functional.cross_entropy(net(numbers), targets).backward()
        elastic.step()
        if step % 3 == 2:
            scheduler.step()


def on_plateau() -> None:
    net = nn.Linear(4, 20)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in elastic_of(
        net, optimizer, state=torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    ):
        pass


def clipped() -> None:
    def clip(elastic: Elastic, net: nn.Module, *_: object) -> None:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        elastic.step()

    _misused(clip)


def validated_late() -> None:
    def validate(elastic: Elastic, net: nn.Module, *_: object) -> None:
        elastic.step()
        net(torch.zeros(1, 4))

    _misused(validate)


def averaged_late() -> None:
    averaged = torch.zeros(20, 4)

    def average(elastic: Elastic, net: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        elastic.step()
        optimizer.zero_grad()
        assert sum(weight.numel() for weight in net.parameters()) == 100
        averaged.lerp_(next(net.parameters()).detach(), 0.1)

    _misused(average, state=averaged)


def summed() -> None:
    _train(lambda _, numbers: len(numbers))


def breaking() -> None:
    net = nn.Linear(4, 20)
    elastic = elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for _, (numbers, _, targets) in elastic:
        nn.functional.cross_entropy(net(numbers), targets).backward()
        elastic.step()
        break


def without_a_loop() -> None:
    net = nn.Linear(4, 20)
    elastic_of(net, torch.optim.SGD(net.parameters(), lr=0.1))


def opaque() -> None:
    _train(state=object())


def unreadable() -> None:
    _train(state={"a class": nn.Linear})


def leaving() -> None:
    raise SystemExit(3)


def failing() -> None:
    _train(lambda _, __: 1 / 0)


MISUSED = {
    stepless: r"step 0: the loop went on without elastic.step\(\)",
    twice: r"step 0: elastic.step\(\) was called twice",
    own_step: r"step 0: the loop changed 'weight', but its optimizer runs on the servers",
    own_rate: r"after the iteration, 'lr' of the optimizer's group 0 is 0.05, but servers, .* go on with 0.1",
    by_epoch: r"step 0: the loop must call step\(\) of StepLR once in each iteration",
    on_plateau: r"ReduceLROnPlateau depends on losses",
    clipped: r"changed the gradient of 'weight' after backward\(\), .* pass clip_norm",
    validated_late: r"step 0: the weights are used after elastic.step\(\)",
    averaged_late: r"step 0: the weights are used after elastic.step\(\), .*in average",
    summed: r"differs by .* must return the mean",
    breaking: r"step 0: the loop has ended by itself",
    without_a_loop: r"it ended before it came to a loop over an Elastic",
    opaque: r"state holds object, which cannot be restored in place",
    unreadable: r"step 0: state holds more than tensors, numbers, texts, lists and dicts",
    leaving: r"called sys.exit\(3\) before its loop",
    failing: r"ZeroDivisionError.*in <lambda>",
}
