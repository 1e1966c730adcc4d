"""The fields that no struct decodes: their JSON types, and the kinds of values that several objects have.

Invariants:
- The sentence of an error begins with the path of its field, and a user's text in it is escaped and cut.
- The limits are those of the definitions in `aischeduler/crds`, which tests compare; the daemon does not read these.
"""

import re
from enum import StrEnum
from typing import Any, Final, TypeVar

from aischeduler.model.names import POOL_NAME_LENGTH_MAX
from aischeduler.model.quantity import QuantityError
from aischeduler.model.resources import ResourceList, parse_resource_list
from aischeduler.model.selectors import LabelSelector, Requirement, SelectorError, label_requirement, label_selector
from aischeduler.model.user_text import quoted, shown

REQUIREMENTS_MAX: Final = 64
VALUES_MAX: Final = 256
RESOURCES_MAX: Final = 64
"""How many resources a limit may have under an older definition; the present one allows fewer."""
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
RESOURCE: Final = re.compile(
    r"(cpu|memory|ephemeral-storage|pods|hugepages-[0-9]{1,20}[KMGTPE]i|"
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)",
    re.ASCII,
)
RESOURCES_TEXT: Final = "such as cpu, memory, ephemeral-storage, pods, hugepages-2Mi or nvidia.com/gpu"

_WORDS: Final[dict[type, str]] = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false"}
_PARTS: Final[dict[type, str]] = {dict: "names", list: "items"}

T = TypeVar("T", bound=dict[str, Any] | list[Any] | str | bool)
Choice = TypeVar("Choice", bound=StrEnum)


class FieldError(ValueError):
    """A field of the wrong type or with an invalid value; the message names the field."""


PROBLEMS: Final = (FieldError, QuantityError, SelectorError)
"""What the functions of this module raise."""


def typed(path: str, value: Any, kind: type[T], parts_max: int | None = None) -> T:
    """Return a value of this type, the empty one where the field is absent; raises FieldError.

    A mapping or a list has at most `parts_max` parts.
    """
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise FieldError(f"{path}: must be {_WORDS[kind]}, not {shown(value)}")
    if parts_max is not None and isinstance(value, dict | list) and len(value) > parts_max:
        raise FieldError(f"{path}: has {len(value)} {_PARTS[kind]}, which is more than {parts_max}")
    return value


def is_name(text: str) -> bool:
    """Say whether the definitions allow this name of an object of ours."""
    return len(text) <= POOL_NAME_LENGTH_MAX and NAME.fullmatch(text) is not None


def amounts(path: str, value: Any) -> ResourceList:
    """Return the amounts by resource, sorted by name: CPU in millicores, all others in units."""
    found: dict[str, int] = {}
    for name, quantity in sorted(typed(path, value, dict, RESOURCES_MAX).items()):
        if not RESOURCE.fullmatch(name):
            raise FieldError(f"{path}.{quoted(name)}: is not the name of a resource, {RESOURCES_TEXT}")
        if isinstance(quantity, float):
            raise FieldError(f'{path}.{name}: a fraction must be in quotes: "{quantity}"')
        if isinstance(quantity, bool) or not isinstance(quantity, int | str):
            raise FieldError(f"{path}.{name}: must be a quantity such as 8, 500m or 64Gi, not {shown(quantity)}")
        found |= parse_resource_list(path, {name: str(quantity)})
    return found


def selector(path: str, value: Any) -> LabelSelector | None:
    """Return a label selector; None if the field is absent."""
    if value is None:
        return None
    parts = typed(path, value, dict)
    labels = typed(f"{path}.matchLabels", parts.get("matchLabels"), dict, REQUIREMENTS_MAX)
    expressions = typed(f"{path}.matchExpressions", parts.get("matchExpressions"), list, REQUIREMENTS_MAX)
    return label_selector(
        path,
        {key: typed(f"{path}.matchLabels.{quoted(key)}", label, str) for key, label in labels.items()},
        tuple(
            _expression(f"{path}.matchExpressions[{index}]", expression) for index, expression in enumerate(expressions)
        ),
    )


def _expression(path: str, value: Any) -> Requirement:
    fields = typed(path, value, dict)
    values = typed(f"{path}.values", fields.get("values"), list, VALUES_MAX)
    return label_requirement(
        path,
        typed(f"{path}.key", fields.get("key"), str),
        typed(f"{path}.operator", fields.get("operator"), str),
        tuple(typed(f"{path}.values[{index}]", item, str) for index, item in enumerate(values)),
    )


def choice(path: str, value: Any, choices: type[Choice]) -> Choice | None:
    """Return the enum value; None if the field is absent."""
    if value is None:
        return None
    text = typed(path, value, str)
    if text not in tuple(choices):
        raise FieldError(f"{path}: {quoted(text)} is not one of {', '.join(choices)}")
    return choices(text)
