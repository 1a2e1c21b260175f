"""The document of a history: what each configuration did, and what each change of it
brought.
"""

from msgspec import Struct

from .configuration import Configuration
from .matching import Change

FORMAT = "vllm-specdec-history/1"


class Summary(Struct, frozen=True):
    """A configuration and what it did; ``None`` for what is not known.

    Times are Unix times in seconds.
    """

    configuration: Configuration
    first_seconds: float
    last_seconds: float
    periods: int  # times apart in which it ran
    replicas: int  # the most at once
    requests: float  # that are compared and shown
    #: Requests near its starts and ends, while it warmed up or was cut off.
    requests_left_out: float
    prompt_tokens: float | None  # of a request: mean
    #: Share of the prompt tokens that the prefix cache had, 0 to 1.
    prefix_cache_hit_ratio: float | None
    answer_tokens: float | None  # generated for a request: mean
    running: float  # requests in a replica's batch: mean
    running_p10: float  # and what is not exceeded a tenth of the time
    running_p90: float  # and nine tenths of it
    acceptance_ratio: float | None  # accepted of drafted tokens
    #: Tokens of a step with a draft that can have reached an answer.
    mean_acceptance_length: float | None
    #: The mean at its own loads: not to be compared.
    time_per_output_token_seconds: float | None
    tokens_per_second: float  # of a replica while it generates


class ModelHistory(Struct, frozen=True):
    """The past of a model, or of an instance of it."""

    name: str
    configurations: tuple[Summary, ...]  # by their first time; chosen times by name
    comparisons: tuple[Change, ...]
    #: Unix time of each block, and the mean running requests of a replica in it.
    load: tuple[tuple[float, float], ...]
    problem: str = ""  # why there is no comparison, or none of a configuration


class HistoryDocument(Struct, frozen=True):
    """The document of ``--json``."""

    format: str  # `FORMAT`
    version: str  # of this program
    since_seconds: float  # Unix time from which was read
    until_seconds: float  # Unix time up to which was read
    block_seconds: float  # length of a block of time
    models: tuple[ModelHistory, ...]
    warnings: tuple[str, ...] = ()  # of the server: the results may be incomplete
