"""The JSON types of fields that no struct decodes, and the sentence for a value of another type.

Invariant: a sentence begins with the path of its field, and a user's text in it is escaped and cut.
"""

from typing import Any, Final, TypeVar

from aischeduler.model.user_text import shown

_WORDS: Final[dict[type, str]] = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false"}
_PARTS: Final[dict[type, str]] = {dict: "names", list: "items"}

T = TypeVar("T", bound=dict[str, Any] | list[Any] | str | bool)


class FieldError(ValueError):
    """A field of the wrong type or with an invalid value; the message names the field."""


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
