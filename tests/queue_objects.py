"""Builders of tenant queues, as a user writes them in YAML, and the definition of Volcano's."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.gang_objects import AMOUNTS, definition
from tests.objects import NOTHING, POOL_API, Json

NO_CARDS: Mapping[str, int] = {}


def queue_object(name: str = "q", **spec: Any) -> Json:
    """Return a Queue; `spec` has its fields with their API names."""
    return {"apiVersion": POOL_API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def volcano_queue_object(
    name: str = "q",
    *,
    cards: Mapping[str, int] = NO_CARDS,
    annotations: Mapping[str, str] = NOTHING,
    state: str = "",
    **spec: Any,
) -> Json:
    """Return a queue of Volcano as its webhook leaves it; `cards` become the annotation, `state` that of the status."""
    quota = {"volcano.sh/card.quota": msgspec.json.encode(dict(cards)).decode()} if cards else {}
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "annotations": {**quota, **annotations}},
        "spec": {"weight": 1, "reclaimable": True, "parent": "root", **spec},
    }
    return {**queue, "status": {"state": state}} if state else queue


def volcano_queue_crd() -> Json:
    """Return the definition of Volcano's queues."""
    text, number = {"type": "string"}, {"type": "integer", "format": "int32"}
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {
        "capability": AMOUNTS,
        "deserved": AMOUNTS,
        "guarantee": kept,
        "affinity": kept,
        "extendClusters": {"type": "array", "items": kept},
        "weight": number,
        "priority": number,
        "reclaimable": {"type": "boolean"},
        **dict.fromkeys(("parent", "type", "dequeueStrategy"), text),
    }
    status = {"state": text, "allocated": AMOUNTS, **dict.fromkeys(("pending", "running", "inqueue"), number)}
    return definition("scheduling.volcano.sh", "v1beta1", ("Queue", "queues"), spec, status, scope="Cluster")
