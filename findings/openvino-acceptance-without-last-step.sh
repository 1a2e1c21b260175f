#!/usr/bin/env bash
# OpenVINO GenAI's acceptance leaves out the last draft of each answer.
#
# Version:   openvino-genai 2026.4.1.0, generate with a draft model on a CPU. Its own description:
#            the draft tokens offered for validation, those accepted, and the one over the other.
# Expected:  Each draft that the main model verified counts.
# Behaviour: A step that ends an answer is not counted, neither what it drafted nor what it took of
#            that. If it was the only step with a draft, nothing was offered and the rate is not a
#            number, and the accepted tokens are counted in another way, from the tokens.
# Seen:      K = 4. An answer whose one draft was accepted: offered 0, accepted 4, rate nan. One
#            whose last draft of three was rejected: 8 of 8, and 8 of 12 were accepted. Nine answers
#            of the first kind beside one whose drafts were all rejected: 0 of 30, and 36 of 66 were
# Matters:   An answer ends in its first drafts where it is a label, a tool call or a yes: a draft
#            model that is right for those gets no credit, and the rest of the traffic decides. The
#            end of an answer that the draft model never foresees costs it nothing. The larger K,
#            the more of the drafts are last ones, so two K are compared over different drafts.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages openvino==2026.4.1 openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0
python_packages numpy==2.4.6
cat >"$work/acceptance.py" <<'END'
"""Prints what is counted of the drafts of some answers: python acceptance.py FOLDER."""

import sys
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai
from openvino import opset13 as op
from openvino.op.util import Variable, VariableInfo
from openvino_tokenizers.build_tokenizer import build_rwkv_tokenizer

VOCABULARY = 256
HEADS = 4
HEAD_SIZE = VOCABULARY // HEADS
K = 4
REJECTED_FROM = 100  # the draft model is wrong behind these tokens
STOP = 15  # and before this one


def named(node, name):
    node.output(0).set_names({name})
    return node


def parameter(name, shape, kind):
    return named(op.parameter(shape, kind, name=name), name)


def axes(*numbers):
    return op.constant(np.array(numbers))


def model(next_token):
    """One layer, whose attention weighs too little to change the next token."""
    ids = parameter("input_ids", [-1, -1], np.int64)
    mask = parameter("attention_mask", [-1, -1], np.int64)
    positions = parameter("position_ids", [-1, -1], np.int64)
    beams = parameter("beam_idx", [-1], np.int32)
    identity = np.eye(VOCABULARY, dtype=np.float32)
    nothing = op.constant(np.float32(0))
    used = op.multiply(op.convert(positions, "f32"), nothing)
    hidden = op.gather(op.constant(identity), ids, op.constant(0))
    hidden = op.add(hidden, op.unsqueeze(used, axes(2)))

    def heads():
        projected = op.matmul(hidden, op.constant(identity), False, True)
        split = op.reshape(projected, axes(0, 0, HEADS, HEAD_SIZE), True)
        return op.transpose(split, axes(0, 2, 1, 3))

    batch = op.gather(op.shape_of(ids), axes(0), op.constant(0))
    assigned = []
    cached = []
    for name in ("key", "value"):
        info = VariableInfo()
        info.data_shape = ov.PartialShape([-1, HEADS, -1, HEAD_SIZE])
        info.data_type = ov.Type.f32
        info.variable_id = f"past_key_values.0.{name}present.0.{name}"
        variable = Variable(info)
        empty = op.broadcast(nothing, op.concat([batch, axes(HEADS, 0, HEAD_SIZE)], 0))
        past = op.gather(op.read_value(empty, variable), beams, op.constant(0))
        cached.append(op.concat([past, heads()], -2))
        assigned.append(op.assign(cached[-1], variable))
    all_seen = op.unsqueeze(op.multiply(op.convert(mask, "f32"), nothing), axes(1, 2))
    attended = op.scaled_dot_product_attention(heads(), *cached, all_seen)
    attended = op.reshape(op.transpose(attended, axes(0, 2, 1, 3)), axes(0, 0, VOCABULARY), True)
    little = op.matmul(attended, op.constant(identity * np.float32(1e-6)), False, True)
    following = np.zeros((VOCABULARY, VOCABULARY), np.float32)
    for token in range(VOCABULARY):
        following[next_token(token) % VOCABULARY, token] = 1
    logits = op.matmul(op.add(hidden, little), op.constant(following), False, True)
    results = [op.result(named(logits, "logits"))]
    return ov.Model(results, assigned, [ids, mask, positions, beams], "model")


def save(folder, next_token):
    """Writes a model, and a tokenizer whose tokens are bytes."""
    folder.mkdir()
    ov.save_model(model(next_token), folder / "openvino_model.xml")
    vocabulary = [f"{token} {bytes([token])!r} 1" for token in range(1, VOCABULARY)]
    tokenizer, detokenizer = build_rwkv_tokenizer(vocabulary)
    ids = tokenizer.get_results()[0].input_value(0)
    ones = op.broadcast(op.constant(np.int64(1)), op.shape_of(ids))
    results = [op.result(ids), op.result(named(ones, "attention_mask"))]
    tokenizer = ov.Model(results, tokenizer.get_parameters(), "tokenizer")
    ov.save_model(tokenizer, folder / "openvino_tokenizer.xml")
    ov.save_model(detokenizer, folder / "openvino_detokenizer.xml")
    (folder / "config.json").write_text('{"model_type": "llama", "eos_token_id": 0}')


def drafted(token):
    wrong = token >= REJECTED_FROM or token + 1 == STOP
    return token + 2 if wrong else token + 1


def answer(prompt, tokens, stop=0):
    generation = openvino_genai.GenerationConfig()
    generation.max_new_tokens = tokens
    generation.num_assistant_tokens = K
    generation.stop_token_ids = {stop}
    return ov.Tensor(np.array([[1, 2, prompt]])), generation


def show(label, *answers):
    prompts, generations = zip(*answers)
    metrics = pipeline.generate(list(prompts), list(generations))[0].extended_perf_metrics
    steps = metrics.main_model_metrics.raw_metrics.m_batch_sizes
    print(
        f"{label}: tokens by step {' '.join(map(str, steps))};",
        f"offered {metrics.get_num_draft_tokens()},",
        f"accepted {metrics.get_num_accepted_tokens()},",
        f"rate {metrics.get_draft_acceptance_rate():.2f}",
    )


folder = Path(sys.argv[1])
save(folder / "main", lambda token: token + 1)
save(folder / "draft", drafted)
scheduler = openvino_genai.SchedulerConfig()
scheduler.cache_size = 1
draft = openvino_genai.draft_model(folder / "draft", "CPU")
pipeline = openvino_genai.ContinuousBatchingPipeline(
    folder / "main", scheduler, "CPU", {"draft_model": draft}
)
short = answer(prompt=20, tokens=6)
show("short", short)
show("stopped", answer(prompt=3, tokens=200, stop=STOP))
show("nine short and a rejected one", *[short] * 9, answer(prompt=REJECTED_FROM, tokens=11))
END
seen "$("$work/venv/bin/python" -W ignore "$work/acceptance.py" "$work" 2>"$work/acceptance.log")" <<'END'
short: tokens by step 1 5; offered 0, accepted 4, rate nan
stopped: tokens by step 1 5 5 1; offered 8, accepted 8, rate 1.00
nine short and a rejected one: tokens by step 10 46 1 1 1 1 1 1 1 1 1; offered 30, accepted 0, rate 0.00
END
