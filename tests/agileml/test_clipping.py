"""Updates that are clipped by the norm of all of them, whose partitions are on different
servers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import agileml
from agileml import reference
from agileml.core.clocks import UpdateNorms
from agileml.core.members import Members
from agileml.errors import AgileMLError, BadArgument
from agileml.params.commit import clip_factor, shrunk
from agileml.protocol.messages import SquareOfPart
from agileml.reference import model_digest
from tests.agileml import clipping_faults
from tests.agileml.clipping_faults import Clipped, aim_of
from tests.agileml.schedules import Schedule
from tests.agileml.torch.nets import Shared, momentum, trainer


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(1, 31))
def test_faults_change_no_bit(seed: int) -> None:
    Schedule(seed, Clipped, target=aim_of(seed)).run()


def test_the_schedules_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert clipping_faults.main(0, 3) == 0
    assert "3 schedules ended with the undisturbed model" in capsys.readouterr().out


def test_the_schedules_clip() -> None:
    plain, clipped = Clipped(), Clipped()
    plain.clip_norm = 1e30
    assert model_digest(reference.run(plain, 2, 0)) != model_digest(reference.run(clipped, 2, 0))


def test_a_job_with_several_servers_is_the_reference_run() -> None:
    given = trainer(Shared, momentum, clip_norm=0.05)
    trained = agileml.train(
        given,
        "1+2",
        clocks=8,
        partitions=3,
        deterministic=True,
        stage=2,
        chaos="at clock 3 kill 1",
        seed=4,
    )
    assert model_digest(trained.model) == model_digest(reference.run(given, 8, 4, partitions=3))


def test_the_sum_is_that_of_all_partitions_in_order_and_told_to_those_that_ask_again() -> None:
    norms, members = UpdateNorms(3), Members()
    assert not norms.add(SquareOfPart("t1", 1, 2, 1, 1e-9), members)
    assert not norms.add(SquareOfPart("t1", 1, 2, 1, 1e-9), members)
    assert not norms.add(SquareOfPart("t1", 1, 0, 1, 1.0), members)
    norms.add(SquareOfPart("t2", 1, 1, 1, 2.0), members)
    (again,) = norms.add(SquareOfPart("t3", 1, 2, 1, 1e-9), members)
    assert (again.to, again.message.square) == ("t3", 1.0 + 2.0 + 1e-9)  # type: ignore[attr-defined]
    norms.roll_back()
    assert not norms.add(SquareOfPart("t3", 2, 2, 1, 1e-9), members)


def test_short_updates_are_left_alone_and_no_number_becomes_none() -> None:
    assert clip_factor(4.0, 3.0) == 1.0
    assert clip_factor(4.0, 0.0) == 1.0
    assert clip_factor(4.0, 1.0) == pytest.approx(0.5)
    tiny = np.array([-1e-45, -0.0, -8.0], np.float32)
    after = shrunk(tiny, 0.25)
    assert np.signbit(after).tolist() == [False, True, True]
    assert after[2] == -2.0


def test_what_cannot_be_clipped_is_refused() -> None:
    with pytest.raises(BadArgument, match="clip_norm is 0"):
        trainer(clip_norm=0.0)

    def sgd(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD([one for one in net.parameters() if one.requires_grad], lr=0.1)

    with pytest.raises(AgileMLError, match=r"clip_norm needs the norm of 'words.weight'"):
        reference.run(
            trainer(lambda: Shared(sparse=True, tied=False), sgd, clip_norm=1.0), 1, seed=0
        )

    class Adding(Clipped):
        apply = None  # type: ignore[assignment]

    with pytest.raises(AgileMLError, match="clip_norm needs an apply"):
        reference.run(Adding(), 1, seed=0)
