"""Where a policy server listens, and what it allows."""

import dataclasses
import ipaddress

LOOPBACK, WAIT_S = "127.0.0.1", 0.005


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of a server; the defaults let this machine alone ask."""

    host: str = LOOPBACK
    port: int = 8000
    """0: any that is free"""
    api_key: str = ""
    """Asked of every connection, where there is one"""
    wait_s: float = WAIT_S
    """For company, of the first observation in a batch"""
    connections: int = 256
    """At once; each may hold two frames in memory"""
    send_s: float = 60.0
    """An answer that a client has not read by then ends its connection"""
    ping_s: float | None = 30.0
    """Between pings, which find out who is gone"""
    pong_s: float = 300.0
    """For the answer to a ping: a client that computes on its event loop is silent meanwhile"""

    def __post_init__(self) -> None:
        """A key that was read from a file ends with its line; a header cannot."""
        object.__setattr__(self, "api_key", self.api_key.strip())

    @property
    def is_open(self) -> bool:
        """Whether others than this machine may ask without a key."""
        return not self.api_key and not _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
