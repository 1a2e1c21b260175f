"""`act`: a receiver of Alertmanager's webhook that runs a command for each decision alert.

* `decision`: from a webhook payload to the decision of each alert, or the reason why nothing is done.
* `history`: past actions, the limits on further ones, and the state file.
* `process`: the command of a decision, and how it is run.
* `runner`: the queue; one command at a time.
* `server`: the HTTP endpoints and the bearer token.
* `arguments`, `command`: `vllm-specdec-exporter act`.
"""

from .decision import Decision, decide, decode
from .process import Script

__all__ = ["Decision", "Script", "decide", "decode"]
