"""Several clouds as one provider: one that fails does not keep the machines of the others running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pricing_data.units import HOUR
from spotctl.machines.base import MachineRequest, NotPermitted, Resource
from spotctl.machines.fake import FakeProvider, Refusal
from spotctl.machines.replayed import Replayed
from spotctl.machines.several import SeveralClouds
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
    with pytest.raises(NotPermitted, match="expired"):
        getattr(both, call)(asked)
    other.advance(60)
    assert other.everything[0].ended is not None
