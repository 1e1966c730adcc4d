"""The spec of a TrainingJob of PaddlePaddle in the names of our own, and our sentences in its names.

Invariants:
- A field keeps its value, whatever that is: the reader of our own names judges it.
- A zero or an empty text, which PaddlePaddle takes for "not said", is left out where it takes it so.

Source: TrainingJob of paddlepaddle.org/v1, with its spellings (VolumeMounts, min-instance, ports_num).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aischeduler.model.elastic import ALLOWED_INSTANCES_KEY, FREEZING_WINDOW_KEY, PRIORITY_LEVEL_KEY
from aischeduler.operator.owner import Json

PADDLE_GROUP: Final = "paddlepaddle.org"
"""The group in which PaddlePaddle defines TrainingJob."""
PADDLE_VERSION: Final = "v1"

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "image": ("image",),
    "hostNetwork": ("host_network",),
    "port": ("port",),
    "portsNum": ("ports_num",),
    "portsNumForSparse": ("ports_num_for_sparse",),
    "faultTolerant": ("fault_tolerant",),
    "passes": ("passes",),
    "volumes": ("volumes", "Volumes"),
    "volumeMounts": ("VolumeMounts", "volumeMounts"),
    "nodeSelector": ("NodeSelector", "nodeSelector"),
    "minInstances": ("min-instance",),
    "maxInstances": ("max-instance",),
}
"""Our name of each field, and the spellings of PaddlePaddle; all others have the same name."""
COMPONENTS: Final = ("master", "pserver", "trainer")
DEFAULTED: Final = ("image", "port", "portsNum", "portsNumForSparse", "passes")
"""The fields of the spec whose zero stands for the default."""
ANNOTATED: Final[Mapping[str, str]] = {
    "priorityLevel": PRIORITY_LEVEL_KEY,
    "freezingWindow": FREEZING_WINDOW_KEY,
    "trainer.allowedInstances": ALLOWED_INSTANCES_KEY,
}
"""What its spec has no field for, and the annotations of the TrainingJob that say it."""

_OURS: Final[Mapping[str, str]] = {spelling: name for name, found in FIELDS.items() for spelling in found}
_THEIRS: Final[Mapping[str, str]] = {
    **{f"spec.{name}": f"metadata.annotations[{key}]" for name, key in ANNOTATED.items()},
    **{name: found[0] for name, found in FIELDS.items()},
}
_WORDS: Final = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in _THEIRS))


def is_paddle(api_version: str) -> bool:
    """Return whether a TrainingJob is of PaddlePaddle's group."""
    return api_version.startswith(PADDLE_GROUP + "/")


def in_our_names(spec: Any, metadata: Json) -> Any:
    """Return a spec with the names of ours, and with the terms that annotations say."""
    if not isinstance(spec, dict):
        return spec
    named = {_OURS.get(name, name): _component(value) if name in COMPONENTS else value for name, value in spec.items()}
    said = {name: value for name, value in named.items() if value or name not in DEFAULTED}
    for path, text in _annotated(metadata):
        component, _, name = path.rpartition(".")
        place = said.get(component) if component else said
        if isinstance(place, dict):
            place[name] = _numbers(text) if name == "allowedInstances" else text
    return said


def in_paddle_names(text: str) -> str:
    """Return a sentence with the names of PaddlePaddle."""
    return _WORDS.sub(lambda found: _THEIRS[found[0]], text)


def _component(value: Any) -> Any:
    """Return master, pserver or trainer in our names; other values have none of these keys."""
    return {_OURS.get(name, name): inner for name, inner in value.items()} if isinstance(value, dict) else value


def _annotated(metadata: Json) -> Iterator[tuple[str, str]]:
    annotations = metadata.get("annotations") or {}
    for path, key in ANNOTATED.items():
        if key in annotations:
            yield path, annotations[key]


def _numbers(text: str) -> Any:
    """Return the numbers of a text such as "2,4,8"; a text that has others as it is."""
    parts = [part.strip() for part in text.split(",")]
    return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else text
