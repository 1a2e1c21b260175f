"""Configurations of published models, and their parameters as the checkpoints' indexes
have them.

The Gemmas do not say that they tie their embeddings, and the one with images nests its
language model and leaves out what its class has by default.
"""

import json
from pathlib import Path
from typing import Any

_DATA = json.loads(Path(__file__).with_name("configs.json").read_text("utf-8"))
_CONFIGS: dict[str, dict[str, Any]] = _DATA["configs"]
LLAMA_8B = _CONFIGS["LLAMA_8B"]
LLAMA_70B = _CONFIGS["LLAMA_70B"]
QWEN_7B = _CONFIGS["QWEN_7B"]
QWEN_HALF_B = _CONFIGS["QWEN_HALF_B"]
MISTRAL_7B = _CONFIGS["MISTRAL_7B"]
MIXTRAL = _CONFIGS["MIXTRAL"]
GEMMA2_9B = _CONFIGS["GEMMA2_9B"]
GEMMA3_12B = _CONFIGS["GEMMA3_12B"]
QWEN3_30B_MOE = _CONFIGS["QWEN3_30B_MOE"]
DEEPSEEK_V3 = _CONFIGS["DEEPSEEK_V3"]
OPT_125M = _CONFIGS["OPT_125M"]
QWEN35_27B = _CONFIGS["QWEN35_27B"]
GEMMA4_31B = _CONFIGS["GEMMA4_31B"]

#: An EAGLE-3 head for Llama-3.1-8B as its own file describes it.
EAGLE3 = {
    **LLAMA_8B,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32_000,
}
#: The same as Speculators writes it.
SPECULATORS = {
    "architectures": ["Eagle3DraftModel"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 32_000,
    "target_hidden_size": None,
    "torch_dtype": "bfloat16",
    "transformer_layer_config": {
        name: value
        for name, value in {**LLAMA_8B, "num_hidden_layers": 1}.items()
        if name not in ("architectures", "torch_dtype")
    },
}

#: By name: the configuration, the parameters published, and those that a token passes
#: through (billions).
PUBLISHED: dict[str, tuple[dict[str, Any], int, float]] = {
    name: (_CONFIGS[config], parameters, active)
    for name, (config, parameters, active) in _DATA["published"].items()
}
