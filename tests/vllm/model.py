"""Make the models that the real-vLLM tests serve: random ones, always with the same
seed.

Imported inside the vLLM venv, by `launch.py`. `target` is a Llama of two small layers,
`deep` one of ten larger layers, of which all but the first say little; `draft-<noise>`
and `deep-draft-<noise>` (its first layer alone) are drafters with noise on each weight
matrix.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20260801
# Noise as a share of a matrix's standard deviation: about 0.6 of the drafts' tokens are
# accepted, and with the larger one 0.4.
DRAFT_NOISE = (0.02, 0.08)
# A good drafter of the deep target, and a poor one.
DEEP_DRAFT_NOISE = (0.0, 0.4)
DEEP_LAYERS = 10
# What the layers behind the first add, as a share of what they would.
DEEP_SHARE = 0.005
VOCABULARY = 2000
CONTEXT = 2048
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"

#: What the tokenizer is trained on.
TRAINING_TEXT = Path(__file__).with_name("training_text.txt").read_text("utf-8")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer, which can encode any text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT.splitlines(keepends=True), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
    )


def make_llama(
    tokenizer: PreTrainedTokenizerFast,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
) -> LlamaForCausalLM:
    """Make a random model.

    Its head size is 64, because vLLM's CPU attention has no smaller kernel.
    """
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=CONTEXT,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def make_deep(
    tokenizer: PreTrainedTokenizerFast,
) -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """Make the deep target, and its first layer as a model of its own."""
    target = make_llama(tokenizer, 512, intermediate=1536, layers=DEEP_LAYERS, heads=8)
    with torch.no_grad():
        for layer in target.model.layers[1:]:
            layer.self_attn.o_proj.weight.mul_(DEEP_SHARE)
            layer.mlp.down_proj.weight.mul_(DEEP_SHARE)
    draft = LlamaForCausalLM(
        LlamaConfig(**{**target.config.to_dict(), "num_hidden_layers": 1})
    )
    draft = draft.to(torch.bfloat16)
    wanted = draft.state_dict()
    draft.load_state_dict(
        {name: value for name, value in target.state_dict().items() if name in wanted}
    )
    return target, draft


def make_draft(target: LlamaForCausalLM, noise: float) -> LlamaForCausalLM:
    """Copy the target and add noise, a share of its own spread, to each weight
    matrix.
    """
    draft = LlamaForCausalLM(target.config).to(torch.bfloat16)
    draft.load_state_dict(target.state_dict())
    generator = torch.Generator().manual_seed(SEED + 1)
    with torch.no_grad():
        for weight in draft.parameters():
            if weight.dim() < 2:
                continue
            exact = weight.float()
            change = torch.randn(exact.shape, generator=generator) * exact.std() * noise
            weight.copy_((exact + change).to(weight.dtype))
    return draft


def make_models(directory: Path) -> None:
    """Write the target and each draft model, with the tokenizer, under the
    directory.
    """
    tokenizer = make_tokenizer()
    target = make_llama(tokenizer, 256, intermediate=512, layers=2, heads=4)
    named = {"target": target}
    named |= {f"draft-{noise}": make_draft(target, noise) for noise in DRAFT_NOISE}
    deep, first_layer = make_deep(tokenizer)
    named["deep"] = deep
    named |= {
        f"deep-draft-{noise}": make_draft(first_layer, noise)
        for noise in DEEP_DRAFT_NOISE
    }
    for name, model in named.items():
        model.save_pretrained(directory / name)
        tokenizer.save_pretrained(directory / name)
