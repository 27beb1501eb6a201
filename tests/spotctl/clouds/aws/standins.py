"""Providers for tests on simulated EC2, with prices that do not change and links to no machine."""

from __future__ import annotations

from functools import cache
from typing import cast

from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.aws.cloud import AwsMachineSettings, AwsSettings
from spotctl.clouds.aws.provider import AwsProvider
from spotctl.clouds.aws.session import AwsSession
from spotctl.clouds.remote.agents import RemoteAgents
from tests.spotctl.clouds.unreached import SteadyPrices, Unreached

MARKET = Market.parse("aws/us-east-1/us-east-1a/c5.large")
ELSEWHERE = Market.parse("aws/us-west-2/us-west-2b/m6g.large")
UNKNOWN = Market.parse("aws/us-east-1/us-east-1a/z9.large")
PRICE, BID = NANOS_PER_DOLLAR // 20, NANOS_PER_DOLLAR // 10
SETTINGS = AwsMachineSettings(ssh_from=("203.0.113.7/32",), regions=("us-east-1", "us-west-2"))


@cache
def session() -> AwsSession:
    """One for all tests of a process: it reads the description of EC2 once, and clients read the
    environment.
    """
    return AwsSession(AwsSettings(max_attempts=2, backoff_seconds=0.001))


def provider(
    settings: AwsMachineSettings = SETTINGS, agents: Unreached | RemoteAgents | None = None
) -> AwsProvider:
    return AwsProvider(
        session(),
        settings,
        cast("RemoteAgents", agents or Unreached()),
        SteadyPrices((MARKET, ELSEWHERE), PRICE),
    )
