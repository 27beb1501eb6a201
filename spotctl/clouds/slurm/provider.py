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
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from os import environ
from pathlib import Path
from shutil import rmtree
from ssl import SSLContext
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from agileml.transport.certificates import contexts_of, credentials_of
from pricing_data.units import HOUR, MINUTE, SECOND, bid_usd, format_time
from spotctl.agent.files import Watched, replace_json
from spotctl.agent.link.output import read_from, times_file
from spotctl.clouds.doctor import Requirement
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotYet,
    ProviderError,
    Unanswered,
    in_contract,
    refused,
)
from spotctl.clouds.labelled import LabelledProvider, Listed, Purchase
from spotctl.clouds.link import (
    AgentLink,
    MachineSupplies,
    ReverseTunnel,
    link_key,
    link_secret,
)
from spotctl.clouds.order_ledger import KEPT, Number, Order, OrderLabel, OrderLedger, Placed
from spotctl.clouds.provider import (
    Machine,
    MachineRequest,
    MachineState,
    check_settings,
)
from spotctl.clouds.remote.job_folder import check_folder, job_archive
from spotctl.clouds.slurm import orders
from spotctl.clouds.slurm.calls import REFUSALS, cancel, of_call
from spotctl.clouds.slurm.cloud import CLOUD_NAME, SlurmSettings
from spotctl.clouds.slurm.job import bridge
from spotctl.clouds.slurm.orders import ENDED, PREFIX, STATES, WAITING, BatchJob, check
from spotctl.clouds.slurm.partitions import NodeOffer, offers
from spotctl.home.errors import BadRequest, SpotctlError
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
_START_SECONDS, _PATIENCE_SECONDS, _REACH_SECONDS = 1.0, 3.0, 0.5
_OLDEST_SECONDS = 600.0
"""How old a list may be while the controller is away: less than a lease."""

T = TypeVar("T")

_VARIABLES = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER")
"""Variables of this computer that programs have, too: the nodes have the same users and folders."""


class SlurmProvider(WallClock, LabelledProvider):
    """See the module's text and `CloudProvider`."""

    name, number_type = CLOUD_NAME, str

    def __init__(
        self, folder: Path, settings: SlurmSettings, ledger: OrderLedger, prices: PriceBook
    ) -> None:
        self._folder, self._settings, self._prices = folder.absolute(), settings, prices
        self._ledger = ledger
        self._jobs: Mapping[Number, BatchJob] = {}
        self._jobs_at = self._offers_at = self._silent_until = float("-inf")
        self._asked: dict[str, Future[Any]] = {}
        self._is_silent = self._is_closed = False
        self._on_offer: tuple[NodeOffer, ...] = ()
        self._links: dict[str, AgentLink] = {}
        self._hosts: dict[str, str] = {}
        self._warned: set[tuple[str, int]] = set()
        self._calls, self._pool = ThreadPoolExecutor(4, "calls"), ThreadPoolExecutor(4, "slurm")
        self._brought: dict[str, Future[None]] = {}
        self._reached: set[tuple[str, ReverseTunnel]] = set()
        self._archives: dict[Path, Path] = {}

    def offers(self) -> tuple[Market, ...]:
        return self._prices.markets(self.name)

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._prices.prices(market, start, end, HOUR)

    # -- orders ------------------------------------------------------------------------------------

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `LabelledProvider`; refuses what jobs do not have. NotYet: its jobs wait for
        nodes."""
        check_settings(request, self.name)
        if request.containers:
            own = "jobs of Slurm run as they are, without a container; leave image.container out"
            raise BadRequest(f"{request.market}: {own}")
        return super().create(request)

    def on_offer(self, request: MachineRequest) -> Iterator[Purchase]:
        """The one offer of a partition, or of the cheapest without preemption."""
        if (offer := self._fitting(request)) is not None:
            yield None, partial(self._submit, request, offer)

    def _fitting(self, request: MachineRequest) -> NodeOffer | None:
        """The offer that a request is for; None at its price."""
        if time.monotonic() - self._offers_at > _OFFERS_SECONDS:
            with in_contract(of_call):
                self._on_offer = self._answer("partitions", partial(offers, self._settings))
                self._offers_at = time.monotonic()
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

    def _fill(self, order: Order, offers: Iterator[Purchase], request: MachineRequest) -> None:
        """Submits all jobs of an order together, unless they exist, and looks at them together
        until they have started, or have waited for too long."""
        unknown = Unanswered(f"{order.market}: the controller has not answered the order yet")
        asked, number = order.machines, self._array(order) if order.machines else None
        if asked and number is None and self.now() - asked[0].asked < self._ledger.listed_within:
            raise unknown
        if number is None:
            _, submit = next(offers, (None, None))
            if submit is None:
                price = "on demand" if request.bid is None else f"for {bid_usd(request.bid)}"
                raise NoCapacity(f"{request.market}: no node has this price: {price} an hour")
            with self._ledger.order(order.key) as changed:
                changed.machines = [Placed(i, self.now()) for i in range(request.count)]
            try:
                number = submit(order.label(0))
            except Unanswered:
                raise
            except SpotctlError:
                with self._ledger.order(order.key) as changed:
                    changed.machines = []
                raise

        with self._ledger.order(order.key) as changed:
            for placed in changed.machines:
                placed.number, placed.sought = f"{number}_{placed.index}", self.now()
            asked = changed.machines
        self._admit(order, asked)

    def _array(self, order: Order) -> Number | None:
        """The number of an order's array that was submitted, maybe without an answer; None if there
        is none. A job that ran has left a mark, also when the cluster has forgotten it."""
        numbers = [str(placed.number) for placed in order.machines if placed.number is not None]
        numbers += [job.number for job in self._jobs_now().values() if job.label.order == order.key]
        marks = [self._place(order.label(placed.index)) / "number" for placed in order.machines]
        numbers += [mark.readlink().name for mark in marks if mark.is_symlink()]
        arrays = (number.partition("_")[0] for number in numbers)
        return max(arrays, key=int, default=None)

    def _submit(self, request: MachineRequest, offer: NodeOffer, label: OrderLabel) -> str:
        """Submits the jobs of an order's machines, and returns the number of their array."""
        link_key(self._folder)
        lease = request.lease_until
        payload = None if request.payload is None else request.payload.to_json()
        for index in range(request.count):
            machine = self._place(replace(label, index=index))
            machine.mkdir(parents=True, exist_ok=True, mode=0o700)
            values = {"index": index, "lease_until": lease, "payload": payload}
            replace_json(machine / "machine.json", values)

        folder, indices = self._folder / "machines", range(request.count)
        oldest = time.time() - KEPT / SECOND - self._settings.hours * 3600
        for old in folder.glob(f"{PREFIX}*"):
            if old.stat().st_mtime < oldest:
                rmtree(old, ignore_errors=True)
        call = partial(orders.submit, offer, self._settings, label, indices, folder)
        number = self._answer(f"order {label.order}", call)
        # What a list shows that was asked for before is no news of them.
        waiting = {
            i: BatchJob(f"{number}_{i}", replace(label, index=i), "PENDING") for i in indices
        }
        self._jobs = {**self._jobs, **{job.number: job for job in waiting.values()}}
        self._jobs_at = time.monotonic() - _JOBS_SECONDS + _START_SECONDS
        time.sleep(_START_SECONDS)
        return number

    def _admit(self, order: Order, asked: Sequence[Placed]) -> None:
        """Closes an order whose jobs have started, without those that have waited for too long,
        which are withdrawn. NotYet: some wait. NoCapacity: none has started."""
        listed = self._jobs_now()
        waiting = {
            placed.index: job
            for placed in asked
            if (job := listed.get(placed.number or 0)) is not None and job.state in WAITING
        }
        started = [
            placed.index
            for placed in asked
            if placed.index not in waiting
            and (
                placed.number in listed
                or self._place(order.label(placed.index)).joinpath("number").is_symlink()
            )
        ]
        job = next(iter(waiting.values()), None)
        starts = (
            "" if job is None or job.starts is None else f", to start {format_time(job.starts)}"
        )
        reason = "unknown" if job is None else job.reason
        why = f"{order.market}: its job waits for nodes ({reason}{starts})"
        waited = (self.now() - asked[0].asked) / SECOND
        if waiting and waited < self._settings.wait_seconds:
            raise NotYet(why)
        if waiting:
            ended = {job.number for job in waiting.values()}
            self._answer(f"end of jobs of {order.key}", partial(self.destroy, *ended))
            self._jobs = {number: own for number, own in listed.items() if number not in ended}
            for index in waiting:
                rmtree(self._place(order.label(index)), ignore_errors=True)

        with self._ledger.order(order.key) as changed:
            for placed in changed.machines if started else ():
                placed.is_checked = placed.index in started
                # What a job has waited for is not paid.
                own = listed.get(placed.number or 0)
                placed.asked = max(placed.asked, own.starts or 0) if own else placed.asked
                if not placed.is_checked:
                    placed.number, placed.ended = None, self.now()
            changed.closed = bool(started)
            changed.machines = changed.machines if started else []
        if not started:
            waiting_for = f"{why} after {self._settings.wait_seconds:.0f} s, and was withdrawn"
            raise refused(REFUSALS, "", waiting_for, reason) or NoCapacity(waiting_for)

    def terminate(self, ids: Sequence[str]) -> None:
        """See `LabelledProvider`; by one call for all of them."""
        numbers = [number for machine in ids if (number := self.number_of(machine)) is not None]
        orders_ = self._ledger.orders(self.now())
        own = [
            order for order in orders_ if any(placed.number in numbers for placed in order.machines)
        ]
        before: dict[Number, bool] = {}
        for order in own:
            with self._ledger.order(order.key) as changed:
                for placed in changed.machines:
                    if placed.number is not None and placed.number in numbers:
                        before[placed.number] = placed.returning
                        placed.returning = True
        known_jobs = {
            number: self._jobs[number].state for number in numbers if number in self._jobs
        }
        gone = {number for number, state in known_jobs.items() if state in ENDED}
        if ends := [number for number in numbers if number not in gone]:
            self._answer(f"end of {len(ends)} jobs: {ends[0]}", partial(self.destroy, *ends))
        for order in own:
            with self._ledger.order(order.key) as changed:
                for placed in changed.machines:
                    if placed.number is not None and placed.number in numbers:
                        for large in ("job", "cache"):
                            place = self._place(order.label(placed.index)) / large
                            self._pool.submit(rmtree, place, ignore_errors=True)
                        by_itself = placed.number in gone and not before[placed.number]
                        placed.end(self.now(), by_itself=by_itself)

    def destroy(self, *numbers: Number) -> bool:
        cancel(*numbers)
        return True

    # -- lists -------------------------------------------------------------------------------------

    def _answer(self, what: str, call: Callable[[], T]) -> T:
        """The answer to a call to the controller. One that is away lets calls wait for ten seconds,
        in which no machine would be looked after: so it is not waited for, and the call's answer is
        that to the next one. Unanswered: it is still to come."""
        cure = "is the controller up? Try: scontrol ping"
        if what not in self._asked:
            if time.monotonic() < self._silent_until:
                raise Unanswered(f"slurm: {what}: the controller does not answer; {cure}")
            self._asked[what] = self._calls.submit(call)
        asked = self._asked[what]
        try:
            wait([asked], 0.0 if self._is_silent else _PATIENCE_SECONDS)
            if not asked.done():
                self._is_silent = True
                raise Unanswered(f"slurm: {what}: no answer yet; {cure}")
            self._is_silent = False
            del self._asked[what]
            answer: T = asked.result()
            return answer
        except Unanswered:
            if asked.done():
                self._is_silent, self._silent_until = True, time.monotonic() + _SILENT_SECONDS
            raise

    def _jobs_now(self) -> Mapping[Number, BatchJob]:
        """The jobs, as a list has them that is a few seconds old at most, so that a run asks for
        few. Unanswered: there is none."""
        if time.monotonic() - self._jobs_at >= _JOBS_SECONDS:
            self._jobs_at, self._jobs = self._answer(
                "list of jobs", lambda: (time.monotonic(), orders.jobs())
            )
        return self._jobs

    def instances(self) -> Mapping[Number, Listed]:
        """See `LabelledProvider`; while the controller is away, as it last said. Jobs that have
        ended stay listed for minutes: what they say of an end counts until the order notes it."""
        try:
            self._jobs_now()
        except Unanswered:
            if time.monotonic() - self._jobs_at > _OLDEST_SECONDS:
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
        """See `LabelledProvider`; one that was evicted ended when Slurm says so."""
        machines = []
        for key, machine in super()._machines():
            if machine.state is MachineState.GONE and (link := self._links.pop(machine.id, None)):
                link.close()
            job = self._jobs.get(self.number_of(machine.id) or 0)
            ended = job.ends if job is not None and job.state in ENDED else None
            is_over = machine.state is MachineState.PAUSED and ended is not None
            machines.append((key, replace(machine, ended=ended) if is_over else machine))
        return machines

    def _job(self, machine: str) -> BatchJob:
        """The job of a machine that has not ended, as the last list had it. NotFound: there is
        none."""
        number = self.number_of(machine) or 0
        try:
            job = self._jobs_now().get(number)
        except Unanswered:
            if (job := self._jobs.get(number)) is None:
                raise
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
        if not (place / "ready").exists() and (brought is None or brought.done()):
            if supplies.folder is not None and supplies.folder not in self._archives:
                check_folder(supplies.folder)
            self._brought[machine.id] = self._pool.submit(self._bring, machine.id, place, supplies)
        for tunnel in supplies.reach:
            if (machine.id, tunnel) not in self._reached:
                self._reached.add((machine.id, tunnel))
                Thread(target=self._reach, args=(machine.id, place, tunnel), daemon=True).start()

    def _reach(self, machine: str, place: Path, tunnel: ReverseTunnel) -> None:
        """Offers a machine's programs a port of this computer: waits for a caller, whom it
        connects, while another thread waits for the next one."""
        secret, number = link_secret(link_key(self._folder), machine), self.number_of(machine) or 0
        while not self._is_closed:
            time.sleep(_REACH_SECONDS)
            if (job := self._jobs.get(number)) is None or job.state in ENDED:
                return
            with suppress(OSError, ProviderError):
                host, port, client = self._address(machine, place, secret)
                client.set_alpn_protocols([str(tunnel.port)])
                with (
                    socket.create_connection((host, port), _BRING_SECONDS) as plain,
                    client.wrap_socket(plain) as tls,
                ):
                    tls.settimeout(None)
                    if not tls.recv(1):
                        continue
                    own = machine, place, tunnel
                    Thread(target=self._reach, args=own, daemon=True).start()
                    near = tunnel.host, tunnel.host_port
                    with socket.create_connection(near, _BRING_SECONDS) as program:
                        bridge(tls, program)
                return

    def _bring(self, machine: str, place: Path, supplies: MachineSupplies) -> None:
        """Packs the job's folder into the shared one, and sends the secrets."""
        folder, archive = supplies.folder, ""
        if folder is not None:
            if folder not in self._archives:
                self._archives[folder] = job_archive(folder, self._folder / "archives").path
            archive = str(self._archives[folder])
        own = supplies.own_secrets(machine) if supplies.own_secrets else {}
        variables = {name: environ[name] for name in _VARIABLES if name in environ}
        reach = [tunnel.port for tunnel in supplies.reach]
        secrets = {**variables, **supplies.secrets, **own}
        start = {"job": archive, "variables": secrets, "reach": reach}
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
        shows; the address is what the node calls itself."""
        job = self._jobs.get(self.number_of(machine.id) or 0)
        if job is not None and machine.id not in self._hosts:
            state = Watched(self._place(job.label) / "state.json", dict).value()
            self._hosts |= {} if state is None else {machine.id: state["host"]}
        machine = replace(machine, address=self._hosts.get(machine.id, ""))
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
        self._is_closed = True
        for pool in (self._pool, self._calls):
            pool.shutdown(wait=False, cancel_futures=True)
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
