"""From a decision to an argument list."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from act.webhook import alert_document, alert_of, calls_in, decision_of, recorder
from vllm_specdec_exporter.commands.act.decision import Decision, EventKind, NoAction, decide
from vllm_specdec_exporter.commands.act.process import Invocation, Kubernetes, Script, Workload, run

WORKLOAD = Workload("prod", "deployment", "vllm-llama")
PREFIX = "vllm-specdec-exporter/"


def argv_of(executor: Kubernetes | Script, decision: Decision) -> tuple[str, ...]:
    """What is run for a decision."""
    found = executor.invocation(decision)
    assert isinstance(found, Invocation), found
    return found.argv


class TestScript:
    def test_the_arguments_are_those_of_the_contract(self) -> None:
        """Always five, in this order; what is absent is empty."""
        full = decision_of("decrease_k", namespace="prod", cluster="eu")
        assert argv_of(Script("/act"), full) == ("/act", "decrease_k", "llama", "2", "prod", "eu")
        bare = decision_of("switch_method", model_name="")
        assert argv_of(Script("/act"), bare) == ("/act", "switch_method", "", "", "", "")

    def test_the_whole_alert_comes_on_standard_input(self) -> None:
        """Also what is no argument."""
        found = Script("/act").invocation(decision_of("disable"))
        assert isinstance(found, Invocation)
        assert json.loads(found.stdin) == alert_document("disable")

    def test_the_environment_is_a_short_list(self) -> None:
        """Nothing else of the receiver's environment gets to the program."""
        invocation = Invocation(("/act",))
        given = {"PATH": "/bin", "HOME": "/", "LANG": "C", "LD_PRELOAD": "x", "TOKEN": "x", "KUBECONFIG": "x"}
        assert invocation.environment({**given, "VLLM_SPECDEC_URL": "u"}) == {
            "PATH": "/bin",
            "HOME": "/",
            "LANG": "C",
            "VLLM_SPECDEC_URL": "u",
        }

    @given(*[st.text(max_size=40)] * 3)
    def test_values_are_whole_arguments_or_nothing_is_run(
        self, model: str, namespace: str, cluster: str
    ) -> None:
        """No value is split, quoted or changed; none can be an option, or steer a terminal."""
        try:
            found = decide(alert_of("measure", model_name=model, namespace=namespace, cluster=cluster))
        except ValueError:  # lone surrogates are no JSON
            return
        values = (model, namespace, cluster)
        harmless = all(value.isprintable() and not value.startswith("-") for value in values)
        assert isinstance(found, Decision) == harmless
        if isinstance(found, Decision):
            assert argv_of(Script("/act"), found) == ("/act", "measure", model, "", namespace, cluster)

    async def test_a_shell_would_have_been_delighted(self, tmp_path: Path) -> None:
        """Metacharacters reach a real program verbatim, as one argument."""
        program = recorder(tmp_path / "program", tmp_path / "record")
        hostile = "$(touch owned) `touch owned`; touch owned | & > owned '\" \\ * ~ #é {a,b} %s !!"
        found = Script(str(program)).invocation(decision_of("disable", model_name=hostile))
        assert isinstance(found, Invocation)

        ending = await run(found, 20.0, {"PATH": "/usr/bin:/bin"})

        assert ending.problem == ""
        (call,) = calls_in(tmp_path / "record")
        assert call["argv"] == ["disable", hostile, "0", "", ""]
        assert json.loads(call["stdin"])["labels"]["model_name"] == hostile
        assert {path.name for path in sorted(tmp_path.glob("*"))} == {"program", "record"}  # noqa: ASYNC240
        assert not Path("owned").exists()  # noqa: ASYNC240


class TestKubernetes:
    executor = Kubernetes({"llama": WORKLOAD})

    def test_a_k_of_an_earlier_decision_is_taken_away(self) -> None:
        """An action without a K must not stand beside the K of another."""
        assert f"{PREFIX}recommended-num-speculative-tokens-" in argv_of(
            self.executor, decision_of("switch_method")
        )

    def test_restart_patches_the_pod_template(self) -> None:
        """That is what makes a rollout."""
        argv = argv_of(Kubernetes({"llama": WORKLOAD}, "east", restart=True), decision_of("disable"))
        assert argv[:-1] == (
            *("kubectl", "--context", "east", "--namespace", "prod"),
            *("patch", "deployment/vllm-llama", "--type", "strategic", "--patch"),
        )
        annotations = {
            f"{PREFIX}action": "disable",
            f"{PREFIX}recommended-num-speculative-tokens": "0",
            f"{PREFIX}alert": "VLLMSpecDecodeDisable",
            f"{PREFIX}decided-at": "2026-03-01T12:00:00.500000Z",
        }
        assert json.loads(argv[-1]) == {"spec": {"template": {"metadata": {"annotations": annotations}}}}

    def test_what_names_no_k_restarts_nothing(self) -> None:
        """There is nothing to roll out."""
        executor = Kubernetes({"llama": WORKLOAD}, restart=True)
        for action in ("measure", "switch_method"):
            assert "annotate" in argv_of(executor, decision_of(action))

    def test_what_is_of_no_known_workload_says_why(self) -> None:
        """A model that none is given for, or another deployment of the same model."""
        for labels, kind, why in (
            ({"model_name": "ours"}, EventKind.SKIPPED, "no --kubernetes.workload is given for model 'ours'"),
            ({"namespace": "a"}, EventKind.REJECTED, "namespace 'a', and --kubernetes.workload has prod"),
        ):
            found = self.executor.invocation(decision_of("disable", **labels))
            assert isinstance(found, NoAction)
            assert (found.kind, why in found.why) == (kind, True), found

    @given(st.text(min_size=1, max_size=40))
    def test_values_never_leave_their_annotation(self, alertname: str) -> None:
        """Whatever the alert's name, kubectl gets the same number of arguments, each behind its own name."""
        try:
            found = decide(alert_of("disable", alertname=alertname))
        except ValueError:  # lone surrogates are no JSON
            return
        if isinstance(found, Decision):
            argv = argv_of(self.executor, found)
            assert len(argv) == 10
            assert argv[8] == f"{PREFIX}alert={alertname}"
