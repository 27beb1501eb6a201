"""Names and labels say what they were made of."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from spotctl.clouds.gcp.orders import (
    OrderName,
    label_value,
    labels_of,
    machine_id,
    names_of_machines,
    parsed,
    place_of,
    scope_of,
    tags_of,
)
from spotctl.clouds.provider import fingerprint
from spotctl.home.installation import INTENT_TAG
from tests.spotctl.clouds.gcp.world import N2, RUN, order

TYPES = st.sampled_from(
    [
        "e2-micro",
        "n1-standard-8+4-nvidia-tesla-v100",
        "z3-highmem-192-highlssd-metal",
        "c4a-highmem-72",
    ]
)
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@given(
    TYPES,
    st.sampled_from(["-", "us-central1-b"]),
    st.integers(0, 99999),
    st.integers(0, 999),
    st.booleans(),
)
def test_a_name_says_what_the_machine_was(
    kind: str, zone: str, intent: int, index: int, spot: bool
) -> None:
    market = replace(N2, instance_type=kind, zone=zone)
    asked = order(market=market, bid=1 if spot else None, tags={**RUN, INTENT_TAG: str(intent)})
    name = OrderName.of(asked).machine(index)
    assert NAME.fullmatch(name)
    assert parsed(name) == (OrderName.of(asked), index)
    assert place_of(machine_id("us-central1-b", name)) == ("us-central1-b", name)
    known = OrderName.of(asked)
    assert (known.is_spot, known.intent, known.scope) == (spot, str(intent), scope_of(RUN))
    told = known.market("us-central1-b")
    assert (told.region, told.zone) == ("us-central1", zone)
    assert kind.startswith(told.instance_type)
    assert re.fullmatch(names_of_machines(RUN), name)
    assert re.fullmatch(known.any_print, name)
    assert not re.fullmatch(names_of_machines({**RUN, "spotctl-run": "another"}), name)


@pytest.mark.parametrize(
    "name", ["database", "spotctl-1", "spotctl-xx-e2-micro-abcdefg-1-abcdefghijk-0", ""]
)
def test_names_of_others_are_not_ours(name: str) -> None:
    assert parsed(name) is None
    assert place_of(f"gcp:us-central1-b:{name}") is None


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True), st.text(max_size=5), max_size=5
    )
)
def test_labels_are_tags_again(tags: dict[str, str]) -> None:
    labels = labels_of(tags)
    assert all(re.fullmatch(r"[a-z0-9_-]{0,63}", value) for value in labels.values())
    assert tags_of({**labels, "Company": "x"}, {"Company": "x"}) == tags


@given(st.text(max_size=5), st.text(max_size=5))
def test_different_values_are_different_labels(one: str, other: str) -> None:
    assert (label_value("k", one) == label_value("k", other)) == (one == other)


def test_a_fingerprint_leaves_out_what_may_change() -> None:
    asked = order()
    assert fingerprint(asked) == fingerprint(replace(asked, lease_until=7, secrets={"A": "b"}))
    assert fingerprint(asked) == fingerprint(
        replace(asked, tags=dict(reversed(list(asked.tags.items()))))
    )
    others = (
        {"count": 5},
        {"bid": None},
        {"image": "x"},
        {"network": "y"},
        {"disk_gib": 9},
        {"identity": "z"},
    )
    assert (
        len({fingerprint(asked), *(fingerprint(replace(asked, **change)) for change in others)})
        == 7
    )
