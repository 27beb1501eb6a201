"""Copies all that a runner needs to a machine of its run, over ssh, and starts the service
there."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from spotctl.agent import layout
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.provider import CloudProvider
from spotctl.clouds.remote.bundle import packages_for, whole_wheel
from spotctl.clouds.remote.job_folder import job_archive
from spotctl.clouds.remote.platforms import MachinePlatform
from spotctl.files.job.spec import JobSpec, Notify
from spotctl.home.cloud import cloud_of
from spotctl.run.remote_runner.place import RunnerLost
from spotctl.run.remote_runner.start import (
    CODE,
    HOME,
    JOB,
    PACKAGES,
    RENDEZVOUS,
    ROOT,
    RunnerStart,
)

_PACKAGES = (
    *(
        "cloudpickle",
        "cryptography",
        "highspy",
        "httpx",
        "msgspec",
        "numpy",
        "obstore",
        "packaging",
        "platformdirs",
    ),
    *("pyarrow", "pydantic", "pyyaml", "rich", "scipy", "stamina", "typer"),
)

_FASTEST = 1
_TRANSFER_SECONDS = 1800.0
_CALL_SECONDS = 120.0

_RECEIVE = """
umask 077
mkdir -p {root}/part && cat >{root}/part/archive || exit 1
if ! echo "{digest}  {root}/part/archive" | sha256sum -c --status; then
  echo "the transfer was damaged" >&2
  exit 1
fi
mkdir {root}/part/new && {unpack} && rm -rf {target} && mv {root}/part/new {target} &&
mv {root}/part/archive {target}.archive && rm -rf {root}/part
"""
_ZIP = "{python} -I -S -m zipfile -e {root}/part/archive {root}/part/new"
_TAR = "tar -xzf {root}/part/archive -C {root}/part/new"

_COMMAND = f"""#!/bin/sh
# spotctl on this machine, for the run whose runner is here.
export PYTHONPATH={CODE}:{PACKAGES} SPOTCTL_HOME={HOME}
exec {layout.PYTHON} -s -S -m spotctl "$@"
"""


def packages_on(cloud: str, notify: Notify) -> tuple[str, ...]:
    """The packages that a runner on a cloud imports."""
    return (*_PACKAGES, *cloud_of(cloud).packages, *(("apprise",) if notify.to else ()))


def packed_runner(
    spec: JobSpec,
    rendezvous: Path,
    folder: Path,
    cloud: str,
    machine: MachinePlatform | None,
) -> dict[str, bytes]:
    """The archives that make up a runner, apart from the home of its run: each by the folder that
    it becomes on the machine.

    They are kept in a folder, because packing takes time. Without packages if the machine's
    platform is unknown.
    """
    packages = b""
    code = whole_wheel(folder).path.read_bytes()
    if machine is not None:
        names = packages_on(cloud, spec.notify)
        packages = packages_for(folder, names, machine).pack().path.read_bytes()
    return {
        CODE: code,
        PACKAGES: packages,
        JOB: job_archive(spec.workdir, folder).path.read_bytes(),
        RENDEZVOUS: _pack_folder(rendezvous),
    }


@dataclass(frozen=True, slots=True)
class RunnerMachine:
    """A machine of the run whose agent answers. `note` is called with each step."""

    id: str
    provider: CloudProvider
    note: Callable[[str], None]

    def install(self, archives: Mapping[str, bytes]) -> None:
        """Copies a runner there, without the run's home; see `packed_runner`."""
        size = len(archives[CODE]) + len(archives[PACKAGES])
        self.note(f"copying the runner to {self.id} ({size / (1 << 20):.0f} MiB)")
        self.run(("/bin/sh", "-c", f"rm -rf {ROOT} && mkdir -m 700 {ROOT}"))
        for folder, archive in archives.items():
            self._send(folder, archive, zipped=folder in (CODE, PACKAGES))

    def give_home(self, home: Path) -> None:
        """Copies the home of the run there, to a machine with a runner."""
        self._send(HOME, _pack_folder(home))
        self.run(
            ("/bin/sh", "-c", f"cat >{ROOT}/spotctl && chmod 700 {ROOT}/spotctl"), _COMMAND.encode()
        )

    def start(self, start: RunnerStart) -> None:
        """Starts the service; the secrets go to its standard input. RunnerLost: the service does
        not start.
        """
        service = (
            f"cd / && exec env -i PYTHONPATH={CODE}:{PACKAGES} HOME={ROOT} "
            "PATH=/usr/local/bin:/usr/bin:/bin"
            f" {layout.PYTHON} -s -S -m spotctl.run.remote_runner.service"
        )
        said = self.run(("/bin/sh", "-c", service), json.dumps(asdict(start)).encode())
        if said.strip() != "running":
            raise RunnerLost(f"{self.id}: the runner did not start: {said.strip()[:300]}")

    def run(self, words: Sequence[str], stdin: bytes = b"", seconds: float = _CALL_SECONDS) -> str:
        """Runs a command, and returns its output. RunnerLost: the command failed, with its last
        words.
        """
        try:
            invocation = self.provider.invocation(self.id, words)
            done = subprocess.run(
                invocation.words,
                input=stdin,
                env=dict(invocation.environment),
                cwd=invocation.folder,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except (ProviderError, subprocess.TimeoutExpired) as error:
            raise RunnerLost(f"{self.id}: {error}") from None

        if (why := invocation.lost(done.returncode)) is not None:
            raise RunnerLost(str(why))
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or [
                "it gave no reason"
            ]
            raise RunnerLost(
                f"{self.id}: status {done.returncode} of a command over ssh: {lines[-1][:300]}"
            )

        return done.stdout.decode(errors="replace")

    def _send(self, target: str, content: bytes, *, zipped: bool = False) -> None:
        script = _RECEIVE.format(
            root=ROOT,
            digest=hashlib.sha256(content).hexdigest(),
            target=target,
            unpack=(_ZIP if zipped else _TAR).format(root=ROOT, python=layout.PYTHON),
        )
        self.run(("/bin/sh", "-c", script), content, _TRANSFER_SECONDS)


def _pack_folder(folder: Path) -> bytes:
    """A folder and its content as a tar file in memory, so that its secrets reach no file of this
    computer.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=_FASTEST) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() or path.is_dir():
                archive.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return buffer.getvalue()
