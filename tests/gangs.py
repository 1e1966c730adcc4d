"""Builders of gangs and of their pods."""

from typing import TypedDict, Unpack

from aischeduler.model.actions import Action, ReportGang
from aischeduler.model.gang import Gang, GangClaim, GangKey, GangSource, GangStatus, TopologyLevel
from aischeduler.model.pod import Pod
from tests.build import a_pod, replace


class GangFields(TypedDict, total=False):
    """The rarer fields of a gang."""

    timeout: int
    created: int
    roles: tuple[tuple[str, int], ...]
    topology: tuple[TopologyLevel, ...]
    span: bool
    started: bool
    invalid: str


def a_key(name: str, *, source: GangSource = GangSource.COSCHEDULING) -> GangKey:
    """Return the key of a gang in the namespace `default`."""
    return GangKey(source, "default", name)


def a_gang(name: str, least: int, source: GangSource = GangSource.COSCHEDULING, **fields: Unpack[GangFields]) -> Gang:
    """Return a gang of at least this many pods."""
    return Gang(
        a_key(name, source=source),
        least,
        uid=f"uid-{name}",
        timeout_seconds=fields.get("timeout", 0),
        created_seconds=fields.get("created", 0),
        roles=fields.get("roles", ()),
        topology=fields.get("topology", ()),
        span=fields.get("span", False),
        started=fields.get("started", False),
        invalid=fields.get("invalid", ""),
    )


def member(pod: Pod, gang: Gang | str, *, role: str = "", index: int = -1, others: tuple[GangKey, ...] = ()) -> Pod:
    """Return the pod as one of a gang: a gang of labels is said by the pod itself, one of a name by its PodGroup."""
    key = a_key(gang) if isinstance(gang, str) else gang.key
    said = gang if isinstance(gang, Gang) and key.source is GangSource.LABELS else None
    claim = GangClaim(key, role, index, said, others)
    made: Pod = replace(pod, gang=claim)
    return made


def members(gang: Gang | str, count: int, *, cpu: str = "2", priority: int = 0, pool: str = "") -> list[Pod]:
    """Return the pods NAME-0, NAME-1, … of a gang."""
    name = gang if isinstance(gang, str) else gang.key.name
    pods = [a_pod(f"{name}-{turn}", cpu=cpu, priority=priority, pool=pool) for turn in range(count)]
    return [member(pod, gang) for pod in pods]


def gang_statuses(actions: list[Action]) -> dict[str, GangStatus]:
    """Return gang -> status of the last reports among the actions."""
    return {action.gang.key.name: action.status for action in actions if isinstance(action, ReportGang)}
