"""What is planned: the models, the GPUs, the load, and how drafts are made.

Methods are rows of `methods.toml`. The assumed acceptances are for planning only: they
span what was published, or are marked as guesses. A measurement on the traffic to be
served replaces them.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct, field

from ...config.tables import read_table
from ...economics.hardware import Machine
from ...economics.model import Model
from ...economics.profiles import for_method
from ...economics.sizes import Precision


class Drafter(StrEnum):
    """What does the drafting."""

    MODEL = "model"
    """A model of its own."""
    HEAD = "head"
    """Layers trained for this very target."""
    LOOKUP = "lookup"
    """A search in what was written before; no weights."""


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A speculation method."""

    name: str  # as in vLLM's ``--speculative-config``
    drafter: Drafter
    cautious: float  # per-token acceptance to assume where little is known, 0 to 1
    good: float  # per-token acceptance where all goes well, 0 to 1
    acceptance_source: str  # where these two come from
    shallowest: int = 1  # the least K that is usual
    deepest: int = 0  # the greatest K that is usual; 0 where no range is published
    depth_source: str = ""  # where the range comes from
    #: Parameters of the heads over the target's where no size is given; ``None``: not
    #: known.
    share: float | None = None
    share_source: str = ""  # where the share comes from
    per_token: bool = False  # whether `share` is for each of K heads
    named: bool = True  # whether vLLM wants the drafter's name under ``model``


#: By name.
METHODS: Mapping[str, Method] = {
    # The head of a table is the name, so that no file has it twice.
    name: msgspec.convert({"name": name, **row}, Method)
    for name, row in read_table(__file__, "methods.toml").items()
}


class Gpus(Struct, frozen=True):
    """The GPUs of one engine."""

    count: int  # from 1 up
    memory_bytes: float  # of each
    #: Share that vLLM may use, above 0 and at most 1 (``--gpu-memory-utilization``).
    utilization: float

    @property
    def total(self) -> float:
        """Bytes of all GPUs."""
        return self.count * self.memory_bytes

    @property
    def usable(self) -> float:
        """Bytes that vLLM may use."""
        return self.total * self.utilization


class PlannedLoad(Struct, frozen=True):
    """The planned load; ``None`` if not given."""

    context: int | None = None  # tokens of a request, prompt and response together
    batch: int | None = None  # concurrent requests

    @property
    def tokens(self) -> int | None:
        """Tokens in the cache if every request has its full context."""
        if self.context is None or self.batch is None:
            return None
        return self.context * self.batch


class Objective(StrEnum):
    """The main objective."""

    TPOT = "tpot"
    """Time per output token."""
    THROUGHPUT = "throughput"
    TTFT = "ttft"
    """Time to first token."""


class Facts(Struct, frozen=True):
    """Facts from the operator; ``None`` and an empty tuple mean unknown, and are never
    assumed.
    """

    #: Sampling temperatures in production, from 0 up.
    temperatures: tuple[float, ...] = ()
    objective: Objective | None = None
    #: Whether target and draft are of one family (for a head: trained for this target).
    same_family: bool | None = None
    same_tokenizer: bool | None = None  # whether they share the tokenizer
    uniform_batch: bool | None = None  # whether the requests of a batch are alike
    #: Whether acceptance was measured at production's temperature.
    validated: bool | None = None
    monitored: bool | None = None  # whether acceptance is monitored
    #: Whether requests have ``min_p`` or ``logit_bias``, which vLLM refuses once it
    #: speculates.
    min_p_or_logit_bias: bool | None = None


class Question(Struct, frozen=True):
    """What is planned."""

    method: Method  # how to draft
    target: Model  # the model that is served
    #: The drafter; ``None`` where it has no weights or their size is not known.
    draft: Model | None
    gpus: Gpus  # what it runs on
    kv_precision: Precision  # how keys and values are cached
    #: Number of speculative tokens, from 1 up; ``None`` for what is usual.
    k: int | None = None
    #: Expected per token, 0 to 1; ``None`` where not known.
    acceptance: float | None = None
    load: PlannedLoad = PlannedLoad()  # what is to be served
    facts: Facts = field(default_factory=Facts)  # what else is known of the deployment
    drafter_name: str = ""  # what vLLM shall load as drafter, empty where not known
    target_name: str = ""  # what vLLM serves, empty where not known
    #: Name and GPUs, ``None`` where not known.
    hardware: tuple[str, Machine] | None = None

    @property
    def depth(self) -> int:
        """K, the usual one if none is given."""
        return self.k or for_method(self.method.name).typical_k
