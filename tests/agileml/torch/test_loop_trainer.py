"""`Elastic`: the loop of a script on nodes that come and go, and loops that no other node could
continue.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from difflib import unified_diff
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import agileml
from agileml.apps.registry import TrainerSource
from agileml.errors import AgileMLError, BadTrainer
from agileml.reference import iterate, model_digest
from agileml.runtime.output import Printed
from agileml.torch.loop_trainer import LoopTrainer
from agileml.trainer import Trainer
from tests.agileml.local_faults import LocalSchedule, digest_after
from tests.agileml.schedules import Schedule
from tests.agileml.torch import loops
from tests.agileml.torch.nets import Shared, adamw, objective

SPREAD = 61
"""Seeds this far apart aim at different kinds of messages."""


def source(name: str, **arguments: object) -> TrainerSource:
    return TrainerSource(f"{loops.__name__}:{name}", arguments)


def load(name: str) -> Trainer:
    return source(name).load()


LOADS = {name: partial(load, name) for name in loops.GOOD}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("loop", loops.GOOD)
@pytest.mark.parametrize("seed", range(13, 13 + 17 * SPREAD, SPREAD))
def test_the_model_equals_the_reference(loop: str, seed: int) -> None:
    Schedule(seed, LOADS[loop]).run()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loop", loops.GOOD)
@pytest.mark.parametrize("seed", [5, 8])
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("left_behind")
def test_processes_that_are_killed_change_no_bit(loop: str, seed: int) -> None:
    LocalSchedule(seed, source(loop, seconds=0.002), digest_after(source(loop))).run()


def test_weights_and_losses_are_those_of_a_plain_loop() -> None:
    trainer = load("scheduled")
    assert isinstance(trainer, LoopTrainer)
    run = iterate(trainer, seed=4)
    plain = Shared()
    plain.load_state_dict(trainer.state_dict(next(run)[1]))
    optimizer = adamw(plain)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [3])
    for _ in range(7):
        clock, params, mean = next(run)
        (batch,) = trainer.batch_of(clock, seed=4)
        loss = objective(plain, batch)  # type: ignore[arg-type]
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        assert mean == pytest.approx(loss.item(), rel=0.05)
        ours = trainer.state_dict(params)
        for name, values in plain.state_dict().items():
            assert torch.allclose(ours[name], values, rtol=1e-4, atol=1e-6), (clock, name)


@pytest.mark.parametrize("loop", loops.GOOD)
def test_the_number_of_nodes_changes_no_bit(loop: str) -> None:
    models = [
        agileml.train(
            source(loop), nodes, "sim", clocks=4, deterministic=True, output=lambda _: None
        ).model
        for nodes in ("1+0", "1+4", "0+3")
    ]
    assert len({model_digest(model) for model in models}) == 1


@pytest.mark.parametrize("loop", loops.MISUSED, ids=lambda loop: loop.__name__)
def test_a_loop_that_does_something_else_is_refused(loop: Callable[[], None]) -> None:
    with pytest.raises(AgileMLError, match=loops.MISUSED[loop]):
        agileml.train(source(loop.__name__), "1+1", "sim", clocks=3, output=lambda _: None)


def test_the_code_after_the_loop_runs_once_with_the_trained_weights(tmp_path: Path) -> None:
    file = tmp_path / "net.pt"
    trained = agileml.train(
        source("with_the_rest", file=str(file)), "1+2", "sim", clocks=5, output=lambda _: None
    )
    after = torch.load(file)
    assert after["steps"] == 5
    assert torch.equal(after["net"]["weight"], torch.tensor(trained.model["weight"]))


def test_a_failure_after_the_loop_leaves_the_model() -> None:
    printed: list[Printed] = []
    trained = agileml.train(
        source("with_a_failing_rest"), "1+1", "sim", clocks=2, output=printed.append
    )
    assert trained.clocks == 2
    assert "the code after the loop failed: ValueError: there is no such folder" in printed[-1].text


@pytest.mark.usefixtures("left_behind")
def test_a_node_that_joins_repeats_no_earlier_step(tmp_path: Path) -> None:
    """Without losses, each part of each step is computed once, but for the steps that are computed
    twice to compare.
    """
    notes = tmp_path / "notes"
    agileml.train(
        source("noting", file=str(notes)), "1+1", "local", clocks=40, chaos="at clock 12 join 1"
    )
    lines = [line.split() for line in notes.read_text().splitlines()]
    first: dict[str, int] = {}
    for process, step, _ in lines:
        first.setdefault(process, int(step))
    # This process has checked the loop, and run the code after it.
    del first[str(os.getpid())]
    assert sum(step == 0 for step in first.values()) == 2
    joined = [step for step in first.values() if step]
    assert len(joined) == 1
    assert joined[0] >= 12
    counts = Counter(int(step) for process, step, _ in lines if process != str(os.getpid()))
    assert {counts[step] for step in counts} <= {4, 8}
    assert counts.keys() == set(range(40))


PROGRAM = """
import argparse, torch
from agileml.torch import Elastic
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
options = parser.parse_args()
torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=options.rate)
data = torch.utils.data.TensorDataset(torch.randn(64, 2), torch.randn(64, 1))
if __name__ == "__main__":
    elastic = Elastic(net, optimizer, data, batch_size=16)
    for step, (inputs, targets) in elastic:
        ((net(inputs) - targets) ** 2).mean().backward()
        elastic.step()
"""


def test_a_program_runs_with_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    models = [
        agileml.train(
            TrainerSource(str(file), {"rate": rate}), "1+1", "sim", clocks=3, output=lambda _: None
        ).model
        for rate in (0.1, 0.1, 0.2)
    ]
    digests = [model_digest(model) for model in models]
    assert digests[0] == digests[1] != digests[2]


def test_outside_of_a_job_the_loop_says_how_to_start_it() -> None:
    with pytest.raises(BadTrainer, match=r"spotctl lab train FILE\.py"):
        loops.scheduled()


def test_the_loop_of_the_example_differs_from_the_plain_one_by_five_lines() -> None:
    folder = Path(__file__).parents[3] / "examples" / "elastic"
    plain, elastic = (
        [line for line in (folder / name).read_text().splitlines()[1:] if line]
        for name in ("plain.py", "train.py")
    )
    changed = [
        line
        for line in unified_diff(plain, elastic, n=0)
        if line.startswith("+") and line[:3] != "+++"
    ]
    assert len(changed) == 5
