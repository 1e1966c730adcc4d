"""Read the fields of a gang's source: numbers, switches and topology levels; the first problem is kept.

Invariants:
- A malformed field never raises: `invalid` names the object and the field.
- User text is shortened and escaped before it appears in a message.
"""

import re
from typing import Any, Final

from aischeduler.kube.decode.fields import FieldError, T, typed
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.gang import GANG_SPAN_KEY, GANG_TIMEOUT_KEY, GANG_TOPOLOGY_KEY, TopologyLevel
from aischeduler.model.selectors import Operator, SelectorError, label_requirement
from aischeduler.model.user_text import quoted, shown

TIMEOUT_SECONDS_MAX: Final = 2**31 - 1
LEVELS_MAX: Final = 8
_DIGITS: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_NECESSITY: Final = {"Required": True, "Preferred": False}


class FieldReader:
    """Reads fields; `what` names the object in messages, and `invalid` is empty if no field was malformed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.invalid = ""

    def record(self, problem: object) -> None:
        """Record a problem, which begins with its field; the first one is kept."""
        self.invalid = self.invalid or f"{self._what}: {problem}"[:INVALID_LENGTH_MAX]

    def typed(self, path: str, value: Any, kind: type[T]) -> T:
        """Return a value of this type; the empty one if the field is absent or is none."""
        try:
            return typed(path, value, kind)
        except FieldError as error:
            self.record(error)
            return kind()

    def number(self, path: str, value: Any, lowest: int, highest: int) -> int:
        """Return a whole number in these bounds, or `lowest` for another value."""
        if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
            return value
        self.record(f"{path}: must be a whole number from {lowest} to {highest}, not {shown(value)}")
        return lowest

    def number_of_text(self, path: str, text: str | None, lowest: int, highest: int) -> int:
        """Return the number of a label or an annotation, in these bounds, or `lowest` for another text."""
        if text is None:
            self.record(f"{path}: is missing")
        elif _DIGITS.fullmatch(text) and lowest <= int(text) <= highest:
            return int(text)
        else:
            self.record(f"{path}: must be a whole number from {lowest} to {highest}, not {quoted(text)}")
        return lowest

    def switch(self, path: str, text: str | None) -> bool:
        """Return an annotation that is "true" or "false"; False if it is absent."""
        if text not in (None, "true", "false"):
            self.record(f'{path}: must be "true" or "false", not {quoted(text)}')
        return text == "true"

    def annotations(
        self, timeout: str | None, span: str | None, topology: str | None
    ) -> tuple[int, bool, tuple[TopologyLevel, ...]]:
        """Return timeout in seconds, span and topology of these annotations."""
        seconds = 0
        if timeout is not None:
            seconds = self.number_of_text(f"metadata.annotations[{GANG_TIMEOUT_KEY}]", timeout, 0, TIMEOUT_SECONDS_MAX)
        spans = self.switch(f"metadata.annotations[{GANG_SPAN_KEY}]", span)
        return seconds, spans, self._topology(f"metadata.annotations[{GANG_TOPOLOGY_KEY}]", topology)

    def level(self, path: str, label: str, *, required: bool) -> TopologyLevel:
        """Return a level of this node label."""
        try:
            label_requirement(path, label, Operator.EXISTS, ())
        except SelectorError as error:
            self.record(error)
        return TopologyLevel(label, required)

    def _topology(self, path: str, text: str | None) -> tuple[TopologyLevel, ...]:
        if text is None:
            return ()
        parts = text.split(",")
        if len(parts) > LEVELS_MAX:
            self.record(f"{path}: has {len(parts)} levels, which is more than {LEVELS_MAX}")
            return ()
        levels = []
        for part in parts:
            necessity, _, label = part.strip().partition(":")
            if necessity not in _NECESSITY:
                self.record(f"{path}: must be levels such as Required:LABEL,Preferred:LABEL, not {quoted(text)}")
                return ()
            levels.append(self.level(path, label, required=_NECESSITY[necessity]))
        return tuple(levels)
