"""The place of a run whose runner lives on a rented machine: a folder in the object store, and a
record of it here.

Through this folder another computer is let in: it asks there, and the runner admits its ssh key.
Only a computer that may write to the job's outputs can ask. The key is public; nothing in the
object store is a secret.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agileml.runtime.blob_store import BlobStore, UnreadableBlob
from spotctl.agent.files import replace_json
from spotctl.files.job.forms import JOB_NAME
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.home.cloud import cloud_of
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import read_or_create
from spotctl.home.paths import Paths

if TYPE_CHECKING:
    from spotctl.agent.data.locations import SharedObject, StoreIdentity
    from spotctl.home.config import Settings

_FOLDER = "keys/"

_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2} spotctl")

_OPTIONS = "restrict,port-forwarding,pty"

_RECORD, _DESCRIPTION = "place.json", "run"


class RunnerLost(SpotctlError):
    """The runner on a rented machine does not answer, or has failed."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run and its folder in the object store: its claim (`fence`), and the copy of its log
    (`log_copy`).

    Most commands look for such runs, and most homes have none: the object stores' clients are
    imported for one only.
    """

    job: str
    run: str
    location: str

    def claim(self, who: StoreIdentity) -> SharedObject:
        from spotctl.agent.data.locations import shared_object

        return shared_object(f"{self.location}/claim", who)

    def store(self, who: StoreIdentity) -> BlobStore:
        from spotctl.agent.data.locations import store_at

        return store_at(self.location, who)


def place_of_run(spec: JobSpec, run: str) -> RunPlace:
    """The place of a new run: below the job's outputs."""
    base = _base(spec)
    assert base is not None
    return RunPlace(spec.name, run, f"{base.rstrip('/')}/spotctl/{run}")


def publish(place: RunPlace, installation: str, who: StoreIdentity) -> None:
    """Writes to the run's place what another computer needs to become its client."""
    about = {"job": place.job, "run": place.run, "installation": installation}
    place.store(who).put(_DESCRIPTION, [json.dumps(about).encode()])


def attach(location: str, settings: Settings, who: StoreIdentity) -> RunPlace:
    """Makes this computer a client of the run at a place: with a home for the run, and a key that
    its runner admits.

    BadRequest: there is no run, or the job has another one here.
    """
    from spotctl.agent.data.locations import store_at
    from spotctl.clouds.remote.home import public_key

    location = location.rstrip("/")
    try:
        store = store_at(location, who)
        place, installation = _read_description(b"".join(store.get(_DESCRIPTION)), location)
        home = Paths(settings.home).elsewhere(place.job)
        known = known_place(place.job, settings)
        if known is not None and known.run != place.run:
            raise BadRequest(
                f"job {place.job} has a run {known.run} here; end it first: spotctl stop "
                f"{place.job}"
            )
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        read_or_create(home / "installation", installation.encode())
        ask_admission(store, public_key(home / "machines"))
    except (OSError, UnreadableBlob) as error:
        raise BadRequest(
            f"{location}: found no run that this computer can reach: {error}"
        ) from None

    keep(place, settings)
    return place


def _read_description(content: bytes, location: str) -> tuple[RunPlace, str]:
    """The place and the installation that `publish` wrote. The job's name becomes that of a folder,
    so other text is refused."""
    try:
        about = json.loads(content)
        job, run, installation = (str(about[key]) for key in ("job", "run", "installation"))
        return RunPlace(JOB_NAME.read(job), run, location), installation
    except (ValueError, KeyError, TypeError):
        raise BadRequest(f"{location}/{_DESCRIPTION}: not written by spotctl") from None


def keep(place: RunPlace, settings: Settings) -> None:
    """Writes the launcher's record of a run."""
    replace_json(Paths(settings.home).elsewhere(place.job) / _RECORD, asdict(place), lasting=True)


def known_place(job: str, settings: Settings) -> RunPlace | None:
    """The record of a job's run; None if the runner never left this computer."""
    try:
        return RunPlace(**json.loads((Paths(settings.home).elsewhere(job) / _RECORD).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def all_places(settings: Settings) -> list[RunPlace]:
    """The records of all jobs."""
    names = sorted(
        path.parent.name for path in Paths(settings.home).elsewhere("x").parent.glob(f"*/{_RECORD}")
    )
    return [place for name in names if (place := known_place(name, settings)) is not None]


def stays_because(spec: JobSpec) -> str:
    """Why the runner of a job does not move to a machine; empty if the runner moves."""
    if spec.is_local:
        return "its machines are processes of this computer"

    jobs = {cloud: cloud_of(cloud).job for cloud in spec.resources.clouds}
    if without := [cloud for cloud, job in jobs.items() if job is None or not job.identity]:
        return f"machines of {without[0]} have no identity with which it could rent others"
    if spec.resources.reliable.machines is None:
        return (
            "the plan decides whether the job has a reliable machine (to move: resources: "
            "reliable: {machines: 1})"
        )
    if not spec.resources.reliable.machines:
        return "the job has no reliable machine (resources: reliable: {machines: 1})"

    return ""


def check_movable(spec: JobSpec, settings: Settings) -> None:
    """BadRequest: the runner of this job cannot live on its reliable machine; says what is
    missing."""
    or_else = "; or keep the runner on this computer with --attached"
    if len(spec.resources.clouds) > 1 or len(spec.resources.regions) != 1:
        raise BadRequest(
            f"{spec.name}: a runner on a machine reaches the others at private addresses, so they "
            f"share a cloud and a region: name one of each under resources{or_else}"
        )

    (cloud,) = spec.resources.clouds
    of_machines = cloud_of(cloud).settings_of_machines
    configured: str | None = getattr(
        settings.table(cloud, of_machines.table), of_machines.identity, None
    )

    if (spec.identity.get(cloud) or configured) is None:
        raise BadRequest(
            f"{spec.name}: the runner rents with the identity of its machine, and none is named: "
            "write identity:"
            f" {{{cloud}: NAME}} (spotctl doctor --policy prints the permissions that it "
            f"needs){or_else}"
        )
    if _base(spec) is None:
        raise BadRequest(
            f"{spec.name}: the runner's machine is gone when the run ends, so results and log go "
            "to an object store:"
            f" write outputs: {{model: s3://BUCKET/PATH}} (or gs://, az://){or_else}"
        )


def _base(spec: JobSpec) -> str | None:
    """The first location of the job that is in an object store."""
    checkpoint = spec.program.checkpoint if isinstance(spec.program, Command) else None
    locations = [*spec.outputs.values(), *([] if checkpoint is None else [checkpoint.path])]
    return next((location for location in locations if "://" in location), None)


def ask_admission(store: BlobStore, public_key: str) -> None:
    """Asks the runner to admit a key."""
    store.put(
        f"{_FOLDER}{hashlib.sha256(public_key.encode()).hexdigest()[:32]}", [public_key.encode()]
    )


class Admission:
    """Admits keys that were asked for, each once."""

    def __init__(self, store: BlobStore, authorized: Path) -> None:
        self._store = store
        self._authorized = authorized
        self._seen: set[str] = set()

    def turn(self) -> None:
        """Looks for new requests. Raises OSError or UnreadableBlob."""
        for name in self._store.list(_FOLDER):
            if name not in self._seen:
                key = b"".join(self._store.get(name)).decode(errors="replace").strip()
                if _KEY.fullmatch(key):
                    line = f"{_OPTIONS} {key}\n"
                    known = self._authorized.read_text() if self._authorized.exists() else ""
                    if line not in known:
                        with self._authorized.open("a") as file:
                            file.write(line)
                self._seen.add(name)
