"""`SlurmProvider`: machines are batch jobs of a Slurm cluster, each of one node.

Slurm has no tokens, so the `OrderLedger` stands in: a job's comment is the label of its order, and
its machine's folder in the shared folder has a mark once it ran, because finished jobs leave
`squeue` after minutes. The agent is the batch script's own process (`job`), and callers reach it
over TLS: neither ssh to nodes nor a daemon is needed.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import attrgetter
from os import environ
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING

from agileml.transport.certificates import contexts_of, credentials_of
from pricing_data.units import HOUR, MINUTE
from spotctl.agent.files import Watched, replace_json
from spotctl.agent.link.output import read_from, times_file
from spotctl.clouds.doctor import Requirement
from spotctl.clouds.errors import NoCapacity, NotFound, ProviderError, Unanswered, in_contract
from spotctl.clouds.labelled import LabelledProvider, Listed, Purchase
from spotctl.clouds.link import AgentLink, MachineSupplies, link_key, link_secret
from spotctl.clouds.order_ledger import Number, OrderLabel, OrderLedger
from spotctl.clouds.provider import (
    Machine,
    MachineRequest,
    MachineState,
    check_settings,
)
from spotctl.clouds.remote.job_folder import check_folder, job_archive
from spotctl.clouds.slurm import orders
from spotctl.clouds.slurm.calls import cancel, of_call
from spotctl.clouds.slurm.cloud import CLOUD_NAME, SlurmSettings
from spotctl.clouds.slurm.orders import ENDED, PREFIX, STATES, BatchJob, check
from spotctl.clouds.slurm.partitions import NodeOffer, offers
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import WallClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pricing_data.market import Market
    from pricing_data.series import PriceSeries
    from spotctl.clouds.errors import Answers
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings

LIMIT_NOTICE = 5 * MINUTE
"""How long before its time limit a machine counts as warned, so that another is rented in time."""

_OFFERS_SECONDS, _JOBS_SECONDS, _BRING_SECONDS, _SILENT_SECONDS = 300.0, 5.0, 20.0, 20.0
_VARIABLES = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER")
"""Variables of this computer that programs have, too: the nodes have the same users and folders."""


class SlurmProvider(WallClock, LabelledProvider):
    """See the module's text and `CloudProvider`."""

    name = CLOUD_NAME

    def __init__(
        self, folder: Path, settings: SlurmSettings, ledger: OrderLedger, prices: PriceBook
    ) -> None:
        self._folder, self._settings, self._prices = folder.absolute(), settings, prices
        self._ledger = ledger
        self._jobs: Mapping[Number, BatchJob] = {}
        self._jobs_at = self._offers_at = self._silent_until = float("-inf")
        self._on_offer: tuple[NodeOffer, ...] = ()
        self._waited: NoCapacity | None = None
        self._links: dict[str, AgentLink] = {}
        self._warned: set[tuple[str, int]] = set()
        self._pool = ThreadPoolExecutor(4, "slurm")
        self._brought: dict[str, Future[None]] = {}
        self._archives: dict[Path, Path] = {}

    def offers(self) -> tuple[Market, ...]:
        return self._prices.markets(self.name)

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._prices.prices(market, start, end, HOUR)

    # -- orders ------------------------------------------------------------------------------------

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `LabelledProvider`; refuses what jobs do not have."""
        check_settings(request, self.name)
        if request.containers:
            own = "jobs of Slurm run as they are, without a container; leave image.container out"
            raise BadRequest(f"{request.market}: {own}")
        self._waited = None
        try:
            return super().create(request)
        except NoCapacity as error:
            raise self._waited or error from None

    def on_offer(self, request: MachineRequest) -> Iterator[Purchase]:
        """The one offer of a partition, or of the cheapest without preemption, until a job of it
        has to wait."""
        if (offer := self._fitting(request)) is not None:
            while self._waited is None:
                yield None, partial(self._buy, request, offer)

    def _fitting(self, request: MachineRequest) -> NodeOffer | None:
        """The offer that a request is for; None at its price."""
        if time.monotonic() - self._offers_at > _OFFERS_SECONDS:
            with in_contract(of_call):
                self._on_offer, self._offers_at = offers(self._settings), time.monotonic()
        market, is_spot = request.market, request.bid is not None
        fitting = [
            offer
            for offer in self._on_offer
            if offer.market.region == market.region
            and offer.market.instance_type == market.instance_type
            and (offer.market == market if is_spot else not offer.is_preemptible)
        ]
        if not fitting:
            where = "it" if is_spot else "without preemption, there"
            cure = "spotctl prices fetch --cloud slurm reads its partitions again"
            raise NotFound(f"{market}: the cluster does not have {where} now; {cure}")
        best = min(fitting, key=attrgetter("price"))
        return best if request.bid is None or best.price <= request.bid else None

    def checks(self, request: MachineRequest) -> Sequence[Requirement]:
        """See `CloudProvider`: whether the cluster takes such a job."""
        if (offer := self._fitting(request)) is None:
            return ()
        said = f"partition {offer.market.zone} takes it"
        return (Requirement("order", partial(check, offer, self._settings, said)),)

    def _buy(self, request: MachineRequest, offer: NodeOffer, label: OrderLabel) -> int:
        """Submits a job, unless one of this order ran already: then its answer was lost."""
        machine = self._place(label)
        if (mark := machine / "number").is_symlink():
            return int(mark.readlink().name)

        link_key(self._folder)
        machine.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_json(
            machine / "machine.json",
            {
                "index": label.index,
                "lease_until": request.lease_until,
                "payload": None if request.payload is None else request.payload.to_json(),
            },
        )
        self._jobs_at = float("-inf")
        try:
            return orders.submit(offer, self._settings, label, machine)
        except NoCapacity as error:
            self._waited = error
            raise

    def destroy(self, number: Number) -> bool:
        self._jobs_at = float("-inf")
        return cancel(number)

    # -- lists -------------------------------------------------------------------------------------

    def instances(self) -> Mapping[Number, Listed]:
        """See `LabelledProvider`. Jobs that have ended stay listed for minutes: what they say of an
        end counts until the order notes it."""
        if time.monotonic() < self._silent_until:
            raise Unanswered("slurm: the controller did not answer, and is asked again soon")
        try:
            self._jobs, self._jobs_at = orders.jobs(), time.monotonic()
        except Unanswered:
            # Such a call lasts about ten seconds, in which no other machine is looked after.
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            raise
        open_ = {
            placed.number
            for order in self._ledger.orders(self.now())
            for placed in order.machines
            if placed.ended is None and not placed.returning
        }
        listed = dict[Number, Listed]()
        for number, job in self._jobs.items():
            state, failure = STATES.get(job.state, (MachineState.LEAVING, ""))
            is_news = job.state not in ENDED or number in open_
            if is_news and state is not MachineState.GONE:
                listed[number] = Listed(job.label, state, job.starts, failure=failure)
        return listed

    def _machines(self) -> Sequence[tuple[str, Machine]]:
        """See `LabelledProvider`; with the nodes as addresses."""
        machines = []
        for key, machine in super()._machines():
            job = self._jobs.get(self.number_of(machine.id) or 0)
            if machine.state is MachineState.GONE and (link := self._links.pop(machine.id, None)):
                link.close()
            machines.append((key, machine if job is None else replace(machine, address=job.node)))
        return machines

    def _job(self, machine: str) -> BatchJob:
        """The job of a machine that has not ended, as the last list had it. NotFound: there is
        none."""
        number = self.number_of(machine)
        job = None if number is None else self._jobs.get(number)
        if number is not None and (job is None or time.monotonic() > self._jobs_at + _JOBS_SECONDS):
            self.instances()
            job = self._jobs.get(number)
        if job is None or job.state in ENDED:
            raise NotFound(f"{machine}: gone, or never existed", (machine,))
        return job

    # -- agents ------------------------------------------------------------------------------------

    def link(self, machine: str) -> AgentLink:
        if machine not in self._links:
            job = self._job(machine)
            secret = link_secret(link_key(self._folder), machine)
            self._links[machine] = AgentLink(
                partial(self._address, machine, self._place(job.label), secret),
                machine,
                secret,
                self,
                partial(self._is_gone, machine),
            )
        return self._links[machine]

    def _is_gone(self, machine: str) -> bool:
        try:
            self._job(machine)
        except NotFound:
            return True
        except ProviderError:
            return False
        return False

    def _address(
        self, machine: str, place: Path, secret: bytes, *, ready: bool = True
    ) -> tuple[str, int, SSLContext]:
        """Where the process on the node listens. Unanswered: not yet."""
        state = Watched(place / "state.json", dict).value()
        if ready and (brought := self._brought.get(machine)) is not None and brought.done():
            brought.result()
        if state is None or (ready and not (place / "ready").exists()):
            step = "its job has not started" if state is None else "it waits for its launcher"
            raise Unanswered(f"{machine}: {step}; {place / 'slurm.out'} says more")
        _, client = contexts_of(credentials_of(secret, "agent"))
        client.check_hostname = False
        return state["host"], state["port"], client

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        """See `CloudProvider`. BadRequest: the job's folder cannot be copied."""
        place = self._place(self._job(machine.id).label)
        brought = self._brought.get(machine.id)
        if (place / "ready").exists() or (brought is not None and not brought.done()):
            return
        if supplies.folder is not None and supplies.folder not in self._archives:
            check_folder(supplies.folder)
        self._brought[machine.id] = self._pool.submit(self._bring, machine.id, place, supplies)

    def _bring(self, machine: str, place: Path, supplies: MachineSupplies) -> None:
        """Packs the job's folder into the shared one, and sends the secrets."""
        folder, archive = supplies.folder, ""
        if folder is not None:
            if folder not in self._archives:
                self._archives[folder] = job_archive(folder, self._folder / "archives").path
            archive = str(self._archives[folder])
        own = supplies.own_secrets(machine) if supplies.own_secrets else {}
        variables = {name: environ[name] for name in _VARIABLES if name in environ}
        start = {"job": archive, "variables": {**variables, **supplies.secrets, **own}}
        secret = link_secret(link_key(self._folder), machine)
        host, port, client = self._address(machine, place, secret, ready=False)
        try:
            with (
                socket.create_connection((host, port), _BRING_SECONDS) as plain,
                client.wrap_socket(plain) as tls,
            ):
                tls.sendall(json.dumps(start).encode() + b"\n")
                tls.settimeout(_BRING_SECONDS)
                tls.recv(16)
        except OSError as error:
            cure = "can this computer reach the nodes' ports?"
            raise Unanswered(f"{machine}: {host}:{port}: {error}; {cure}") from None

    def with_status(
        self, machine: Machine, on_silence: Callable[[ProviderError], None] | None = None
    ) -> Machine:
        """See `CloudProvider`. Passes on a preemption, or the end of the time limit, that the list
        shows."""
        job = self._jobs.get(self.number_of(machine.id) or 0)
        if job is not None and job.ends is not None and job.state == "RUNNING":
            is_ending = job.preempted_at is not None or job.ends - self.now() < LIMIT_NOTICE
            notice = machine.id, job.ends
            if is_ending and notice not in self._warned:
                source = "preempted" if job.preempted_at is not None else "time limit"
                try:
                    self.link(machine.id).notify("evict", job.ends, f"slurm: {source}")
                    self._warned.add(notice)
                except ProviderError as error:
                    if on_silence is not None:
                        on_silence(error)
        return super().with_status(machine, on_silence)

    def output(self, machine: str, after: int = 0) -> bytes:
        """See `CloudProvider`; from the shared folder, also when the machine is gone."""
        return read_from(self._output(machine), after)

    def output_times(self, machine: str, after: int = 0) -> bytes:
        return read_from(times_file(self._output(machine)), after)

    def _output(self, machine: str) -> Path:
        number = self.number_of(machine)
        for order in self._ledger.orders(self.now()):
            for placed in order.machines:
                if number is not None and placed.number == number:
                    return self._place(order.label(placed.index)) / "agent" / "output"
        return self._place(self._job(machine).label) / "agent" / "output"

    def _place(self, label: OrderLabel) -> Path:
        return self._folder / "machines" / f"{PREFIX}{label.order}-{label.index}"

    def close(self) -> None:
        self._pool.shutdown(wait=False)
        for link in self._links.values():
            link.close()


def provider(
    settings: Settings,
    # A cluster is one region.
    regions: tuple[str, ...],  # noqa: ARG001
    agents: RemoteAgents,  # noqa: ARG001 - nothing is reached over ssh
    prices: PriceBook,
    answers: Answers,  # noqa: ARG001 - a cluster's answers are not kept
) -> SlurmProvider:
    """See `ProviderPart`."""
    own = settings.table(CLOUD_NAME, SlurmSettings)
    root = settings.home / CLOUD_NAME
    folder = Path(own.folder).expanduser() if own.folder else root / "shared"
    # The list has every job as soon as it is submitted, and one that it lacks has ended.
    ledger = OrderLedger(root / "orders", listed_within=MINUTE, gone_after=0)
    return SlurmProvider(folder, own, ledger, prices)
