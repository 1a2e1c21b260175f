"""Ports for servers of tests."""

import os
import socket
from itertools import count

#: Below what Linux gives to whoever asks for no port (32768 and up): nobody comes upon
#: one between the moment it is found free here and the moment a server listens on it.
_FIRST = 10_000
_NUMBER = 22_000

#: Each process of the tests has its own start, far from that of its neighbours.
_PLACES = count(os.getpid() * 211)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that is not returned again
    soon.
    """
    while True:
        port = _FIRST + next(_PLACES) % _NUMBER
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
