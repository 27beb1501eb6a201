"""`RunEnvironment`: everything that one run needs. Nothing of a job is set in the process that runs
it.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing_data.list_prices import ListPrices, shipped
from pricing_data.market import Market
from spotctl.agent import layout
from spotctl.agent.data.locations import StoreIdentity
from spotctl.clouds.link import LeaseTimes
from spotctl.clouds.provider import CloudProvider, Holdings
from spotctl.clouds.wiring import buckets_of
from spotctl.files.job.resources import Image, Reservation
from spotctl.files.job.spec import JobSpec, ProgramKind, data_variable
from spotctl.files.job.values import CLOSE
from spotctl.home.errors import MissingSecret
from spotctl.home.installation import installation_id
from spotctl.home.paths import Paths
from spotctl.run.notify import hidden

if TYPE_CHECKING:
    from bidbrain.strategies.base import Rent

LIST_SECONDS = 5.0
"""How long the list of a cloud's machines is used. Agents report evictions earlier than the list
does."""


# Each cloud's store asks for something else.
def launcher_identity(cloud: str) -> Any:  # noqa: ANN401
    """The launcher's identity at object stores: credentials that the clouds' SDKs find here, such
    as a profile or a sign-in. The launcher itself queries no metadata service: most computers have
    none, and a run would wait for it.
    """
    # The SDKs are imported when they are needed.
    return buckets_of(cloud).LAUNCHER


LAUNCHER: StoreIdentity = launcher_identity


@dataclass(frozen=True, slots=True)
class MachinePaths:
    """Paths on a run's machines that payloads need: a Python with spotctl, the job's folder, room
    for data.
    """

    python: str
    folder: str
    cache: str


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """One per run, and never changed: several runs share a process, and no run may see the
    environment of another.

    `installation` is the home's id, with which machines are tagged. `clock` is the provider's, in
    microseconds UTC. `rendezvous` is the folder where the run's processes find each other. Results
    go to `results`, and from there to the object store at `published`, if the job names one.
    `workdir` is the job's own folder; `on_machine` has the paths on machines. `variables` and
    `secrets` are the environment variables of the job's programs. `rented` machines are other
    computers, which share no folder with this one; their list is fetched again after `list_every`
    seconds. `output` keeps what rented machines, or nodes on Ray, print. `lists` are the prices of
    traffic, and `list_price` is a market's on-demand price in nano-dollars per hour, 0 if unknown.
    `cache` is for copies of data on this computer. A run that is `ending` only returns its
    machines. `identity` is that of this process at object stores: a runner on a rented machine has
    the machine's.

    What orders say of machines: `image`, with the disk, `machine_identity` and `labels`, by cloud
    and by name, whether they are `close` together, and the `reservations` by name.
    """

    run: str
    installation: str
    provider: CloudProvider
    clock: Callable[[], int]
    lease_times: LeaseTimes
    rendezvous: Path
    results: Path
    workdir: Path
    on_machine: MachinePaths
    rented: bool = False
    list_every: float = 0.0
    output: Path | None = None
    published: str = ""
    ending: bool = False
    image: Image = field(default_factory=Image)
    machine_identity: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    close: bool = False
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    lists: Callable[[], ListPrices] = shipped
    list_price: Callable[[Market], int] = lambda _: 0
    cache: Path = Path()
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: StoreIdentity = LAUNCHER

    def holdings(self, market: Market, *, spot: bool) -> Holdings:
        """The prices of a machine's disk and address, which come on top of its own."""
        image = self.image.of(market.cloud)
        return self.provider.holdings(market, spot=spot, disk_gib=self.image.disk_gib, image=image)

    def held_price(self, rent: "Rent") -> int:
        """The cost of the disk and the address of one machine of a purchase, in nano-dollars per
        hour.
        """
        held = self.holdings(rent.offer.market, spot=rent.bid is not None)
        return held.disk + held.address

    def redacted(self, text: str) -> str:
        """The text without the values of secrets, which a program may print."""
        return hidden(text, self.secrets.values())


def environment_of(
    spec: JobSpec,
    run: str,
    rendezvous: Path,
    provider: CloudProvider,
    paths: Paths,
    *,
    ending: bool = False,
    identity: StoreIdentity = LAUNCHER,
) -> RunEnvironment:
    """The environment of a run of a job. A run that is `ending` only returns its machines, and
    needs no secrets.

    Raises MissingSecret, and TransferFailed if a training's data cannot be copied to the cache.
    """
    results = paths.results(run)
    published = ""
    location = spec.outputs.get("model", "")
    if "://" in location:
        published = location
    elif location:
        results = Path(location)

    # Everything is copied to rented machines; others are processes of this computer.
    on_machines = MachinePaths(layout.PYTHON, layout.JOB_FOLDER, layout.CACHE)
    list_every = LIST_SECONDS
    output = paths.output(run)
    if spec.is_local:
        on_machines = MachinePaths(sys.executable, str(spec.workdir), str(paths.cache))
        list_every = 0.0

    variables = dict[str, str]()
    secrets = dict[str, str]()
    if not ending:
        variables = dict(spec.env)
        if spec.kind is ProgramKind.AGILEML and spec.is_local:
            from spotctl.agent.data.transfer import local_copy

            # Nodes of a training on this computer read its copies of the data; other machines copy
            # the data themselves.
            for name, data_location in spec.data.items():
                variables[data_variable(name)] = str(local_copy(data_location, paths.cache))
        secrets = dict(secrets_of(spec))
    reservations = {named.name: named for named in spec.resources.reservations}

    return RunEnvironment(
        run,
        installation_id(paths.home),
        provider,
        provider.now,
        LeaseTimes.of(spec),
        rendezvous,
        results,
        spec.workdir,
        on_machines,
        not spec.is_local,
        list_every,
        None if spec.is_local and not spec.on_ray else output,
        published,
        ending,
        image=spec.image,
        machine_identity=spec.identity,
        labels=spec.tags,
        close=spec.resources.placement == CLOSE,
        reservations=reservations,
        cache=paths.cache,
        variables=variables,
        secrets=secrets,
        identity=identity,
    )


def secrets_of(spec: JobSpec) -> Mapping[str, str]:
    """The values of the secrets that a job names, from the environment of this process."""
    missing = [name for name in spec.secrets if name not in os.environ]
    if missing:
        raise MissingSecret(
            f"secret {missing[0]} is not in the environment; export it, then run this command again"
        )
    return {name: os.environ[name] for name in spec.secrets}
