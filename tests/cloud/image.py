"""The image of machines: a layer over a root, this computer's or another, that hides what is not on
a fresh machine.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KEPT = {"bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "var"}
_EMPTIED = (
    "usr/local",
    "etc/ssh",
    "var/cache",
    "var/log",
    "var/tmp",
    "var/lib/cloud",
    "var/lib/containers",
)
_MODES = {"root": 0o700, "tmp": 0o1777, "var/tmp": 0o1777}
_NEEDED = ("dev", "home", "mnt", "opt", "proc", "root", "run", "sys", "tmp")

_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile none
Subsystem sftp internal-sftp
"""

_POWER_OFF = """\
#!/bin/sh
# Ends the machine; with -f at once, without ending its processes in good order.
for word; do case $word in -f|-ff|--force) exec kill -s USR1 1 ;; esac; done
kill -s PWR 1
"""

_SHUT_DOWN = """\
#!/bin/sh
# shutdown [-h|-P] [now|+MINUTES], shutdown -c
when=+1
for word; do
  case $word in
    -c) [ ! -f /run/shutdown.pid ] || kill "$(cat /run/shutdown.pid)"; rm -f /run/shutdown.pid; exit ;;
    -h|-H|-P|--halt|--poweroff|--no-wall) ;;
    now) when=+0 ;;
    +[0-9]*) when=$word ;;
    *) echo "shutdown: $word is not simulated on this machine" >&2; exit 1 ;;
  esac
done
if [ "$when" = +0 ]; then exec kill -s PWR 1; fi
setsid sh -c 'sleep $(($0 * 60)); kill -s PWR 1' "${when#+}" </dev/null >/dev/null 2>&1 &
echo $! >/run/shutdown.pid
"""

_CONTAINERS = {
    "containers.conf": "[containers]\ncgroups = 'disabled'\n",
    # Not as an overlay on the overlay that the machine's root is.
    "storage.conf": "[storage]\ndriver = 'vfs'\nrunroot = '/run/containers'\ngraphroot = '/var/lib/containers'\n",
    "registries.conf.d/test.conf": "[[registry]]\nprefix = '*.test'\ninsecure = true\n",
}

_REBOOT = "#!/bin/sh\necho 'reboot: not simulated on this machine' >&2\nexit 1\n"


def build_image(layer: Path, base: Path) -> None:
    """Makes the layer over `base`, on a file system that takes trusted attributes (tmpfs does)."""
    layer.mkdir(mode=0o755)
    hidden = {path.name for path in base.iterdir()} - _KEPT
    for name in sorted(hidden | set(_NEEDED) | set(_EMPTIED)):
        _hide(layer, base, name)
    for name, text in (
        ("poweroff", _POWER_OFF),
        ("halt", _POWER_OFF),
        ("shutdown", _SHUT_DOWN),
        ("reboot", _REBOOT),
    ):
        _write(layer / "usr/sbin" / name, text, 0o755)
    _write(layer / "etc/ssh/sshd_config", _SSHD, 0o644)
    for name, text in _CONTAINERS.items():
        _write(layer / "etc/containers" / name, text, 0o644)


def _hide(layer: Path, base: Path, name: str) -> None:
    """A folder becomes empty, and anything else is removed, as overlayfs marks both."""
    path, original = layer / name, base / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if original.is_dir() or not original.exists():
        path.mkdir()
        path.chmod(_MODES.get(name, 0o755))
        os.setxattr(path, "trusted.overlay.opaque", b"y")
    else:
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
