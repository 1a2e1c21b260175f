"""`act`: a receiver of Alertmanager's webhook, that turns decision alerts into something useful and safe.

* `payload`: from the body of a webhook to alerts.
* `decision`: what an alert asks for, or why it is not acted upon.
* `ledger`: what was acted upon, and when the next may be.
* `commandline`: from a decision to an argument list.
* `event`: what became of an alert, as a line of JSON.
* `statefile`: the ledger across restarts.
* `process`: one command, run to the end of its time at most.
* `runner`: the queue, and what is done about it, one at a time.
* `authorization`: who may send alerts.
* `server`, `metrics`: the HTTP side.
* `arguments`, `command`: `vllm-specdec-exporter act`.
"""

from .decision import ActEvent, Action, Decision, EventKind, Key, Model, Note, Request, decide, read
from .ledger import Ledger, Limits, State, StateError
from .payload import Alert, PayloadError, decode
from .process import CommandOutcome, Executor, Invocation, Kubernetes, Script, Workload, annotations_of
from .runner import Runner, Settings

__all__ = [
    "ActEvent",
    "Action",
    "Alert",
    "CommandOutcome",
    "Decision",
    "EventKind",
    "Executor",
    "Invocation",
    "Key",
    "Kubernetes",
    "Ledger",
    "Limits",
    "Model",
    "Note",
    "PayloadError",
    "Request",
    "Runner",
    "Script",
    "Settings",
    "State",
    "StateError",
    "Workload",
    "annotations_of",
    "decide",
    "decode",
    "read",
]
