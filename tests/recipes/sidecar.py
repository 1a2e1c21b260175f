"""The sidecar: as the chart's named template renders it, in a pod, and as the exporter
reads its flags.
"""

import functools
from typing import Any

from helm.api_rules import containers_of
from injection import rendered_policy
from recipes.stacks import Pod
from support import published
from vllm_specdec_exporter.config.options import Parser
from vllm_specdec_exporter.serve import command as serve
from vllm_specdec_exporter.settings import configuration as config

#: The name of the container.
NAME = "specdec-exporter"
#: The chart's values that give the recipes' image.
IMAGE = {"image": published.IMAGE}


@functools.cache
def chart_sidecar() -> dict[str, Any]:
    """Return the container that the chart's named template renders: what every recipe
    must equal.
    """
    return rendered_policy.sidecar(IMAGE)


def sidecar_of(pod: Pod) -> dict[str, Any]:
    """Return the pod's one sidecar."""
    (container,) = [
        container for container in containers_of(pod.spec) if container["name"] == NAME
    ]
    return container


def loaded(args: list[str]) -> config.ServeConfig:
    """Return the settings that the exporter reads from a container's args."""
    parser = Parser("serve", "")
    serve.add_arguments(parser)
    return config.load(vars(parser.parse_args(args)), {})
