"""How a server drafted, and from when to when it did. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

#: Labels of a replica, without those that it lacks: name and value.
Replica = tuple[tuple[str, str], ...]


class Configuration(Struct, frozen=True):
    """How a server drafts: tokens of a draft, 0 without speculation, ``None`` if not
    known.
    """

    num_speculative_tokens: int | None
    method: str = ""  # empty if not known
    version: str = ""  # of the server, empty if not known
    name: str = ""  # of a chosen time, whatever ran in it

    @property
    def words(self) -> str:
        """The configuration in words."""
        if self.name:
            return self.name
        k = self.num_speculative_tokens
        if k == 0:
            parts = ["no speculation", self.version]
        elif k is None:
            parts = ["speculation", self.method, self.version]
        else:
            parts = [f"K={k}", self.method, self.version]
        return ", ".join(filter(None, parts))

    def agreed(self, other: Configuration | None) -> Configuration:
        """Return it without method and version where another one says otherwise."""
        agreed = self
        if other is not None and other.method != self.method:
            agreed = replace(agreed, method="")
        if other is not None and other.version != self.version:
            agreed = replace(agreed, version="")
        return agreed

    def completed(self, neighbour: Configuration | None) -> Configuration:
        """Return it with what is not known of it as in its neighbour in time, if K is
        the same.
        """
        if neighbour is None or neighbour is self:
            return self
        if neighbour.num_speculative_tokens != self.num_speculative_tokens:
            return self
        completed = replace(
            self,
            method=self.method or neighbour.method,
            version=self.version or neighbour.version,
        )
        # Equal configurations are one object: there is one for each replica and time.
        if completed == neighbour:
            return neighbour
        return completed


#: Each run of a replica: its configuration, and the places of the grid, one after the
#: other.
Runs = list[tuple[Configuration, range]]


def runs_of(shown: Iterable[Configuration | None]) -> Runs:
    """Return the runs of a replica by its configuration at each time, ``None`` where it
    does not run.

    What is not shown for a time, as by an exporter that is down, is as before or after
    it.
    """
    completed = list(shown)
    forwards = range(len(completed))
    for order in (forwards, reversed(forwards)):
        neighbour: Configuration | None = None
        for index in order:
            configuration = completed[index]
            if configuration:
                neighbour = configuration.completed(neighbour)
                completed[index] = neighbour
    runs = []
    begin = 0
    for configuration, repeats in groupby(completed):
        end = begin + len(list(repeats))
        if configuration:
            runs.append((configuration, range(begin, end)))
        begin = end
    return runs
