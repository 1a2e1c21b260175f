"""docker-compose.yml as Compose reads it: with the values of .env, and with
profiles.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import jsonschema

from support.repository import ROOT, Json, data_of, text_of

COMPOSE = ROOT / "docker-compose.yml"
DOTENV = ROOT / ".env"

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")


def schema_errors(schema: str, document: Any) -> list[str]:
    """Return what a published schema refuses in a document, by its name among those of
    check-jsonschema.
    """
    schemas = resources.files("check_jsonschema") / "builtin_schemas/vendor"
    rules = data_of(schemas / f"{schema}.json")
    validator = jsonschema.validators.validator_for(rules)(rules)
    return [error.message for error in validator.iter_errors(document)]


def dotenv() -> dict[str, str]:
    """Return what .env sets; single quotes keep a value as it is."""
    variables = {}
    # Compose expands and splits what is not quoted, so that must be plain.
    for line in text_of(DOTENV).splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition("=")
            quoted = re.fullmatch(r"'([^']*)'|[^\s\"'#$]*", value)
            assert quoted, f"{name} needs single quotes"
            variables[name] = value.strip("'")
    return variables


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a document with the variables filled in; KeyError if one is needed and not
    set.
    """
    if isinstance(value, dict):
        return {key: interpolated(inside, variables) for key, inside in value.items()}
    if isinstance(value, list):
        return [interpolated(inside, variables) for inside in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        text = variables.get(match["name"], "")
        if text:
            return text
        if match["kind"] == "-":
            return match["text"]
        raise KeyError(match["name"], match["text"])

    return _VARIABLE.sub(fill, value)


@cache
def raw() -> Json:
    """Return the document without anything filled in; merged keys are merged."""
    return dict(data_of(COMPOSE))


def document(**variables: str) -> Json:
    """Return the document with the values of .env, or others."""
    return dict(interpolated(raw(), dotenv() | variables))


def services(*profiles: str, **variables: str) -> dict[str, Json]:
    """Return the services that are on: those without a profile, and those of these or
    of COMPOSE_PROFILES.
    """
    # Profiles on the command line take the place of COMPOSE_PROFILES.
    active = set(profiles) or set(dotenv()["COMPOSE_PROFILES"].split(","))
    services = document(**variables)["services"]
    return {
        name: service
        for name, service in services.items()
        if not service.get("profiles") or active & set(service["profiles"])
    }


def names(name: str, service: Json) -> set[str]:
    """Return the host names that a service answers to."""
    networks = service.get("networks") or {}
    return {name, *networks.get("default", {}).get("aliases", ())}


def mounts(service: Json) -> dict[str, str]:
    """Return what a service mounts, by path in the container: a path of the repository,
    or a volume.
    """
    mounts = {}
    for volume in service.get("volumes", ()):
        source, target, *_ = volume.split(":")
        mounts[target] = source
    return mounts


def value_of(service: Json, flag: str) -> str:
    """Return the value of a flag that a service is started with."""
    (value,) = (
        word.partition("=")[2]
        for word in service["command"]
        if word.startswith(f"{flag}=")
    )
    return value
