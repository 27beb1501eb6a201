"""Splits and closed forms of the papers' models."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from agileml.pipeline.plan.parallel_plan import Topology
from agileml.pipeline.profile.model_profile import LayerCost, ModelProfile
from agileml.pipeline.schedule.schedules import ScheduleShape, orders
from agileml.pipeline.schedule.simulator import StageTimes, play
from spotctl.lab.papers import pipelines
from spotctl.lab.papers.pipelines import A100, GPT_3, V100, GptTraining, straight_seconds
from spotctl.lab.papers.results import PaperData
from spotctl.lab.transformer import TransformerLayout


def test_a_straight_pipeline_is_the_best_of_all_cuts() -> None:
    times = (3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0)
    layers = tuple(
        LayerCost(str(i), each / 3, each * 2 / 3, 1.0, 0.0, 0.0) for i, each in enumerate(times)
    )
    profile, topology = ModelProfile("digits", 1, layers), Topology((3,), (1e9,))
    every = [
        max(sum(times[:a]), sum(times[a:b]), sum(times[b:]))
        for a, b in combinations(range(1, len(times)), 2)
    ]
    assert straight_seconds(profile, topology, 3) == pytest.approx(min(every))


@pytest.mark.parametrize(
    ("scheme", "chunks"), [("flush", 1), ("interleaved", 2), ("interleaved", 4)]
)
def test_batches_take_as_long_as_their_schedule_when_it_is_played(scheme: str, chunks: int) -> None:
    """Without links, since the closed form does not hide them behind compute."""
    servers = replace(A100, within=1e30, card=1e30)
    training = GptTraining(GPT_3, servers, TransformerLayout(8, 12, 1), batch=36, chunks=chunks)
    stage = training.stage()
    times = (
        [
            StageTimes(
                stage.forward_seconds / chunks, (stage.seconds - stage.forward_seconds) / chunks
            )
        ]
        * 12
        * chunks
    )
    played = play([[order] for order in orders(ScheduleShape(scheme, 12, 36, 1, chunks))], times)
    assert training.seconds() == pytest.approx(played.seconds)


def test_more_devices_share_the_cards_of_a_server() -> None:
    assert A100.between(1) == A100.between(8) == 25e9
    assert V100.between(8) == pytest.approx(V100.card / 8)
    assert A100.around(8, 1) == A100.within
    assert A100.around(16, 1) == 200e9
    assert V100.around(64, 8) == pytest.approx(V100.card / 8)


def test_the_published_splits_that_differ_have_their_reason() -> None:
    """The slow layer of GNMT-16 is what makes its straight pipeline slow; AlexNet's splits take the
    same time.
    """
    gnmt, alexnet = (
        f"{model}, 4x4 (A): planned time of the published split over ours"
        for model in ("GNMT-16", "AlexNet")
    )
    plain, usual = (pipelines._splits(0, PaperData(), usual=usual) for usual in (False, True))
    assert plain[alexnet] == pytest.approx(1.0)
    assert plain[gnmt] > 1.5
    assert usual[gnmt] < 1.1
