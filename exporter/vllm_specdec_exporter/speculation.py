"""Speculation: what the operator says of vLLM's ``--speculative-config``, and that JSON written anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .economics.schedule import ScheduleRow

_K = "num_speculative_tokens"
_SCHEDULE = "num_speculative_tokens_per_batch_size"


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the operator says of the server's ``--speculative-config``.

    Attributes:
        configured: whether the server was given one.
        method: how drafts are made, such as ``eagle3`` or ``ngram``.
        draft_model: the model that makes them.
        num_speculative_tokens: K.
        document: the JSON itself.
    """

    configured: bool = False
    method: str = ""
    draft_model: str = ""
    num_speculative_tokens: int | None = None
    document: str = ""

    def with_k(self, k: int, schedule: Iterable[ScheduleRow] = ()) -> str:
        """Return the JSON with another K, to paste, and with rows by batch size in place of any it has."""
        document = json.loads(self.document) if self.document else {}
        document.pop(_SCHEDULE, None)
        document[_K] = k
        rows = [[row.first, row.last, row.num_speculative_tokens] for row in schedule]
        if rows:
            document[_SCHEDULE] = rows
        return json.dumps(document)


def names_drafter(config: str) -> bool:
    """Tell whether a JSON says how drafts are made, so that it can be given to vLLM as it stands."""
    return '"method"' in config or '"model"' in config
