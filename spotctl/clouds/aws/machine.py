"""Notices of EC2, from the metadata service of a machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.agent.lease.notices import NoticePoller, json_object
from spotctl.agent.lease.self_deletion import METADATA_HOST, ask

_TOKEN_SECONDS = 21_600


class AwsNotices(NoticePoller):
    """IMDSv2: interruption notices two minutes ahead, and rebalance recommendations, which are only
    hints.
    """

    pause = 5.0

    def __init__(self, host: str) -> None:
        self._host = host
        self._token, self._token_until = "", 0.0

    def poll(self) -> list[MachineNotice]:
        notices = []
        action = self._value("spot/instance-action")
        if action is not None and action.get("action") in ("terminate", "stop", "hibernate"):
            notices.append(MachineNotice("evict", _iso(action["time"]), "aws"))
        rebalance = self._value("events/recommendations/rebalance")
        if rebalance is not None:
            notices.append(MachineNotice("hint", _iso(rebalance["noticeTime"]), "aws rebalance"))
        return notices

    def _value(self, path: str) -> dict[str, Any] | None:
        if time.monotonic() > self._token_until:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
            status, token, _ = ask(self._host, "/latest/api/token", lifetime, "PUT")
            if status != 200:
                raise OSError(f"metadata token: status {status}")
            self._token, self._token_until = token, time.monotonic() + _TOKEN_SECONDS / 2

        status, body, _ = ask(
            self._host, f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token}
        )
        if status == 404:
            return None
        if status != 200:
            self._token_until = 0.0
            raise OSError(f"{path}: status {status}")

        return json_object(body)


def notices(environment: dict[str, str]) -> AwsNotices:
    """The poller of a machine."""
    return AwsNotices(metadata_host(environment))


def metadata_host(environment: dict[str, str]) -> str:
    """The host of the metadata service."""
    named = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", METADATA_HOST)
    return named.rpartition("//")[2].rstrip("/")


def _iso(text: str) -> int:
    return round(
        datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=UTC).timestamp() * 1e6
    )
