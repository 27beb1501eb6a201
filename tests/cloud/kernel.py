"""The calls of the Linux kernel that Python 3.11 lacks. Standard library only: machines' PID 1
imports it too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NEW_NAMESPACES = CLONE_NEWNET | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000
"""Of network, mounts, control groups, host name, and System V IPC: what a machine has, besides that
of PIDs."""

_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PR_CAPBSET_DROP = 24

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [word.encode() if word else None for word in (source, target, kind)]
    _checked(
        _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None),
        f"mount {kind or source} {target}",
    )


def unmount(target: str) -> None:
    """Detaches a mount at once, and ends it when it is no longer in use."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    number = _SYS_PIVOT_ROOT[os.uname().machine]
    _checked(_libc.syscall(ctypes.c_long(number), new.encode(), old.encode()), f"pivot_root {new}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def set_host_name(name: str) -> None:
    _checked(_libc.sethostname(name.encode(), len(name.encode())), "sethostname")


def drop_capability(number: int) -> None:
    """Takes a right away from every program that is started from now on."""
    _checked(
        _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0),
        f"dropping capability {number}",
    )


@contextmanager
def inside(namespace: int, own: int, kind: int) -> Iterator[None]:
    """Enters a namespace (a file descriptor), and returns to its `own`. A socket made in between
    belongs to it.
    """
    _checked(_libc.setns(namespace, kind), "setns")
    try:
        yield
    finally:
        _checked(_libc.setns(own, kind), "setns")


@contextmanager
def children_in_new_pid_namespace() -> Iterator[None]:
    """The first process started inside the block is PID 1 of a namespace of its own. No more than
    one may be.
    """
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWPID)
        try:
            yield
        finally:
            _checked(_libc.setns(own, CLONE_NEWPID), "setns")
    finally:
        os.close(own)
