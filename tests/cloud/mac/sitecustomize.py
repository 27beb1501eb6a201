"""Makes a Python of this computer look like one of macOS on ARM: Python runs this file at its
start.

Everything that only Linux has is taken away: its modules' names, `/proc`, and what `platform` says.
"""

import os
import platform
import select
import socket
import sys
import sysconfig
import urllib.request  # noqa: F401 - read while Linux is known

_HIDDEN = ("/proc", "/sys", "/dev/shm")
_OF_LINUX = {
    os: (
        *(
            "copy_file_range",
            "eventfd",
            "getrandom",
            "memfd_create",
            "pidfd_open",
            "pipe2",
            "posix_fadvise",
        ),
        *(
            "posix_fallocate",
            "sched_getaffinity",
            "sched_setaffinity",
            "setns",
            "unshare",
            "waitid",
        ),
        *("listxattr", "getxattr", "setxattr"),
    ),
    select: ("epoll",),
    socket: (
        *(
            "SO_PEERCRED",
            "TCP_USER_TIMEOUT",
            "TCP_KEEPIDLE",
            "SOCK_CLOEXEC",
            "SOCK_NONBLOCK",
            "MSG_NOSIGNAL",
        ),
        *("AF_NETLINK", "SO_BINDTODEVICE"),
    ),
}


def _is_hidden(path):
    return isinstance(path, str | os.PathLike) and str(path).startswith(_HIDDEN)


def _refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and arguments and _is_hidden(arguments[0]):
        raise FileNotFoundError(2, "no such file on macOS", str(arguments[0]))


def _without_hidden(function):
    def call(path, *arguments, **options):
        if _is_hidden(path):
            raise FileNotFoundError(2, "no such file on macOS", str(path))
        return function(path, *arguments, **options)

    return call


sysconfig.get_config_vars()
for module, names in _OF_LINUX.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for name in ("stat", "lstat", "readlink"):
    setattr(os, name, _without_hidden(getattr(os, name)))
sys.addaudithook(_refuse)
sys.platform = "darwin"
platform.system = lambda: "Darwin"
platform.machine = lambda: "arm64"
platform.libc_ver = lambda *_, **__: ("", "")
platform.mac_ver = lambda *_, **__: ("15.1", ("", "", ""), "arm64")
