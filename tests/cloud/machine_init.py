"""PID 1 of a machine: makes its file system, network, host key and sshd, runs the user data, and
powers off.

It is started by `tests.cloud.hypervisor` in a PID namespace of its own, under Debian's Python, with
the description of the machine on its standard input. When it ends, for whatever reason, the kernel
ends everything on the machine.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cloud import kernel

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STOP_SECONDS = 10.0
"""What processes get between SIGTERM and SIGKILL when the machine shuts down."""

REGISTRY = "registry.test"
"""What machines call this computer when they pull container images from it."""

_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_OTHERS_DEVICES = {"fuse": (10, 229)}
_CLOUD_INIT = "/usr/bin/cloud-init"
_POWER_OFF = (signal.SIGPWR, signal.SIGTERM, signal.SIGINT)
_AT_ONCE = signal.SIGUSR1
# CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_TIME: what would change the computer under all machines.
_DROPPED = (16, 17, 25)


def main() -> None:
    for number in (*_POWER_OFF, _AT_ONCE):
        signal.signal(number, lambda *_: None)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    about: dict[str, Any] = json.loads(sys.stdin.readline())
    kernel.unshare(kernel.NEW_NAMESPACES)
    # The network namespace exists: the hypervisor connects it to the bridge, and answers when it
    # has.
    os.write(1, b"\n")
    _change_root(Path(about["folder"]), about["base"])
    _fill_root(about)
    sys.stdin.readline()
    _connect(about)
    sysrq = _keep_away_from_the_computer()
    _start_sshd(about["environment"])
    _run_user_data(base64.b64decode(about["user_data"]), about["environment"])
    _wait_for_the_end(wake, sysrq)


def _change_root(folder: Path, base: str) -> None:
    """The image, with a writable layer on top, becomes the root; the computer's own root is out of
    reach.
    """
    root = str(folder / "root")
    layers = f"lowerdir={folder.parent / 'image'}:{base},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    kernel.mount("overlay", root, "overlay", 0, layers)
    kernel.mount(
        "proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    )
    kernel.mount(
        "sysfs", f"{root}/sys", "sysfs", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    )
    _mount_control_groups(f"{root}/sys/fs/cgroup")
    kernel.mount("tmpfs", f"{root}/dev", "tmpfs", kernel.MS_NOSUID, "mode=755,size=64k")
    _make_devices(Path(root) / "dev", str(folder / "console"))
    old = f"{root}/mnt"
    os.chdir(root)
    kernel.pivot_root(root, old)
    os.chdir("/")
    kernel.unmount("/mnt")
    os.umask(0o022)


def _mount_control_groups(folder: str) -> None:
    """Mounts control groups read-only: container engines expect them, and changes there would
    outlive the machine.
    """
    with suppress(OSError):
        kernel.mount(
            "cgroup2", folder, "cgroup2", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        )
        kernel.mount("", folder, "", kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _make_devices(folder: Path, console: str) -> None:
    os.umask(0)
    for name, (major, minor) in {**_DEVICES, **_OTHERS_DEVICES}.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    for name in ("pts", "shm"):
        (folder / name).mkdir()
    kernel.mount("devpts", str(folder / "pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    kernel.mount(
        "tmpfs", str(folder / "shm"), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777"
    )
    links = {"ptmx": "pts/ptmx", "ttyS0": "console", "fd": "/proc/self/fd"}
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        links[name] = f"/proc/self/fd/{number}"
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "console").touch()
    kernel.mount(console, str(folder / "console"), "", kernel.MS_BIND)


def _fill_root(about: dict[str, Any]) -> None:
    kernel.set_host_name(about["name"])
    names = (
        f"127.0.0.1 localhost\n{about['address']} {about['name']}\n{about['gateway']} {REGISTRY}\n"
    )
    variables = "".join(f'{name}="{value}"\n' for name, value in about["environment"].items())
    for path, text in (
        ("/etc/hostname", about["name"] + "\n"),
        ("/etc/hosts", names),
        ("/etc/environment", variables),
    ):
        Path(path).write_text(text)
    Path("/etc/resolv.conf").unlink(missing_ok=True)
    Path("/etc/resolv.conf").touch()


def _connect(about: dict[str, Any]) -> None:
    lines = [
        "link set lo up",
        f"address add {about['address']}/{about['prefix']} dev eth0",
        "link set eth0 up",
        f"route add default via {about['gateway']}",
        "route add 169.254.169.254 dev eth0",
    ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    if about["shaping"]:
        subprocess.run(["tc", "qdisc", "add", "dev", "eth0", "root", *about["shaping"]], check=True)


def _keep_away_from_the_computer() -> int:
    """Hides what acts on the computer under the machine, and returns the machine's own SysRq."""
    for number in _DROPPED:
        kernel.drop_capability(number)
    _let_users_mount_proc()
    kernel.mount("/proc/sys", "/proc/sys", "", kernel.MS_BIND | kernel.MS_REC)
    kernel.mount("", "/proc/sys", "", kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)
    os.mkfifo("/run/sysrq", 0o600)
    if Path("/proc/sysrq-trigger").exists():
        kernel.mount("/run/sysrq", "/proc/sysrq-trigger", "", kernel.MS_BIND)
    return os.open("/run/sysrq", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _let_users_mount_proc() -> None:
    """A user's containers may have a /proc of their own only while one without hidden parts is
    mounted somewhere.

    Here it is where no path leads: below a folder that another file system covers.
    """
    place = Path("/run/whole")
    whole = place / "proc"
    whole.mkdir(parents=True)
    kernel.mount("proc", str(whole), "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount(
        "tmpfs", str(place), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=000,size=4k"
    )


def _start_sshd(environment: dict[str, str]) -> None:
    key = "/etc/ssh/ssh_host_ed25519_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    Path("/run/sshd").mkdir(mode=0o755)
    if environment:
        with Path("/etc/ssh/sshd_config").open("a") as settings:
            settings.write(
                "SetEnv "
                + " ".join(f'"{name}={value}"' for name, value in environment.items())
                + "\n"
            )
    _start(["/usr/sbin/sshd", "-D", "-E", "/var/log/auth.log"], {"PATH": PATH})


def _run_user_data(content: bytes, environment: dict[str, str]) -> None:
    """Runs it by the machine's own cloud-init; without one as cloud-init does: as root, once,
    without HOME, with its output on the console and in a log."""
    if Path(_CLOUD_INIT).exists():
        _run_cloud_init(content, environment)
        return
    folder = Path("/var/lib/cloud/instance")
    folder.mkdir(parents=True)
    for name, mode in (("user-data.txt", 0o600), ("part-001", 0o700)):
        (folder / name).touch(mode)
        (folder / name).write_bytes(content)
    if content.startswith(b"#!"):
        # Output of processes that are being ended is kept, too.
        script = (
            f"{folder / 'part-001'} 2>&1 | (trap '' TERM; exec tee -a "
            "/var/log/cloud-init-output.log)"
        )
        _start(["/bin/sh", "-c", script], {"PATH": PATH, **environment})


def _run_cloud_init(content: bytes, environment: dict[str, str]) -> None:
    """Its four stages, which systemd starts on a machine of a cloud. The data come from a folder:
    how each cloud's own source is recognized (by its firmware) cannot be shown here."""
    seed = Path("/var/lib/cloud/seed/nocloud")
    seed.mkdir(parents=True)
    (seed / "meta-data").write_text(f"instance-id: i-{socket.gethostname()}\n")
    (seed / "user-data").write_bytes(content)
    Path("/etc/cloud/cloud.cfg.d/99-test.cfg").write_text(
        "datasource_list: [NoCloud]\nssh_deletekeys: false\n"
    )
    stages = "; ".join(
        f"{_CLOUD_INIT} {stage}"
        for stage in ("init --local", "init", "modules --mode=config", "modules --mode=final")
    )
    _start(["/bin/sh", "-c", stages], {"PATH": PATH, **environment})


def _start(command: list[str], environment: dict[str, str]) -> None:
    # No process waits for it: PID 1 reaps what ends, whatever it was.
    with Path("/dev/console").open("ab", buffering=0) as console:
        pid = os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, console.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, console.fileno(), 2),
            ],
            setsid=True,
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
        assert pid > 1


def _wait_for_the_end(wake: int, sysrq: int) -> None:
    while True:
        ready, _, _ = select.select([wake, sysrq], [], [])
        if sysrq in ready and b"o" in os.read(sysrq, 64):
            os._exit(0)
        signals = os.read(wake, 512) if wake in ready else b""
        _reap()
        if _AT_ONCE in signals:
            os._exit(0)
        if set(signals) & set(_POWER_OFF):
            break
    os.kill(-1, signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while _reap() and (left := end - time.monotonic()) > 0:
        if select.select([wake], [], [], left)[0]:
            os.read(wake, 512)
    os._exit(0)


def _reap() -> bool:
    """Whether any process is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
