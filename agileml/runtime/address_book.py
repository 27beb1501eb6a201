"""Where nodes on several computers listen: each tells the controller, which tells all others."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from agileml.transport import Address, TcpAddress, UnixAddress, parse_address

_DOCUMENTATION_ADDRESS = TcpAddress("192.0.2.1", 9)
"""An address that is reserved for documentation; nothing is ever sent there."""


@dataclass(frozen=True, slots=True)
class ListeningAt:
    """From a node to the controller, on every new link: where the node listens."""

    node: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Directory:
    """From the controller to nodes: where these nodes listen."""

    addresses: dict[str, tuple[str, ...]]


class AddressBook:
    """The addresses of nodes, by name. A node keeps what it has learned while there is no controller."""

    def __init__(self) -> None:
        self._addresses: dict[str, tuple[Address, ...]] = {}

    def learn(self, directory: Directory) -> None:
        """Adds or replaces entries. Raises BadAddress for an invalid one."""
        for name, texts in directory.addresses.items():
            self._addresses[name] = tuple(map(parse_address, texts))

    def forget(self, name: str) -> None:
        """Removes a node."""
        self._addresses.pop(name, None)

    @property
    def directory(self) -> Directory:
        """All entries."""
        return Directory({name: tuple(map(str, addresses)) for name, addresses in self._addresses.items()})

    def addresses(self, name: str, controller: Address) -> Sequence[Address]:
        """Where to reach a node, best first: over a Unix socket if it is on this computer."""
        usable: list[Address] = []
        for address in self._addresses.get(name, ()):
            if isinstance(address, TcpAddress):
                usable.append(_seen_from_here(address, controller))
            elif _exists(address):
                usable.append(address)
        return usable


def listening_host(controller: TcpAddress, controllers_own: TcpAddress) -> str:
    """The host at which a node listens: the address from which it reaches the controller.

    On the controller's computer that may be loopback; then the node listens wherever the controller does.
    """
    host = controller.local_host()
    return controllers_own.host if _is_loopback(host) else host


def outward_host() -> str:
    """The address of this computer on its way to others, for a controller that is reached through a tunnel.

    Raises BadAddress if it has no network.
    """
    return _DOCUMENTATION_ADDRESS.local_host()


def _seen_from_here(address: TcpAddress, controller: Address) -> TcpAddress:
    """Loopback and wildcard addresses are those of nodes on the controller's computer."""
    if isinstance(controller, TcpAddress) and (_is_loopback(address.host) or _is_wildcard(address.host)):
        return TcpAddress(controller.host, address.port)
    return address


def _exists(address: UnixAddress) -> bool:
    """The path has a random part, so a socket there is the node's, unless the folder is shared between computers."""
    try:
        return Path(address.path).is_socket()
    except OSError:
        return False


def _is_loopback(host: str) -> bool:
    return _is(host, "is_loopback") or host == "localhost"


def _is_wildcard(host: str) -> bool:
    return _is(host, "is_unspecified")


def _is(host: str, what: str) -> bool:
    try:
        return bool(getattr(ip_address(host), what))
    except ValueError:
        return False
