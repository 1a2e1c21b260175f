"""An observer without connections: bytes of both directions go in, observations and
counts come out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm_specdec_exporter.per_request.grouping import Classification
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.serve.tap.observer import (
    ObservationContext,
    Observer,
    call_safely,
)


@dataclass
class Watched:
    """One connection that is looked at, and what was told of it."""

    classification: Classification = field(default_factory=Classification)
    clock: float = 100.0
    observed: list[Observation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = ObservationContext(
            self.observed.append,
            self.classification,
            lambda: self.clock,
            lambda: 1e9 + self.clock,
        )
        self.observer = Observer(self.watch)

    def client(self, *parts: bytes) -> None:
        """Take what the client sends."""
        for part in parts:
            call_safely(self.observer, self.observer.from_client, part)

    def server(self, *parts: bytes) -> None:
        """Take what the server sends."""
        for part in parts:
            call_safely(self.observer, self.observer.from_server, part)

    def server_ends(self) -> None:
        """End what the server sends."""
        call_safely(self.observer, self.observer.server_ended)

    def close(self) -> None:
        """End the connection."""
        self.observer.closed()
        assert self.watch.held == 0
        assert not self.observer.busy

    @property
    def unobserved(self) -> dict[str, int]:
        """What was not observed, by reason."""
        return {
            reason: count for reason, count in self.watch.unobserved.items() if count
        }


def observe(*exchanges: tuple[Iterable[bytes], Iterable[bytes]]) -> Watched:
    """Return what is told of requests and their answers, one after the other on one
    connection.
    """
    watched = Watched()
    for request, answer in exchanges:
        watched.client(*request)
        watched.server(*answer)
    watched.close()
    return watched
