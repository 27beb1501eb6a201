"""Scenarios whose conditions must hold; `tests.agileml.mutants` shows that they can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.agileml import trials

SEEDS = 5


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(
    "trial",
    [
        trials.a_job_starts_whatever_happens_to_its_nodes,
        trials.a_warned_node_does_not_wait_for_the_end_of_its_clock,
        trials.redone_work_is_counted,
        trials.a_lost_reliable_node_costs_one_clock,
        trials.a_checkpoint_that_cannot_be_written_is_not_the_last,
        trials.a_job_that_redoes_clocks_is_not_given_up,
        trials.the_loss_is_that_of_the_final_model,
    ],
)
def test_conditions_hold_in_simulations(trial: Callable[[int], None], seed: int) -> None:
    trial(seed)


@pytest.mark.parametrize(
    "trial",
    [
        trials.a_peer_lost_as_soon_as_it_is_linked_costs_only_its_messages,
        trials.a_node_cannot_speak_for_another,
        trials.a_restarted_controller_knows_the_latest_checkpoint,
    ],
)
def test_conditions_hold_between_processes(trial: Callable[[int], None]) -> None:
    trial(0)
