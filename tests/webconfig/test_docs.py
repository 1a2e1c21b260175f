"""What docs/operations.md shows of the web configuration is what happens."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from support.exporter import NO_SERVER, running_exporter
from support.programs import COMMAND, clean_environment, find_program
from support.prometheus import PrometheusServer
from vllm_specdec_exporter.commands.table import COMMANDS, PROGRAM
from vllm_specdec_exporter.listener.web_config import fields, server_tls
from vllm_specdec_exporter.listener.web_config.document import MAX_BCRYPT_COST, SECTIONS
from webconfig.https import address_of
from webconfig.pki import Pki

pytestmark = pytest.mark.full

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
TEXT = PAGE.partition("\n## TLS and passwords\n")[2].partition("\n## ")[0]
BLOCKS = dict(
    re.findall(
        r"^```yaml\n# (\S+?)(?::[^\n]*)?\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE
    )
)
CONFIGURATIONS = ("password", "certificates")


@pytest.fixture
def folder(tmp_path: Path) -> Pki:
    """The files that the examples name."""
    pki = Pki(tmp_path)
    client = pki.clients.issue("prometheus.monitoring.svc")
    names = {"server.pem": "tls.crt", "server.key": "tls.key"}
    names |= dict(zip(client, ("client.crt", "client.key"), strict=True))
    for name, copy in names.items():
        shutil.copy(tmp_path / name, tmp_path / copy)
    # In the examples, one CA issues all.
    (tmp_path / "ca.crt").write_bytes(
        pki.ca.file.read_bytes() + pki.clients.file.read_bytes()
    )
    (tmp_path / "password").write_text("example")
    for name in CONFIGURATIONS:
        (tmp_path / f"{name}.yml").write_text(BLOCKS[name])
    return pki


def test_all_examples_are_known() -> None:
    """No block of YAML goes untested."""
    assert set(BLOCKS) == {*CONFIGURATIONS, "prometheus.yml", "probe"}
    assert TEXT.count("```yaml") == len(BLOCKS)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_checks(folder: Pki, name: str) -> None:
    """Both checks that are named take every example."""
    command = (
        r"(?:`|^)(promtool check .*?|vllm-specdec-exporter --config.check .*?)(?:`|$)"
    )
    commands = re.findall(command, TEXT, re.MULTILINE)
    assert len(commands) == 2
    for shown in commands:
        program, *arguments = shlex.split(shown)
        ours = program == Path(COMMAND).name
        (folder.folder / "web-config.yml").write_text(BLOCKS[name])
        done = subprocess.run(
            [COMMAND if ours else find_program(program, "prometheus"), *arguments],
            cwd=folder.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, (shown, done.stdout + done.stderr)


def test_prometheus(folder: Pki) -> None:
    """The jobs that are shown scrape exporters with the configurations shown."""
    jobs = yaml.safe_load(BLOCKS["prometheus.yml"])
    for job in jobs["scrape_configs"]:
        for settings in (job.get("basic_auth", {}), job["tls_config"]):
            settings |= {
                key: str(folder.folder / name)
                for key, name in settings.items()
                if "file" in key
            }
    flag = "--web.config.file"
    with (
        running_exporter(
            *NO_SERVER, flag, str(folder.folder / "password.yml")
        ) as password,
        running_exporter(
            *NO_SERVER, flag, str(folder.folder / "certificates.yml")
        ) as certificates,
    ):
        for job, exporter in zip(
            jobs["scrape_configs"], (password, certificates), strict=True
        ):
            host, port = address_of(exporter)
            job["static_configs"] = [{"targets": [f"{host}:{port}"]}]
        with PrometheusServer(config=jobs) as prometheus:
            prometheus.wait_for("count(up == 1) == 2")


def test_the_probe() -> None:
    """It is one that Kubernetes takes, and its command exists."""
    probe = yaml.safe_load(BLOCKS["probe"])
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "x", "image": "x", **probe}]},
    }
    kubernetes_validate.validate(pod, "1.30", strict=True)
    command = probe["livenessProbe"]["exec"]["command"]

    assert command[0] == PROGRAM
    assert command[1] in COMMANDS


def test_the_table_names_every_setting() -> None:
    """What is known, and what is refused with a reason of its own, is in the table, and
    nothing else.
    """
    first_cells = " ".join(re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE))
    named = {name.rpartition(".")[2] for name in re.findall("`([^`]+)`", first_cells)}
    refused = {path.rpartition(".")[2] for path in fields._REFUSED}
    assert named == {*SECTIONS, *server_tls.SETTINGS, *fields._INLINE, *refused}
    assert f"cost 4 to {MAX_BCRYPT_COST}" in TEXT
