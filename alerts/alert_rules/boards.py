"""Records that the dashboards read: what would be too long, or too much work, for every
look at a panel.
"""

from collections.abc import Iterator

from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.judgement.state import StateCode

from . import series as s
from . import speedup
from .rule import Group, Record

#: The code of an engine's state, which the exporter publishes; and of a model's, which
#: may be down or without an exporter, too.
_OF_ENGINES = f"last_over_time(vllm_specdec_state_code[{s.LOOK_BACK}])"
_OF_MODELS = "model:vllm_specdec_state:code"
_VERDICTS = (StateCode.HARMFUL, StateCode.MARGINAL, StateCode.BENEFICIAL)
#: No alert waits for these records, so they are evaluated as seldom as Prometheus's
#: look-back of 5m allows.
_INTERVAL = "4m"
_K = "num_speculative_tokens"
_SET = "model:vllm_specdec_set:tpot"
#: What a model was like before it changed, by the label `of`.
_BEFORE = "model:vllm_specdec_before:median"
#: What is compared with that. The load is of a mean engine.
_COMPARED = {
    "speedup": "model:vllm_specdec_speedup:ratio_rate5m",
    "length": "model:vllm_specdec_mean_acceptance_length:ratio_rate5m",
    "load": "model:vllm_specdec_requests_running:avg5m",
    "K": f"model:vllm_specdec_{_K}:max",
}
_SEEN = "last_over_time(vllm_specdec_info[1h])"


def _last(series: str, **matchers: str) -> str:
    listed = ",".join(f'{label}="{value}"' for label, value in matchers.items())
    selector = f"{{{listed}}}" if listed else ""
    return f"last_over_time(vllm_specdec_{series}{selector}[{s.LOOK_BACK}])"


def _code(code: int, condition: str) -> str:
    return f"{code} + 0 * ({condition})"


#: Engines whose speedup is that against replicas.
_BY_REPLICAS = "engine:vllm_specdec_replica_speedup:last3m"


def groups() -> Iterator[Group]:
    """Yield the group of what boards read."""
    yield Group(
        "vllm-specdec.boards",
        (
            Record(speedup.VERDICT, speedup.verdicts(), why=speedup.WHY_VERDICT),
            Record(_OF_MODELS, _of_models()),
            Record("model:vllm_specdec_speedup_interval:ratio", _interval()),
            Record("model:vllm_specdec_unwatched:ratio_rate5m", _unwatched()),
            Record("model:vllm_specdec_estimated_speedup_at:ratio", _at_each_k()),
            Record(_SET, _by_setting()),
            Record(s.TRIED, _tried()),
            Record("model:vllm_specdec_advised_gain:ratio", _advised_gain()),
            Record(_BEFORE, _before()),
            Record("model:vllm_specdec_speedup_change:cause", _change_by_cause()),
            Record("model:vllm_specdec_saved_engines:sum", _saved()),
        ),
        _INTERVAL,
    )


def _of_models() -> str:
    """Return the code of a model: down as soon as no exporter answers, else its
    verdict, else that of an engine.

    A loss is likely where it is likely on the worst engine, and certain on none.
    """
    active = f"and on ({s.MODEL}) ({_last('activity', state='active')} == 1)"
    worst = f"min by ({s.MODEL}) ({_OF_ENGINES})"
    verdicts = " or ".join(
        _code(code, f'model:vllm_specdec_verdict:info{{verdict="{code.name.lower()}"}}')
        for code in _VERDICTS
    )
    likely = StateCode.LIKELY_HARMFUL
    # A loss that is certain on the worst engine is not certain of the model.
    states = s.labelled(
        "of",
        engines=worst,
        verdict=f'{likely} + 0 * model:vllm_specdec_verdict:info{{verdict="unknown"}}',
    )
    address = f"{s.TARGET}, pod"
    answers = f"max by ({address}) (up)"
    server = f"{_SEEN} and on ({address}, target) ({_last('up')} == 0)"
    gone = f"max by ({s.MODEL}) ({_SEEN} * on ({address}) group_left () {answers}) == 0"
    alone = (
        f"sum by ({s.MODEL}) («vllm»spec_decode_num_drafts_total{{}} or "
        "«sglang»spec_verify_calls_total{})"
    )
    return (
        f"{gone}\n"
        f"or ({worst} == {likely} "
        f"and max by ({s.MODEL}) ({verdicts}) == {StateCode.HARMFUL} "
        f"unless on ({s.MODEL}) {_BY_REPLICAS} < 1)\n"
        f"or (max by ({s.MODEL}) ({verdicts}) {active})\n"
        f"or max by ({s.MODEL}) (\n{states}\n)\n"
        f"or max by ({s.MODEL}) ({_code(StateCode.SERVER_DOWN, server)})\n"
        f"or on (model_name) ({_code(StateCode.NO_EXPORTER, alone)})"
    )


def _interval() -> str:
    """Return the ends of the interval of a model's speedup, over its engines, and the
    weakest of their bases.

    The basis is that of the speedup, or where that is unknown, of the estimate.
    Replicas have no such interval.
    """
    ends = s.labelled(
        "bound",
        low=f"min by ({s.MODEL}) ({_last('speedup_interval', bound='low')})",
        high=f"max by ({s.MODEL}) ({_last('speedup_interval', bound='high')})",
    )
    estimated, judged = (
        "\n  or ".join(
            _code(rank, _last(name, basis=basis))
            for rank, basis in enumerate(reversed(Basis))
        )
        for name in ("estimated_speedup", "speedup")
    )
    without = f"unless on ({s.ENGINE}) {_last('speedup')}"
    ranks = f"(({estimated})\n  {without})\n  or {judged}"
    weakest = f"group by ({s.MODEL}, basis) (bottomk by ({s.MODEL}) (1,\n  {ranks}\n))"
    return (
        f"(\n{ends}\n)\n* on ({s.MODEL}) group_left (basis) {weakest}\nunless on "
        f"({s.MODEL}) {_BY_REPLICAS}"
    )


def _unwatched() -> str:
    """Return acceptance and length of models that no exporter watches now, from the
    series of vLLM and SGLang.

    By the name of the model alone: the exporter and the server may be scraped with
    different labels. SGLang's are computed as by the exporter; drafted tokens are
    unknown while drafts are trees, or K differs.
    """
    accepted, drafted, drafts = (
        f"sum by ({s.MODEL}) (increase(«vllm»spec_decode_num_{name}_total{{}}[5m]))"
        for name in ("accepted_tokens", "draft_tokens", "drafts")
    )
    calls, generated, requests = (
        f"sum by ({s.MODEL}) (increase(«sglang»{name}_total{{}}[5m]))"
        for name in ("spec_verify_calls", "generation_tokens", "num_requests")
    )
    steps = "min_over_time(«sglang»spec_num_steps{}[5m])"
    k = f"{steps} == max_over_time(«sglang»spec_num_draft_tokens{{}}[5m]) - 1"
    same_k = f"(min by ({s.MODEL}) ({k}) == max by ({s.MODEL}) ({k}))"
    sglang = f"({generated} - {requests} - {calls}) / ({calls} > 0)"
    ratios = s.labelled(
        "measure",
        acceptance=(
            f"({accepted} / ({drafted} > 0)\nor clamp_max({sglang} / {same_k}, 1))"
        ),
        length=f"(1 + ({accepted} / ({drafts} > 0)\nor {sglang}))",
    )
    return f"(\n{ratios}\n) unless on (model_name) {_last('info')}"


def _at_each_k() -> str:
    """Return a model's estimated speedup at each K that all its engines have: others
    are of other traffic.

    So the generated tokens are the same for every K: those of all engines with advice.
    """
    by = f"{s.MODEL}, {_K}"
    generated = "engine:vllm_specdec_generation_tokens:rate5m"
    estimates = _last("estimated_speedup_at")
    of_engines = _last("estimated_speedup_at", **{_K: "0"})
    made = f"sum by ({s.MODEL}) ({generated} and on ({s.ENGINE}) {of_engines})"
    # Of a pair of Prometheus servers each has the engine once.
    once = f"max by ({s.ENGINE}) ({generated})"
    spent = f"sum by ({by}) ({once} / on ({s.ENGINE}) group_right () {estimates})"
    return (
        f"{made}\n"
        f"/ on ({s.MODEL}) group_right () ({spent} > 0)\n"
        f"and on ({by}) (\n"
        f"  count by ({by}) ({estimates})\n"
        f"  == on ({s.MODEL}) group_left () count by ({s.MODEL}) ({of_engines})\n"
        ")"
    )


def _time_per_output_token() -> str:
    """Return the mean time per output token of requests that finished: over their
    tokens but the first, whose time is not in it; of SGLang, over requests.

    Tokens of a stream that its client closed count as generated, and vLLM counts no
    time of it.
    """

    def summed(counter: str) -> str:
        return f"sum by ({s.MODEL}) (increase({counter}{{}}[5m]))"

    tokens = "«vllm»request_generation_tokens"
    after_the_first = f"({summed(f'{tokens}_sum')} - {summed(f'{tokens}_count')} > 0)"
    of_sglang = "«sglang»request_time_per_output_token_seconds"
    return (
        f"{summed('«vllm»request_decode_time_seconds_sum')} / {after_the_first}\n"
        f"or {summed(f'{of_sglang}_sum')} / ({summed(f'{of_sglang}_count')} > 0)"
    )


def _by_setting() -> str:
    """Return the time per output token by what a change changes: K, release, and number
    of restarts.

    A label has the requests that run, as the nearest power of 2. Absent while engines
    differ, and for five minutes after a change, because the rates behind it are of five
    minutes.
    """
    highest, lowest = (f"model:vllm_specdec_{_K}:{end}" for end in ("max", "min"))
    (restarts, restarts_before), (release, release_before) = (
        [
            f"{of} (last_over_time(vllm_specdec_{name}[{s.LOOK_BACK}]{when}))"
            for when in ("", " offset 5m")
        ]
        for of, name in (
            (f"max by ({s.MODEL})", "engine_resets_total"),
            (f"count by ({s.MODEL}, upstream_version)", "info"),
        )
    )
    load = "2 ^ round(log2(clamp_min(model:vllm_specdec_requests_running:avg5m, 1)))"
    times = f"({_time_per_output_token()})"
    for label, value in (("was_k", highest), ("was_n", load), ("was_start", restarts)):
        # These labels come last in the alphabet: Prometheus 2.42 loses those behind
        # them.
        times += (
            f"\n* on ({s.MODEL}) group_left ({label}) count_values by ({s.MODEL}) "
            f'("{label}", {value})'
        )
    return (
        f"{times}\n* on ({s.MODEL}) group_left (upstream_version) (topk by "
        f"({s.MODEL}) (1, {release}) ^ 0)\n"
        f"and on ({s.MODEL}) ({highest} == {lowest} == {highest} offset 5m)\n"
        f"and on ({s.MODEL}) ({restarts} == {restarts_before})\nand on ({s.MODEL}, "
        f"upstream_version) {release_before}"
    )


def _tried() -> str:
    """Return the speed of each K that ran within a week, over that of the present K.

    At the present load and release. Four records are a quarter of an hour: fewer are
    those of a start.
    """
    same = f"{s.MODEL}, was_n, upstream_version"
    present = f"avg by ({same}) (avg_over_time({_SET}[1h]) and {_SET})"
    of_each_k = (
        f"avg by ({same}, was_k) "
        f"(avg_over_time({_SET}[7d]) and count_over_time({_SET}[7d]) > 3)"
    )
    speed = f"{present}\n/ on ({same}) group_right ()\n{of_each_k}"
    renamed = f'label_replace({speed}, "{_K}", "$1", "was_k", "(.+)")'
    return f"max by ({s.MODEL}, {_K}) ({renamed})"


def _advised_gain() -> str:
    """Return what the advised K would gain, by its basis: measured where it ran at this
    load, which may be a loss, and estimated elsewhere.
    """
    advised = f"floor(model:vllm_specdec_recommended_{_K}:median)"
    ran = f'on ({s.MODEL}, {_K}) count_values by ({s.MODEL}) ("{_K}", {advised})'
    return s.labelled(
        "basis",
        joined=f"or on ({s.MODEL})",
        measured=f"(max by ({s.MODEL}) ({s.TRIED} and {ran}) - 1)",
        estimated=f"clamp_min({s.ADVISED_SPEEDUP} - 1, 0)",
    )


def _before() -> str:
    """Return what a model is compared with, by the label `of`.

    One that loses is compared with the last day while it paid: otherwise a change of
    the last hours would be compared with itself. Another is compared with the day until
    six hours ago, a young one with three hours until half an hour ago. Of each it is
    the median, which the beginning of the change does not move.
    """
    pays = f"on ({s.MODEL}) {_OF_MODELS} == {StateCode.BENEFICIAL}"
    loses = f"on ({s.MODEL}) ({_OF_MODELS} <= {StateCode.MARGINAL})"
    medians = {}
    for name, record in _COMPARED.items():
        middle = "quantile_over_time(0.5, "
        medians[name] = (
            f"(({middle}({record} and {pays})[1d:5m]) and {loses})\n"
            f"or {middle}{record}[18h:15m] offset 6h)\n"
            f"or {middle}{record}[3h:5m] offset 30m))"
        )
    return s.labelled("of", **medians)


def _change_by_cause() -> str:
    """Return the change of the speedup against before, by its causes.

    The speedup is the length over the break-even length, times the share of output from
    drafts. Each cause takes of the change its share of the logarithm, so that the parts
    are the whole whichever came first. By drafts: the length. By the load, or another K
    where that is not what it was: the rest. A change below 3 % has no cause. Where the
    time per output token with the K of before says the opposite, that is measured, and
    is named.
    """

    def before(of: str) -> str:
        return f'sum without (of) ({_BEFORE}{{of="{of}"}})'

    speedup = _COMPARED["speedup"]
    change = f"({speedup} - {before('speedup')})"
    by_length = (
        f"ln({_COMPARED['length']} / {before('length')})\n"
        f"/ ln({speedup} / {before('speedup')})"
    )
    same_k = f"({_COMPARED['K']} == {before('K')})"
    by_the_rest = f"{change} * (1 - {by_length})"
    k_before = f'count_values by ({s.MODEL}) ("{_K}", {before("K")})'
    tried = f"{s.TRIED} and on ({s.MODEL}, {_K}) {k_before}"
    faster, slower = (
        f"({change} {change_is} 0 and on ({s.MODEL}) (({tried}) {speed_is} 1))"
        for change_is, speed_is in (("<", "<"), (">", ">"))
    )
    another_k = f"({by_the_rest} unless on ({s.MODEL}) {same_k})"
    causes = s.labelled(
        "cause",
        drafts=f"{change} * ({by_length})",
        load=f"({by_the_rest} and on ({s.MODEL}) {same_k})",
        load_or_K=(f"({another_k} unless on ({s.MODEL}) ({faster}\nor {slower}))"),
        faster=f"({another_k} and on ({s.MODEL}) {faster})",
        slower=f"({another_k} and on ({s.MODEL}) {slower})",
    )
    return (
        f"(\n{causes}\n)\nand on ({s.MODEL}) "
        f"(abs({speedup} / {before('speedup')} - 1) > 0.03)"
    )


def _saved() -> str:
    """Return how many engines' time speculation saves now, and the ends of the interval
    of that, by `bound`.

    An engine counts by the share of the time in which it has requests.
    """
    busy = f"clamp_max(max by ({s.ENGINE}) ({_last('requests_running')}), 1)"
    ends = (
        _last("speedup"),
        _last("speedup_interval", bound="low"),
        _last("speedup_interval", bound="high"),
    )
    times = " or ".join(f"max by ({s.ENGINE}, bound) ({end})" for end in ends)
    return (
        f"sum by ({s.MODEL}, bound) ((({times}) - 1) * on ({s.ENGINE}) group_left () "
        f"{busy})"
    )
