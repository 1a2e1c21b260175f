"""``python -m vllm_specdec_exporter`` is the command ``vllm-specdec-exporter``."""

import sys

from .cli import main

sys.exit(main())
