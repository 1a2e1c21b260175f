"""Which worlds there are, and what happens in each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dashboards.worlds_baseline import record
from dashboards.worlds_pods import Pod, Server, spec_config
from dashboards.worlds_requests import KINDS, UNRECORDED, RequestTraffic
from dashboards.worlds_traffic import Phase, Traffic, traffic
from support.calibrated import calibrated_file

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
QWEN = "Qwen/Qwen2.5-Coder-32B-Instruct"
GLM = "zai-org/GLM-4.5-Air"
CHAT = {"cluster": "eu-1", "namespace": "chat"}
HOURS = 2.0


@dataclass(frozen=True)
class WorldSpec:
    """What happens in a world."""

    #: Makes its pods; it gets a folder for files that an exporter needs
    pods: Callable[[Path], tuple[Pod, ...]]
    hours: float = HOURS  # how long
    every: int = 2  # ticks between two scrapes
    evaluated: int = 2  # scrapes between two evaluations of the rules
    exporter: bool = True  # whether Prometheus knows of exporters at all


def pod(
    number: int,
    *story: Phase,
    model: str = LLAMA,
    labels: Mapping[str, str] = CHAT,
    name: str = "llama",
    engines: int = 1,
    config: str = spec_config(),
    **more: Any,
) -> Pod:
    """Return a pod with one server, whose engines all go through the same story."""
    host = f"10.0.{sum(name.encode()) % 250}.{number + 1}"
    stories = {(model, str(engine)): story for engine in range(engines)}
    labels_of_pod = {**labels, "pod": f"{name}-{number}"} if labels else {}
    flags = {**({"spec.config": config} if config else {}), **more.pop("flags", {})}
    flags.setdefault("cost.file", calibrated_file())
    return Pod(
        f"{host}:9850", (Server(f"{host}:8000", stories),), labels_of_pod, flags, **more
    )


def all_the_time(of: Traffic, hours: float = HOURS) -> Phase:
    """Return hours of the same."""
    return Phase(60 * hours, of)


def then(usual: Traffic, *phases: Phase, hours: float = HOURS) -> tuple[Phase, ...]:
    """Return a story that ends with these phases, with what was before in front."""
    minutes = 60 * hours - sum(phase.minutes for phase in phases)
    return (Phase(minutes, usual), *phases)


GOOD = traffic(acceptance=(0.80, 0.75, 0.70))
BUSY = traffic(acceptance=(0.85, 0.80, 0.72), clients=40)
OUTLIER = traffic(acceptance=(0.5, 0.35, 0.2), clients=2)
QUIET = traffic(acceptance=(0.78, 0.70, 0.64), clients=2)
DRAFT_MODEL = spec_config("draft_model", 3, model="meta-llama/Llama-3.1-8B-Instruct")
ZONES = {
    "disable_acceptance_ratio": 0.50,
    "break_even_acceptance_ratio": 0.65,
    "poor_request_acceptance_ratio": 0.50,
}
#: So few drafts that minutes are not enough to judge by.
RARE = traffic(acceptance=(0.80, 0.75, 0.70), clients=1, draft_probability=0.001)
NGRAM = spec_config("ngram", 16, prompt_lookup_max=4)


def _healthy(_: Path) -> tuple[Pod, ...]:
    """Two models; replicas of very different traffic and acceptance."""
    code = {"cluster": "eu-1", "namespace": "code"}
    return (
        pod(0, all_the_time(BUSY)),
        pod(1, all_the_time(GOOD)),
        pod(2, all_the_time(QUIET)),
        pod(
            0,
            all_the_time(traffic(k=4, acceptance=(0.82, 0.78, 0.75, 0.72), clients=10)),
            model=QWEN,
            labels=code,
            name="coder",
            engines=2,
            config=spec_config(k=4),
        ),
    )


def _harmful(_: Path) -> tuple[Pod, ...]:
    heavy = traffic(
        k=5,
        acceptance=(0.35, 0.25, 0.2, 0.2, 0.2),
        clients=220,
        kv_cache_tokens=400_000,
    )
    story = then(
        traffic(k=5, acceptance=(0.8, 0.75, 0.7, 0.6, 0.5)), Phase(75, heavy), hours=1.5
    )
    return tuple(pod(n, *story, config=spec_config(k=5)) for n in range(2))


def _states(_: Path) -> tuple[Pod, ...]:
    """A model for each state; n-gram drafts of any length, with requests whose answers
    have no records.
    """
    stories: dict[str, tuple[Phase, ...]] = {
        "off": (Phase(60, traffic("off", 0)),),
        "bypassed": then(GOOD, Phase(40, traffic("bypass")), hours=1),
        "idle": then(GOOD, Phase(30, traffic("idle")), hours=1),
        "warming-up": then(GOOD, Phase(7, None), Phase(6, RARE, restart=True), hours=1),
        "server-down": then(GOOD, Phase(15, None), hours=1),
        "exporter-down": (all_the_time(GOOD, 1),),
        "loses": (all_the_time(traffic(acceptance=(0.18, 0.08, 0.05), clients=30), 1),),
        # By the rules a loss, so probable is it; the interval includes 1.
        "leans": (all_the_time(traffic(acceptance=(0.18, 0.08, 0.05), clients=30), 1),),
    }
    more: dict[str, dict[str, Any]] = {
        "off": {"config": ""},
        "exporter-down": {"scraped": lambda minutes: minutes > 20},
        "leans": {"flags": {"cost.file": None}},
    }
    return (
        *(
            pod(n, *story, model=f"org/{name}", name=name, **more.get(name, {}))
            for n, (name, story) in enumerate(stories.items())
        ),
        pod(
            9,
            all_the_time(variable_drafts(), 1),
            model=QWEN,
            name="coder",
            config=NGRAM,
            requests=RequestTraffic(answers=UNRECORDED),
        ),
    )


def _eleven(_: Path) -> tuple[Pod, ...]:
    """Eleven models of four teams; one loses, one gains little, one is idle."""
    marginal = traffic(acceptance=(0.55, 0.5, 0.45))
    loses = traffic(acceptance=(0.18, 0.08, 0.05), clients=30)
    idle = then(GOOD, Phase(20, traffic("idle")), hours=0.75)
    stories: dict[str, tuple[Phase, ...]] = {
        LLAMA: (all_the_time(BUSY, 0.75),),
        "meta-llama/Llama-3.1-8B-Instruct": (all_the_time(marginal, 0.75),),
        QWEN: (all_the_time(GOOD, 0.75),),
        "Qwen/Qwen3-235B-A22B": (all_the_time(BUSY, 0.75),),
        GLM: (all_the_time(GOOD, 0.75),),
        "deepseek-ai/DeepSeek-V3.1": (all_the_time(BUSY, 0.75),),
        "mistralai/Mistral-Small-3.2-24B": (all_the_time(loses, 0.75),),
        "google/gemma-3-27b-it": (all_the_time(GOOD, 0.75),),
        "openai/gpt-oss-120b": (all_the_time(BUSY, 0.75),),
        "moonshotai/Kimi-K2-Instruct": (all_the_time(GOOD, 0.75),),
        "microsoft/phi-4": idle,
    }
    teams = ("chat", "code", "search", "batch")
    return tuple(
        pod(
            number,
            *story,
            model=model,
            name="model",
            labels={**CHAT, "namespace": teams[number % len(teams)]},
        )
        for number, (model, story) in enumerate(stories.items())
    )


def _idle(_: Path) -> tuple[Pod, ...]:
    """Before, one of two pods accepted less than half of what the other did."""
    idle = Phase(30, traffic("idle"))
    return tuple(
        pod(n, *then(each, idle, hours=1)) for n, each in enumerate((GOOD, OUTLIER))
    )


def _no_exporter(_: Path) -> tuple[Pod, ...]:
    """A model of vLLM, and two of SGLang with another K, acceptance and load each."""
    draft_of_5 = traffic(k=5, acceptance=(0.6, 0.5, 0.4, 0.3, 0.2), clients=6)
    return (
        pod(0, all_the_time(GOOD, 0.5)),
        pod(0, all_the_time(of("sglang"), 0.5), model=QWEN, name="coder"),
        pod(0, all_the_time(of("sglang", draft_of_5), 0.5), model=GLM, name="glm"),
    )


def of(dialect: str, like: Traffic = GOOD) -> Traffic:
    """Return such traffic of another server than vLLM."""
    return replace(like, dialect=dialect)


def _engines(_: Path) -> tuple[Pod, ...]:
    """A model of vLLM and SGLang together, and one of llama.cpp, which does not print
    its name.
    """
    return (
        pod(0, all_the_time(GOOD, 0.75)),
        pod(0, all_the_time(of("sglang"), 0.75), name="sglang"),
        pod(0, all_the_time(of("llamacpp"), 0.75), model="", name="llamacpp"),
    )


def _changes(_: Path) -> tuple[Pod, ...]:
    """K from 3 to 5 and on to 2, with restarts; the second pod restarts with the same
    K.

    Of the other model, pods with K=3 give way to others with K=5, which load for two
    minutes.
    """
    deep = traffic(k=5, acceptance=(0.8, 0.75, 0.7, 0.5, 0.4))
    shallow = traffic(k=2, acceptance=(0.8, 0.75))
    changed = (
        Phase(20, GOOD),
        Phase(2, None),
        Phase(18, deep, True),
        Phase(1, None),
        Phase(19, shallow, True),
    )
    restarted = (Phase(30, GOOD), Phase(1, None), Phase(29, GOOD, True))
    unsaid = '{"method": "eagle3"}'
    old = {"model": QWEN, "there": lambda minutes: minutes > 26}
    young = {
        "model": QWEN,
        "there": lambda minutes: minutes < 29,
        "config": spec_config(k=5),
    }
    return (
        pod(0, *changed, config=unsaid),
        pod(1, *restarted, config=unsaid),
        pod(0, all_the_time(GOOD, 1), name="coder-6d5f8b7c9", **old),
        pod(0, Phase(33, None), Phase(27, deep, True), name="coder-7c9bd4f4d", **young),
    )


#: How often n-gram drafts of 1 to 16 tokens are found.
LENGTHS = (0.3, 0.2, 0.1, 0.1, *(0.02,) * 8, *(0.035,) * 4)


def variable_drafts(clients: int = 24) -> Traffic:
    """Return traffic with such drafts."""
    return traffic(
        "variable_drafts",
        16,
        acceptance=(0.9,),
        position_decay=1.0,
        draft_length_weights=LENGTHS,
        clients=clients,
    )


def _loads(_: Path) -> tuple[Pod, ...]:
    """The same acceptance at rising load, five minutes each; a schedule with the K that
    is drafted.
    """
    schedule = spec_config(num_speculative_tokens_per_batch_size=[[1, 512, 3]])
    steps = [
        Phase(
            5,
            traffic(
                acceptance=(0.6, 0.5, 0.4), clients=clients, kv_cache_tokens=600_000
            ),
        )
        for clients in (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)
    ]
    return (pod(0, *steps, config=schedule),)


def _requests(_: Path) -> tuple[Pod, ...]:
    """Exporters that observe requests, see `worlds_requests`; long drafts, and drafts
    of any length.

    Requests are judged by the zones of a draft model: by those of cheap drafters nearly
    nothing loses.
    """
    zones = {"threshold": [f"{name}={value}" for name, value in ZONES.items()]}
    deep = traffic(k=16, acceptance=(0.92,), position_decay=1.0, clients=3)
    return (
        pod(
            0,
            all_the_time(deep, 1),
            config=spec_config("suffix", 16),
            flags=zones,
            requests=RequestTraffic(),
        ),
        pod(
            0,
            all_the_time(variable_drafts(clients=3), 1),
            model=QWEN,
            name="coder",
            config=NGRAM,
            flags=zones,
            requests=RequestTraffic(KINDS[:5], LENGTHS, seed=2),
        ),
    )


def _unlabelled(_: Path) -> tuple[Pod, ...]:
    """Nothing but job and instance; a server of one exporter and two of another."""
    two = tuple(
        Server(
            f"10.1.0.{n}:8000",
            {(LLAMA, "0"): (all_the_time(GOOD if n == 2 else QUIET, 0.75),)},
        )
        for n in (2, 3)
    )
    return (
        pod(0, all_the_time(BUSY, 0.75), labels={}),
        Pod("10.1.0.1:9850", two, {}, {"spec.config": spec_config()}),
    )


def _two_clusters(_: Path) -> tuple[Pod, ...]:
    """The same model and namespace, pod names and all, in two clusters; one loses."""
    bad = traffic(acceptance=(0.18, 0.08, 0.05), clients=30)
    return (
        pod(0, all_the_time(GOOD)),
        pod(0, all_the_time(bad), labels={**CHAT, "cluster": "us-2"}),
    )


def _measured(folder: Path) -> tuple[Pod, ...]:
    """With a baseline, and with what the draft model's memory costs."""
    flags = {
        "baseline.file": str(record(folder / "baseline.json", LLAMA)),
        "cost.draft-memory": "16GB",
        "cost.gpu-memory": "160GB",
    }
    return tuple(
        pod(n, all_the_time(GOOD), config=DRAFT_MODEL, flags=flags) for n in range(2)
    )


def _day(_: Path) -> tuple[Pod, ...]:
    """Some hours of the day before, and today, when acceptance has fallen an hour and a
    half ago.
    """
    worse = traffic(acceptance=(0.55, 0.5, 0.45))
    today = (Phase(60, GOOD), Phase(90, worse))
    return (pod(0, Phase(150, GOOD), Phase(1260, None), *today),)


WORLDS: dict[str, WorldSpec] = {
    "healthy": WorldSpec(_healthy),
    "harmful": WorldSpec(_harmful, hours=1.5),
    "states": WorldSpec(_states, hours=1),
    "eleven": WorldSpec(_eleven, hours=0.75, every=4, evaluated=2),
    "idle": WorldSpec(_idle, hours=1),
    "exporter-down": WorldSpec(
        lambda _: (
            pod(0, all_the_time(GOOD, 1), scraped=lambda minutes: minutes > 20),
        ),
        hours=1,
    ),
    "no-exporter": WorldSpec(_no_exporter, hours=0.5, exporter=False),
    "engines": WorldSpec(_engines, hours=0.75),
    "first-minute": WorldSpec(
        lambda _: (pod(0, Phase(1, GOOD)),), hours=1 / 60, evaluated=1
    ),
    "changes": WorldSpec(_changes, hours=1),
    "loads": WorldSpec(_loads, hours=5 / 6),
    "requests": WorldSpec(_requests, hours=1),
    "unlabelled": WorldSpec(_unlabelled, hours=0.75),
    "two-clusters": WorldSpec(_two_clusters),
    "measured": WorldSpec(_measured),
    "day": WorldSpec(_day, hours=26, every=4, evaluated=4),
}
