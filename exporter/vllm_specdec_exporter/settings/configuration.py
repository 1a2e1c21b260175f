"""The configuration of `serve`, from the checked values of its options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..config.files import read_file
from ..config.options import ConfigError, check_both_or_neither, flatten, gather
from ..config.thresholds import PUBLISHED, Thresholds
from ..config.values import Target, format_duration
from ..economics.cost import CostProfile, thresholds_for, thresholds_source
from ..economics.model import Model, from_architecture
from ..economics.model_names import parse_model, with_details
from ..economics.profiles import (
    BUILTIN,
    CostSettings,
    Hardware,
    ProfileError,
    fit,
    guess_method,
    meant_for,
    parse_profiles,
)
from ..economics.sizes import BF16
from ..economics.speculative_config import Speculation, Speculations
from ..listener.web_config import load_web_config
from ..measures.history import Window
from ..observe.settings import Settings
from ..per_request.grouping import RequestSettings
from ..upstream.connection import UpstreamConfig, UpstreamTLS
from ..upstream.discovery import MAX_SERVERS
from .option_table import OPTIONS
from .request_options import TapConfig, build_requests, build_tap

if TYPE_CHECKING:
    from ..economics.baseline import Baseline

MAX_SAMPLES = 20_000  # limit of samples kept per engine, for the longest window


class ServeConfig(Struct, frozen=True):
    """The checked configuration of `serve`."""

    upstream: UpstreamConfig  # the servers and how to connect to them
    poll_interval: float  # seconds between two polls of a server
    settings: Settings
    listen: tuple[str, int]  # host and port to serve on; an empty host is every address
    #: YAML file with TLS, users and headers for that address; empty for none.
    web_config_file: str
    process_metrics: bool  # whether `/metrics` also has `process_*` and `python_*`
    log_format: str  # ``logfmt`` or ``json``
    log_level: str  # ``debug``, ``info``, ``warning`` or ``error``
    log_interval: float  # seconds between two aggregate lines, 0 for none
    shown: Mapping[str, object]  # every setting without secrets, by the key in the file
    tap: TapConfig | None = None  # the configuration of the tap, if configured
    #: File with the token for pushes; empty if pushes are rejected.
    push_token_file: str = ""
    #: How single requests are grouped and judged.
    requests: RequestSettings = RequestSettings()
    #: Keys of the settings in the configuration file.
    in_file: frozenset[str] = frozenset()

    def require_file_of(self, old: ServeConfig) -> None:
        """Raise ConfigError if the file of `old` was emptied, or lost its servers: it
        may be half written.
        """
        if not old.in_file:
            return
        lost = "vllm.url" if "vllm.url" in old.in_file else "any setting"
        if not self.in_file or lost in old.in_file - self.in_file:
            raise ConfigError(
                f"--config.file: it no longer has {lost}; the old configuration "
                "stays until the next start"
            )


def doubts(config: ServeConfig) -> list[str]:
    """Return what a valid configuration may not mean as it is written."""
    settings = config.settings
    texts = []
    for each in (settings, *settings.by_name.values()):
        if each.speculation.unknown:
            unknown = ", ".join(each.speculation.unknown)
            texts.append(f"--spec.config has what is not known here: {unknown}")
    targets = config.upstream.targets
    several = len(targets) > 1 or any(target.discovery for target in targets)
    if several and settings.unspecified is not None:
        texts.append(
            "one --spec.config for several servers is applied only while they serve "
            'one model; give it by model, as in {"MODEL": {"method": "eagle3"}}'
        )
    return texts


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str = ""
) -> ServeConfig:
    """Read and check the configuration, with the YAML file at `file` if given;
    ConfigError if unusable.
    """
    document = read_file(file)
    config = build(*gather(OPTIONS, flags, environment, document, file=file))
    keys = {option.key for option in OPTIONS}
    return replace(config, in_file=frozenset(flatten(document, keys, file)))


def build(values: Mapping[str, Any], shown: Mapping[str, object]) -> ServeConfig:
    """Return the configuration from checked values; raise ConfigError if they
    contradict each other.
    """
    interval: float = values["poll.interval"]
    timeout: float = values["poll.timeout"] or min(4.0, 0.8 * interval)
    # A poll that is not over when the next one is due would skip it, time and again.
    if timeout >= interval:
        raise ConfigError(
            f"--poll.timeout {format_duration(timeout)}: must be less than "
            f"--poll.interval {format_duration(interval)}"
        )
    windows = _windows(values["window"], interval)
    judged = _judged(values["judgement.window"], windows)
    upstream = build_upstream(values, timeout, discovery=True)
    # Also checks certificates, so that --config.check finds what cannot be used.
    tap = build_tap(values, upstream.targets)
    _check_tap(tap, upstream)
    web_config_file = values["web.config.file"] or ""
    if web_config_file:
        load_web_config(web_config_file)  # checks the file
    return ServeConfig(
        upstream=upstream,
        poll_interval=interval,
        settings=build_settings(values, windows, judged=judged, slack=interval / 2),
        listen=values["web.listen-address"],
        web_config_file=web_config_file,
        process_metrics=not values["web.disable-exporter-metrics"],
        log_format=values["log.format"],
        log_level=values["log.level"],
        log_interval=values["log.interval"],
        shown=shown,
        tap=tap,
        push_token_file=values["push.bearer-token-file"] or "",
        requests=build_requests(values),
    )


def _check_tap(tap: TapConfig | None, upstream: UpstreamConfig) -> None:
    """Raise ConfigError for certificates that the tap could not use."""
    if tap is not None and tap.upstream.url.startswith("https:"):
        UpstreamTLS(upstream)


def build_upstream(
    values: Mapping[str, Any], timeout: float, *, discovery: bool = False
) -> UpstreamConfig:
    """Return how to connect to the servers, by the ``vllm.*`` options.

    `timeout` is the deadline of a whole poll, in seconds; with `discovery`, names may
    stand for servers. Raises ConfigError for no server, one given twice, a name without
    `discovery`, and as `build_tls`.
    """
    targets = _targets(values["vllm.url"])
    # A name may stand for many servers, and the other commands name each.
    for target in targets:
        if target.discovery and not discovery:
            raise ConfigError(
                f"--vllm.url {json.dumps(target.name)}: only serve finds servers "
                "by a name"
            )
    return replace(
        build_tls(values),
        targets=targets,
        server_name=values["vllm.server-name"] or "",
        bearer_token_file=values["vllm.bearer-token-file"] or "",
        headers=values["vllm.header"],
        timeout=timeout,
    )


def build_tls(values: Mapping[str, Any]) -> UpstreamConfig:
    """Return the settings of TLS only; raise ConfigError for a certificate without its
    key.
    """
    check_both_or_neither(values, "vllm.cert-file", "vllm.key-file")
    return UpstreamConfig(
        ca_file=values["vllm.ca-file"] or "",
        cert_file=values["vllm.cert-file"] or "",
        key_file=values["vllm.key-file"] or "",
        insecure_skip_verify=values["vllm.insecure-skip-verify"],
    )


def build_settings(
    values: Mapping[str, Any],
    windows: tuple[Window, ...],
    *,
    judged: Window,
    slack: float,
) -> Settings:
    """Return the settings of the pipeline; raise ConfigError for unusable files and
    contradictory values.
    """
    speculations: Speculations = values["spec.config"] or Speculations()
    build = partial(_build_settings, values, windows, judged=judged, slack=slack)
    common = build(speculations.common)
    if speculations.by_name:
        named = {name: build(each) for name, each in speculations.by_name.items()}
        return replace(common, by_name=named)
    if speculations.common.configured:
        return replace(common, unspecified=build(Speculation()))
    return common


def _build_settings(
    values: Mapping[str, Any],
    windows: tuple[Window, ...],
    speculation: Speculation,
    *,
    judged: Window,
    slack: float,
) -> Settings:
    profile, by_method = _profile(values, speculation)
    costs = CostSettings(
        profile, values["cost.draft-size-ratio"], _hardware(values), by_method
    )
    baseline = None
    if values["baseline.file"]:
        baseline = load_baseline(values["baseline.file"])
    return Settings(
        windows=windows,
        judged=judged,
        slack=slack,
        thresholds=_thresholds(values, fit(profile, costs.size_ratio), speculation),
        speculation=speculation,
        costs=costs,
        memory_ratio=memory_ratio(values),
        baseline=baseline,
        server_info=values["spec.server-info"],
    )


def _thresholds(
    values: Mapping[str, Any], profile: CostProfile, speculation: Speculation
) -> Thresholds:
    k = speculation.num_speculative_tokens
    method = guess_method(speculation.method, speculation.draft_model)
    configured = dict(values["threshold"])
    try:
        defaults = thresholds_for(profile, k, method)
        if configured.pop(PUBLISHED, None):
            defaults = Thresholds()
        return defaults.with_values(configured)
    except ValueError as error:
        reason = f"--threshold: {error}"
        if profile.cheap:
            source = thresholds_source(profile, k)
            reason += f"; thresholds that are not set come from the {source}"
        raise ConfigError(reason) from error


def _targets(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    names = [target.name for target in targets]
    if not names:
        raise ConfigError("--vllm.url: at least one server is needed")
    if len(names) > MAX_SERVERS:
        raise ConfigError(
            f"--vllm.url: {len(names)} servers, of at most {MAX_SERVERS}: run several "
            "exporters"
        )
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--vllm.url {json.dumps(name)}: given twice")
    return targets


def _windows(lengths: tuple[float, ...], interval: float) -> tuple[Window, ...]:
    windows = tuple(Window(seconds) for seconds in sorted(set(lengths)))
    if not windows:
        raise ConfigError("--window: at least one is needed")
    if windows[0].seconds < interval:
        raise ConfigError(
            f"--window {windows[0].name}: shorter than --poll.interval "
            f"{format_duration(interval)}, so it would never contain two samples"
        )
    if windows[-1].seconds / interval > MAX_SAMPLES:
        raise ConfigError(
            f"--window {windows[-1].name}: at --poll.interval "
            f"{format_duration(interval)} it needs more than {MAX_SAMPLES} samples; "
            "choose a shorter window or a longer interval"
        )
    return windows


def _judged(seconds: float | None, windows: tuple[Window, ...]) -> Window:
    if seconds is None:
        return windows[-1]
    if Window(seconds) not in windows:
        names = ", ".join(window.name for window in windows)
        raise ConfigError(
            f"--judgement.window {format_duration(seconds)}: not one of the "
            f"windows ({names})"
        )
    return Window(seconds)


def load_baseline(path: str, flag: str = "--baseline.file") -> Baseline:
    """Read and check a baseline file; raise ConfigError, with the flag that names it,
    if it is of no use.
    """
    # here: most sidecars have no such file
    from ..economics.baseline import BaselineError, decode

    try:
        return decode(Path(path).read_bytes())
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except BaselineError as error:
        reason = str(error)
    raise ConfigError(f"{flag} {json.dumps(path)}: {reason}")


def _profile(
    values: Mapping[str, Any], speculation: Speculation
) -> tuple[CostProfile, tuple[CostProfile, ...] | None]:
    """Return the profile by name; with `auto`, that of the method, from the file first,
    and the file's.
    """
    from_file: Mapping[str, CostProfile] = {}
    path = values["cost.file"]
    if path:
        try:
            from_file = parse_profiles(read_file(path, "--cost.file"))
        except ProfileError as error:
            raise ConfigError(f"--cost.file {json.dumps(path)}: {error}") from error
    name: str = values["cost.profile"]
    profiles = {**BUILTIN, **from_file}
    if name in profiles:
        return profiles[name], None
    if name != "auto":
        raise ConfigError(
            f"--cost.profile {json.dumps(name)}: no such profile; known: auto, "
            f"{', '.join(profiles)}"
        )
    custom = tuple(from_file.values())
    if len(custom) == 1 and not custom[0].methods:
        return custom[0], None
    # What the operator measured goes before what was published.
    method = guess_method(speculation.method, speculation.draft_model)
    return meant_for(method, from_file), custom


def _hardware(values: Mapping[str, Any]) -> Hardware | None:
    machine = values["cost.hardware"]
    model = values["cost.model"]
    if machine is None:
        if model is not None:
            raise ConfigError(
                f"--cost.model {json.dumps(model)}: --cost.hardware is missing, "
                "which it belongs to"
            )
        return None
    if values["cost.profile"] != "auto":
        raise ConfigError(
            f"--cost.hardware and --cost.profile {values['cost.profile']}: give "
            "one of the two"
        )
    name, gpus = machine
    return Hardware(name, gpus, None if model is None else _model(model))


def _model(text: str) -> Model:
    """Return the served model, from its name, its config.json or its size, and details
    after a comma.
    """
    size, _, details = text.partition(",")
    try:
        if size.lower().endswith(".json"):
            model = _read_config(size)
        else:
            model = parse_model(size)
        return with_details(model, details) if details else model
    except ValueError as error:
        raise ConfigError(f"--cost.model {json.dumps(text)}: {error}") from error


def _read_config(path: str) -> Model:
    # here: most sidecars have no such file
    from ..economics.architecture import read_architecture

    model = read_architecture(read_file(path, "--cost.model"))
    # A guess of the size would be wrong by a factor of two to four.
    if model.precision is None and model.quantized:
        raise ValueError(
            "its quantization is not known here; give the size instead, such as "
            "70B:int4"
        )
    return from_architecture(model, model.precision or BF16)


def memory_ratio(values: Mapping[str, Any]) -> float | None:
    """Return the memory of the draft model over that of the GPUs, if given; ConfigError
    if it exceeds 1.
    """
    check_both_or_neither(values, "cost.draft-memory", "cost.gpu-memory")
    draft = values["cost.draft-memory"]
    gpus = values["cost.gpu-memory"]
    if draft is None:
        return None
    if draft > gpus:
        raise ConfigError(
            f"--cost.draft-memory: {draft:g} bytes exceed the {gpus:g} of "
            "--cost.gpu-memory"
        )
    share: float = draft / gpus
    return share
