"""The case: the input of the judgement of one engine."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds
from ..economics.choice import TriedK
from ..economics.cost import CostProfile
from ..economics.known_problems import release_of
from ..economics.speculative_config import Speculation
from ..engines.engine import Engine
from ..engines.reading import Counters
from ..measures.measures import DraftShape, Measures, acceptance_lengths
from ..measures.uptime import Uptime
from .activity import Activity
from .payoff import Payoff

#: Largest relative difference between a mean of recorded requests and that of all
#: drafts at which the records count as a sample of the same traffic.
ALIKE = 0.1


class PrefixCaches(Struct, frozen=True):
    """Shares of the prompt tokens that were found in the prefix cache, 0 to 1."""

    baseline: float  # when the baseline was recorded
    present: float  # in the judged window


class Case(Struct, frozen=True):
    """One engine at the newest sample."""

    activity: Activity  # whether the engine speculates
    measures: Measures | None  # the judged window, ``None`` before it has two samples
    counters: Counters  # cumulative counters at its end
    k: int | None  # the present K, ``None`` where it is not known
    method: str  # the speculative method, empty if not known
    profile: CostProfile  # the cost of steps
    thresholds: Thresholds
    engine: Engine  # what is known of this kind of server
    #: The other windows, to check whether acceptance is steady.
    other_windows: tuple[Measures, ...] = ()
    #: The server's ``--speculative-config``, if given.
    speculation: Speculation = Speculation()
    #: The models between which one ``--speculative-config`` cannot choose.
    ambiguous: tuple[str, ...] = ()
    #: The least and the most requests running in the window.
    batch_sizes: tuple[float, float] | None = None
    settled: bool = True  # whether the window is full
    busy: bool = False  # whether requests ran at every sample of a full window
    model_name: str = ""  # the served name
    version: str = ""  # of the server, empty if not known
    engines: int = 1  # engines that serve the model: ranks of data parallelism
    #: Draft lengths by K, from records of single requests.
    shape: DraftShape | None = None
    speculative: bool = True  # whether its counters are those of speculative decoding
    defects: tuple[str, ...] = ()  # what was inconsistent in the newest sample
    mismatch: str = ""  # why the baseline does not fit the engine, empty if it does
    payoff: Payoff = Payoff()  # whether speculation pays, which bounds the advice
    unadvisable: str = ""  # why no K can be advised, whatever is counted
    #: Why the window has no measured speedup although there is a baseline.
    unmeasured: str = ""
    #: The hit ratios of the prefix cache, where those of the baseline and now differ so
    #: much that times per output token cannot be compared.
    prefix_caches: PrefixCaches | None = None
    routed: bool = False  # whether its metrics come through a router that loads models
    uptime: Uptime = Uptime()  # the hours of this life of the engine
    #: Whether the shortest window is judged, because it shows the opposite.
    overruled: bool = False
    tried: tuple[TriedK, ...] = ()  # other K that really ran at the window's load

    @property
    def varying(self) -> bool:
        """Whether drafts vary in length, or leave out the deepest positions, as with a
        K schedule.
        """
        if self.measures:
            drafted = len(self.measures.position_acceptance_ratio)
        else:
            drafted = 0
        counted = len(self.counters.accepted_tokens_per_position)
        return 0 < drafted < counted or (
            self.measures is not None and self.measures.drafts_vary
        )

    @property
    def prefix_cache_hit_ratio(self) -> float | None:
        """The share of the prompt tokens of the judged window that the prefix cache
        held; ``None`` where none was looked up there.
        """
        return self.measures.prefix_cache_hit_ratio if self.measures else None

    @property
    def sampled(self) -> bool | None:
        """Whether requests run above temperature 0, by their records; ``None`` where
        that is not known.
        """
        return self.shape.sampled if self.shape else None

    @property
    def should_sample_drafts(self) -> bool:
        """Whether drafts are the likeliest tokens of a drafter that could sample them,
        and the requests may be sampled: so many are rejected, however well it fits.
        """
        release = release_of(self.version)
        since = self.engine.draft_sampling_since
        too_old = since is not None and release is not None and release < since
        return (
            bool(self.engine.draft_sampling)
            and not too_old
            and self.sampled is not False
            and self.speculation.proposes_likeliest(self.method)
        )

    def with_recorded_positions(self) -> Case:
        """Return the case with the positions of request records, if its server does not
        count positions.

        The records must be of the present K, and of the same traffic by their mean
        acceptance length. They are another sample at each poll, so advice may change at
        each, as in a window that is not full.
        """
        measures = self.measures
        shape = self.shape
        if (
            measures is None
            or measures.position_acceptance_ratio
            or shape is None
            or self.unadvisable
        ):
            return self
        lengths = acceptance_lengths(shape.survival)
        known = measures.mean_acceptance_length
        if (
            not lengths
            or len(lengths) != self.k
            or known is None
            or abs(lengths[-1] / known - 1) > ALIKE
        ):
            return self
        recorded = replace(
            measures,
            drafts=min(measures.drafts or 0.0, shape.drafts),
            position_acceptance_ratio=shape.survival,
            mean_acceptance_length_at=lengths,
        )
        return replace(self, measures=recorded, settled=False)
