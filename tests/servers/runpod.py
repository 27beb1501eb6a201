"""RunPod's GraphQL API, as far as spotctl and the official client call it, and the call by which a
pod ends itself.

The schema has the fields and the inputs that sources name, and refuses all others. The table of
sources is in docs/internals/container-clouds.md. The official client calls it in
`tests/spotctl/clouds/runpod`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLError, build_schema, graphql_sync, parse, validate

from tests.servers.loopback import Reply, Request
from tests.servers.runpod_market import Pod, RunPodMarket, Stock

KEY = "rpa_" + "0123456789ABCDEF" * 2
CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh"
    " and try again."
)
BID_CAPACITY = (
    "There are no longer any instances available with the request specifications. Please try again"
    " later."
)
RESOURCES = (
    "This machine does not have the resources to deploy your pod. Please try a different machine"
)
FEW_GPUS = "There are not enough free GPUs on the host machine to start this pod."

_ORDER = """
  cloudType: CloudTypeEnum, gpuCount: Int, gpuTypeId: String, name: String, imageName: String,
  dockerArgs: String, ports: String, env: [EnvironmentVariableInput], containerDiskInGb: Int,
  volumeInGb: Int, volumeMountPath: String, volumeKey: String, networkVolumeId: String,
  templateId: String, minVcpuCount: Int, minMemoryInGb: Int, minDisk: Int, minDownload: Int,
  minUpload: Int, dataCenterId: String, countryCode: String, supportPublicIp: Boolean,
  startSsh: Boolean, startJupyter: Boolean, stopAfter: String, terminateAfter: String,
  cudaVersion: String, allowedCudaVersions: [String], minCudaVersion: String,
  containerRegistryAuthId: String
"""
_BIDS = """
  podRentInterruptable(input: PodRentInterruptableInput!): Pod
  podBidResume(input: PodBidResumeInput!): Pod
"""
_SCHEMA = f"""
enum CloudTypeEnum {{ SECURE COMMUNITY ALL }}
enum PodStatus {{ CREATED RUNNING RESTARTING EXITED PAUSED DEAD TERMINATED }}
enum PodType {{ INTERRUPTABLE RESERVED BID BACKGROUND }}
scalar Port
input EnvironmentVariableInput {{ key: String, value: String }}
input PodFindAndDeployOnDemandInput {{ {_ORDER}, deployCost: Float }}
input PodRentInterruptableInput {{ {_ORDER}, bidPerGpu: Float }}
input PodFilter {{ podId: String! }}
input PodStopInput {{ podId: String!, incrementVersion: Boolean }}
input PodTerminateInput {{ podId: String! }}
input PodResumeInput {{ podId: String!, gpuCount: Int, syncMachine: Boolean }}
input PodBidResumeInput {{ podId: String!, gpuCount: Int!, bidPerGpu: Float! }}
input GpuTypeFilter {{ id: String, ids: [String], cluster: Boolean }}
input GpuLowestPriceInput {{
  gpuCount: Int, secureCloud: Boolean, dataCenterId: String, countryCode: String, minDisk: Int,
  totalDisk: Int, minVcpuCount: Int, minMemoryInGb: Int, minDownload: Int, minUpload: Int,
  supportPublicIp: Boolean, cudaVersion: String, allowedCudaVersions: [String],
  minCudaVersion: String
}}
type PodRuntimePorts {{
  ip: String, isIpPublic: Boolean, privatePort: Int, publicPort: Int, type: String
}}
type PodRuntime {{ uptimeInSeconds: Int, ports: [PodRuntimePorts] }}
type PodMachineInfo {{ podHostId: String, gpuDisplayName: String, location: String }}
type Pod {{
  id: String!, name: String, containerDiskInGb: Int, costPerHr: Float!, desiredStatus: PodStatus!,
  dockerArgs: String, dockerId: String, env: [String], gpuCount: Int!, imageName: String,
  lastStatusChange: String, machineId: String!, memoryInGb: Float, podType: PodType, port: Port,
  ports: String, uptimeSeconds: Int, vcpuCount: Float, volumeInGb: Float, volumeMountPath: String,
  runtime: PodRuntime, machine: PodMachineInfo
}}
type NetworkVolume {{ id: String, name: String, size: Int, dataCenterId: String }}
type User {{
  id: ID!, pubKey: String, email: String, clientBalance: Float, currentSpendPerHr: Float,
  pods: [Pod], networkVolumes: [NetworkVolume]
}}
type LowestPrice {{
  gpuName: String, gpuTypeId: String, minimumBidPrice: Float, uninterruptablePrice: Float,
  minMemory: Int, minVcpu: Int, stockStatus: String, countryCode: String
}}
type GpuType {{
  id: String, displayName: String, manufacturer: String, memoryInGb: Int, cudaCores: Int,
  maxGpuCount: Int, secureCloud: Boolean, communityCloud: Boolean, securePrice: Float,
  communityPrice: Float, oneMonthPrice: Float, threeMonthPrice: Float, oneWeekPrice: Float,
  communitySpotPrice: Float, secureSpotPrice: Float,
  lowestPrice(input: GpuLowestPriceInput): LowestPrice
}}
type DataCenter {{ id: ID!, name: String, listed: Boolean }}
type Query {{
  myself: User
  pod(input: PodFilter): Pod
  gpuTypes(input: GpuTypeFilter): [GpuType]
  dataCenters: [DataCenter]
  countryCodes: [String]
}}
type Mutation {{
  podFindAndDeployOnDemand(input: PodFindAndDeployOnDemandInput!): Pod
  podStop(input: PodStopInput!): Pod
  podResume(input: PodResumeInput!): Pod
  podTerminate(input: PodTerminateInput!): Boolean
  BIDS
}}
"""
SCHEMA = build_schema(_SCHEMA.replace("BIDS", _BIDS))
WITHOUT_BIDS = build_schema(_SCHEMA.replace("BIDS", ""))


@dataclass
class RunPod:
    """The API of one account. A new pod is listed `lists_late` seconds after it was made.

    `calls_a_minute` are answered, further ones with 429. `takes_bids` says that the mutations for
    bids are not removed yet. Where `says_401`, a wrong key is refused with this status, else with
    an error of GraphQL. Where `resumes_without_gpus`, a pod whose GPUs others have starts without
    any, else it is refused.
    """

    market: RunPodMarket
    lists_late: float = 0.0
    calls_a_minute: int | None = None
    takes_bids: bool = True
    says_401: bool = True
    resumes_without_gpus: bool = False
    _called: list[float] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, request: Request) -> Reply:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        with self._lock:
            if match := re.fullmatch(r"/v2/pods/(\w+)", request.path):
                return self._end_itself(request, match[1], given)
            if (request.method, request.path) != ("POST", "/graphql"):
                return Reply(404)

            now = self.market.now()
            self._called = [at for at in self._called if at > now - 60]
            if self.calls_a_minute is not None and len(self._called) >= self.calls_a_minute:
                return Reply.of_json({"message": "Too Many Requests"}, 429)
            self._called.append(now)
            if given not in ("", KEY) and self.says_401:
                return Reply(401, b"Unauthorized")
            return self._graphql(request, knows=given == KEY)

    def _graphql(self, request: Request, *, knows: bool) -> Reply:
        schema = SCHEMA if self.takes_bids else WITHOUT_BIDS
        asked = request.json()
        try:
            wrong = validate(schema, parse(asked["query"]))
        except GraphQLError as error:
            wrong = [error]
        if wrong:
            return _failed(wrong[0].message, "GRAPHQL_VALIDATION_FAILED", 400)

        self.market.settle()
        private: dict[str, Any] = {
            "myself": self._myself,
            "pod": self._pod,
            "podFindAndDeployOnDemand": self._deploy,
            "podRentInterruptable": self._rent,
            "podStop": self._stop,
            "podResume": self._resume,
            "podBidResume": self._bid_resume,
            "podTerminate": self._terminate,
        }
        public: dict[str, Any] = {
            "gpuTypes": self._gpu_types,
            "dataCenters": [{"id": place, "listed": True} for place in self._places(secure=True)],
            "countryCodes": [None, *self._places(secure=False)],
        }
        root = public | (private if knows else dict.fromkeys(private, _unauthorized))
        result = graphql_sync(schema, asked["query"], root, variable_values=asked.get("variables"))
        if result.errors:
            code = (result.errors[0].extensions or {}).get("code", "INTERNAL_SERVER_ERROR")
            is_input = result.data is None and result.errors[0].path is None
            return _failed(
                result.errors[0].message,
                "BAD_USER_INPUT" if is_input else str(code),
                400 if is_input else 200,
            )
        return Reply.of_json({"data": result.data})

    def _end_itself(self, request: Request, number: str, given: str) -> Reply:
        """The key of a pod may end this pod, that of the account any."""
        pod = self.market.pods.get(number)
        if pod is None or pod.ended is not None:
            return Reply.of_json({"message": "pod not found"}, 404)
        if given not in (KEY, pod.key):
            return Reply(401)
        if request.method != "DELETE":
            return Reply(405)
        self.market.terminate(pod)
        return Reply(204)

    def _places(self, *, secure: bool) -> list[str]:
        places = (stock.place for stock in self.market.stocks if stock.secure == secure)
        return list(dict.fromkeys(places))

    def _gpu_types(self, _: Any, input: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:  # noqa: A002, ANN401
        models: dict[str, list[Stock]] = {}
        for stock in self.market.stocks:
            if (input or {}).get("id") in (None, stock.gpu):
                models.setdefault(stock.gpu, []).append(stock)
        return [
            {
                "id": gpu,
                "displayName": stocks[0].display,
                "memoryInGb": stocks[0].gib,
                "manufacturer": "AMD" if gpu.startswith("AMD") else "Nvidia",
                "maxGpuCount": 8,
                "lowestPrice": lambda _, input=None, stocks=stocks: self._lowest(stocks, input),  # noqa: A006
            }
            for gpu, stocks in models.items()
        ]

    def _lowest(self, stocks: list[Stock], wanted: Mapping[str, Any] | None) -> dict[str, Any]:
        fitting = [stock for stock in stocks if _fits(stock, wanted or {})]
        if not fitting:
            return {"stockStatus": None}
        bids = [stock.bid for stock in fitting if stock.bid is not None]
        prices = [stock.price for stock in fitting if stock.price is not None]
        return {
            "minimumBidPrice": min(bids, default=None),
            "uninterruptablePrice": min(prices, default=None),
            "stockStatus": "High" if any(stock.free > 4 for stock in fitting) else "Low",
            "minMemory": min(stock.ram_each for stock in fitting),
            "minVcpu": min(stock.vcpus_each for stock in fitting),
        }

    def _myself(self, _: Any) -> dict[str, Any]:  # noqa: ANN401
        late = self.market.now() - self.lists_late
        pods = [self._row(pod) for pod in self.market.alive() if pod.made <= late]
        spend = sum(pod.rate + pod.disk_rate for pod in self.market.alive())
        return {
            "id": "user_2hx9",
            "clientBalance": self.market.balance,
            "currentSpendPerHr": spend,
            "pods": pods,
            "networkVolumes": [],
        }

    def _pod(self, _: Any, input: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: A002, ANN401
        pod = self.market.pods.get(input["podId"])
        return None if pod is None or pod.ended is not None else self._row(pod)

    def _row(self, pod: Pod) -> dict[str, Any]:
        runs = self.market.runs(pod)
        ports = [
            {
                "ip": pod.address,
                "isIpPublic": True,
                "privatePort": own,
                "publicPort": port,
                "type": "tcp",
            }
            for own, port in pod.ports.items()
        ]
        env = [f"{one['key']}={one['value']}" for one in pod.given.get("env") or ()]
        return {
            **{name: pod.given.get(name) for name in ("name", "imageName", "dockerArgs", "ports")},
            **{name: pod.given.get(name) for name in ("containerDiskInGb", "volumeInGb")},
            "id": pod.id,
            "costPerHr": pod.rate,
            "desiredStatus": pod.status,
            "env": env,
            "gpuCount": pod.gpus if pod.status == "RUNNING" else pod.count,
            "lastStatusChange": pod.change,
            "machineId": f"m{id(pod.stock) % 10_000}",
            "podType": "RESERVED" if pod.bid is None else "INTERRUPTABLE",
            "runtime": {"uptimeInSeconds": 1, "ports": ports} if runs else None,
            "machine": {"gpuDisplayName": pod.stock.display, "podHostId": f"{pod.id}-1"},
        }

    def _deploy(self, _: Any, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002, ANN401
        return self._made(input, None)

    def _rent(self, _: Any, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002, ANN401
        bid = input.get("bidPerGpu")
        if not bid or bid <= 0:
            raise GraphQLError("bidPerGpu must be above 0", extensions={"code": "BAD_USER_INPUT"})
        return self._made(input, float(bid))

    def _made(self, given: Mapping[str, Any], bid: float | None) -> dict[str, Any]:
        if not given.get("gpuTypeId") or not (given.get("imageName") or given.get("templateId")):
            raise GraphQLError(
                "gpuTypeId and imageName are required", extensions={"code": "BAD_USER_INPUT"}
            )
        count, cloud = given.get("gpuCount") or 1, given.get("cloudType") or "ALL"
        wanted = {**given, "secureCloud": {"SECURE": True, "COMMUNITY": False}.get(cloud)}
        stocks = [
            stock
            for stock in self.market.stocks
            if stock.gpu == given["gpuTypeId"] and _fits(stock, wanted)
        ]
        if not stocks:
            raise GraphQLError(CAPACITY if bid is None else BID_CAPACITY)
        if not given.get("containerDiskInGb"):
            raise GraphQLError(RESOURCES)
        sold = [
            stock
            for stock in stocks
            if (
                stock.price is not None
                if bid is None
                else stock.bid is not None and bid >= stock.bid
            )
        ]
        if not sold:
            raise GraphQLError(CAPACITY if bid is None else BID_CAPACITY)
        stock = min(sold, key=lambda one: one.price or 0.0)
        hourly = count * ((stock.price or 0.0) if bid is None else bid)
        if self.market.balance < hourly:
            raise GraphQLError("Your account balance is too low to deploy this pod.")
        return self._row(self.market.rent(stock, count, bid, dict(given)))

    def _stop(self, _: Any, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002, ANN401
        pod = self._known(input["podId"], "pod not found to stop")
        self.market.exit(pod, "user")
        return self._row(pod)

    def _resume(self, _: Any, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002, ANN401
        pod = self._known(input["podId"], "pod not found to resume")
        if pod.bid is not None:
            raise GraphQLError("Cannot resume a spot pod as an on demand pod.")
        return self._resumed(pod)

    def _bid_resume(self, _: Any, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002, ANN401
        pod = self._known(input["podId"], "pod not found to resume")
        pod.bid = float(input["bidPerGpu"])
        return self._resumed(pod)

    def _resumed(self, pod: Pod) -> dict[str, Any]:
        if pod.stock.free < pod.count and not self.resumes_without_gpus:
            raise GraphQLError(FEW_GPUS)
        self.market.resume(pod)
        return self._row(pod)

    def _terminate(self, _: Any, input: Mapping[str, Any]) -> None:  # noqa: A002, ANN401
        self.market.terminate(self._known(input["podId"], "pod not found to terminate"))

    def _known(self, number: str, problem: str) -> Pod:
        pod = self.market.pods.get(number)
        if pod is None or pod.ended is not None:
            raise GraphQLError(problem, extensions={"code": "POD_NOT_FOUND"})
        return pod


def _fits(stock: Stock, wanted: Mapping[str, Any]) -> bool:
    """Whether a stock has what a query or an order asks for."""
    count, secure = wanted.get("gpuCount") or 1, wanted.get("secureCloud")
    allowed = wanted.get("allowedCudaVersions")
    return (
        stock.free >= count
        and secure in (None, stock.secure)
        and wanted.get("dataCenterId") in (None, stock.place)
        and wanted.get("countryCode") in (None, stock.place.partition("-")[0])
        and (wanted.get("minVcpuCount") or 0) <= stock.vcpus_each * count
        and (wanted.get("minMemoryInGb") or 0) <= stock.ram_each * count
        and float(wanted.get("minCudaVersion") or 0) <= stock.cuda
        and (not allowed or str(stock.cuda) in allowed)
        and (stock.public_ip or not wanted.get("supportPublicIp"))
    )


def _unauthorized(*_: Any, **__: Any) -> None:  # noqa: ANN401
    raise GraphQLError("Unauthorized", extensions={"code": "UNAUTHENTICATED"})


def _failed(message: str, code: str, status: int) -> Reply:
    error = {"message": message, "extensions": {"code": code}}
    return Reply.of_json({"errors": [error], "data": None}, status)
