"""Convert the annotations that decide where a pod may run: card types, their policy, and the machine group.

Invariants:
- A malformed annotation never raises: the problem names it, and the pod is held.
- An empty annotation counts as absent.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.kube.decode.api_types import PodAnnotations
from aischeduler.model.card_types import TYPES_MAX, TypeNameError, type_name
from aischeduler.model.names import GPU_TYPE_KEY, GPU_TYPE_POLICY_KEY, MACHINE_GROUP_KEY
from aischeduler.model.selectors import is_label_value
from aischeduler.model.user_text import quoted

SEPARATOR: Final = "|"
_PATH: Final = "metadata.annotations[{}]: "


class TypePolicy(StrEnum):
    """Whether a pod waits for the types that it names."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"


class PlacementWishes(Struct, frozen=True):
    """What the annotations say; `problem` names the first one that is malformed, else it is empty."""

    gpu_types: tuple[str, ...] = ()
    gpu_type_required: bool = True
    machine_group: str = ""
    problem: str = ""


NO_WISHES: Final = PlacementWishes()


def wishes_key(annotations: PodAnnotations | None) -> str:
    """Return the annotations as one text, for a cache; empty where there are none, as in almost every pod."""
    if annotations is None or not (annotations.gpu_type or annotations.gpu_type_policy or annotations.machine_group):
        return ""
    return ascii((annotations.gpu_type, annotations.gpu_type_policy, annotations.machine_group))


def read_wishes(annotations: PodAnnotations | None) -> PlacementWishes:
    """Return what the annotations of a pod say."""
    if annotations is None:
        return NO_WISHES
    types, problem = _types(annotations.gpu_type or "")
    policy, group = annotations.gpu_type_policy or TypePolicy.REQUIRED, annotations.machine_group or ""
    if policy not in tuple(TypePolicy):
        problem = problem or f"{_PATH.format(GPU_TYPE_POLICY_KEY)}{quoted(policy)} is not Required or Preferred"
    if not is_label_value(group):
        wrong = f"{quoted(group)} is not the name of a machine group, which is a label value"
        problem = problem or _PATH.format(MACHINE_GROUP_KEY) + wrong
        group = ""
    return PlacementWishes(types, policy != TypePolicy.PREFERRED or not types, group, problem)


def _types(text: str) -> tuple[tuple[str, ...], str]:
    """Return the full names of the types in a list such as A100|V100, each once, and what is wrong with the list."""
    if not text:
        return (), ""
    path, parts = _PATH.format(GPU_TYPE_KEY), text.split(SEPARATOR)
    if len(parts) > TYPES_MAX:
        return (), f"{path}names {len(parts)} types, which is more than {TYPES_MAX}"
    found: dict[str, None] = {}
    for part in parts:
        try:
            found[type_name(part.strip())] = None
        except TypeNameError as error:
            return (), f"{path}{quoted(part.strip())} {error}"
    return tuple(found), ""
