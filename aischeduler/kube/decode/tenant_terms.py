"""Read what the annotations of pods and workloads say of their tenant and their service.

Invariants:
- A malformed annotation never raises: `invalid` names it, and the others count.
- An empty annotation counts as absent; an object without any of them costs a few comparisons.
- Equal annotations give one object, which pods and workloads share.
- User text is shortened and escaped; what is too long to be read is not kept.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from aischeduler.kube.decode.api_types import PodAnnotations
from aischeduler.kube.decode.elastic_terms import ElasticAnnotations
from aischeduler.kube.decode.meta_types import UNREADABLE, Metadata, OwnerReference
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.card_types import TYPES_MAX, TypeNameError, card_form
from aischeduler.model.names import POOL_NAME_LENGTH_MAX
from aischeduler.model.tenant_queue import CARDS_MAX
from aischeduler.model.user_text import quoted, shown
from aischeduler.model.workload import (
    CARD_REQUEST_KEY,
    NO_TERMS,
    ON_EVICTION_KEY,
    PREEMPTABLE_KEY,
    CardRequest,
    TenantTerms,
)

SEPARATOR: Final = "|"
REQUEST_LENGTH_MAX: Final = 8192
"""The longest list of cards that is read."""
CARDS_REQUESTED_MAX: Final = 2**31 - 1
TERMS_CACHED_MAX: Final = 4096
_SHORT: Final = 64
"""Of a text that is one word of a few, so much is kept."""
_WORDS: Final = {
    **dict.fromkeys(("true", "True", "TRUE", "t", "T", "1"), True),
    **dict.fromkeys(("false", "False", "FALSE", "f", "F", "0"), False),
}
"""What Volcano reads as true and as false: the words of Go's ParseBool."""
_ENDS: Final = {"Restart": False, "Abort": True}
_PATH: Final = "metadata.annotations[{}]: "


class WorkloadAnnotations(ElasticAnnotations, gc=False):
    """The annotations of a workload that concern its tenant and the number of its instances."""

    card_request: str | None = field(name=CARD_REQUEST_KEY, default=None)
    on_eviction: str | None = field(name=ON_EVICTION_KEY, default=None)


class WorkloadMetadata(Metadata, rename="camel", gc=False):
    """The metadata of a workload that declares no gang."""

    annotations: WorkloadAnnotations | None = None
    owner_references: list[OwnerReference] | None = None


class _Word(Struct, frozen=True):
    """An annotation that is one word of a few, and where it stands."""

    path: str
    text: str


def pod_terms(annotations: PodAnnotations | None, label: str) -> TenantTerms | None:
    """Return what a pod says of its tenant, None where it says nothing; `label` is its own form of preemptable."""
    if annotations is None:
        return _terms("", "", _Word(f"metadata.labels[{PREEMPTABLE_KEY}]: ", label[:_SHORT])) if label else None
    queue, service = annotations.queue or annotations.volcano_queue, annotations.service_type
    if not (queue or service or annotations.preemptable or label):
        return None
    word = _annotation(PREEMPTABLE_KEY, annotations.preemptable)
    if not word.text:
        word = _Word(f"metadata.labels[{PREEMPTABLE_KEY}]: ", label[:_SHORT])
    return _terms(_name(queue or ""), _name(service or ""), word)


def workload_terms(annotations: WorkloadAnnotations | None, queue: str = "") -> TenantTerms:
    """Return what a workload says of its tenant; `queue` is the one in its spec, for which an annotation is stronger.

    Labels of a workload say nothing: they do not follow the object that it was made from.
    """
    if annotations is None:
        return _terms(_name(queue), "", _NO_WORD) if queue else NO_TERMS
    queue = annotations.queue or annotations.volcano_queue or queue
    return _terms(
        _name(queue),
        _name(annotations.service_type or ""),
        _annotation(PREEMPTABLE_KEY, annotations.preemptable),
        (annotations.card_request or "")[: REQUEST_LENGTH_MAX + 1],
        _annotation(ON_EVICTION_KEY, annotations.on_eviction),
    )


_NO_WORD: Final = _Word("", "")


def _annotation(key: str, text: str | None) -> _Word:
    return _Word(_PATH.format(key), text[:_SHORT]) if text else _NO_WORD


@lru_cache(maxsize=TERMS_CACHED_MAX)
def _terms(
    queue: str, service_type: str, preemptable: _Word, request: str = "", on_eviction: _Word = _NO_WORD
) -> TenantTerms:
    """Return the terms. Of several problems that of the cards is named: without them no quota can be checked."""
    cards, problem = _card_request(request)
    for word, known in ((preemptable, _WORDS), (on_eviction, _ENDS)):
        if word.text and word.text not in known:
            allowed = "Restart or Abort" if known is _ENDS else "true or false"
            problem = problem or f"{word.path}must be {allowed}, not {quoted(word.text)}"
    found = TenantTerms(
        queue=queue,
        service_type=service_type,
        preemptable=_WORDS.get(preemptable.text),
        card_request=cards,
        aborts=_ENDS.get(on_eviction.text, False),
        invalid=problem[:INVALID_LENGTH_MAX],
    )
    return found if found != NO_TERMS else NO_TERMS


def _card_request(text: str) -> tuple[tuple[CardRequest, ...], str]:
    """Return the cards that a workload asks for, and what is wrong with the text."""
    if not text:
        return (), ""
    path = _PATH.format(CARD_REQUEST_KEY)
    if len(text) > REQUEST_LENGTH_MAX:
        return (), f"{path}is longer than {REQUEST_LENGTH_MAX} characters"
    try:
        asked = msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        return (), f'{path}must be JSON such as {{"A100|V100": 8}}, not {quoted(text)}'
    if len(asked) > CARDS_MAX:
        return (), f"{path}names {len(asked)} cards, which is more than {CARDS_MAX}"
    found = []
    for name, number in asked.items():
        forms, problem = _forms(name)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= CARDS_REQUESTED_MAX:
            wrong = f"must be a whole number from 0 to {CARDS_REQUESTED_MAX}, not {shown(number)}"
            problem = problem or f"the number of {quoted(name)} {wrong}"
        if problem:
            return (), path + problem
        found.append(CardRequest(name, forms, number))
    return tuple(found), ""


def _forms(name: str) -> tuple[tuple[str, ...], str]:
    """Return the forms of a list such as A100|V100, each once, and what is wrong with the list."""
    parts = name.split(SEPARATOR)
    if len(parts) > TYPES_MAX:
        return (), f"a name lists {len(parts)} cards, which is more than {TYPES_MAX}"
    forms: dict[str, None] = {}
    for part in parts:
        try:
            forms[card_form(part.strip())] = None
        except TypeNameError as error:
            return (), f"{quoted(part.strip())} {error}"
    return tuple(forms), ""


def _name(text: str) -> str:
    """Return a name; a text that cannot be one is shortened and escaped: nothing has that name."""
    return text if len(text) <= POOL_NAME_LENGTH_MAX and text.isprintable() else quoted(text)
