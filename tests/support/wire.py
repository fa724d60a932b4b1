"""What goes to and from addresses and ports of the loopback interface: whether given texts were ever among it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable
from typing import Self

_ALL = 0x0003  # ETH_P_ALL
_ETHERNET, _SOURCE, _SHORTEST = 14, 26, 54
_IPV4 = b"\x08\x00"


class WireTap:
    """Reads all packets to and from one address, or those of one of its ports; a context manager.

    Attributes:
        found: those of the wanted texts that were sent.
        packets: how many packets were read.
    """

    def __init__(self, address: str, wanted: Iterable[str], port: int | None = None) -> None:
        """Opens a raw socket.

        Raises:
            OSError: this user may not, or the system has no such sockets.
        """
        self._address = socket.inet_aton(address)
        self._port = port
        self._wanted = [text.encode() for text in wanted]
        self._longest = max(map(len, self._wanted))
        self._tails: dict[bytes, bytes] = {}
        self.found: set[str] = set()
        self.packets = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                packet = self._socket.recv(1 << 17)
            except TimeoutError:
                continue
            ends = packet[_SOURCE : _SOURCE + 4], packet[_SOURCE + 4 : _SOURCE + 8]
            if len(packet) > _SHORTEST and packet[12:14] == _IPV4 and self._address in ends:
                self._look(packet)

    def _look(self, packet: bytes) -> None:
        """Searches the data of one TCP segment, together with the end of the segment before it."""
        at = _ETHERNET + (packet[_ETHERNET] & 0x0F) * 4
        if self._port not in (None, *struct.unpack_from(">HH", packet, at)):
            return
        self.packets += 1
        flow, (offset,) = packet[at : at + 4], struct.unpack_from(">B", packet, at + 12)
        data = self._tails.get(flow, b"") + packet[at + (offset >> 4) * 4 :]
        self.found |= {text.decode() for text in self._wanted if text in data}
        self._tails[flow] = data[-self._longest :]
