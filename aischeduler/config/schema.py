"""What the configuration file may say, with every default.

Laws:
- A field has one home: its name in YAML, its type, bounds and default are declared here and nowhere else.
- Each bounded field describes itself (`description`), and errors quote that description.
- Values are frozen; an unknown key is refused.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

API_VERSION: Final = "config.resource.aibee.cn/v1alpha1"
KIND: Final = "AiSchedulerConfiguration"

BIND_IN_FLIGHT_MAX: Final = 256
"""More Bindings in flight than this only queue up inside the API server."""
GPU_RESOURCES_MAX: Final = 16
HTTP_OFF: Final = "none"
"""The address that serves nothing."""
ADDRESS_FORM: Final = f"host:port such as :8080 or 127.0.0.1:8080, or {HTTP_OFF}"
_PORT: Final = r"([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


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


SchedulerName = Annotated[
    str,
    Meta(
        pattern=rf"\A{_SUBDOMAIN}\Z",
        max_length=253,
        description="a name of lower-case letters, digits, '-' and '.', at most 253 long",
    ),
]
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
BindInFlight = Annotated[
    int, Meta(ge=1, le=BIND_IN_FLIGHT_MAX, description=f"a whole number from 1 to {BIND_IN_FLIGHT_MAX}")
]


class Logging(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How and how much is logged."""

    format: Annotated[LogFormat, Meta(description="json or console")] = LogFormat.JSON
    level: Annotated[LogLevel, Meta(description="debug, info, warning or error")] = LogLevel.INFO


HttpAddress = Annotated[
    str,
    Meta(
        pattern=rf"\A({HTTP_OFF}|(\[[0-9A-Fa-f:.]+\]|[-A-Za-z0-9.]*):{_PORT})\Z",
        max_length=270,
        description=ADDRESS_FORM,
    ),
]


class Http(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Where metrics and health are served; without a host on every address, with port 0 on a free port."""

    address: HttpAddress = ":8080"


Seconds = Annotated[int, Meta(ge=1, le=600, description="a whole number of seconds from 1 to 600")]
LeaseName = Annotated[
    str,
    Meta(
        pattern=rf"\A({_SUBDOMAIN})?\Z",
        max_length=253,
        description="a name of lower-case letters, digits, '-' and '.', at most 253 long",
    ),
]
RETRY_SLACK: Final = 1.2
"""The renew deadline holds more than one try, as client-go asks of it."""


class LeaderElection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whether and how several schedulers of one name agree on the one that schedules; seconds as client-go names them.

    Without a `lease_name` it is that of the scheduler; without a `namespace` that of our own pod, else kube-system.
    """

    enabled: Annotated[bool, Meta(description="true or false")] = True
    namespace: LeaseName = ""
    lease_name: LeaseName = ""
    lease_duration_seconds: Seconds = 15
    renew_deadline_seconds: Seconds = 10
    retry_period_seconds: Seconds = 2

    def __post_init__(self) -> None:
        """Refuse durations that would let two lead; raises ValueError."""
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            raise ValueError("leaseDurationSeconds must be greater than renewDeadlineSeconds")
        if self.renew_deadline_seconds <= RETRY_SLACK * self.retry_period_seconds:
            raise ValueError(f"renewDeadlineSeconds must be greater than {RETRY_SLACK} times retryPeriodSeconds")


NO_ELECTION: Final = LeaderElection(enabled=False)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The whole file. `Config()` is what an empty file means.

    `scheduler_name` is what pods write into `spec.schedulerName`; `bind_in_flight` bounds the Bindings that wait for
    an answer at one time; `gpu_resources` are the node resources that count as GPUs, in table and placement;
    `disable_preemption` forbids every eviction on a pod's behalf, taking back lent room included.
    """

    api_version: Annotated[Literal["config.resource.aibee.cn/v1alpha1"], Meta(description=API_VERSION)] = API_VERSION
    kind: Annotated[Literal["AiSchedulerConfiguration"], Meta(description=KIND)] = KIND
    scheduler_name: SchedulerName = "ai-scheduler"
    bind_in_flight: BindInFlight = 128
    gpu_resources: GpuResources = ("nvidia.com/gpu",)
    disable_preemption: Annotated[bool, Meta(description="true or false")] = False
    eviction: Annotated[EvictionWay, Meta(description="Delete or Evict")] = EvictionWay.DELETE
    leader_election: Annotated[LeaderElection, Meta(description="a mapping such as enabled: true")] = LeaderElection()
    logging: Annotated[Logging, Meta(description="a mapping with the keys format and level")] = Logging()
    http: Annotated[Http, Meta(description="a mapping with the key address")] = Http()
