"""What the configuration file may say, with every default.

Laws:
- A field has one home: its name in YAML, its type, bounds and default are declared here and nowhere else, and so is
  whether a running scheduler takes its change over (`RELOADED`).
- Each field describes itself (`description`), and errors quote that description.
- Values are frozen; an unknown key is refused.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

API_VERSION: Final = "config.resource.aibee.cn/v1alpha1"
KIND: Final = "AiSchedulerConfiguration"

BIND_IN_FLIGHT_MAX: Final = 256
"""More Bindings in flight than this only queue up inside the API server."""
GPU_RESOURCES_MAX: Final = 16
REQUEST_SECONDS_MAX: Final = 120
BACKOFF_SECONDS_MAX: Final = 300
"""Pods that nothing wakes are tried again after five minutes; a longer wait would be cut short by that."""
EVENTS_PER_SECOND_MAX: Final = 10_000
EVENTS_BURST_MAX: Final = 100_000
LOG_VALUE_LENGTH_MIN: Final = 200
"""Reasons are sentences; cut shorter than this they say nothing."""
LOG_VALUE_LENGTH_MAX: Final = 100_000
HTTP_OFF: Final = "none"
"""The address that serves nothing."""
ADDRESS_FORM: Final = f"host:port such as :8080 or 127.0.0.1:8080, or {HTTP_OFF}"
RETRY_SLACK: Final = 1.2
"""The renew deadline holds more than one try, as client-go asks of it."""

RELOADED: Final = {"reloaded": True}
"""Marks a field (`Meta.extra`) whose change a running scheduler takes over; all others wait for the next start."""

_PORT: Final = r"([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_NAME_FORM: Final = "a name of lower-case letters, digits, '-' and '.', at most 253 long"


class LogFormat(StrEnum):
    """How a line of log looks."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least important lines that are still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EvictionWay(StrEnum):
    """How a pod that has to make room is removed."""

    DELETE = "Delete"
    """At once; among several choices, those that break no disruption budget are preferred."""
    EVICT = "Evict"
    """By the Eviction API, which refuses what a disruption budget forbids."""


class RoomOrder(StrEnum):
    """What a pod that fits nowhere in its pool tries first, where its Pool does not say; as `makeRoom` of a Pool."""

    PREEMPT_THEN_BORROW = "PreemptThenBorrow"
    BORROW_THEN_PREEMPT = "BorrowThenPreempt"


class ConstraintRule(StrEnum):
    """What becomes of a pod with a hard constraint that is not supported."""

    HOLD = "Hold"
    """It waits, with a reason that names the constraint."""
    IGNORE = "Ignore"
    """It is placed as if it did not state the constraint, and gets a Warning event."""


def _whole(least: int, most: int, extra: dict[str, Any] | None = None, of: str = "") -> Meta:
    """Return the bounds of a whole number, with the words for them."""
    return Meta(ge=least, le=most, description=f"a whole number {of}from {least} to {most}", extra=extra)


SchedulerName = Annotated[str, Meta(pattern=rf"\A{_SUBDOMAIN}\Z", max_length=253, description=_NAME_FORM)]
OptionalName = Annotated[str, Meta(pattern=rf"\A({_SUBDOMAIN})?\Z", max_length=253, description=_NAME_FORM)]
GpuResource = Annotated[
    str, Meta(pattern=rf"\A{_SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z", max_length=317)
]
GpuResources = Annotated[
    tuple[GpuResource, ...],
    Meta(
        min_length=1,
        max_length=GPU_RESOURCES_MAX,
        description=f"a list of 1 to {GPU_RESOURCES_MAX} resource names such as nvidia.com/gpu",
    ),
]
HttpAddress = Annotated[
    str,
    Meta(
        pattern=rf"\A({HTTP_OFF}|(\[[0-9A-Fa-f:.]+\]|[-A-Za-z0-9.]*):{_PORT})\Z",
        max_length=270,
        description=ADDRESS_FORM,
    ),
]
Switch = Annotated[bool, Meta(description="true or false")]
ElectionSeconds = Annotated[int, _whole(1, 600, of="of seconds ")]
BackoffSeconds = Annotated[int, _whole(1, BACKOFF_SECONDS_MAX, of="of seconds ")]


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping of the file, or the whole of it."""


class Backoff(Part, frozen=True):
    """How long a pod that could not be placed waits at first, and at most: each failure doubles the wait."""

    initial_seconds: BackoffSeconds = 1
    max_seconds: BackoffSeconds = 10

    def __post_init__(self) -> None:
        """Refuse a longest wait that is shorter than the first; raises ValueError."""
        if self.max_seconds < self.initial_seconds:
            raise ValueError(
                f"maxSeconds must be at least initialSeconds, which is {self.initial_seconds}, not {self.max_seconds}"
            )


class DefaultPool(Part, frozen=True):
    """The switches of the pool `default` while no Pool object of that name exists, and of the one that is created."""

    disable_preemption: Switch = False
    disable_borrowing: Switch = False
    disable_sharing: Switch = False


class Events(Part, frozen=True):
    """How many events are written at most: etcd keeps each for an hour."""

    per_second: Annotated[int, _whole(1, EVENTS_PER_SECOND_MAX, RELOADED)] = 50
    burst: Annotated[int, _whole(1, EVENTS_BURST_MAX, RELOADED)] = 1000


class LeaderElection(Part, frozen=True):
    """Whether and how several schedulers of one name agree on the one that schedules; seconds as client-go names them.

    Without a `lease_name` it is that of the scheduler; without a `namespace` that of our own pod, else kube-system.
    """

    enabled: Switch = True
    namespace: OptionalName = ""
    lease_name: OptionalName = ""
    lease_duration_seconds: ElectionSeconds = 15
    renew_deadline_seconds: ElectionSeconds = 10
    retry_period_seconds: ElectionSeconds = 2

    def __post_init__(self) -> None:
        """Refuse durations that would let two lead; raises ValueError."""
        lease, renew, retry = self.lease_duration_seconds, self.renew_deadline_seconds, self.retry_period_seconds
        if lease <= renew:
            raise ValueError(
                f"leaseDurationSeconds must be greater than renewDeadlineSeconds, which is {renew}, not {lease}"
            )
        if renew <= RETRY_SLACK * retry:
            raise ValueError(
                f"renewDeadlineSeconds must be greater than {RETRY_SLACK} times retryPeriodSeconds, which is {retry}, "
                f"not {renew}"
            )


NO_ELECTION: Final = LeaderElection(enabled=False)


class Logging(Part, frozen=True):
    """How and how much is logged."""

    format: Annotated[LogFormat, Meta(description="json or console", extra=RELOADED)] = LogFormat.JSON
    level: Annotated[LogLevel, Meta(description="debug, info, warning or error", extra=RELOADED)] = LogLevel.INFO
    value_length_max: Annotated[int, _whole(LOG_VALUE_LENGTH_MIN, LOG_VALUE_LENGTH_MAX, RELOADED)] = 2000


class Http(Part, frozen=True):
    """Where metrics and health are served; without a host on every address, with port 0 on a free port."""

    address: HttpAddress = ":8080"


class Config(Part, frozen=True):
    """The whole file. `Config()` is what an empty file means.

    `scheduler_name` is what pods write into `spec.schedulerName`; `bind_in_flight` bounds the Bindings that wait for
    an answer at one time, `request_timeout_seconds` every request that is no list, watch or renewal of the Lease;
    `gpu_resources` are the node resources that count as GPUs, in table and placement; `disable_preemption` forbids
    every eviction on a pod's behalf, taking back lent room included; `make_room` holds for Pools that do not say;
    `unsupported_constraints` says what becomes of pods with hard constraints that no rule looks at.
    """

    api_version: Annotated[Literal["config.resource.aibee.cn/v1alpha1"], Meta(description=API_VERSION)] = API_VERSION
    kind: Annotated[Literal["AiSchedulerConfiguration"], Meta(description=KIND)] = KIND
    scheduler_name: SchedulerName = "ai-scheduler"
    bind_in_flight: Annotated[int, _whole(1, BIND_IN_FLIGHT_MAX, RELOADED)] = 128
    request_timeout_seconds: Annotated[int, _whole(1, REQUEST_SECONDS_MAX, RELOADED, "of seconds ")] = 30
    gpu_resources: GpuResources = ("nvidia.com/gpu",)
    disable_preemption: Switch = False
    eviction: Annotated[EvictionWay, Meta(description="Delete or Evict")] = EvictionWay.DELETE
    make_room: Annotated[RoomOrder, Meta(description="PreemptThenBorrow or BorrowThenPreempt")] = (
        RoomOrder.PREEMPT_THEN_BORROW
    )
    unsupported_constraints: Annotated[ConstraintRule, Meta(description="Hold or Ignore")] = ConstraintRule.HOLD
    default_pool: Annotated[DefaultPool, Meta(description="a mapping such as disableSharing: true")] = DefaultPool()
    backoff: Annotated[Backoff, Meta(description="a mapping such as maxSeconds: 30")] = Backoff()
    events: Annotated[Events, Meta(description="a mapping with the keys perSecond and burst")] = Events()
    leader_election: Annotated[LeaderElection, Meta(description="a mapping such as enabled: true")] = LeaderElection()
    logging: Annotated[Logging, Meta(description="a mapping such as level: debug")] = Logging()
    http: Annotated[Http, Meta(description="a mapping with the key address")] = Http()
