"""`spotctl prices best --below` from its entry point, against a public price list and a webhook on
this machine.
"""

from __future__ import annotations

import _thread
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pricing_data.units import DAY
from tests.servers.azure import RETAIL, AzureCloud, AzureWorld, retail_item, running_azure
from tests.servers.loopback import Reply, Request
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.nightly.hooks import hook

NOW = time.time_ns() // 1_000_000_000 * 1_000_000
SIZE = "Standard_ND96asr_v4"
WATCH = ("prices", "best", "--gpu", "A100:8", "--cloud", "azure", "--region", "eastus")


@dataclass
class Moving:
    """A price list with another price (in dollars per hour) at each request; after the last one,
    Ctrl-C is pressed.
    """

    prices: Sequence[float]
    asked: int = 0

    def answer(self, request: Request) -> Reply:
        self.asked += 1
        if self.asked > len(self.prices):
            _thread.interrupt_main()
        price = self.prices[min(self.asked, len(self.prices)) - 1]
        item = retail_item(
            "eastus", SIZE, round(price * 1e9), NOW - DAY + self.asked * 1_000_000, kind="Spot"
        )
        return AzureCloud(retail=[item]).answer(request)


@pytest.fixture(autouse=True)
def _heeds_ctrl_c() -> Iterator[None]:
    """Also where SIGINT is ignored, as in a background job of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AzureWorld]:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    with running_azure(monkeypatch) as world:
        monkeypatch.setenv("SPOTCTL_AZURE_RETAIL_PRICES_URL", world.server.url + RETAIL)
        yield world


def test_it_looks_again_until_the_price_falls_and_posts_that(azure: AzureWorld) -> None:
    azure.server.api = Moving((10.8, 10.48, 10.4, 10.4))
    with hook() as receiver:
        words = ("--below", "1.31", "--every", "1s", "--webhook", "$HOOK", "--json")
        ended = spotctl(*WATCH, *words, HOOK=receiver.url)
    assert ended.code == 0, ended.err
    assert ended.json["holds"]
    assert [offer["usd_per_gpu_hour"] for offer in ended.json["offers"]] == [
        pytest.approx(1.31 - 0.01)
    ]
    (sent,) = receiver.got
    assert sent["text"] == f"azure/eastus/-/{SIZE}: $1.3 per GPU-hour"
    assert sent["facts"]["market"] == f"azure/eastus/-/{SIZE}"
    assert sent["facts"]["condition"] == "below $1.31 per GPU-hour"
    assert "notified 127.0.0.1" in ended.err


def test_with_keep_each_new_time_is_reported_once(azure: AzureWorld) -> None:
    azure.server.api = Moving((12, 8, 8, 12, 8, 8))
    with hook(500, 200, 404) as receiver:
        words = (
            "--below",
            "9",
            "--sort",
            "price",
            "--every",
            "1s",
            "--keep",
            "--webhook",
            receiver.url,
        )
        ended = spotctl(*WATCH, *words)
    assert ended.code == 130
    assert ended.out.count(SIZE) == 2
    ids = [sent["id"] for sent in receiver.got]
    assert len(ids) == 3, "a failed delivery is tried again, a refused one is not"
    assert ids[0] == ids[1] != ids[2]
    assert "could not notify 127.0.0.1" in ended.err


def test_a_time_limit_and_a_failing_source(azure: AzureWorld) -> None:
    azure.server.api = Moving((8.0,) * 9)
    ended = spotctl(*WATCH, "--below", "1", "--for", "0", "--json")
    assert (ended.code, ended.json["holds"], ended.json["offers"]) == (3, False, [])
    azure.server.api = AzureCloud()
    ended = spotctl(*WATCH, "--below", "1", "--for", "1s", "--every", "1s")
    assert ended.code == 3
    assert ended.err.count("no machine is sold there") == 1
    assert "no offer was below $1 per GPU-hour in that time" in ended.err
    stored = spotctl(*WATCH, "--below", "1.01", "--no-fetch")
    assert stored.code == 0
    assert SIZE in stored.out


@pytest.mark.parametrize(
    "words",
    [
        ("--below", "1", "--sort", "age"),
        ("--keep",),
        ("--below", "0"),
        ("--below", "nan"),
        ("--below", "1", "--every", "0s"),
        ("--below", "1", "--webhook", "ftp://hook"),
        ("--below", "1", "--webhook", "$NO_HOOK"),
        ("--below", "1", "--region", "us-est-1"),
        ("--below", "1", "--cloud", "local"),
        ("--below", "1", "--cloud", "azure", "--region", "us-east-1"),
    ],
)
def test_a_bad_request_is_one_line(
    words: tuple[str, ...], tmp_path: Path, approved: Approved
) -> None:
    ended = spotctl("prices", "best", *words, SPOTCTL_HOME=str(tmp_path))
    approved(ended)


def test_synthetic_prices_meet_no_condition() -> None:
    assert spotctl("prices", "best", "--json").json["offers"] != []
    ended = spotctl("prices", "best", "--below", "1000", "--no-fetch", "--for", "0s", "--json")
    assert (ended.code, ended.json["holds"]) == (3, False)
