"""The journal of an engine: every call that changes it, with the actions that each call returned, one line a call.

Invariants:
- The calls of a journal give the same actions in a new engine, in any process. A difference is a bug of the engine, or
  shows that the engine that replays decides otherwise.
- The first line has the format, the name of the run and the profile; every other line is one call.
- A line has the objects as the engine was told them, and of the objects in actions only the uid.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.config.errors import ProfileError
from aischeduler.config.profiles import ProfileConfig
from aischeduler.engine.event_lines import as_line, read_event
from aischeduler.engine.profile import Profile, default_profile, with_profiles
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Evict, Refresh, ReportInternalError, ReportWaiting
from aischeduler.model.allocation import NO_ALLOCATION
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import Event
from aischeduler.model.names import GPU_TYPE_LABELS
from aischeduler.model.pod import Pod
from aischeduler.model.pool import GroupRule, MakeRoomOrder, Pool
from aischeduler.model.tenant_queue import TenantSettings
from aischeduler.state.scheduling_queue import Backoff

FORMAT: Final = 1


class JournalError(ValueError):
    """A journal that cannot be replayed; the message names the line."""


class Header(msgspec.Struct, frozen=True):
    """The first line of a journal: all that makes an engine."""

    journal: int
    run: str
    scheduler_name: str
    gpu_resources: tuple[str, ...]
    preemption: bool
    make_room: MakeRoomOrder
    hold_unsupported: bool
    backoff: Backoff
    default_pool: Pool
    gpu_type_labels: tuple[str, ...] = GPU_TYPE_LABELS
    rare_types: tuple[str, ...] = ()
    machine_groups: tuple[GroupRule, ...] = ()
    obeys_budgets: bool = False
    profiles: tuple[ProfileConfig, ...] = ()
    tenants: TenantSettings = TenantSettings()
    hami: bool = False


class Observed(Struct, frozen=True):
    """A call of `observe`."""

    now: float
    event: Event


class Decided(Struct, frozen=True):
    """A call of `decide`, and its actions as their lines in the journal."""

    now: float
    pool: str
    limit: int
    actions: tuple[bytes, ...]


class StoodBy(Struct, frozen=True):
    """A call of `stand_by`."""

    now: float
    actions: tuple[bytes, ...]


Call = Observed | Decided | StoodBy


class Difference(Struct, frozen=True):
    """The first call of a journal whose actions differ in a new engine; an action that one side lacks is empty."""

    line: int
    now: float
    pool: str
    recorded: str
    replayed: str


class JournaledScheduler(Scheduler):
    """A scheduler that gives every line of its journal to `write`, before the call returns."""

    def __init__(self, profile: Profile, run: str, write: Callable[[bytes], None]) -> None:
        super().__init__(profile, run)
        self._write = write
        write(_ENCODER.encode(Header(FORMAT, run, *(getattr(profile, name) for name in _SETTINGS))))

    def observe(self, event: Event, now: float) -> None:
        """Handle an event; it is written first, because the call may raise."""
        self._write(_ENCODER.encode(("observe", now, *as_line(event))))
        super().observe(event, now)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Decide for a pool, and write the call with its actions."""
        actions = super().decide(pool, now, limit)
        self._write(_ENCODER.encode(("decide", now, pool, limit, [_told(action) for action in actions])))
        return actions

    def stand_by(self, now: float) -> list[ReportInternalError]:
        """Stand by, and write the call with its actions."""
        actions = super().stand_by(now)
        self._write(_ENCODER.encode(("standBy", now, [_told(action) for action in actions])))
        return actions


def replay(lines: Iterable[bytes]) -> Difference | None:
    """Make the calls of a journal in a new engine; return the first difference, None where there is none.

    Raises JournalError for a journal of another format, and for a line that cannot be read.
    """
    numbered = enumerate(lines, 1)
    scheduler = new_scheduler(next(numbered, (1, b""))[1])
    for number, line in numbered:
        call = read_call(number, line)
        found = _difference(number, call, make_call(scheduler, call))
        if found is not None:
            return found
    return None


def make_call(scheduler: Scheduler, call: Call) -> list[Action]:
    """Make a call; an event that the engine fails to handle has no actions, as in the run that was recorded."""
    match call:
        case Observed(now, event):
            with suppress(Exception):  # the engine has noted it, and its next decision reports it
                scheduler.observe(event, now)
            return []
        case Decided(now, pool, limit, _):
            return scheduler.decide(pool, now, limit)
        case StoodBy(now, _):
            return list(scheduler.stand_by(now))


def as_lines(actions: Iterable[Action]) -> tuple[bytes, ...]:
    """Return actions as they stand in a journal."""
    return tuple(_ENCODER.encode(_told(action)) for action in actions)


def read_call(number: int, line: bytes) -> Call:
    """Read one line after the first; raises JournalError with its number."""
    try:
        kind, now, *rest = _LINE.decode(line)
        at = _FLOAT.decode(now)
        match msgspec.json.decode(kind):
            case "observe":
                return Observed(at, read_event(msgspec.json.decode(rest[0]), rest[1]))
            case "decide":
                pool, limit, actions = rest
                return Decided(at, msgspec.json.decode(pool), msgspec.json.decode(limit), _each(actions))
            case "standBy":
                return StoodBy(at, _each(rest[0]))
            case other:
                raise JournalError(f"line {number}: {other!r} is no call")
    except (msgspec.DecodeError, KeyError, ValueError, IndexError) as error:
        if isinstance(error, JournalError):
            raise
        raise JournalError(f"line {number}: it is cut off or is no line of a journal: {error}") from error


def new_scheduler(line: bytes) -> Scheduler:
    """Return a new engine for a journal with this first line."""
    try:
        told = msgspec.json.decode(line)
        found = told.get("journal") if isinstance(told, dict) else None
        if found != FORMAT:
            raise JournalError(f"line 1: the journal has the format {found}, and this version reads format {FORMAT}")
        header = msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError as error:
        raise JournalError(f"line 1: it is not the first line of a journal: {error}") from error
    profile = default_profile(
        header.scheduler_name, header.gpu_resources, header.gpu_type_labels, preemption=header.preemption
    )
    settings = replace(profile, **{name: getattr(header, name) for name in _SETTINGS})
    try:
        return Scheduler(with_profiles(settings, header.profiles), header.run)
    except ProfileError as error:
        raise JournalError(f"line 1: {error}") from error


def _difference(number: int, call: Call, actions: list[Action]) -> Difference | None:
    if isinstance(call, Observed):
        return None
    pool = call.pool if isinstance(call, Decided) else ""
    for recorded, replayed in zip_longest(call.actions, as_lines(actions), fillvalue=b""):
        if recorded != replayed:
            return Difference(number, call.now, pool, recorded.decode(), replayed.decode())
    return None


def _told(action: Action) -> tuple[Any, ...]:
    """Return an action as it stands in a journal: its type and the values of its fields, of a pod the uid.

    An empty allocation is left out, as almost every one is, and so are the defaults of `_LATER` at the end.
    """
    values = msgspec.structs.astuple(action)
    for default in reversed(_LATER.get(type(action), ())):
        if values[-1] != default:
            break
        values = values[:-1]
    return (type(action).__name__, *(_short(value) for value in values if value != NO_ALLOCATION))


def _short(value: Any) -> Any:
    if isinstance(value, Pod):
        return value.uid
    if isinstance(value, tuple) and value and isinstance(value[0], Pod):
        return [pod.uid for pod in value]
    return value


def _each(actions: msgspec.Raw) -> tuple[bytes, ...]:
    return tuple(bytes(action) for action in _LINE.decode(actions))


_SETTINGS: Final = Header.__struct_fields__[2:]
"""The fields of a profile that the first line has."""
_LATER: Final[dict[type, tuple[Any, ...]]] = {
    ReportWaiting: (EventReason.FAILED_SCHEDULING,),
    Evict: (None, "", None),
    Refresh: (False,),
}
"""Action -> the defaults of its last fields, which older journals do not have."""
_ENCODER: Final = msgspec.json.Encoder()
_LINE: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FLOAT: Final = msgspec.json.Decoder(float)
