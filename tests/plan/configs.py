"""Configurations of published models, and their parameters as the checkpoints' indexes have them.

The Gemmas do not say that they tie their embeddings, and the one with images nests its language model and
leaves out what its class has by default.
"""

import json
from pathlib import Path
from typing import Any

_CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("configs.json").read_text("utf-8"))
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

#: By name: the configuration, the parameters published, and those that a token passes through (billions).
PUBLISHED: dict[str, tuple[dict[str, Any], int, float]] = {
    "Llama-3.1-8B": (_CONFIGS["LLAMA_8B"], 8_030_261_248, 8.03),
    "Llama-3.1-70B": (_CONFIGS["LLAMA_70B"], 70_553_706_496, 70.55),
    "Qwen2.5-7B": (_CONFIGS["QWEN_7B"], 7_615_616_512, 7.62),
    "Qwen2.5-0.5B": (_CONFIGS["QWEN_HALF_B"], 494_032_768, 0.49),
    "Qwen1.5-MoE-A2.7B": (_CONFIGS["QWEN15_MOE"], 14_315_784_192, 2.69),
    "Qwen3-30B-A3B": (_CONFIGS["QWEN3_30B_MOE"], 30_532_122_624, 3.35),
    "Mistral-7B-v0.1": (_CONFIGS["MISTRAL_7B"], 7_241_732_096, 7.24),
    "Mixtral-8x7B": (_CONFIGS["MIXTRAL"], 46_702_792_704, 12.88),
    "gemma-2b": (_CONFIGS["GEMMA_2B"], 2_506_172_416, 2.51),
    "gemma-2-9b": (_CONFIGS["GEMMA2_9B"], 9_241_705_984, 9.24),
    "gemma-3-12b (text)": (_CONFIGS["GEMMA3_12B"], 11_766_034_176, 11.77),
    "DeepSeek-V2-Lite": (_CONFIGS["DEEPSEEK_V2_LITE"], 15_706_484_224, 2.66),
    "DeepSeek-V3": (_CONFIGS["DEEPSEEK_V3"], 671_026_419_200, 37.55),
    "gpt-oss-20b": (_CONFIGS["GPT_OSS_20B"], 20_914_757_184, 4.19),
    "opt-125m": (_CONFIGS["OPT_125M"], 125_239_296, 0.125),
}
