"""Messages with arrays between processes: zero-copy, authenticated and bounded, over Unix sockets
and TLS.
"""

from agileml.errors import BadAddress, BadMessage, BadSecret, NotConnected, QueueFull, Unsendable
from agileml.transport.addresses import (
    Address,
    TcpAddress,
    UnixAddress,
    parse_address,
    parse_host_port,
)
from agileml.transport.endpoint import Endpoint
from agileml.transport.framing import FrameLimits
from agileml.transport.handshake import Identity, Names, new_instance
from agileml.transport.link import (
    Connected,
    LinkEvent,
    Lost,
    Received,
    Rejected,
    TransportSettings,
)

__all__ = [
    "Address",
    "BadAddress",
    "BadMessage",
    "BadSecret",
    "Connected",
    "Endpoint",
    "FrameLimits",
    "Identity",
    "LinkEvent",
    "Lost",
    "Names",
    "NotConnected",
    "QueueFull",
    "Received",
    "Rejected",
    "TcpAddress",
    "TransportSettings",
    "UnixAddress",
    "Unsendable",
    "new_instance",
    "parse_address",
    "parse_host_port",
]
