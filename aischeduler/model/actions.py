"""Everything the core can ask for: the closed union that shells perform.

Laws:
- An action is complete: a shell needs nothing but the action to perform it.
- Every action on a pod names the decision it comes from, so that one line of log tells one decision.
"""

from dataclasses import dataclass

from aischeduler.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Bind:
    """Write the node into the pod by a Binding that carries its uid and our marks.

    `pool` is the pool whose node it is, `home_pool` the pod's own. The pod counts on the node from now on.
    """

    pod: Pod
    node: str
    pool: str
    home_pool: str
    decision: str
    feasible_nodes: int


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Tell the user why a pod waits: the FailedScheduling event and the PodScheduled condition.

    `pool` is the one in which it was tried, `home_pool` the pod's own.
    """

    pod: Pod
    pool: str
    home_pool: str
    message: str
    decision: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Read this pod: its Binding was accepted or sent long ago and the watch has not shown it."""

    pod: Pod
    node: str
    decision: str


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object to speak about; `namespace` is empty for cluster-scoped ones."""

    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Warn:
    """Put a Warning event on an object, once."""

    about: ObjectRef
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a Pool's status."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReportPool:
    """Write these conditions into the Pool's status; `generation` is the spec that they speak of."""

    name: str
    uid: str
    generation: int
    conditions: tuple[Condition, ...]


Action = Bind | ReportWaiting | Settle | Warn | ReportPool
