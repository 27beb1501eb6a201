"""Several clouds as one provider: one that fails does not keep the machines of the others
running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from pricing_data.units import HOUR
from spotctl.clouds.errors import NotPermitted, PartlyListed, ProviderError, Unanswered
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import Machine, MachineRequest, Resource
from spotctl.clouds.wiring import SeveralClouds
from tests.spotctl.clouds.fake import FakeProvider, Refusal
from tests.spotctl.run.worlds import MARKETS, PRICES, START

EXPIRED = Refusal(NotPermitted("the credentials have expired"))


class Here(FakeProvider):
    """A cloud whose ids of machines begin with `here`."""

    def terminate(self, ids: Sequence[str]) -> None:
        super().terminate([one.removeprefix("here:") for one in ids])

    def remove(self, resources: Sequence[Resource]) -> None:
        super().remove([replace(one, id=one.id.removeprefix("here:")) for one in resources])


@pytest.mark.parametrize("call", ["terminate", "remove"])
def test_what_one_cloud_refuses_is_done_in_the_others(call: str) -> None:
    refusing = FakeProvider(Replayed.of(PRICES.values()), START)
    refusing.script(call, EXPIRED)
    other = Here(Replayed.of(PRICES.values()), START)
    (machine,) = other.create(MachineRequest("t", MARKETS[0], 1, None, START + HOUR))
    both = SeveralClouds({"there": refusing, "here": other})
    ids = ["there:1", f"here:{machine.id}"]
    asked = ids if call == "terminate" else [Resource("machine", one, {}) for one in ids]
    with pytest.raises(ProviderError, match="expired"):
        getattr(both, call)(asked)
    other.advance(60)
    assert other.everything[0].ended is not None


@pytest.mark.parametrize("call", ["list", "resources"])
@pytest.mark.parametrize(
    "error", [NotPermitted("expired"), Unanswered("a region is down")], ids=repr
)
def test_a_cloud_that_is_down_hides_nothing_of_the_others(call: str, error: ProviderError) -> None:
    down, other = (FakeProvider(Replayed.of(PRICES.values()), START) for _ in range(2))
    (machine,) = other.create(MachineRequest("t", MARKETS[0], 1, None, START + HOUR))
    down.weather = lambda _: Refusal(error)
    both = SeveralClouds({"there": down, "here": other})
    with pytest.raises(PartlyListed) as listed:
        getattr(both, call)({})
    assert ([one.id for one in listed.value.listed], listed.value.parts) == (
        [machine.id],
        ("there:",),
    )
    other.weather = lambda _: Refusal(error)
    with pytest.raises(type(error)):
        getattr(both, call)({})


def test_a_part_of_a_cloud_is_a_part_of_all() -> None:
    cloud = FakeProvider(Replayed.of(PRICES.values()), START)
    (machine,) = cloud.create(MachineRequest("t", MARKETS[0], 1, None, START + HOUR))

    class Regional(FakeProvider):
        def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
            raise PartlyListed(
                Unanswered("eu-west-1 is down"), super().list(tags), ("here:eu-west-1:",)
            )

    both = SeveralClouds({"here": Regional(Replayed.of(PRICES.values()), START), "there": cloud})
    with pytest.raises(PartlyListed, match="eu-west-1 is down") as listed:
        both.list({})
    assert ([one.id for one in listed.value.listed], listed.value.parts) == (
        [machine.id],
        ("here:eu-west-1:",),
    )


def test_only_what_no_cloud_permits_is_not_permitted() -> None:
    first, second = (FakeProvider(Replayed.of(PRICES.values()), START) for _ in range(2))
    both = SeveralClouds({"local": first, "aws": second})
    first.script("create", EXPIRED, EXPIRED)
    second.script("create", EXPIRED)
    order = MachineRequest("t", MARKETS[0], 1, None, START + HOUR)
    with pytest.raises(ProviderError) as refused:
        both.create(order)
    assert not isinstance(refused.value, NotPermitted)
    elsewhere = replace(order, market=replace(MARKETS[0], cloud="aws"))
    with pytest.raises(NotPermitted):
        both.create(elsewhere)
    with pytest.raises(NotPermitted):
        both.create(order)
    assert len(both.create(order)) == 1
