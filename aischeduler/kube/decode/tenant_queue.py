"""Convert a tenant queue to the model: our own Queue, or Volcano's.

Invariants:
- Nothing is raised: `invalid` names the first field that cannot be read, and the queue takes nothing new. Its other
  fields count, so that its running pods count at its parents; one that cannot be read evicts nothing and lets nobody
  evict.
- Unknown fields are ignored: a newer schema may define them. Fields of Volcano that have no meaning here are named.
- The limits are those of `aischeduler/crds/queues.yaml`, which a test compares; the daemon does not read that file.
- User text is shortened and escaped before it appears in a message.

Source: Queue of scheduling.volcano.sh/v1beta1, and capacity-card's annotation `volcano.sh/card.quota`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.decode.fields import PROBLEMS, FieldError, amounts, choice, is_name, selector, typed
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.card_types import TypeNameError, card_form
from aischeduler.model.tenant_queue import CARDS_MAX, CardQuota, QueueSource, QueueState, TenantQueue
from aischeduler.model.times import unix_seconds
from aischeduler.model.user_text import quoted, shown

WHOLE_MAX: Final = 2**31 - 1
"""The highest priority, and the highest number of cards of one name."""
DURATION: Final = re.compile(r"([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?", re.ASCII)
DURATION_SECONDS_MAX: Final = 99_999 * 3600 + 9_999_999 * 60 + 999_999_999
"""The longest duration that can be written."""
CARD_QUOTA: Final = "metadata.annotations[volcano.sh/card.quota]"
ROOT: Final = "root"
"""The parent of Volcano's queues that have none."""
VOLCANO_CLOSED: Final = frozenset(("Closed", "Closing"))
VOLCANO_DEFAULTS: Final[Mapping[str, Any]] = {
    "weight": 1,
    "deserved": {},
    "guarantee": {},
    "affinity": {},
    "dequeueStrategy": "traverse",
    "type": "",
    "extendClusters": [],
}
"""The fields of Volcano's spec that have no meaning here, and the values under which they have none there."""

V = TypeVar("V")
NO_CARDS: Final[tuple[CardQuota, ...]] = ()


class _Spec:
    """Reads the fields of a spec; the first problem is kept."""

    def __init__(self, value: Any) -> None:
        self.invalid = ""
        self.fields: Mapping[str, Any] = self.checked(lambda: typed("spec", value, dict), {})

    def read(self, name: str, reader: Callable[[str, Any], V], unreadable: V) -> V:
        """Return what `reader` makes of a field; `unreadable` where it raises a problem."""
        return self.checked(lambda: reader(f"spec.{name}", self.fields.get(name)), unreadable)

    def checked(self, read: Callable[[], V], unreadable: V) -> V:
        """Return what `read` returns; `unreadable` where it raises a problem."""
        try:
            return read()
        except PROBLEMS as error:
            self.invalid = self.invalid or str(error)[:INVALID_LENGTH_MAX]
            return unreadable


def read_queue(document: QueueDocument) -> TenantQueue:
    """Return our own Queue."""
    spec, state_since = _Spec(document.spec), _conditions(document.status)
    found = replace(
        _queue(document, spec, QueueSource.OWN),
        cards=spec.read("cards", _cards, NO_CARDS),
        state=spec.read("state", lambda path, value: choice(path, value, QueueState), None) or QueueState.OPEN,
        allowed_namespaces=spec.read("allowedNamespaces", selector, None),
        min_runtime_seconds=spec.read("minRuntime", _seconds_or_zero, DURATION_SECONDS_MAX),
        shrink_after_seconds=spec.read("shrinkAfter", _seconds, None),
        drain_after_seconds=spec.read("drainAfter", _seconds_or_zero, DURATION_SECONDS_MAX),
        over_quota_since_seconds=state_since.get(("OverQuota", "True"), (0, ""))[0],
    )
    since, reason = state_since.get(("Ready", "False"), (0, ""))
    draining = since if reason == QueueState.DRAINING else 0
    return replace(found, draining_since_seconds=draining, invalid=spec.invalid)


def read_volcano_queue(document: QueueDocument) -> TenantQueue:
    """Return a queue of Volcano: its cards are in an annotation, and its state is in its status."""
    spec, annotations = _Spec(document.spec), document.metadata.annotations
    quota = annotations.card_quota if annotations is not None else None
    status = document.status if isinstance(document.status, dict) else {}
    return replace(
        _queue(document, spec, QueueSource.VOLCANO),
        cards=spec.checked(lambda: _card_quota(quota), NO_CARDS),
        state=QueueState.CLOSED if status.get("state") in VOLCANO_CLOSED else QueueState.OPEN,
        ignored=tuple(_ignored(spec.fields)),
        invalid=spec.invalid,
    )


def _queue(document: QueueDocument, spec: _Spec, source: QueueSource) -> TenantQueue:
    """Return what both kinds have in common."""
    metadata = document.metadata
    volcano = source is QueueSource.VOLCANO
    return TenantQueue(
        name=metadata.name,
        source=source,
        uid=metadata.uid,
        generation=metadata.generation,
        parent=spec.read("parent", lambda path, value: _parent(path, value, metadata.name, volcano=volcano), ""),
        capability=spec.read("capability", amounts, {}),
        priority=spec.read("priority", lambda path, value: 0 if value is None else _whole(path, value), 0),
        reclaimable=spec.read("reclaimable", lambda path, value: value is None or typed(path, value, bool), False),
    )


def _parent(path: str, value: Any, own_name: str, *, volcano: bool) -> str:
    name = typed(path, value, str)
    if name == "" or (volcano and name == ROOT):
        return ""
    if not is_name(name):
        raise FieldError(f"{path}: {quoted(name)} is not the name of a Queue")
    if name == own_name:
        raise FieldError(f"{path}: a queue cannot be its own parent")
    return name


def _whole(path: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= WHOLE_MAX:
        return value
    raise FieldError(f"{path}: must be a whole number from 0 to {WHOLE_MAX}, not {shown(value)}")


def _cards(path: str, value: Any) -> tuple[CardQuota, ...]:
    """Return the quotas of cards, sorted by name."""
    found: dict[str, CardQuota] = {}
    for name, cards in sorted(typed(path, value, dict, CARDS_MAX).items()):
        where = f"{path}[{quoted(name)}]"
        try:
            card = card_form(name)
        except TypeNameError as error:
            raise FieldError(f"{where}: {error}") from error
        if card in found:
            raise FieldError(f"{where}: names the same card as {quoted(found[card].name)}")
        found[card] = CardQuota(name, card, _whole(where, cards))
    return tuple(found.values())


def _card_quota(text: str | None) -> tuple[CardQuota, ...]:
    """Return the quotas of cards in the annotation of a queue of Volcano."""
    if text is None:
        return ()
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE as error:
        raise FieldError(f'{CARD_QUOTA}: must be JSON such as {{"NVIDIA-H200": 8}}, not {quoted(text)}') from error
    return _cards(CARD_QUOTA, value)


def _seconds(path: str, value: Any) -> int | None:
    """Return a duration in seconds; None if the field is absent."""
    if value is None:
        return None
    text = typed(path, value, str)
    parts = DURATION.fullmatch(text) if text else None
    if parts is None:
        raise FieldError(f"{path}: {quoted(text)} is not a duration such as 90s or 1h30m")
    hours, minutes, seconds = (int(part[:-1]) if part else 0 for part in parts.groups())
    return hours * 3600 + minutes * 60 + seconds


def _seconds_or_zero(path: str, value: Any) -> int:
    return _seconds(path, value) or 0


def _ignored(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that are set and have no meaning here."""
    for name, default in VOLCANO_DEFAULTS.items():
        value = fields.get(name)
        if value is not None and value != default and not _is_empty(value):
            yield f"spec.{name}"


def _is_empty(value: Any) -> bool:
    """Say whether nothing is in a mapping or a list, at any depth: Volcano stores `guarantee: {resource: {}}`."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value in ([], "", None)


def _conditions(status: Any) -> dict[tuple[str, str], tuple[int, str]]:
    """Return since when each condition has its status, in unix seconds, and its reason."""
    conditions = status.get("conditions") if isinstance(status, dict) else None
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict):
            key = str(condition.get("type")), str(condition.get("status"))
            found[key] = _time(condition.get("lastTransitionTime")), str(condition.get("reason"))
    return found


def _time(text: Any) -> int:
    """Return a time in unix seconds; 0 for what is none."""
    try:
        return max(0, int(unix_seconds(text)))
    except (TypeError, ValueError, OverflowError):
        return 0
