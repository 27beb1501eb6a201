"""Runs a payload in a container: `python -m spotctl.agent.container.podman CONTAINER COMMAND...`
becomes podman.

`PID COMMAND...` runs a person's command in the container that PID, a process of the payload, is in;
the command gets the variables of that process.

podman runs without root's rights. Root in the container is the user that payloads have outside, so
files have the same owner on both sides. The job's folders have the same paths as outside, and the
network is the machine's. The payload's variables reach the container in a file without a name: they
are in no argument, and in no file that podman keeps.
"""

import base64
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from spotctl.agent import layout
from spotctl.agent.container.processes import CANNOT_START, MARK, environment_of
from spotctl.agent.errors import AgentError, BrokenProtocol, ContainerRefused

NO_CONTAINER = 78
"""The exit code if there can be no container: EX_CONFIG. Another machine would not help."""

_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
ENVIRONMENT = 3
"""The file with the payload's variables, in podman and in the container."""
_OUTPUT = 4
"""The payload's output, in podman and in the container: output that podman relays could be lost
when podman ends."""

_PODMAN_VARIABLES = {
    "HOME",
    "LANG",
    "PATH",
    "TMPDIR",
    "USER",
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
}
_CODE = f"{layout.ROOT}/code"
PROCESSES_VARIABLE = "SPOTCTL_NPROC_PER_NODE"
"""Processes of a distributed program on a machine: one for each GPU, or one."""

_CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The folders in which NVIDIA's toolkit describes a container's needs."""

_NVIDIA, _AMD = re.compile(r"nvidia\d+"), re.compile(r"renderD\d+")

_MEMORY = Path("/dev/shm")  # noqa: S108 - shared memory, not a predictable file

_ENTRY = f"""\
. /proc/self/fd/{ENVIRONMENT}
exec {ENVIRONMENT}<&- >&{_OUTPUT} 2>&1 {_OUTPUT}>&-
on='told=1; trap "" TERM; kill -s TERM 0; trap "$on" TERM' told=
trap "$on" TERM
"$@" &
child=$!
while :; do wait $child; code=$?; [ "$told" ] || exit $code; told=; done
"""
"""The container's first process. The kernel gives it no signal that it does not handle, and podman
gives signals to no other process: it passes SIGTERM on to the whole group, as the payload's group
gets it outside of a container."""

_JOIN = f'. /proc/self/fd/{ENVIRONMENT}; exec {ENVIRONMENT}<&-; exec "$@"'


@dataclass(frozen=True, slots=True)
class Container:
    """An image, and the variables (besides `SPOTCTL_*`) and folders that the payload needs.

    `login` names the variable with USER:PASSWORD for the image's registry; the container does not
    get it.
    """

    image: str
    login: str = ""
    variables: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> "Container":
        """BrokenProtocol: the text is not a container."""
        try:
            values = json.loads(text)
            return cls(
                values["image"],
                values["login"],
                tuple(values["variables"]),
                tuple(values["folders"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenProtocol(f"{text[:60]!r} is not a container: {error}") from error

    def runs(self, python: str, command: Sequence[str]) -> list[str]:
        """The command line that runs a command in the container. `-P`: the job's files replace no
        module of ours.
        """
        return [
            python,
            "-P",
            "-m",
            "spotctl.agent.container.podman",
            json.dumps(asdict(self)),
            *command,
        ]


def full_name(image: str) -> str:
    """The image's name with its registry: without one, Docker's."""
    first, slash, _ = image.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def ensure_image(container: Container, environment: Mapping[str, str]) -> None:
    """Pulls the image unless it is here. ContainerRefused: the image cannot be pulled, or does not
    run here.
    """
    image = full_name(container.image)
    if _podman(environment, "image", "exists", image).returncode != 0:
        with _credentials(container, image, environment) as options:
            pulled = _podman(environment, "pull", "--quiet", *options, image)
        if pulled.returncode != 0:
            reason = pulled.stderr.strip().rpartition("\n")[2].removeprefix("Error: ")
            cure = (
                "correct the value of the login"
                if container.login
                else "correct the name, or add image.login"
            )
            raise ContainerRefused(f"image.container {image}: cannot be pulled: {reason}; {cure}")

    built_for = _podman(
        environment, "image", "inspect", "--format", "{{.Architecture}}", image
    ).stdout.strip()
    here = _PROCESSORS.get(platform.machine(), platform.machine())

    if built_for and built_for != here:
        raise ContainerRefused(
            f"image.container {image}: it is for {built_for} processors, and this machine has "
            f"{here}; name an image for {here}, or other resources.types"
        )


def podman_words(
    container: Container, command: Sequence[str], environment: Mapping[str, str], folder: str
) -> list[str]:
    """The command line that runs the command in `folder`. Of all variables, it contains only the
    mark's value.
    """
    own = Path(environment[MARK])
    folders = [folder, str(own / "job"), str(own / "work"), str(_MEMORY), *container.folders]
    root = Path(__file__).parents[3]

    # With the metadata of our package: a training's nodes compare their versions.
    code = [root / "spotctl", root / "agileml", *root.glob("spotctl-*.dist-info")]
    return [
        *(
            "podman",
            "--log-level=error",
            "run",
            "--rm",
            "--pull=never",
            "--user=0",
            "--entrypoint=/bin/sh",
        ),
        *("--replace", f"--name={container_name(own)}"),
        *(
            "--network=host",
            "--cgroups=disabled",
            "--log-driver=none",
            "--security-opt=label=disable",
        ),
        *(f"--preserve-fds={_OUTPUT - 2}", f"--workdir={folder}", f"--env={MARK}={own}"),
        *(f"--volume={path}:{path}" for path in dict.fromkeys(folders) if Path(path).exists()),
        *(f"--volume={path}:{_CODE}/{path.name}:ro" for path in code),
        *(f"--volume={path}:{path}:ro" for path in _packages(environment)),
        *container_options(),
        *(full_name(container.image), "-c", _ENTRY, "spotctl", *command),
    ]


def shell_variables(environment: Mapping[str, str]) -> str:
    """The variables as lines that a shell reads."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items())
    )


def exports(container: Container, environment: Mapping[str, str]) -> str:
    """Lines for the container's shell: the payload's variables, and the path of our code."""
    passed = {
        name: value
        for name, value in environment.items()
        if (name.startswith("SPOTCTL_") or name in container.variables) and name != container.login
    }
    code = shlex.quote(":".join((_CODE, *_packages(environment))))
    return shell_variables(passed) + f'export PYTHONPATH={code}"${{PYTHONPATH:+:$PYTHONPATH}}"\n'


def _packages(environment: Mapping[str, str]) -> list[str]:
    """The folder of packages that the launcher copied for a training's nodes; it comes after our
    code's folder.
    """
    paths = environment.get("PYTHONPATH", "").split(":")[1:]
    return [path for path in paths if path.startswith(f"{layout.BUNDLES}/")]


@contextmanager
def _credentials(
    container: Container, image: str, environment: Mapping[str, str]
) -> Iterator[list[str]]:
    """The options for a registry with a login, which is in memory, for its owner alone, until the
    pull has ended.
    """
    if not container.login:
        yield []
        return
    packed = base64.b64encode(environment.get(container.login, "").encode()).decode()
    with tempfile.NamedTemporaryFile("w", dir=_MEMORY if _MEMORY.is_dir() else None) as file:
        json.dump({"auths": {image.partition("/")[0]: {"auth": packed}}}, file)
        file.flush()
        yield [f"--authfile={file.name}"]


def _podman(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Runs podman. Output goes to files, because processes of podman could hold pipes.
    ContainerRefused: no podman.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            code = subprocess.run(
                ["podman", "--log-level=error", *words],  # noqa: S607 - whichever the machine has
                env=_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                check=False,
            ).returncode
        except FileNotFoundError:
            raise ContainerRefused(
                "image.container: this machine has no podman, and it could not be installed; use "
                "an image of the cloud that has podman and uidmap, or remove image.container"
            ) from None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """podman's own environment, without the payload's variables, which podman would store, and
    without the mark.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _PODMAN_VARIABLES or name.lower().endswith("_proxy")
    }


def container_name(machine: Path) -> str:
    """The name of the container of a machine's payload. Machines of one computer share its
    podman."""
    return f"spotctl-{hashlib.sha256(str(machine).encode()).hexdigest()[:16]}"


def _become_podman(line: Sequence[str], variables: str) -> NoReturn:
    """Replaces this process by podman, which passes the file with the shell variables on."""
    file = os.memfd_create("environment", 0)
    os.write(file, variables.encode())
    os.dup2(file, ENVIRONMENT)
    os.execvpe(line[0], list(line), _environment(os.environ))  # noqa: S606


def gpus(devices: Path = Path("/dev")) -> int:
    """How many there are: NVIDIA's driver has a device for each GPU, and AMD's for each GPU that
    can compute.
    """
    nvidia = sum(1 for path in devices.glob("nvidia*") if _NVIDIA.fullmatch(path.name))
    amd = (
        sum(1 for path in devices.glob("dri/*") if _AMD.fullmatch(path.name))
        if (devices / "kfd").exists()
        else 0
    )
    return nvidia or amd


def container_options(devices: Path = Path("/dev"), described: Sequence[Path] = _CDI) -> list[str]:
    """podman's options that give a container the GPUs: as NVIDIA's toolkit describes them, or their
    devices alone.
    """
    if not gpus(devices):
        return []
    if (devices / "nvidiactl").exists() and any(
        list(folder.glob("nvidia*")) for folder in described
    ):
        return ["--device=nvidia.com/gpu=all"]

    paths = [*devices.glob("nvidia*"), *devices.glob("kfd"), *devices.glob("dri/renderD*")]
    return [
        "--group-add=keep-groups",
        *(f"--device={path}" for path in sorted(paths) if not path.is_dir()),
    ]


def main(words: Sequence[str]) -> int:
    """Becomes podman. Returns only if there can be no container."""
    first, *command = words
    try:
        if first.isdigit():
            # A person's command, in the container that a process is in.
            variables = environment_of(int(first))
            if MARK not in variables:
                raise ContainerRefused("the container has ended; try again")
            terminal = ["--tty"] if sys.stdin.isatty() else []
            options = ["--interactive", *terminal, f"--preserve-fds={ENVIRONMENT - 2}"]
            name = container_name(Path(variables[MARK]))
            podman, shell = ["podman", "--log-level=error", "exec"], ["/bin/sh", "-c", _JOIN]
            line = [*podman, *options, name, *shell, "spotctl", *command]
            _become_podman(line, shell_variables(variables))

        container = Container.from_json(first)
        ensure_image(container, os.environ)
        line = podman_words(container, command, os.environ, str(Path.cwd()))
        os.dup2(sys.stdout.fileno(), _OUTPUT)
        _become_podman(line, exports(container, os.environ))
    except AgentError as error:
        print(f"spotctl: {error}", file=sys.stderr)  # noqa: T201
        return CANNOT_START if first.isdigit() else NO_CONTAINER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
