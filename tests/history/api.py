"""The HTTP API of a Prometheus that has scraped a world every 15 s, with increases that
are exact.
"""

import json
import math
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from history.world import BEGIN, STEP, World
from support.faulty_server import Behaviour, Peer, head
from vllm_specdec_exporter.engines import DIALECTS

_SCRAPE = 15
#: Places of the grid up to which no buckets are stored.
WITHOUT_BUCKETS = 100
_RUNNING = "vllm:num_requests_running"
_INFO = "vllm_specdec_info"
#: Fields by sample name.
_FIELDS = {
    name: field for dialect in DIALECTS for name, (field, _) in dialect.fields.items()
} | {
    f"vllm:request_time_per_output_token_seconds_{part}": f"tpot_{part}"
    for part in ("sum", "count")
}
_FIELDS["vllm:request_prefill_time_seconds_sum"] = "prefill_seconds"
_NAMES = {field: name for name, field in _FIELDS.items() if name.startswith("vllm:")}
_BUCKET = "vllm:request_time_per_output_token_seconds_bucket"
_LATENCIES = (
    "time_to_first_token",
    "request_time_per_output_token",
    "e2e_request_latency",
)
#: Names that may be absent: those of vLLM. A query of another one is a mistake.
_KNOWN = {
    f"vllm:{name}_seconds_{part}" for name in _LATENCIES for part in ("sum", "bucket")
}
_KNOWN.add("vllm:cache_config_info")
_KNOWN |= {*_FIELDS, *(name.rpartition("_")[0] for name in _FIELDS)}
#: Values at each step by name and labels: of counters their increases.
_Columns = dict[str, dict[tuple[tuple[str, str], ...], list[float]]]


def api(
    world: World, *, exporters: bool, native: Mapping[str, int] | None = None
) -> Behaviour:
    """Answer queries from a world of vLLM servers, if wanted with an exporter beside
    each.

    Up to the place in `native` of an instance, Prometheus 3 stores histograms as one
    series, without buckets.
    """
    past = _columns(world)
    if native:
        past["vllm:time_to_first_token_seconds"] = past["k"]
    for field in ("requests", "step_seconds", "tpot_sum", "tpot_count"):
        name, part = _NAMES[field].rsplit("_", 1)
        of_native = past[f"histogram_{part}(increase({name}"] = {}
        for labels, column in past[field].items():
            here = slice((native or {}).get(dict(labels)["instance"], 0))
            of_native[labels] = [math.nan] * len(column)
            of_native[labels][here], column[here] = (
                column[here],
                of_native[labels][here],
            )
    for labels, column in past["tpot_count"].items():
        for le, share in (("0.01", 0.5), ("+Inf", 1.0)):
            buckets = past[_BUCKET][*labels, ("le", le)] = [
                share * value for value in column
            ]
            buckets[:WITHOUT_BUCKETS] = [math.nan] * WITHOUT_BUCKETS
    if not exporters:
        past[_INFO] = {}

    async def run(peer: Peer) -> None:
        while True:
            request = urlsplit((await peer.read_request()).path)
            query = {
                name: values[0] for name, values in parse_qs(request.query).items()
            }
            if request.path.endswith("series"):
                data = _labels(past, query)
            else:
                data = _matrix(past, query)
            body = json.dumps({"status": "success", "data": data}).encode()
            await peer.send(
                head(Content_Type="application/json", Content_Length=len(body)) + body
            )

    return Behaviour(run, reads_request=False)


def _columns(world: World) -> _Columns:
    _, shown, grids = world.grids()
    past = {
        name: {labels: list(c) for labels, c in grid.items()}
        for name, grid in grids.items()
    }
    past |= {"k": {}, _BUCKET: {}, _INFO: {}}
    for replica, own_labels in shown.items():
        ks = past["k"][replica] = [
            math.nan if c is None else c.num_speculative_tokens or 0 for c in own_labels
        ]
        labels = {
            "target": f"http://{dict(replica)['instance']}",
            "upstream_version": "0.32.0",
        }
        for method, drafts in (("", False), ("eagle3", True)):
            key = tuple((dict(replica) | labels | {"method": method}).items())
            past[_INFO][key] = [
                math.nan if math.isnan(k) or (k > 0) != drafts else 1.0 for k in ks
            ]
    return past


def _labels(past: _Columns, query: dict[str, str]) -> list[dict[str, str]]:
    if _INFO in query["match[]"]:
        names = (_INFO,)
    else:
        names = (_RUNNING, "vllm:time_to_first_token_seconds")
    fields = ((name, "k" if name == _RUNNING else name) for name in names)
    return [
        {"__name__": name, **dict(labels)}
        for name, field in fields
        for labels in past.get(field, {})
    ]


def _matrix(past: _Columns, query: dict[str, str]) -> dict[str, object]:
    expression = query["query"]
    (start, end, step) = (float(query[name]) for name in ("start", "end", "step"))
    times = [start + index * step for index in range(round((end - start) / step) + 1)]
    points = [(time, round((time - BEGIN) / STEP)) for time in times]
    if "count_over_time" in expression:
        number = max(len(column) for column in past["k"].values())
        begins = (
            (time, index, max(0, index + 1 - round(step / STEP)))
            for time, index in points
        )
        counts = (
            (time, len(range(begin, min(number, index + 1))))
            for time, index, begin in begins
        )
        values = [
            (time, f"{count * STEP / _SCRAPE:g}") for time, count in counts if count
        ]
        return {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
    columns = re.findall(r'(histogram_\w+\(increase\()?{__name__="(.*?)"', expression)
    assert _KNOWN.issuperset(name for _, name in columns)
    names = [function + _FIELDS.get(name, name) for function, name in columns] or [
        _INFO
    ]
    series = {}
    for name in ["k"] if "count by" in expression else names:
        for labels, column in past.get(name, {}).items():
            both = zip(series.get(labels, column), column, strict=True)
            series[labels] = [
                right if math.isnan(left) else left for left, right in both
            ]
    result = []
    for labels, column in series.items():
        names_shown = (
            (time, column[index]) for time, index in points if 0 <= index < len(column)
        )
        values = [
            (time, f"{value:.12g}")
            for time, value in names_shown
            if not math.isnan(value)
        ]
        result.append({"metric": dict(labels), "values": values})
    return {"resultType": "matrix", "result": result}
