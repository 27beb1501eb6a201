"""Bodies of orders, and how a machine starts."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from pathlib import Path

import pytest

from spotctl.clouds.order_ledger import OrderLabel
from spotctl.clouds.vast.provider import VastProvider
from spotctl.home.errors import BadRequest
from spotctl.home.installation import RUN_TAG
from tests.spotctl.clouds.vast.test_provider import alive, sent
from tests.spotctl.clouds.vast.world import BID, ONE, RUN, World, order


def test_an_order_says_how_a_machine_starts_and_who_it_is(
    made: World, provider: VastProvider, tmp_path: Path
) -> None:
    provider.create(order(machines=1))
    (body,) = sent(made)
    # Its own commands, in a folder, with the variables that the order has.
    (tmp_path / "environment").touch()
    script = (
        body["onstart"]
        .replace("/etc/ssh", str(tmp_path / "ssh"))
        .replace("/opt/spotctl", str(tmp_path / "opt"))
    )
    script = script.replace("/etc/environment", str(tmp_path / "environment"))
    of_vast = {
        "PUBLIC_IPADDR": "198.51.100.7",
        "VAST_TCP_PORT_7071": "40001",
        "CONTAINER_API_KEY": "hush",
    }
    variables = {"PATH": "/usr/bin:/bin", **of_vast, **body["env"]}
    ended = subprocess.run(
        ["/bin/sh", "-c", script], check=False, env=variables, capture_output=True
    )
    where = {"PUBLIC_IPADDR=198.51.100.7", "VAST_TCP_PORT_7071=40001"}
    assert set((tmp_path / "environment").read_text().splitlines()) == where
    assert ended.stdout.startswith(b"lease 1"), ended.stderr
    shown = provider.console(provider.machine_id(alive(made)[0].id))
    assert (tmp_path / "ssh" / "ssh_host_ed25519_key.pub").read_text().strip() == shown.split(
        "host key "
    )[1].strip()
    assert len(body["onstart"]) < 1_000
    label = OrderLabel.parse(body["label"])
    assert label is not None
    assert (label.market, label.bid, label.index) == (ONE, BID, 0)
    assert label.tags == {**RUN, "spotctl-intent": "1"}


def test_two_machines_have_different_host_keys_and_no_secret(
    made: World, provider: VastProvider
) -> None:
    provider.create(order(secrets={"TOKEN": "hush"}))
    keys = [body["env"]["SPOTCTL_HOST_KEY_0"] for body in sent(made)]
    assert keys[0] != keys[1]
    starts = [
        gzip.decompress(base64.b64decode(body["env"]["SPOTCTL_START_0"])) for body in sent(made)
    ]
    assert b"hush" not in b"".join(starts) + json.dumps(sent(made)).encode()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"identity": "trainer"}, "have not an identity"),
        ({"network": "mine"}, "have not a network"),
        ({"containers": True}, "have not containers of their own"),
        ({"tags": {**RUN, RUN_TAG: "x" * 300}}, "give the job a shorter name"),
    ],
)
def test_what_an_order_cannot_have_is_refused(
    made: World, provider: VastProvider, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(BadRequest, match=said):
        provider.create(order(**changes))  # type: ignore[arg-type]
    assert not sent(made)
