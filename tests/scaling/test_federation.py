"""A Prometheus with the rules in each cluster, and one above that federates: the samples, run for real."""

from collections.abc import Iterator

import pytest

from scaling.clusters import (
    EXPORTER,
    MODEL,
    RATIO,
    SILENT,
    of_cluster,
    sample,
    two_clusters,
    with_rules,
)
from support.alertmanager import AlertmanagerServer
from support.programs import eventually
from support.prometheus import PrometheusServer, Series

pytestmark = pytest.mark.full

#: The clusters, the good one first.
NAMES = ("eu-1", "us-1")

#: The Prometheus of the good cluster, that of the bad one, the central one, and everybody's Alertmanager.
Run = tuple[PrometheusServer, PrometheusServer, PrometheusServer, AlertmanagerServer]


def labels(found: dict[Series, float], *names: str) -> set[tuple[str | None, ...]]:
    """Return the values of some labels of all series, None where a series has no such label."""
    return {tuple(dict(series).get(name) for name in names) for series in found}


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Simulators, exporters, a Prometheus with the rules for each, the central one, and Alertmanager."""
    with two_clusters() as (good, bad), AlertmanagerServer(SILENT) as alertmanager:
        flags = ("--rules.alert.for-grace-period=10s",)
        here, files = with_rules(of_cluster("federation/cluster.yml", good), alertmanager.address)
        there, _ = with_rules(of_cluster("federation/cluster.yml", bad), alertmanager.address)
        with (
            PrometheusServer(config=here, files=files, flags=flags) as first,
            PrometheusServer(config=there, files=files, flags=flags) as second,
        ):
            config = sample("federation/central.yml")
            (job,) = config["scrape_configs"]
            (static,) = job["static_configs"]
            static["targets"] = [one.address for one in (first, second)]
            with PrometheusServer(config=config) as central:
                central.wait_for(f"count({RATIO}) == 2", 90)
                yield first, second, central, alertmanager


def test_federated_series_have_their_cluster_and_nothing_of_the_scrape(run: Run) -> None:
    """No job and no instance is added; those of a pod's series are the exporter's, as in its cluster."""
    _, _, central, _ = run
    names = "cluster", "namespace", "model_name", "job", "instance"
    models = {(name, "chat", MODEL, None, None) for name in NAMES}
    # A window is five seconds here: on a busy machine a cluster may have no ratio for a moment.
    eventually(lambda: labels(central.query(RATIO), *names) == models)
    of_pods = "cluster", "job", "instance", "exported_instance"
    instances = {(name, "vllm-specdec-exporter", EXPORTER, None) for name in NAMES}
    ratio = "instance:vllm_specdec_acceptance:ratio_rate5m"
    eventually(lambda: labels(central.query(ratio), *of_pods) == instances)


def test_models_of_one_name_are_not_mixed_up(run: Run) -> None:
    """Each cluster's ratio is the one that its own Prometheus recorded, once the windows are full."""
    first, second, central, _ = run

    def agree() -> bool:
        good, bad = (central.value(f'{RATIO}{{cluster="{name}"}}') for name in NAMES)
        own = pytest.approx(first.value(RATIO), rel=0.1), pytest.approx(second.value(RATIO), abs=0.02)
        return (good, bad) == own and good > 0.6 > 0.1 > bad

    eventually(agree, 90)


def test_only_what_was_recorded_of_models_and_pods_is_federated_and_all_of_it(run: Run) -> None:
    """No raw series, no engine's, no `up` of an exporter: rules there would judge a part of the truth."""
    first, _, central, _ = run
    assert first.value('count({__name__=~"vllm_specdec_.+|vllm:.+|engine:.+"})') > 100
    assert central.value('count({__name__=~"vllm_specdec_.+|vllm:.+|engine:.+"})') is None
    assert labels(central.query("up"), "job") == {("vllm-specdec-federation",)}
    every = 'count by (__name__) ({__name__=~"(model|instance):.+"})'
    recorded = labels(first.query(every), "__name__")
    assert len(recorded) > 50
    eventually(lambda: recorded <= labels(central.query(every), "__name__"))


def test_alerts_of_a_cluster_name_it_in_alertmanager_and_above(run: Run) -> None:
    """The notification has the external label, and so has the federated ALERTS; the good cluster has none.

    The link cannot have it: its template is filled in before the label is there.
    """
    _, second, central, alertmanager = run
    firing = 'ALERTS{alertname="VLLMSpecDecodeCollapsed", alertstate="firing"}'
    assert labels(second.wait_for(firing, 90), "cluster") == {(None,)}
    assert labels(central.wait_for(firing), "cluster") == {("us-1",)}
    told = eventually(lambda: alertmanager.alerts('alertname="VLLMSpecDecodeCollapsed"'))
    assert {alert["labels"]["cluster"] for alert in told} == {"us-1"}
    assert not any("var-cluster" in alert["annotations"]["dashboard_url"] for alert in told)
