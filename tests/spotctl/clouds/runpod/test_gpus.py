"""Places of RunPod, and what is in stock at each."""

from __future__ import annotations

from contextlib import closing

from pricing_data.errors import IncompleteAnswer
from pricing_data.sources.base import FetchRequest
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.runpod.cloud import RunPodSettings
from spotctl.clouds.runpod.prices import RunPodSource
from tests.servers.pulling import observed_events, pulled
from tests.spotctl.clouds.runpod.world import NOW, World, fetched


def test_places_of_the_community_are_asked_for_where_a_setting_says_so(stocked: World) -> None:
    assert {price.region for price in fetched(stocked).on_demand} == {
        "runpod-us-tx-3",
        "runpod-eu-ro-1",
    }
    rows = fetched(stocked, "runpod-ca", community=True)
    (one, *_) = observed_events(rows)
    assert (one.market.zone, one.price) == ("community", 120_000_000)


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_kept(stocked: World) -> None:
    stocked.market.stocks[0].bid = -1.0
    with closing(RunPodCalls(stocked.server.url)) as calls:
        (task,) = RunPodSource(calls, RunPodSettings()).tasks(FetchRequest(NOW - 1, NOW))
        answer = pulled(task)
    assert isinstance(answer.error, IncompleteAnswer)
    assert "NVIDIA GeForce RTX 4090 in runpod-us-tx-3" in str(answer.error)
    read = {event.market for event in answer.observed if "4090" in event.market.instance_type}
    assert {market.region for market in read} == {"runpod-eu-ro-1"}
    assert {price.region for price in answer.all.on_demand} == {"runpod-us-tx-3", "runpod-eu-ro-1"}
