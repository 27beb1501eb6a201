"""Vast.ai's REST API, as far as spotctl calls it, as strict as its documentation: fields, limits,
error texts.

Sources: the OpenAPI files of docs.vast.ai ("Search Offers", "Create Instance", "Show Instances",
"Change Bid", "Destroy Instance", "Manage Instance", "Show User", "Show Charges", "Rate Limits and
Errors", "Hello World"), read on 2026-11-28. The daily quota of searched rows, its error and its
headers are known from the official client 1.9.1 alone, and what a bid below the minimum does from
dstack's issue 4036. The official client calls all of it in `tests/spotctl/clouds/vast`.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NoReturn

from tests.servers.loopback import Reply, Request
from tests.servers.vast_market import HOURS_A_MONTH, Contract, Host, VastMarket

KEY = "0123456789abcdef" * 4
DAY_SECONDS = 86_400
MAX_PAGE, MAX_CHARGES = 25, 500
MAX_PRICE, MIN_PRICE, MAX_CHANGED_PRICE = 128.0, 0.001, 32.0
MIN_DISK_GB = 8.0
MAX_SCRIPT, MAX_LABEL, MAX_IMAGE, MAX_VARIABLE, MAX_ENVIRONMENT = 4096, 256, 1024, 256, 32_768

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda value, other: value == other,
    "neq": lambda value, other: value != other,
    "gt": lambda value, other: value > other,
    "lt": lambda value, other: value < other,
    "gte": lambda value, other: value >= other,
    "lte": lambda value, other: value <= other,
    "in": lambda value, others: value in others,
    "notin": lambda value, others: value not in others,
}
_SEARCH_WORDS = frozenset(("order", "type", "limit", "allocated_storage", "disable_bundling"))
_SEARCH_TYPES = {"ondemand": False, "on-demand": False, "reserved": False, "bid": True}
_ORDER_FIELDS = frozenset(
    """
    image template_hash_id label disk runtype target_state price env cancel_unavail vm onstart args args_str
    use_jupyter_lab jupyter_dir python_utf8 lang_utf8 force user image_login volume_info client_id extra
    """.split()
)
"""The documented ones, and two that only the official client sends."""

_RUN_TYPES = frozenset(
    (
        "ssh",
        "jupyter",
        "args",
        "ssh_proxy",
        "ssh_direct",
        "jupyter_proxy",
        "jupyter_direct",
        "ssh_direc ssh_proxy",
    )
)
_FILTERABLE = frozenset(("id", "label", "actual_status", "gpu_name", "verification"))
THRESHOLDS = {
    "search": 6.0,
    "order": 4.5,
    "bid": 5.5,
    "destroy": 3.0,
    "show": 2.0,
    "list": 1.0,
    "manage": 1.0,
}
"""The documented seconds between two requests of one kind; of searches, ten a minute are
allowed."""


class Refused(Exception):
    """An answer of 4xx."""

    def __init__(self, status: int, error: str, message: str, **more: int) -> None:
        super().__init__(message)
        self.reply = Reply.of_json(
            {"success": False, "error": error, "msg": message, **more}, status
        )


def _too_often(message: str, error: str = "", **headers: str) -> NoReturn:
    refused = Refused(429, error, message)
    body = {"success": False, "error": error, "msg": message} if error else {"detail": message}
    refused.reply = Reply.of_json(body, 429, **headers)
    raise refused


@dataclass
class Vast:
    """The API of one account. `is_paced` enforces the rates, `rows_a_day` the quota of searches.

    A new contract is listed `lists_late` seconds after it was made. `stops_as_wanted` says that an
    instance that was outbid shows the intended state "stopped", as dstack has seen; else it shows
    that its owner wants it to run.
    """

    market: VastMarket
    is_paced: bool = False
    rows_a_day: int = 100_000
    lists_late: float = 0.0
    stops_as_wanted: bool = True
    _rows: dict[int, int] = field(default_factory=dict)
    _last: dict[tuple[str, str], float] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, request: Request) -> Reply:
        routes: dict[str, tuple[str, Callable[..., Any]]] = {
            r"POST /api/v0/bundles/": ("search", self._search),
            r"PUT /api/v0/asks/(\d+)/": ("order", self._order),
            r"GET /api/v1/instances/": ("list", self._list),
            r"GET /api/v0/instances/(\d+)/": ("show", self._show),
            r"DELETE /api/v0/instances/(\d+)/": ("destroy", self._destroy),
            r"PUT /api/v0/instances/bid_price/(\d+)/": ("bid", self._change_bid),
            r"PUT /api/v0/instances/(\d+)/": ("manage", self._manage),
            r"GET /api/v0/users/current/?": ("user", self._user),
            r"GET /api/v0/charges/": ("charges", self._charges),
        }
        with self.lock:
            try:
                for pattern, (kind, handler) in routes.items():
                    if match := re.fullmatch(pattern, f"{request.method} {request.path}"):
                        numbers = [int(group) for group in match.groups()]
                        self._check_key(request, kind, numbers)
                        self._check_pace(request, kind)
                        return Reply.of_json(handler(request, *numbers))
                return Reply.of_json(
                    {"msg": f"no such endpoint: {request.method} {request.path}"}, 404
                )
            except Refused as refused:
                return refused.reply

    def _check_key(self, request: Request, kind: str, numbers: list[int]) -> None:
        """The account's key may do everything, that of a contract may start, stop and destroy
        it."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if given == KEY:
            return
        own = [one for one in self.market.contracts.values() if one.key == given]
        if own and kind in ("show", "destroy", "manage") and numbers == [own[0].id]:
            return
        raise Refused(404 if kind == "search" else 401, "auth_error", "Invalid user key")

    def _check_pace(self, request: Request, kind: str) -> None:
        last, now = self._last.get((request.client, kind)), self.market.now()
        threshold = THRESHOLDS.get(kind, 0.0)
        self._last[request.client, kind] = now
        if self.is_paced and last is not None and now - last < threshold:
            _too_often(f"API requests too frequent endpoint threshold={threshold}")

    def _search(self, request: Request) -> dict[str, Any]:
        query = _body_of(request, "invalid_request", "Invalid json body")
        kind = query.get("type", "on-demand")
        if kind not in _SEARCH_TYPES:
            raise Refused(
                400, "invalid_request", f"Error in query parameters: {kind} is not a valid type"
            )
        # Whatever is not asked for is answered: the usual filters are those of the official client.
        filters = {name: value for name, value in query.items() if name not in _SEARCH_WORDS}
        storage = float(query.get("allocated_storage", 8.0))
        rows = [
            self._offer(host, storage, is_bid=_SEARCH_TYPES[kind]) for host in self.market.hosts
        ]
        found = [
            row for row in rows if all(_fits(row, name, value) for name, value in filters.items())
        ]
        for name, direction in reversed(query.get("order", [["score", "desc"]])):
            found.sort(key=itemgetter(name), reverse=direction == "desc")
        found = found[: int(query.get("limit", 64))]
        self._count_rows(len(found))
        return {
            "offers": [
                {name: value for name, value in row.items() if name != "verified"} for row in found
            ]
        }

    def _count_rows(self, rows: int) -> None:
        now = self.market.now()
        day = int(now // DAY_SECONDS)
        if self._rows.get(day, 0) + rows > self.rows_a_day:
            reset = (day + 1) * DAY_SECONDS
            headers = {"Retry-After": str(int(reset - now) + 1), "X-RateLimit-Reset": str(reset)}
            _too_often("Daily search quota exceeded", "search_quota_exceeded", **headers)
        self._rows[day] = self._rows.get(day, 0) + rows

    def _offer(self, host: Host, storage: float, *, is_bid: bool) -> dict[str, Any]:
        """A machine as searches show it: all prices are those of the whole machine, for an hour."""
        least, ours = (
            self.market.least_bid(host),
            [one for one in self.market.alive() if one.host is host],
        )
        fixed = any(one.price is None for one in ours)
        base, disk = least if is_bid else host.price, storage * host.storage / HOURS_A_MONTH
        return {
            **_hardware(host),
            "id": host.ask,
            "ask_contract_id": host.ask,
            "rentable": host.online and not host.taken and not fixed,
            "rented": bool(ours),
            "is_bid": is_bid,
            "min_bid": round(least, 6),
            "dph_base": round(base, 6),
            "dph_total": round(base + disk, 6),
            "storage_cost": host.storage,
            "storage_total_cost": round(disk, 6),
            "score": 100 * host.reliability / (base + disk),
            "duration": host.lasts_seconds,
            "end_date": self.market.now() + host.lasts_seconds,
        }

    def _order(self, request: Request, ask: int) -> dict[str, Any]:
        body = _body_of(
            request, "invalid_args", "error 400/3467: Invalid args: a JSON object is required"
        )
        _check_order(body)
        host = next((host for host in self.market.hosts if host.ask == ask), None)
        offered = (
            host is not None
            and self._offer(host, 8.0, is_bid=body.get("price") is not None)["rentable"]
        )
        if host is None or not offered:
            message = f"error 404/3603: no_such_ask Instance type by id {ask} is not available."
            raise Refused(404, "invalid_args", message, ask_id=ask)
        price = body.get("price")
        if price is not None and price < self.market.least_bid(host) and body.get("cancel_unavail"):
            message = f"error 410/3907: no_such_ask Instance type {ask} is no longer available."
            raise Refused(410, "no_such_ask", message, ask_id=ask)
        contract = self.market.order(host, price, float(body.get("disk") or MIN_DISK_GB), body)
        if contract.granted is None:
            message = f"error 410/3907: no_such_ask Instance type {ask} is no longer available."
            raise Refused(410, "no_such_ask", message, ask_id=ask, new_contract=contract.id)
        return {"success": True, "new_contract": contract.id, "instance_api_key": contract.key}

    def _list(self, request: Request) -> dict[str, Any]:
        wanted = _given(request, "select_filters", "{}")
        for name, conditions in wanted.items():
            if name not in _FILTERABLE or not set(conditions) <= _OPERATORS.keys():
                raise Refused(
                    400,
                    "invalid_request",
                    f"Error in query parameters: {name} is not a valid search key",
                )
        limit, columns = (
            int(_given(request, "limit", "25")),
            _given(request, "select_cols", '["*"]'),
        )
        late = self.market.now() - self.lists_late
        rows = [self._row(one) for one in self.market.alive() if one.made <= late]
        found = [
            row for row in rows if all(_fits(row, name, value) for name, value in wanted.items())
        ]
        page, token = _page(request, found, min(limit, MAX_PAGE) if limit > 0 else 5)
        shown = (
            page
            if columns == ["*"]
            else [{name: row.get(name) for name in columns} for row in page]
        )
        return {
            "success": True,
            "instances_found": len(page),
            "total_instances": len(found),
            "instances": shown,
            "next_token": token,
        }

    def _show(self, _: Request, number: int) -> dict[str, Any]:
        contract = self.market.contracts.get(number)
        gone = contract is None or contract.destroyed is not None
        return {"instances": None if gone or contract is None else self._row(contract)}

    def _row(self, contract: Contract) -> dict[str, Any]:
        host, runs = contract.host, self.market.runs(contract)
        granted = contract.granted is not None
        waiting = "created" if host.refuses else "loading"
        state = "running" if granted else "stopped"
        intended = contract.wanted and (granted or not self.stops_as_wanted)
        variables = dict(contract.body.get("env") or {})  # type: ignore[call-overload]
        return {
            **_hardware(host),
            "id": contract.id,
            "label": contract.label,
            "actual_status": "running" if runs else waiting if granted else "stopped",
            "cur_state": state,
            "next_state": state,
            "intended_status": "running" if intended else "stopped",
            "status_msg": host.refuses or None,
            "image_uuid": contract.body["image"],
            "image_runtype": contract.body.get("runtype"),
            "onstart": contract.body.get("onstart"),
            "extra_env": [list(pair) for pair in variables.items()],
            "start_date": contract.made,
            "end_date": contract.made + host.lasts_seconds,
            "disk_space": contract.disk,
            "is_bid": contract.price is not None,
            "min_bid": contract.price
            if contract.price is not None
            else self.market.least_bid(host),
            "dph_base": contract.rate,
            "dph_total": contract.rate + contract.disk_rate,
            "storage_cost": host.storage,
            "storage_total_cost": contract.disk_rate,
            "ports": _mapped(contract) if runs else None,
            **contract.shown,
            "ssh_host": "ssh4.vast.ai",
            "ssh_port": 10_000 + contract.id % 10_000,
        }

    def _destroy(self, _: Request, number: int) -> dict[str, Any]:
        self.market.destroy(self._contract(number, "not_found", "Instance not found"))
        return {"success": True, "msg": "Instance destroyed successfully"}

    def _change_bid(self, request: Request, number: int) -> dict[str, Any]:
        body = _body_of(request, "invalid_args", "Invalid json body")
        contract = self._contract(
            number, "no_such_instance", "Instance with that ID does not exist."
        )
        if set(body) - {"client_id", "price"} or "client_id" not in body:
            raise Refused(400, "invalid_args", "Invalid args: client_id and price are required")
        price = body.get("price")
        if price is None:
            price = self.market.least_bid(contract.host)
        if (
            not _is_number(price)
            or not MIN_PRICE <= price <= MAX_CHANGED_PRICE * contract.host.gpus
        ):
            raise Refused(400, "invalid_args", "Please set a bid price >= 0.001.")
        if contract.price is None:
            raise Refused(400, "invalid_args", "Instance is not interruptible.")
        self.market.change_bid(contract, float(price))
        return {"success": True}

    def _manage(self, request: Request, number: int) -> dict[str, Any]:
        body = _body_of(request, "invalid_args", "Invalid json body")
        contract = self._contract(number, "no_such_instance", f"Instance {number} does not exist.")
        match body:
            case {"state": "stopped"}:
                self.market.stop(contract)
            case {"state": "running"}:
                self.market.start(contract)
            case {"label": str(label)} if len(label) <= 1024:
                contract.label = label
            case _:
                raise Refused(
                    400, "invalid_args", "state must be stopped or running, or label a text"
                )
        return {"success": True}

    def _user(self, _: Request) -> dict[str, Any]:
        return {
            "id": 4242,
            "key_id": 77,
            "email": "someone@example.org",
            "balance": 25.0,
            "ssh_key": "",
            "sid": "S1",
        }

    def _charges(self, request: Request) -> dict[str, Any]:
        """The charges of contracts on the days of a request, from the first to the last, summed to
        one item each.
        """
        days = _given(request, "select_filters", "{}").get("day", {})
        if not {"gte", "lte"} <= days.keys():
            raise Refused(400, "invalid_request", "Error in query parameters: day is required")
        rows = [_charge(self.market, one) for one in self.market.contracts.values()]
        found = [row for row in rows if _fits(row, "start", days)]
        page, token = _page(request, found, min(int(_given(request, "limit", "20")), MAX_CHARGES))
        shown = [{name: value for name, value in row.items() if name != "id"} for row in page]
        return {
            "success": True,
            "count": len(page),
            "total": len(found),
            "next_token": token,
            "results": shown,
        }

    def _contract(self, number: int, error: str, message: str) -> Contract:
        contract = self.market.contracts.get(number)
        if contract is None or contract.destroyed is not None:
            raise Refused(404, error, message)
        return contract


def _body_of(request: Request, error: str, message: str) -> dict[str, Any]:
    try:
        body = request.json()
    except ValueError:
        raise Refused(400, error, message) from None
    if not isinstance(body, dict):
        raise Refused(400, error, message)
    return body


def _given(request: Request, name: str, otherwise: str) -> Any:  # noqa: ANN401  # JSON is any value
    """A parameter of a query, which is JSON."""
    try:
        return json.loads(request.query.get(name, [otherwise])[0])
    except json.JSONDecodeError:
        raise Refused(
            400, "invalid_request", f"Error in query parameters: {name} is not JSON"
        ) from None


def _page(
    request: Request, found: list[dict[str, Any]], most: int
) -> tuple[list[dict[str, Any]], str | None]:
    """The rows after those that were shown, and the token for the next ones."""
    after = _token_id(request.query.get("after_token", [""])[0])
    page = [row for row in found if row["id"] > after][:most]
    if not page or page[-1]["id"] == found[-1]["id"]:
        return page, None
    return page, base64.b64encode(json.dumps({"values": {"id": page[-1]["id"]}}).encode()).decode()


def _charge(market: VastMarket, contract: Contract) -> dict[str, Any]:
    """The charges of a contract, as if all of it were on the day of its order."""
    day = int(contract.made // DAY_SECONDS) * DAY_SECONDS
    period = {"start": day, "end": day}
    gpus, disk = market.billed(contract)
    items: list[dict[str, Any]] = [
        {
            **period,
            "type": kind,
            "source": None,
            "description": text,
            "amount": amount,
            "metadata": {},
            "items": [],
        }
        for kind, text, amount in (
            ("gpu", f"{gpus / contract.rate:.3f} hours at ${contract.rate:.3f}/hour", gpus),
            ("disk", f"{contract.disk:.0f} GB at ${contract.disk_rate:.4f}/hour", disk),
        )
    ]
    return {
        "id": contract.id,
        **period,
        "type": "instance",
        "source": f"instance-{contract.id}",
        "description": f"Instance {contract.id} Charges - 1 day",
        "amount": gpus + disk,
        "metadata": {"label": contract.label},
        "items": items,
    }


def _token_id(token: str) -> int:
    if not token:
        return 0
    try:
        return int(json.loads(base64.b64decode(token))["values"]["id"])
    except (ValueError, KeyError, TypeError):
        raise Refused(400, "invalid_token", "Invalid pagination token") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_order(body: Mapping[str, Any]) -> None:
    """Refuses what the documentation does not have, and values beyond its limits."""
    variables = body.get("env") or {}
    script = (
        sum(len(text) for text in (body.get("onstart") or "", *(body.get("args") or ())))
        if body
        else 0
    )
    problems = {
        "unknown": sorted(set(body) - _ORDER_FIELDS),
        "image": not isinstance(body.get("image"), str) or not 0 < len(body["image"]) <= MAX_IMAGE,
        "label": body.get("label") is not None and len(body["label"]) > MAX_LABEL,
        "onstart": script > MAX_SCRIPT,
        "runtype": body.get("runtype", "ssh") not in _RUN_TYPES,
        "disk": body.get("disk") is not None
        and (not _is_number(body["disk"]) or body["disk"] < MIN_DISK_GB),
        "env": not isinstance(variables, dict)
        or any(
            not isinstance(value, str) or len(value) > MAX_VARIABLE for value in variables.values()
        )
        or sum(len(name) + len(value) for name, value in variables.items()) > MAX_ENVIRONMENT,
    }
    if wrong := [name for name, is_wrong in problems.items() if is_wrong]:
        raise Refused(400, "invalid_args", f"error 400/3467: Invalid args: {', '.join(wrong)}")
    price = body.get("price")
    if price is not None and (not _is_number(price) or not MIN_PRICE <= price <= MAX_PRICE):
        raise Refused(400, "invalid_price", f"error 400/3548: Invalid price {price}")


def _fits(row: Mapping[str, Any], name: str, conditions: object) -> bool:
    key = "reliability" if name == "reliability2" else name
    if (
        key not in row
        or not isinstance(conditions, dict)
        or not set(conditions) <= _OPERATORS.keys()
    ):
        raise Refused(
            400, "invalid_request", f"Error in query parameters: {name} is not a valid search key"
        )
    return all(
        _OPERATORS[operator](row[key], _as(row[key], value))
        for operator, value in conditions.items()
    )


def _as(known: object, given: Any) -> Any:  # noqa: ANN401  # JSON is any value
    """A value to compare with: the official client sends numbers as texts."""
    if _is_number(known) and isinstance(given, str):
        return float(given)
    return [_as(known, one) for one in given] if isinstance(given, list) else given


def _mapped(contract: Contract) -> dict[str, list[dict[str, str]]]:
    return {
        f"{own}/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(port)}]
        for own, port in contract.ports.items()
    }


def _hardware(host: Host) -> dict[str, Any]:
    return {
        "machine_id": host.machine_id,
        "host_id": 100 + host.machine_id,
        "gpu_name": host.gpu,
        "num_gpus": host.gpus,
        "gpu_ram": host.gpu_ram_mb,
        "gpu_total_ram": host.gpu_ram_mb * host.gpus,
        "gpu_frac": host.share,
        "gpu_arch": "nvidia",
        "cpu_arch": "amd64",
        "cpu_cores": host.cpu_cores,
        "cpu_cores_effective": host.cpu_cores * host.share,
        "cpu_ram": host.ram_mb,
        "disk_space": host.disk,
        "geolocation": f"Somewhere, {host.country}",
        "verified": host.verified,
        "verification": "verified" if host.verified else "unverified",
        "reliability": host.reliability,
        "reliability2": host.reliability,
        "external": host.external,
        "cuda_max_good": host.cuda,
        "compute_cap": host.capability,
        "public_ipaddr": host.address,
        "direct_port_count": host.direct_ports,
        "inet_down": host.mbit_down,
        "inet_up": 700.0,
        "dlperf": 80.0 * host.gpus,
        "static_ip": host.static_ip,
        "inet_up_cost": host.traffic,
        "inet_down_cost": host.traffic,
    }
