"""`RunPodCalls`: every call to RunPod's GraphQL API, and what a refusal means.

Sources, read on 2026-12-01: docs.runpod.io ("Manage Pods", "Pricing", "Billing overview"); the
official clients runpod 1.12 (queries and fields of pods) and runpodctl 2 (variables, the forms of
inputs); dstack's `api_client` (podRentInterruptable, minCudaVersion, errors with status 200).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    NoAnswer,
    RateLimited,
    RequestRejected,
)
from spotctl.clouds.errors import (
    ApiRecord,
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
from spotctl.clouds.runpod.cloud import ACCOUNT, api_key
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    import httpx

_CALL_SECONDS, _PATIENCE_SECONDS = 30.0, 60.0

# Fields that the official client asks for: one that the API does not know fails the whole query.
_POD = """id name desiredStatus lastStatusChange podType costPerHr gpuCount env
  runtime { ports { ip isIpPublic privatePort publicPort type } }"""
_PODS = f"query pods {{ myself {{ pods {{ {_POD} }} }} }}"
_ONE = f"query pod($input: PodFilter) {{ pod(input: $input) {{ {_POD} }} }}"
_ACCOUNT = "query account { myself { id clientBalance currentSpendPerHr } }"
_END = "mutation end($input: PodTerminateInput!) { podTerminate(input: $input) }"
_ORDERS = {
    name: f"mutation order($input: {kind}!) {{ {name}(input: $input) {{ id }} }}"
    for name, kind in (
        ("podFindAndDeployOnDemand", "PodFindAndDeployOnDemandInput"),
        ("podRentInterruptable", "PodRentInterruptableInput"),
    )
}


@dataclass
class RunPodCalls:
    """The API at `url`; nothing is sent before the first call. Raises errors of the provider
    contract.
    """

    url: str
    date: str = ""
    """The Date header of the last answer."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: httpx.Client | None = None

    def account(self) -> ApiRecord:
        """The account. Raises `CloudError`."""
        return self.ask("account", _ACCOUNT)["myself"] or {}

    def instances(self) -> list[ApiRecord]:
        """All pods of the account."""
        with in_contract(of_call):
            pods = (self.ask("list of pods", _PODS)["myself"] or {}).get("pods")
            if not isinstance(pods, list):
                raise NoAnswer("runpod: an answer without pods")
        return [pod for pod in pods if pod["desiredStatus"] != "TERMINATED"]

    def instance(self, number: Number) -> ApiRecord | None:
        """A pod; None if there is none."""
        with in_contract(of_call):
            pod: ApiRecord | None = self.ask(
                f"pod {number}", _ONE, {"input": {"podId": number}}
            ).get("pod")
        return None if pod is None or pod["desiredStatus"] == "TERMINATED" else pod

    def order(self, given: Mapping[str, Any]) -> str:
        """Rents a pod, by bid where the order has one; returns its id. NoCapacity: there is none.

        Unanswered: the pod may exist.
        """
        name = "podRentInterruptable" if "bidPerGpu" in given else "podFindAndDeployOnDemand"
        with in_contract(of_call):
            pod = self.ask("order", _ORDERS[name], {"input": given})[name]
            if not isinstance(pod, dict) or not isinstance(pod.get("id"), str):
                raise NoAnswer("runpod: order: an answer without the id of a pod")
        return str(pod["id"])

    def destroy(self, number: Number) -> bool:
        """Ends a pod and its bill; False if there is none."""
        try:
            with in_contract(of_call):
                self.ask(f"end of pod {number}", _END, {"input": {"podId": number}})
        except NotFound:
            return False
        return True

    def ask(
        self, what: str, query: str, variables: ApiRecord | None = None, *, public: bool = False
    ) -> ApiRecord:
        """The data of an answer. What is `public` is asked without the key. Raises `CloudError`."""
        give_up, pause = time.monotonic() + _PATIENCE_SECONDS, 1.0
        body = {"query": query, "variables": variables or {}}
        while True:
            response = self._sent(what, body, public=public)
            if response.status_code != 429:
                return _content(response, what)
            stated = response.headers.get("Retry-After", "")
            pause = float(stated) if stated.isdigit() else 2 * pause
            if time.monotonic() + pause > give_up:
                problem = f"runpod: {what}: too many calls"
                raise RateLimited(problem, f"try again in {pause:.0f} s")
            time.sleep(pause)

    def _sent(self, what: str, body: ApiRecord, *, public: bool) -> httpx.Response:
        import httpx

        key = "" if public else checked_key("runpod", self.url, api_key(), ACCOUNT.setup)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with self._lock:
            client = self._open = self._open or httpx.Client(
                base_url=self.url, timeout=_CALL_SECONDS
            )
        try:
            response = client.post("/graphql", json=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswer(
                f"runpod: {what}: {first_line(error)}", f"check the network, and {self.url}"
            ) from error

        self.date = response.headers.get("Date", self.date)
        return response

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


_VAGUE = "something went wrong"
"""The words of an error that says nothing: what was asked for may have been done."""


def _content(response: httpx.Response, what: str) -> ApiRecord:
    """The data of an answer, or the error that it is. Errors come with status 200, too."""
    try:
        body = response.json()
    except ValueError:
        body = None
    answer: ApiRecord = body if isinstance(body, dict) else {}
    errors, status = answer.get("errors"), response.status_code
    first = errors[0] if isinstance(errors, list) and errors else {}
    said = " ".join(str(first.get("message") or f"status {status}").split())[:300].rstrip(".")
    code = str((first.get("extensions") or {}).get("code") or f"HTTP {status}")
    problem = f"runpod: {what}: {said}"

    if status == 401 or said.lower() == "unauthorized":
        raise MissingCredentials(problem, ACCOUNT.setup, code)
    if status == 403:
        raise AccessDenied(problem, f"the key may not do this: {ACCOUNT.setup}", code)
    if status >= 500 or _VAGUE in said.lower():
        raise NoAnswer(problem, "try again later", code)
    if first:
        is_wrong = code in ("BAD_USER_INPUT", "GRAPHQL_VALIDATION_FAILED") or status == 400
        raise (RequestRejected if is_wrong else CloudError)(problem, "", code)
    if status != 200 or not isinstance(answer.get("data"), dict):
        raise NoAnswer(f"runpod: {what}: an answer without data (status {status})")
    data: ApiRecord = answer["data"]
    return data


_PRICING = "https://docs.runpod.io/pods/pricing"
_NO_BIDS = "https://github.com/runpod/runpodctl/pull/267"
_FULL = (
    r"no (longer )?any instances available|no instances (currently )?available"
    r"|does not have the resources|not enough free gpus"
)

REFUSALS = (
    Refusal(
        "",
        NoCapacity,
        Scope.MOMENT,
        "",
        "https://github.com/dstackai/dstack/issues/1740",
        _FULL,
    ),
    Refusal(
        "",
        QuotaReached,
        Scope.ACCOUNT,
        "add credit at https://console.runpod.io/user/billing, at least for an hour of the pod",
        _PRICING,
        r"balance|insufficient funds|not enough (credits|funds)",
    ),
    Refusal(
        "",
        QuotaReached,
        Scope.ACCOUNT,
        "end other pods, or ask RunPod's support for a higher limit",
        _PRICING,
        r"spend(ing)? limit",
    ),
    Refusal(
        "",
        BadRequest,
        Scope.ACCOUNT,
        "RunPod takes no bids any more, as it announced: rent there with strategy: on-demand",
        _NO_BIDS,
        r"podRentInterruptable",
    ),
    Refusal(
        "",
        NotFound,
        Scope.MACHINE,
        "",
        "https://github.com/dstackai/dstack",
        r"pod not found",
    ),
)

of_call = partial(error_of_call, REFUSALS)
"""The error of the provider contract for a call that was refused."""
