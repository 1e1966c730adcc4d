"""A snapshot: the objects of a cluster at one time, as the engine is told them, in memory and as lines of a file.

Invariants:
- Beside objects a snapshot says whether tenant queues are served: where they are, a pod may name one that is missing.
- An object is kept as a value of `model`, so a file has nothing that scheduling does not read: no environment, no name
  of an image, no argument, secret or unread annotation.
- The first line is the header, the last one has the number of objects: a file that is cut off is refused.
- The lines of a snapshot give the same snapshot again.
"""

from collections.abc import Iterable, Iterator
from typing import Final, get_args

import msgspec
from msgspec import Raw, Struct

from aischeduler.engine.event_lines import as_line, read_event
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import DevicesListed, Event, Object, QueuesServed, Seen
from aischeduler.model.gang import Gang
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.storage_objects import StorageObject
from aischeduler.model.tenant_queue import TenantQueue
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.model.workload import Workload

FORMAT: Final = 1
END: Final = "end"
RUN: Final = "analysis"
"""The name of the run in the ids of decisions: none of them leaves the process."""
KINDS: Final[tuple[type[Object], ...]] = (
    Namespace,
    Pool,
    Node,
    DisruptionBudget,
    TenantQueue,
    *get_args(StorageObject),
    Volume,
    VolumeClaim,
    Workload,
    Gang,
    PodSet,
    Pod,
)
"""The kinds of objects of a snapshot, in the order in which the engine observes them at the start of the daemon."""


class SnapshotError(ValueError):
    """A file that is no snapshot, of another version, or cut off; the message says which."""


class PriorityClass(Struct, frozen=True, rename="camel"):
    """A PriorityClass, of which the API server writes `value` and `preemption_policy` into a new pod."""

    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = ""


class ClusterSnapshot(Struct, frozen=True):
    """The objects of a cluster at `taken_seconds` in unix time.

    `gaps` has a sentence for everything that could not be read: what it is, and what an answer is worth without it.
    `priority_classes` are sorted by name; None where they could not be read.
    """

    taken_seconds: int
    events: tuple[Event, ...]
    priority_classes: tuple[PriorityClass, ...] | None = None
    gaps: tuple[str, ...] = ()


class _Header(Struct, frozen=True, rename="camel"):
    snapshot: int
    taken_seconds: int
    gaps: tuple[str, ...]
    priority_classes: tuple[PriorityClass, ...] | None


class _Version(Struct):
    snapshot: int = 0


def loaded(profile: Profile, snapshot: ClusterSnapshot) -> Scheduler:
    """Return a new engine that has observed the snapshot; it has not decided anything yet."""
    scheduler = Scheduler(profile, RUN)
    for event in snapshot.events:
        scheduler.observe(event, float(snapshot.taken_seconds))
    return scheduler


def write_lines(snapshot: ClusterSnapshot) -> Iterator[bytes]:
    """Yield the lines of a snapshot, without line ends."""
    encode = msgspec.json.Encoder().encode
    yield encode(_Header(FORMAT, snapshot.taken_seconds, snapshot.gaps, snapshot.priority_classes))
    for event in snapshot.events:
        yield encode(as_line(event))
    yield encode((END, len(snapshot.events)))


def read_lines(lines: Iterable[bytes]) -> ClusterSnapshot:
    """Return the snapshot of these lines; raises SnapshotError."""
    numbered = enumerate(lines, 1)
    header = _read_header(next(numbered, (1, b""))[1])
    events: list[Event] = []
    for number, line in numbered:
        try:
            kind, rest = _LINE.decode(line)
            if kind == END:
                _check_end(msgspec.json.decode(rest), len(events))
                return ClusterSnapshot(header.taken_seconds, tuple(events), header.priority_classes, header.gaps)
            events.append(_read(kind, rest))
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
            raise SnapshotError(f"line {number} is cut off or is no line of a snapshot: {error}") from error
    raise SnapshotError(f"it is cut off after {len(events)} objects: its last line is missing")


def _read(name: str, line: Raw) -> Event:
    """Return an event of a snapshot, which has objects that exist, and whether queues are served."""
    event = read_event(name, line)
    if not isinstance(event, Seen | QueuesServed | DevicesListed):
        raise KeyError(name)
    return event


def _read_header(line: bytes) -> _Header:
    try:
        version = msgspec.json.decode(line, type=_Version).snapshot
        if version == FORMAT:
            return msgspec.json.decode(line, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"it is not a snapshot: its first line cannot be read: {error}") from error
    if not version:
        raise SnapshotError("it is not a snapshot: its first line has no version")
    raise SnapshotError(f"the snapshot has version {version}, and this program reads version {FORMAT}: take it again")


def _check_end(count: object, found: int) -> None:
    if count != found:
        raise SnapshotError(f"it has {found} objects and should have {count}")


_LINE: Final = msgspec.json.Decoder(tuple[str, Raw])
