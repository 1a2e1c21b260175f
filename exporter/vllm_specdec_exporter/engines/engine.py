"""What is known of an inference engine: its options, its words, and what it reports.

Each engine is one TOML file of this folder; `tables.py` reads them. Rooms above ask an
engine and never compare names, so another engine is another file.
"""

from collections.abc import Mapping

from msgspec import Struct


class Schedule(Struct, frozen=True, forbid_unknown_fields=True):
    """How an engine takes K by batch size, if it takes it in a file of its own."""

    methods: tuple[str, ...]  # the methods that take one
    option: str  # the options that name the file
    row: str  # format string of a row of its JSON, with `first` and `k`
    zero: str  # what K=0 in a row needs

    def text(self, rows: Mapping[int, int]) -> str:
        """Return the options with the contents of the file.

        `rows` has K by the first batch size that it is for.
        """
        shown = ", ".join(
            self.row.format(first=first, k=k) for first, k in rows.items()
        )
        text = f"{self.option} with {{{shown}}}"
        if 0 in rows.values():
            text += f" ({self.zero})"
        return text


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """The record of speculation in a response: the names of its counts."""

    drafts: str
    draft_tokens: str
    accepted_tokens: str
    counts_drafts: bool = True  # whether `drafts` is in every record
    #: Names of the list with the drafts that had j tokens accepted at index j, the
    #: newest first.
    histograms: tuple[str, ...] = ()
    #: Whether its drafted tokens are computed from the configured K, whatever was
    #: drafted. Such a record is there without drafts, too.
    from_configured_k: bool = False
    #: Types of request by path, of the engine's own routes.
    routes: Mapping[str, str] = {}


class Requests(Struct, frozen=True, forbid_unknown_fields=True):
    """How records of requests are obtained, for the documentation."""

    enabled: str
    place: str
    content: str


class Labels(Struct, frozen=True, forbid_unknown_fields=True):
    """Labels that name parts of one engine, for the documentation."""

    names: tuple[str, ...]
    note: str
    source: str  # where the engine defines them


class Reports(Struct, frozen=True, forbid_unknown_fields=True):
    """What the metrics of an engine show, for the documentation; vLLM's by default."""

    drafts: str = "counted"
    moves: str = "in each step"
    length: str = "yes"
    ratio: str = "yes"
    positions: str = "yes"
    draft_lengths: str = "from records of requests"
    k: str = "number of positions"
    method: str = "from `--spec.config`"
    off: str = 'some servers print the same as for "no draft yet"'
    latencies: str = "yes"


class Engine(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of inference server.

    What makes it speculate has no default: advice with another engine's option is
    worse than none.
    """

    name: str  # as its authors write it
    speculation_option: str  # the option that makes it speculate
    #: How K is given: a format string with `k` and `verified`, which is K + 1. Empty
    #: if K is in the JSON of `speculation_option`, which then is vLLM's.
    k_option: str = ""
    #: The setting with which a draft model samples its drafts instead of proposing its
    #: likeliest tokens; empty if none is known.
    draft_sampling: str = ""
    #: The first release (major, minor) that has it; ``None`` if each release may.
    draft_sampling_since: tuple[int, int] | None = None
    #: Values of `speculation_option` by method, as vLLM calls them.
    methods: Mapping[str, str] = {}
    takes_schedule: bool = False  # whether that JSON may have K by batch size
    schedule: Schedule | None = None  # another form of it
    #: What to do about a finding, where the text for all engines does not fit: format
    #: strings by the names in `judgement/messages.toml`.
    actions: Mapping[str, str] = {}
    has_version: bool = False  # whether it answers /version
    has_server_info: bool = False  # whether it answers /server_info
    #: Whether `economics/known_problems.toml` is about this engine.
    has_known_problems: bool = False
    #: The first release (major, minor) that prepares drafts on the GPU; ``None`` if no
    #: release is known to prepare them on the CPU.
    drafts_on_gpu_since: tuple[int, int] | None = None
    #: Whether each step makes the drafts of the next one, also those of first and last
    #: tokens; else a step begins with its drafts.
    drafts_ahead: bool = False
    #: Whether its attention kernels split the context, unlike those that the model of
    #: the hardware is fitted to.
    splits_attention: bool = False
    #: Largest mean batch whose cost is modelled; ``None`` if there is no limit.
    max_batch: float | None = None
    #: The record in its responses, if it has one of its own instead of vLLM's.
    record: Record | None = None
    #: The first release with a time per output token by requests, empty if each
    #: supported one has it.
    latencies_since: str = ""
    #: Patterns of responses that are not read, and why.
    refused: Mapping[str, str] = {}
    #: Why a JSON list is refused, if this engine may give one and empties it by that.
    emptied_by_reading: str = ""
    reports: Reports = Reports()
    labels: tuple[Labels, ...] = ()
    requests: tuple[Requests, ...] = ()

    @property
    def takes_config(self) -> bool:
        """Whether it takes the JSON of vLLM's ``--speculative-config``."""
        return not self.k_option

    @property
    def has_latencies(self) -> bool:
        """Whether its metrics have latencies of requests."""
        return self.reports.latencies != "no"

    @property
    def positions_in_records(self) -> bool:
        """Whether records of its own give the positions that its metrics may lack."""
        return self.record is not None and bool(self.record.histograms)

    def options(self, k: int, method: str) -> str:
        """Return its options for drafts of `k` tokens.

        The method is among them if it is known, and if the engine has it.
        """
        # vLLM names the multi-token prediction of each model family apart.
        if method.endswith("_mtp"):
            method = "mtp"
        options = self.k_option.format(k=k, verified=k + 1)
        if method in self.methods:
            return f"{self.speculation_option} {self.methods[method]} {options}"
        return options
