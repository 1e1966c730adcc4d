"""Read the annotations of elastic jobs: what their user asks for, and what the scheduler wrote into them last.

Invariants:
- A malformed annotation of the user never raises: the problem names it. A malformed one of the scheduler counts as
  absent.
- An empty annotation counts as absent, and an object that names neither minimum nor maximum is not looked at further.
- Equal annotations give one object, which many readings of a job share.
- User text is shortened and escaped before it appears in a message.

Source: durations of Go's time.ParseDuration.
"""

import re
from datetime import datetime
from functools import lru_cache
from typing import Final

from msgspec import Struct, field

from aischeduler.kube.decode.api_types import TenantAnnotations
from aischeduler.kube.decode.fields import FieldError, choice
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.elastic import (
    ALLOWED_INSTANCES_KEY,
    COMPLETIONS_KEY,
    ELASTIC_JOB_KEY,
    FREEZING_WINDOW_KEY,
    FREEZING_WINDOW_SECONDS,
    INSTANCES_MAX,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    PRIORITY_LEVEL_KEY,
    RESIZE_REASON_KEY,
    RESIZED_AT_KEY,
    SERVICE_KEY,
    SIZE_KEY,
    WEIGHTS,
    WRITTEN_BY_ANOTHER,
    ElasticTerms,
    PriorityLevel,
    Problem,
)
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.user_text import quoted

TEXT_LENGTH_MAX: Final = 64
"""Of a text that is a number or one word of a few, so much is kept."""
ALLOWED_LENGTH_MAX: Final = 4096
"""The longest list of allowed sizes that is read."""
IGNORED_NAMED_MAX: Final = 8
"""How many of the sizes that are ignored a message names."""
DURATION_LENGTH_MAX: Final = 64
DURATION_SECONDS_MAX: Final = 9_223_372_036
"""The longest duration of Go, in whole seconds."""
TERMS_CACHED_MAX: Final = 4096
FOLLOW: Final = "follow"
FIXED: Final = "fixed"
NO_TERMS: Final = ElasticTerms(1, 1)
"""The terms of a job whose annotations cannot be read; with its problem they mean nothing."""
_SIZE: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_SERVICE: Final = re.compile(r"([0-9]{1,18}) (\S{1,64})", re.ASCII)
_PART: Final = re.compile("([0-9]{1,10}(?:[.][0-9]{0,9})?|[.][0-9]{1,9})(ns|[u\u00b5\u03bc]s|ms|s|m|h)")
_DURATION: Final = re.compile(rf"[+]?(?:0|(?:{_PART.pattern})+)")
_MICRO: Final = dict.fromkeys(("us", "\u00b5s", "\u03bcs"), 1e-6)
"""The units of a millionth of a second: with a letter, the micro sign, or the Greek letter."""
_SECONDS: Final = {"ns": 1e-9, **_MICRO, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class ElasticAnnotations(TenantAnnotations, gc=False):
    """The annotations of a workload that concern the number of its instances, and its tenant."""

    min_instances: str | None = field(name=MIN_INSTANCES_KEY, default=None)
    max_instances: str | None = field(name=MAX_INSTANCES_KEY, default=None)
    allowed_instances: str | None = field(name=ALLOWED_INSTANCES_KEY, default=None)
    freezing_window: str | None = field(name=FREEZING_WINDOW_KEY, default=None)
    priority_level: str | None = field(name=PRIORITY_LEVEL_KEY, default=None)
    elastic_job: str | None = field(name=ELASTIC_JOB_KEY, default=None)
    size: str | None = field(name=SIZE_KEY, default=None)
    resized_at: str | None = field(name=RESIZED_AT_KEY, default=None)
    service: str | None = field(name=SERVICE_KEY, default=None)
    completions: str | None = field(name=COMPLETIONS_KEY, default=None)
    reason: str | None = field(name=RESIZE_REASON_KEY, default=None)


class Asked(Struct, frozen=True):
    """What a user asks for; `ignored` are parts that mean nothing, `problem` is set where the terms mean nothing."""

    terms: ElasticTerms
    ignored: str = ""
    problem: Problem | None = None


class Noted(Struct, frozen=True):
    """What the scheduler wrote last; see `ElasticJob`. `completions_follow` is None where nothing is noted."""

    size: int = 0
    resized_at_seconds: float = 0.0
    service: int = 0
    service_at_seconds: float = 0.0
    completions_follow: bool | None = None
    by_another: bool = False


def asks_to_be_elastic(annotations: ElasticAnnotations | None) -> bool:
    """Return whether a workload has one of the annotations that make it elastic."""
    return annotations is not None and bool(annotations.min_instances or annotations.max_instances)


def read_terms(annotations: ElasticAnnotations) -> Asked:
    """Return what a user asks for."""
    return _asked(
        (annotations.min_instances or "")[:TEXT_LENGTH_MAX],
        (annotations.max_instances or "")[:TEXT_LENGTH_MAX],
        (annotations.allowed_instances or "")[: ALLOWED_LENGTH_MAX + 1],
        (annotations.freezing_window or "")[: DURATION_LENGTH_MAX + 1],
        (annotations.priority_level or "")[:TEXT_LENGTH_MAX],
    )


def read_notes(annotations: ElasticAnnotations) -> Noted:
    """Return what the scheduler wrote last."""
    size = annotations.size or ""
    written = int(size) if _SIZE.fullmatch(size) else 0
    service, at = _service(annotations.service or "")
    return Noted(
        written if written <= INSTANCES_MAX else 0,
        _time(annotations.resized_at or ""),
        service,
        at,
        {FOLLOW: True, FIXED: False}.get(annotations.completions or ""),
        annotations.reason == WRITTEN_BY_ANOTHER,
    )


def read_levels(text: str) -> tuple[PriorityLevel, ...] | None:
    """Return the levels that a namespace allows, those of its words that are levels; None where it says nothing."""
    words = {part.strip() for part in text[:ALLOWED_LENGTH_MAX].split(",")} - {""}
    return tuple(level for level in PriorityLevel if level in words) if words else None


def annotation_path(key: str) -> str:
    """Return the path of an annotation, as messages name it."""
    return f"metadata.annotations[{key}]"


def duration_seconds(path: str, text: str) -> float:
    """Return a duration of Go, such as 90s, 1h30m or 0, in seconds; raises FieldError."""
    parts = _DURATION.fullmatch(text) if len(text) <= DURATION_LENGTH_MAX else None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)) if parts else 0.0
    if parts is None or seconds > DURATION_SECONDS_MAX:
        raise FieldError(f"{path}: must be a duration such as 30s, 5m, 1h30m or 0, not {quoted(text)}")
    return seconds


@lru_cache(maxsize=TERMS_CACHED_MAX)
def _asked(lowest: str, highest: str, allowed: str, window: str, level: str) -> Asked:
    try:
        least, most = _bounds(lowest, highest)
        sizes, ignored = _allowed(allowed, least, most)
        seconds = FREEZING_WINDOW_SECONDS
        if window:
            seconds = duration_seconds(annotation_path(FREEZING_WINDOW_KEY), window)
        named = choice(annotation_path(PRIORITY_LEVEL_KEY), level or None, PriorityLevel)
        weight = WEIGHTS[named or PriorityLevel.NORMAL]
        terms = ElasticTerms(least, most, sizes, seconds, weight, by_priority=named is None)
    except FieldError as error:
        return Asked(NO_TERMS, problem=Problem(EventReason.INVALID_ELASTIC, str(error)[:INVALID_LENGTH_MAX]))
    return Asked(terms, ignored)


def _bounds(lowest: str, highest: str) -> tuple[int, int]:
    least, most = _number(MIN_INSTANCES_KEY, lowest), _number(MAX_INSTANCES_KEY, highest)
    if least > most:
        wanted = f"must be at most {most}, the maximum in {MAX_INSTANCES_KEY}"
        raise FieldError(f"{annotation_path(MIN_INSTANCES_KEY)}: {wanted}, not {least}")
    return least, most


def _number(key: str, text: str) -> int:
    if not text:
        other = MAX_INSTANCES_KEY if key == MIN_INSTANCES_KEY else MIN_INSTANCES_KEY
        raise FieldError(f"{annotation_path(key)}: is missing, and {other} needs it")
    if not _SIZE.fullmatch(text) or not 1 <= int(text) <= INSTANCES_MAX:
        wanted = f"must be a whole number from 1 to {INSTANCES_MAX}"
        raise FieldError(f"{annotation_path(key)}: {wanted}, not {quoted(text)}")
    return int(text)


def _allowed(text: str, least: int, most: int) -> tuple[tuple[int, ...], str]:
    """Return the sizes of a list from the minimum to the maximum, and which of the others are ignored."""
    if not text:
        return (), ""
    path = annotation_path(ALLOWED_INSTANCES_KEY)
    if len(text) > ALLOWED_LENGTH_MAX:
        raise FieldError(f"{path}: is longer than {ALLOWED_LENGTH_MAX} characters")
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_SIZE.fullmatch, parts)):
        raise FieldError(f"{path}: must be whole numbers such as 1,2,4,8, not {quoted(text)}")
    sizes = sorted(set(map(int, parts)))
    outside = [size for size in sizes if not least <= size <= most]
    allowed = tuple(sorted({least, *sizes}.difference(outside)))
    bounds = f"outside {MIN_INSTANCES_KEY} {least} to {MAX_INSTANCES_KEY} {most}"
    return allowed, f"{path}: {_listed(outside)} no effect {bounds}" if outside else ""


def _listed(sizes: list[int]) -> str:
    more = f" and {len(sizes) - IGNORED_NAMED_MAX} more" if len(sizes) > IGNORED_NAMED_MAX else ""
    return f"{', '.join(map(str, sizes[:IGNORED_NAMED_MAX]))}{more} {'has' if len(sizes) == 1 else 'have'}"


def _service(text: str) -> tuple[int, float]:
    """Return the service that a job had received, and when; 0 for both where one of the two is none."""
    parts = _SERVICE.fullmatch(text)
    at = _time(parts[2]) if parts else 0.0
    return (int(parts[1]), at) if parts and at else (0, 0.0)


def _time(text: str) -> float:
    """Return a time of RFC 3339 in unix seconds; 0 for a text that is none."""
    try:
        found = datetime.fromisoformat(text)
        return max(0.0, found.timestamp()) if found.tzinfo is not None else 0.0
    except (ValueError, OverflowError):
        return 0.0
