"""Reads the CustomResourceDefinitions of the package, which are the files of `aischeduler/crds`.

Invariant: importing this module reads no file. The daemon never needs a definition, only the text for a missing one.
"""

from copy import deepcopy
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from aischeduler.model.names import GROUP

Json = dict[str, Any]

NOT_INSTALLED: Final = f"the definition of pools.{GROUP} is not installed: kubectl apply -f manifests/crds"
"""The message for an API server that has no Pool resource."""
QUEUES_NOT_INSTALLED: Final = NOT_INSTALLED.replace("pools", "queues", 1)
"""The message for an API server that has no Queue resource of ours."""


def pool_crd() -> Json:
    """Return the definition of Pools."""
    return crd("pools")


def pool_schema() -> Json:
    """Return the OpenAPI schema of a Pool; all callers share it and do not change it."""
    return schema("pools")


@cache
def schema(plural: str) -> Json:
    """Return the OpenAPI schema of a kind by its plural; all callers share it and do not change it."""
    (version,) = crd(plural)["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]
    return found


def crd(plural: str) -> Json:
    """Return the definition of a kind by its plural: `pools`, `queues`, `batchprocesses`; it may be changed."""
    return deepcopy(_read(plural))


@cache
def _read(plural: str) -> Json:
    text = (files("aischeduler") / "crds" / f"{plural}.yaml").read_text(encoding="utf-8")
    definition: Json = yaml.safe_load(text)
    return definition
