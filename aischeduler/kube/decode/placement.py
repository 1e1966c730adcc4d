"""Convert the annotations that decide where a pod may run: card types, their policy, and the machine group.

Invariants:
- A malformed annotation never raises: the problem names it, and the pod is held.
- An empty annotation counts as absent.
- Volcano's names of cards count where no card type is named, and the pod waits for them whatever its policy is.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.kube.decode.api_types import PodAnnotations
from aischeduler.model.card_types import TYPES_MAX, TypeNameError, card_form, type_name
from aischeduler.model.names import GPU_TYPE_KEY, GPU_TYPE_POLICY_KEY, MACHINE_GROUP_KEY
from aischeduler.model.selectors import is_label_value
from aischeduler.model.user_text import quoted
from aischeduler.model.workload import CARD_NAME_KEY

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
    if annotations is None:
        return ""
    types, policy, group = annotations.gpu_type, annotations.gpu_type_policy, annotations.machine_group
    if not (types or policy or group or annotations.card_name):
        return ""
    return ascii((types, policy, group, None if types else annotations.card_name))


def read_wishes(annotations: PodAnnotations | None) -> PlacementWishes:
    """Return what the annotations of a pod say."""
    if annotations is None:
        return NO_WISHES
    preferable, problem = _types(GPU_TYPE_KEY, annotations.gpu_type or "", type_name)
    types = preferable
    if not annotations.gpu_type:
        types, problem = _types(CARD_NAME_KEY, annotations.card_name or "", _whole_card)
    policy, group = annotations.gpu_type_policy or TypePolicy.REQUIRED, annotations.machine_group or ""
    if policy not in tuple(TypePolicy):
        problem = problem or f"{_PATH.format(GPU_TYPE_POLICY_KEY)}{quoted(policy)} is not Required or Preferred"
    if not is_label_value(group):
        wrong = f"{quoted(group)} is not the name of a machine group, which is a label value"
        problem = problem or _PATH.format(MACHINE_GROUP_KEY) + wrong
        group = ""
    return PlacementWishes(types, policy != TypePolicy.PREFERRED or not preferable, group, problem)


def _whole_card(text: str) -> str:
    """Return the full name of the type of a card in any form: a share by MPS is on nodes of the whole card."""
    return card_form(text).partition("/")[0]


def _types(key: str, text: str, name_of: Callable[[str], str]) -> tuple[tuple[str, ...], str]:
    """Return the full names of the types in a list such as A100|V100, each once, and what is wrong with the list."""
    if not text:
        return (), ""
    path, parts = _PATH.format(key), text.split(SEPARATOR)
    if len(parts) > TYPES_MAX:
        return (), f"{path}names {len(parts)} types, which is more than {TYPES_MAX}"
    found: dict[str, None] = {}
    for part in parts:
        try:
            found[name_of(part.strip())] = None
        except TypeNameError as error:
            return (), f"{path}{quoted(part.strip())} {error}"
    return tuple(found), ""
