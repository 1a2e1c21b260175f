"""Advice on ground that is known: no K before the context is, and the K that were
really tried before any curve.
"""

from economics.servers import Server, expected, settings_for, survival_of
from support.messages import name_of, values_of
from vllm_specdec_exporter.economics.cost import Basis, CostProfile
from vllm_specdec_exporter.economics.hardware import parse_machine
from vllm_specdec_exporter.economics.model_names import parse_model
from vllm_specdec_exporter.economics.profiles import (
    Hardware,
    for_method,
    hardware_profile,
)
from vllm_specdec_exporter.judgement.advice import Action

#: Of DFlash2 with K=5 (vLLM recipes 839).
DFLASH = (0.67, 0.644, 0.645, 0.644, 0.645)


def h20() -> CostProfile:
    hardware = Hardware(*parse_machine("h20"), parse_model("27B:fp8"))
    return hardware_profile(for_method("dflash"), hardware, method="dflash")


class TestContext:
    """Ten requests of 65,000 tokens at a time, of which 28 begin in five minutes."""

    @staticmethod
    def server(*, requests: float = 0.0) -> Server:
        settings = settings_for(h20(), "dflash", 5, Basis.CALIBRATED)
        server = Server(settings, 5, 10.0, requests=requests)
        server.prompt_tokens = requests * 64_000
        server.poll()
        return server

    @staticmethod
    def serve(server: Server, *, requests: float = 0.0) -> Action:
        server.add(543, expected(survival_of(DFLASH), 543))
        server.requests += requests
        server.prompt_tokens += requests * 64_000
        return server.poll(after=5).advice.action

    def test_no_k_is_advised_before_the_context_is_known(self) -> None:
        server = self.server()
        for requests in range(9):
            assert self.serve(server, requests=requests > 0) is (
                Action.INSUFFICIENT_DATA
            )
            reason = server.latest.advice.reason
        assert name_of(values_of(reason)["reason"]) == "unadvisable.context_unknown"
        self.serve(server, requests=2)
        self.serve(server)
        assert name_of(server.latest.advice.reason) != "no_advice.unadvisable"

    def test_it_is_that_of_the_servers_life_until_the_window_shows_it(self) -> None:
        """The exporter was started later than the server."""
        server = self.server(requests=58)
        self.serve(server)
        (state,) = server.states.values()
        assert state.context_tokens == 64_000

    def test_it_is_remembered_where_few_requests_begin(self) -> None:
        server = self.server()
        self.serve(server, requests=20)
        for _ in range(130):
            self.serve(server)
        (state,) = server.states.values()
        assert state.context_tokens > 64_000
        assert server.latest.advice.action is not Action.INSUFFICIENT_DATA
