"""`VastCalls`: every call to Vast.ai's REST API, its pace, and what a refusal means.

https://docs.vast.ai/api-reference (read on 2026-11-28), and what the official client 1.9.1 does
with an answer of 429. An endpoint has a shortest time between two calls, which the refusal of a
call that came too early names: a call waits for it from then on. Searches count against a daily
number of rows; the refusal of one too many says for how many hours.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from pricing_data.errors import (
    AccessDenied,
    MissingCredentials,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    QuotaReached,
    Refusal,
    Scope,
    checked_key,
    error_of_call,
    first_line,
    in_contract,
)
from spotctl.clouds.order_ledger import Number
from spotctl.clouds.vast.cloud import ACCOUNT, api_key
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    import httpx

MAX_OFFERS = 5_000
"""The rows of one search: more than the offers of all hosts with one number of GPUs."""

PAGE_ROWS = 25
"""The largest page of instances."""

_CALL_SECONDS, _PATIENCE_SECONDS = 30.0, 60.0
_THRESHOLD = re.compile(r"threshold=(\d+(?:\.\d+)?)")

VastRow = Mapping[str, Any]
"""An offer or an instance, as the JSON of the API gives it."""


@dataclass
class VastCalls:
    """The API at `url`; nothing is sent before the first call. Raises errors of the provider
    contract.
    """

    url: str
    date: str = ""
    """The Date header of the last answer."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _paces: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _open: httpx.Client | None = None

    def search(self, kind: str, filters: Mapping[str, VastRow], disk_gb: float) -> list[VastRow]:
        """The offers that match, the cheapest first; `kind` is bid or ondemand. Raises
        `CloudError`.
        """
        query = {
            "type": kind,
            **filters,
            "order": [["dph_total", "asc"]],
            "limit": MAX_OFFERS,
            "allocated_storage": disk_gb,
        }
        return _rows(
            self._answer("search", "POST", "/api/v0/bundles/", "search of offers", query), "offers"
        )

    def user(self) -> VastRow:
        """The account. Raises `CloudError`."""
        return self._answer("user", "GET", "/api/v0/users/current", "account")

    def order(self, ask: int, body: VastRow) -> int:
        """Takes an offer; returns the number of the instance. NoCapacity: the offer is gone, or the
        bid too low.

        Unanswered: the instance may exist.
        """
        what = f"order of offer {ask}"
        with in_contract(of_call):
            answer = self._answer("order", "PUT", f"/api/v0/asks/{ask}/", what, body)
            if not isinstance(answer.get("new_contract"), int):
                raise NoAnswer(f"vast: {what}: an answer without the number of an instance")
        return int(answer["new_contract"])

    def instance(self, number: Number) -> VastRow | None:
        """An instance; None if there is none."""
        with in_contract(of_call):
            return self._answer(
                "show", "GET", f"/api/v0/instances/{number}/", f"instance {number}"
            ).get("instances")

    def instances(self) -> list[VastRow]:
        """All instances of the account: all pages, or an error."""
        listed, token = list[VastRow](), ""
        with in_contract(of_call):
            while True:
                query = urlencode({"limit": PAGE_ROWS, **({"after_token": token} if token else {})})
                answer = self._answer(
                    "list", "GET", f"/api/v1/instances/?{query}", "list of instances"
                )
                listed += _rows(answer, "instances")
                token = answer.get("next_token") or ""
                if not token:
                    return listed

    def change_bid(self, number: Number, usd: float) -> None:
        """Sets the bid of an instance, for an hour of the whole machine."""
        with in_contract(of_call):
            what, body = f"bid of instance {number}", {"client_id": "me", "price": usd}
            self._answer("bid", "PUT", f"/api/v0/instances/bid_price/{number}/", what, body)

    def stop(self, number: Number) -> None:
        """Stops an instance, whose disk is billed until it is destroyed."""
        with in_contract(of_call):
            what, path = f"stop of instance {number}", f"/api/v0/instances/{number}/"
            self._answer("manage", "PUT", path, what, {"state": "stopped"})

    def destroy(self, number: Number) -> bool:
        """Ends an instance and its bill; False if there is none."""
        try:
            with in_contract(of_call):
                self._answer(
                    "destroy", "DELETE", f"/api/v0/instances/{number}/", f"end of instance {number}"
                )
        except NotFound:
            return False
        return True

    def _answer(self, kind: str, method: str, path: str, what: str, body: object = None) -> VastRow:
        """The answer of a call. Raises `CloudError`."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while True:
            # Until another call of this kind is allowed, as far as that is known.
            with self._lock:
                now = time.monotonic()
                at = max(now, self._last.get(kind, now) + self._paces.get(kind, 0.0))
                self._last[kind] = at
            time.sleep(at - now)

            response = self._sent(method, path, what, body)
            pause = self._pause_after(kind, response, what)
            if pause is None:
                return _content(response, what)
            if time.monotonic() + pause > give_up:
                raise RateLimited(f"vast: {what}: too many calls", f"try again in {pause:.0f} s")
            time.sleep(pause)

    def _pause_after(self, kind: str, response: httpx.Response, what: str) -> float | None:
        """How long to wait before a refused call is repeated; None unless it came too early."""
        if response.status_code != 429:
            return None

        stated = response.headers.get("Retry-After", "")
        if stated.isdigit() and int(stated) > _PATIENCE_SECONDS:
            cure = f"try again in {int(stated) / 3600:.1f} hours"
            raise RateLimited(f"vast: {what}: {_said(response)}", cure, "search_quota_exceeded")
        if match := _THRESHOLD.search(response.text):
            self._paces[kind] = float(match[1])
            return float(match[1])

        return float(stated) if stated.isdigit() else 1.0

    def _sent(self, method: str, path: str, what: str, body: object) -> httpx.Response:
        import httpx

        headers = {
            "Authorization": f"Bearer {checked_key('vast', self.url, api_key(), ACCOUNT.setup)}"
        }
        with self._lock:
            client = self._open = self._open or httpx.Client(
                base_url=self.url, timeout=_CALL_SECONDS
            )

        try:
            response = client.request(method, path, json=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswer(
                f"vast: {what}: {first_line(error)}", f"check the network, and {self.url}"
            ) from error

        self.date = response.headers.get("Date", self.date)
        return response

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _content(response: httpx.Response, what: str) -> VastRow:
    """The content of an answer, or the error that it is."""
    if response.is_success:
        try:
            content = response.json()
        except ValueError:
            content = None
        if isinstance(content, dict):
            return content
        raise NoAnswer(f"vast: {what}: an answer that is no JSON object")

    status, problem = response.status_code, f"vast: {what}: {_said(response)}"
    code = str(_body(response).get("error") or f"HTTP {status}")
    if code == "auth_error" or status == 401:
        raise MissingCredentials(problem, ACCOUNT.setup, code)
    if status == 403:
        raise AccessDenied(problem, f"the key may not do this: {ACCOUNT.setup}", code)
    if status >= 500:
        raise NoAnswer(f"{problem} (status {status})", "try again later", code)
    raise (UnknownResource if status == 404 else RequestRejected)(problem, "", code)


def _body(response: httpx.Response) -> VastRow:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _said(response: httpx.Response) -> str:
    """The words of a refusal, on one line."""
    body = _body(response)
    text = str(
        body.get("msg") or body.get("detail") or response.text or f"status {response.status_code}"
    )
    return " ".join(text.split())[:300].rstrip(".")


def _rows(answer: VastRow, name: str) -> list[VastRow]:
    rows = answer.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise NoAnswer(f"vast: an answer without {name}")
    return rows


_CREATE = "https://docs.vast.ai/api-reference/instances/create-instance"
_ISSUE = "https://github.com/dstackai/dstack/issues/4036"
_LIMITS = "https://docs.vast.ai/api-reference/rate-limits-and-errors"
_TAKEN = r"no_such_ask|no longer available|is not available"

REFUSALS = (
    Refusal("no_such_ask", NoCapacity, Scope.MOMENT, "", _ISSUE),
    Refusal("invalid_args", NoCapacity, Scope.MOMENT, "", _CREATE, _TAKEN),
    Refusal(
        "invalid_args",
        BadRequest,
        Scope.ACCOUNT,
        "check the [vast] settings and the job's image",
        _CREATE,
    ),
    Refusal(
        "invalid_price",
        BadRequest,
        Scope.MACHINE,
        "Vast.ai takes bids from $0.001 to $128",
        _CREATE,
    ),
    Refusal(
        "insufficient_credit",
        QuotaReached,
        Scope.ACCOUNT,
        "add credit at https://cloud.vast.ai/billing",
        _LIMITS,
    ),
)

of_call = partial(error_of_call, REFUSALS)
"""The error of the provider contract for a call that was refused."""
