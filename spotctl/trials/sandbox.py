"""A command of a trial is shut in: no network, credentials or GPUs, and no writing elsewhere.

`python -m spotctl.trials.sandbox FOLDER GUARDS COMMAND ...` shuts itself in and becomes the
command. It uses namespaces of Linux (unshare(2), mount_setattr(2)), which need no rights on most
systems; `guards` finds out which of them hold here. What is not held here must be said before a
trial, and nothing of a trial must outlive the process that conducts it: `scratch_folder` sees to
that.
"""

import ctypes
import fcntl
import os
import platform
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from spotctl.agent.container.processes import kill_marked

NETWORK, CREDENTIALS, GPU = "network", "credentials", "gpu"
ALLOWABLE = (NETWORK, CREDENTIALS, GPU)
"""The words of `--allow`."""

NO_NETWORK, READ_ONLY, HIDDEN = "no network", "writes only in its copy", "no files with credentials"
MAX_DISK = 20 << 30
MAX_MEMORY_SHARE = 0.5
"""The part of this computer's memory that all processes of a trial may fill."""

_SECRET = re.compile(
    r"^(AWS|AZURE|ARM|GOOGLE|GCLOUD|GCP|CLOUDSDK|WANDB|HF|HUGGING_?FACE|KUBE|SSH|SPOTCTL)_"
    r"|TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|_KEY$|_URI$|^DATABASE_URL$",
    re.IGNORECASE,
)
_KEPT = re.compile(r"^HF_(HOME|HUB_OFFLINE|HUB_CACHE|DATASETS_CACHE|DATASETS_OFFLINE)$")
_PLACES = (
    ".aws .azure .boto .config/gcloud .docker .gnupg .git-credentials .huggingface/token "
    ".cache/huggingface/token .kube .netrc .pgpass .pypirc .ssh .config/spotctl .kaggle"
).split()
"""Below the home: what holds credentials."""

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 0x1
_UP, _GET_FLAGS, _SET_FLAGS = 0x1, 0x8913, 0x8914
_LIBC = ctypes.CDLL(None, use_errno=True)
_PROBE_SECONDS = 20


def guards(allowed: Collection[str]) -> tuple[str, ...]:
    """The guards of namespaces that hold on this computer, found out by a process that does nothing
    else.
    """
    if platform.system() != "Linux":
        return ()

    holding = []
    for guard in (NO_NETWORK, READ_ONLY):
        if guard == NO_NETWORK and NETWORK in allowed:
            continue
        tried = [sys.executable, "-P", "-m", __name__, "--check", guard]
        try:
            done = subprocess.run(tried, capture_output=True, check=False, timeout=_PROBE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            holding.append(guard)
            if guard == READ_ONLY and CREDENTIALS not in allowed:
                holding.append(HIDDEN)

    return tuple(holding)


def shut_in(folder: Path, held: Collection[str], command: Sequence[str]) -> list[str]:
    """The command line that runs a command with these guards, which may write in a folder only."""
    return [sys.executable, "-P", "-m", __name__, str(folder), ",".join(held), *command]


def safe_environment(
    variables: Mapping[str, str], allowed: Collection[str], own: Collection[str] = ()
) -> dict[str, str]:
    """The variables without those of credentials, and with no GPU, unless these are allowed or the
    job's own.
    """
    kept = dict(variables)
    if CREDENTIALS not in allowed:
        kept = {}
        for name, value in variables.items():
            is_harmless = _KEPT.match(name) or not _SECRET.search(name)
            if name in own or is_harmless:
                kept[name] = value

    if GPU not in allowed:
        kept |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
    if NETWORK not in allowed:
        kept |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "offline"}
    return kept


def memory_limit() -> int:
    """Bytes that the processes of a trial may fill together."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MAX_MEMORY_SHARE)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _leave_namespaces(held: Collection[str]) -> None:
    user, group = os.getuid(), os.getgid()
    flags = _CLONE_NEWUSER
    flags |= _CLONE_NEWNET if NO_NETWORK in held else 0
    flags |= _CLONE_NEWNS if READ_ONLY in held else 0
    _check(_LIBC.unshare(flags))

    # The user stays who it was, also to itself.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")

    if NO_NETWORK in held:
        # Ranks of a training meet on the loopback, which is down in a new namespace.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            request = struct.pack("16sH14s", b"lo", 0, b"")
            flags = struct.unpack("16sH14s", fcntl.ioctl(line, _GET_FLAGS, request))[1]
            fcntl.ioctl(line, _SET_FLAGS, struct.pack("16sH14s", b"lo", flags | _UP, b""))


def _make_read_only(folder: Path, *, is_hidden: bool) -> None:
    """Makes all but the folder read-only, and covers what holds credentials if it is to be
    hidden."""

    def mount(source: str, target: str, kind: str | None, flags: int) -> None:
        of_kind = None if kind is None else kind.encode()
        _check(_LIBC.mount(source.encode(), target.encode(), of_kind, flags, None))

    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    mount(str(folder), str(folder), None, _MS_BIND | _MS_REC)

    # The attributes to set, and those to clear: everything becomes read-only but the folder.
    for path, attributes, how in (
        ("/", (_READ_ONLY, 0), _AT_RECURSIVE),
        (str(folder), (0, _READ_ONLY), 0),
    ):
        packed = struct.pack("QQQQ", *attributes, 0, 0)
        _check(_LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), how, packed, len(packed)))

    # The data loaders of PyTorch share memory there.
    if os.path.isdir("/dev/shm"):  # noqa: PTH112, S108
        mount("tmpfs", "/dev/shm", "tmpfs", 0)  # noqa: S108

    places = [Path.home() / name for name in _PLACES] if is_hidden else []
    for place in places:
        if place.is_dir():
            mount("tmpfs", str(place), "tmpfs", 0)
        elif place.exists():
            mount("/dev/null", str(place), None, _MS_BIND)


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder that is removed at the end with all processes that were started for it, whatever
    ends this process.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        watching = [sys.executable, "-P", "-m", __name__, "--watch", name]
        with subprocess.Popen(watching, stdin=subprocess.PIPE, start_new_session=True) as watcher:
            try:
                yield Path(name)
            finally:
                # The end of its input tells the watcher that this process is done, or gone.
                assert watcher.stdin is not None
                watcher.stdin.close()
                watcher.wait()


def main(words: Sequence[str]) -> None:
    """Shuts this process in and replaces it by the command."""
    if words[0] == "--watch":
        # The end of the input is that of the process that conducts the trial.
        sys.stdin.read()
        kill_marked(Path(words[1]))
        shutil.rmtree(words[1], ignore_errors=True)
        return

    if words[0] == "--check":
        _leave_namespaces([words[1]])
        if words[1] == READ_ONLY:
            _make_read_only(Path.cwd(), is_hidden=True)
        return

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = MAX_DISK if hard == resource.RLIM_INFINITY else min(MAX_DISK, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    folder, held, command = Path(words[0]), set(words[1].split(",")) - {""}, words[2:]
    here = Path.cwd()
    if held:
        _leave_namespaces(held)
    if READ_ONLY in held:
        _make_read_only(folder, is_hidden=HIDDEN in held)

    # Into the folder as it is now mounted.
    os.chdir(here)
    os.execvp(command[0], list(command))  # noqa: S606 - the user's own command


if __name__ == "__main__":
    main(sys.argv[1:])
