#!/usr/bin/env bash
# Under load LMDeploy counts a fraction of its drafts, and all of the tokens that they gave.
#
# Version:   lmdeploy 0.18.0, PyTorch engine, its lmdeploy:spec_decode_* counters.
#            Their descriptions: the number of drafts, of draft tokens and of accepted tokens.
# Expected:  Each verified draft is counted, so no draft gives more than K + 1 tokens.
# Behaviour: A step replaces the answer of the step before it, if nobody fetched that: the tokens
#            are all there, the draft is that of the last step. One request after the other may
#            fetch, with a pause of a millisecond, so all of them fetch less than a thousand times
#            a second, and a batch of 64 has 3200 steps of 20 ms a second.
# Seen:      K = 3, two tokens accepted of each draft. One request: nearly all drafts are counted,
#            3 tokens a draft. 64 at once: all tokens, less than half of the drafts, above 4 tokens
#            a draft; the mean length is 3 in both
# Matters:   Drafts a second do not grow with the load, and accepted tokens over generated ones
#            fall from 2 of 3 to 1 of 5: the server seems to stop drafting just when it is busy,
#            and each step drafts. A comparison by the length and the rate of acceptance holds.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps lmdeploy==0.18.0
python_packages prometheus-client==0.26.0 numpy==2.3.5 pydantic==2.14.4
cat >"$work/drafts.py" <<'END'
"""Prints how many of the drafts and tokens of an engine are counted, by its requests."""

import asyncio
import logging
import sys
import types
from importlib.metadata import distribution
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np

# The model and its cache need torch; the engine's loop and the statistics do not.
packages = ("metrics", "pytorch", "pytorch.engine", "pytorch.disagg", "pytorch.disagg.conn")
for name in ("lmdeploy", *(f"lmdeploy.{package}" for package in packages)):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("lmdeploy").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in ("torch", "torch.profiler", "transformers", "psutil", "lmdeploy.tokenizer"):
    sys.modules[name] = MagicMock()
sys.modules["torch.profiler"].record_function = lambda name: lambda function: function
for name in (
    "adapter.adapter",
    "config",
    "disagg.conn.engine_conn",
    "disagg.messages",
    "engine.config_builder",
    "engine.engine_checker",
    "engine.executor",
    "kv_connector",
    "messages",
    "multimodal.data_type",
    "paging",
    "strategies",
):
    sys.modules[f"lmdeploy.pytorch.{name}"] = MagicMock()

from lmdeploy.messages import EngineRole, ResponseType
from lmdeploy.metrics.loggers import PrometheusStatLogger
from lmdeploy.metrics.metrics_processor import metrics_processor
from lmdeploy.metrics.stats import IterationStats, RequestStats, SpeculativeDecodingStats
from lmdeploy.pytorch.engine.engine_instance import EngineInstance
from lmdeploy.pytorch.engine.engine_loop import EngineLoop, EngineLoopConfig, MessageStatus
from lmdeploy.pytorch.engine.request import RequestManager, RequestType
from prometheus_client import REGISTRY

logging.disable(logging.INFO)  # its loggers write to standard output
K = 3
STEPS = 50
STEP_SECONDS = 0.02
FIRST = [1, -1, -1, -1]  # the prefill gives one token
VERIFIED = [1, 1, 1, -1]  # two accepted tokens and the model's own


def message(request):
    return SimpleNamespace(
        session_id=request.data["session_id"],
        resp=request.resp,
        status=MessageStatus.RUNNING,
        generated_ids=np.empty(0, int),
        sampling_param=SimpleNamespace(num_logprobs=0),
        engine_events=[],
        cached_tokens=0,
        num_token_ids=0,
        **dict.fromkeys(("resp_cache", "routed_experts", "return_ce_loss", "return_logits")),
    )


class Sequences:
    """Appends what a step gave."""

    def update_running(self, running, batched_outputs, model_inputs, delta):
        for one, tokens in zip(running, batched_outputs.next_token_ids):
            one.generated_ids = np.concatenate([one.generated_ids, tokens[tokens > -1]])
            if batched_outputs.last:
                one.status = MessageStatus.STOPPED


def engine_of(requests):
    """The engine's side: all requests in one batch, with a step every 20 ms."""
    manager = RequestManager()
    running = []

    def add(added):
        running.extend(message(request) for request in added)

    def end(ended):
        for request in ended:
            request.resp.type = ResponseType.SUCCESS
            manager.response(request.resp)

    manager.bind_func(RequestType.ADD_SESSION, lambda added: None)
    manager.bind_func(RequestType.ADD_MESSAGE, add)
    manager.bind_func(RequestType.END_SESSION, end)
    config = EngineLoopConfig(EngineRole.Hybrid, num_speculative_tokens=K, enable_metrics=True)
    mocks = (MagicMock(), MagicMock(), MagicMock())
    loop = EngineLoop(manager, *mocks, Sequences(), MagicMock(), config)

    async def steps():
        while len(running) < requests:
            await asyncio.sleep(STEP_SECONDS)
        for number in range(STEPS + 1):
            await asyncio.sleep(STEP_SECONDS)
            output = SimpleNamespace(
                next_token_ids=np.array([VERIFIED if number else FIRST] * requests),
                new_token_timestamp=1000.0 + STEP_SECONDS * number,
                last=number == STEPS,
                **dict.fromkeys(("logprobs", "logits", "ce_loss", "all_routed_experts")),
                **dict.fromkeys(("stop_pos", "kv_connector_output")),
            )
            prefill = SimpleNamespace(is_decoding=False, logits_indices=None, is_chunk=False)
            loop._finish_forward_output(output, running, None if number else prefill, None)

    async def run():
        await asyncio.gather(loop.preprocess_loop(), loop.send_response_loop(), steps())

    manager.set_main_loop_func(run)
    settings = SimpleNamespace(enable_transfer_obj_ref=False)
    return SimpleNamespace(req_manager=manager, max_session_len=4096, engine_config=settings)


async def fetch(engine, session):
    """The server's side: fetches one answer, and queues what it gets for the metrics."""
    stats = RequestStats(arrival_time=999.0, prompt_tokens=1)
    names = ("migration_request", "with_cache", "preserve_cache")
    generation = SimpleNamespace(**dict.fromkeys(names))
    stream = EngineInstance(engine).async_stream_infer(session, [1], gen_config=generation)
    async for output in stream:
        drafts = SpeculativeDecodingStats(K)
        metrics_processor.queue_update((output, stats, IterationStats(), drafts))


async def serve(requests):
    label = f"{requests} at once"
    metrics_processor.stat_loggers = [PrometheusStatLogger(label, max_model_len=4096)]
    metrics_processor.start_metrics_handler(enable_metrics=True)
    engine = engine_of(requests)
    await asyncio.gather(*(fetch(engine, session) for session in range(requests)))
    await metrics_processor.metrics_queue.join()
    engine.req_manager.stop_loop()
    await metrics_processor.stop_metrics_handler()

    def published(name):
        labels = {"model_name": label, "engine": "0"}
        return REGISTRY.get_sample_value(f"lmdeploy:{name}", labels)

    drafts = published("spec_decode_num_drafts_total")
    tokens = published("generation_tokens_total")
    share = drafts / (requests * STEPS)
    counted = "nearly all" if share > 0.9 else "less than half" if share < 0.5 else f"{share:.0%}"
    real = requests * (len(FIRST[:1]) + STEPS * len(VERIFIED[:3]))
    print(
        f"{label}: {tokens / real:.0%} of the tokens, {counted} of the drafts,",
        f"{'above' if tokens / drafts > K + 1 else 'below'} {K + 1} tokens a draft,",
        f"mean length {published('spec_decode_mean_accept_length'):.0f}",
    )


for requests in (1, 64):
    asyncio.run(serve(requests))
END
seen "$("$work/venv/bin/python" -W ignore "$work/drafts.py" 2>"$work/drafts.log")" <<'END'
1 at once: 100% of the tokens, nearly all of the drafts, below 4 tokens a draft, mean length 3
64 at once: 100% of the tokens, less than half of the drafts, above 4 tokens a draft, mean length 3
END
