"""A home's files for machines that are reached over ssh: a key, the machines' host keys, archives,
and sockets.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from spotctl.clouds.errors import ProviderError
from spotctl.home.installation import read_or_create

KEPT_SECONDS = 30 * 24 * 3600
"""How long unused host keys and archives are kept."""

_SOCKET_FOLDER = re.compile(r"[A-Za-z0-9/._-]{1,60}")
"""Unix socket paths must be short; ssh makes a given path longer, and treats some characters
specially."""


def private_key(folder: Path) -> Path:
    """The file of this home's ssh key, which only its owner can read, made once."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path = folder / "ssh.key"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = Ed25519PrivateKey.generate()
        read_or_create(path, new.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))

    return path


def public_key(folder: Path) -> str:
    """The public key, in the form of files of authorized keys. ProviderError: the private key is
    damaged.
    """
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_private_key,
    )

    path = private_key(folder)
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except ValueError as error:
        problem = (
            f"{path}: not an ssh key ({error}). Machines of this home accept only the key that "
            "was here: remove the file once no machine is left (spotctl gc), and spotctl creates "
            "a new key"
        )
        raise ProviderError(problem) from None

    return (
        key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + " spotctl"
    )


def host_key(seed: bytes) -> tuple[bytes, str]:
    """The private and the public key of a machine's sshd, made from 32 secret bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), public.decode()


class RemoteHome:
    """The ssh key, the machines' host keys, and a folder for this process's sockets, which lasts
    until `close`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        known_hosts = folder / "known_hosts"
        known_hosts.mkdir(exist_ok=True, mode=0o700)
        for kept in filter(Path.is_dir, (known_hosts, folder / "archives")):
            before = time.time() - KEPT_SECONDS
            for path in kept.iterdir():
                if path.is_file() and path.stat().st_mtime < before:
                    path.unlink(missing_ok=True)

        # The folders of processes that were killed: their locks are free.
        sockets = _socket_folder(folder)
        for left in sockets.iterdir():
            try:
                lock = os.open(left / "lock", os.O_RDWR | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                # Another process is making this folder.
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)
        self.sockets = Path(tempfile.mkdtemp(prefix="", dir=sockets))
        self._lock = os.open(self.sockets / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.key, self.known_hosts = private_key(folder), known_hosts

    def close(self) -> None:
        shutil.rmtree(self.sockets, ignore_errors=True)
        os.close(self._lock)


def _socket_folder(folder: Path) -> Path:
    """A folder with a short path that only this user can enter."""
    near = folder / "sockets"
    if _SOCKET_FOLDER.fullmatch(str(near)):
        near.mkdir(exist_ok=True, mode=0o700)
        return near

    path = Path(tempfile.gettempdir()) / f"spotctl-{os.getuid()}"
    path.mkdir(exist_ok=True, mode=0o700)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or path.is_symlink():
        problem = (
            f"{path}: other users may write there, so it cannot hold sockets to machines: remove it"
        )
        raise ProviderError(problem)

    return path
