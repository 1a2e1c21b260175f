"""Turns: who is next, where many wait for one. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: How many may wait in all, and how many of one peer.
MAX_WAITING = 16
MAX_OF_ONE_PEER = 2


class TooBusyError(Exception):
    """No turn: too many wait for the same, or this is the end."""


class Turns(Generic[Item]):
    """A queue that serves one peer after the other, so that none keeps the others waiting by its number."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Item]] = OrderedDict()

    def put(self, peer: str, item: Item) -> Item | None:
        """Let `item` of `peer` wait.

        Returns:
            The item that waits no more, as there was no room for both: one of a peer with more than this one.

        Raises:
            TooBusyError: there is no room.
        """
        own = len(self._waiting.get(peer, ()))
        if own >= MAX_OF_ONE_PEER:
            raise TooBusyError
        displaced = None
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            most = max(self._waiting.values(), key=len)
            if len(most) <= own + 1:
                raise TooBusyError
            displaced = most.pop()
        self._waiting.setdefault(peer, deque()).append(item)
        return displaced

    def next(self) -> Item | None:
        """Return whose turn it is, `None` when nobody waits."""
        if not self._waiting:
            return None
        peer, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            self._waiting[peer] = items  # behind all others
        return item
