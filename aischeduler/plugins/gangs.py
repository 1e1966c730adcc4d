"""Gangs: which pods start together, how many of them, and how many of those on nodes are more than that.

Invariants:
- Pods that are on nodes count; before the start, those that stay. A gang that started whole, and of which some pods are
  left, takes what comes back.
- The pods that are required come first: those that a role lacks, then by rank, age and name.
- Pods that say different things of one gang count with the larger of them, so that no gang starts too small.

Source: Coscheduling of scheduler-plugins (PreFilter, Permit), the gang plugin of Volcano (minTaskMember).
"""

from collections import Counter
from typing import Final

from msgspec.structs import replace

from aischeduler.framework.plugin import Formed, Incomplete, UnitMembers
from aischeduler.model.gang import Gang, GangSource, Lack
from aischeduler.model.pod import Pod
from aischeduler.state.running_pods import Spare
from aischeduler.state.units import GangTable

LAST: Final = 2**31
"""The rank of a pod that has none."""


class Gangs:
    """Pods of one gang are a unit."""

    name = "Gangs"

    def unit_of(self, pod: Pod) -> str:
        """Return the gang that the pod names; a pod of a gang of one belongs to it too, and waits for itself."""
        return str(pod.gang.key) if pod.gang is not None else ""

    def gang_of(self, pods: tuple[Pod, ...], gangs: GangTable) -> Gang | None:
        """Return the gang as its object says it, or as its pods say it together."""
        claims = [pod.gang for pod in pods if pod.gang is not None]
        said = [claim.said for claim in claims if claim.said is not None]
        if not said:
            return gangs.by_key.get(claims[0].key) if claims else None
        first = said[0]
        if all(gang == first for gang in said):
            return first
        roles: dict[str, int] = {}
        for gang in said:
            for role, least in gang.roles:
                roles[role] = max(roles.get(role, 0), least)
        return replace(
            first,
            min_member=max(gang.min_member for gang in said),
            timeout_seconds=max(gang.timeout_seconds for gang in said),
            roles=tuple(sorted(roles.items())),
            topology=next((gang.topology for gang in said if gang.topology), ()),
            span=any(gang.span for gang in said),
            invalid=next((gang.invalid for gang in said if gang.invalid), ""),
        )

    def form(self, members: UnitMembers) -> Formed | Incomplete:
        """Return how the waiting pods wait: together where they complete the gang, each for itself beyond that."""
        gang, waiting = members.gang, sorted(members.waiting, key=_turn)
        if gang is None:
            return Incomplete(_unknown(members.waiting[0]))
        if gang.invalid:
            return Incomplete(f"The gang {gang.key} is not valid: {gang.invalid}")
        near = any(level.required for level in gang.topology)
        if not _is_gang(gang):
            return Formed(tuple(waiting), 0)
        required, lacks = _required(gang, waiting, members.placed)
        if members.started:  # pods that have finished are not known any more, so that nobody waits for their successors
            required = required or waiting[:1]
        elif lacks:
            text = ", ".join(_said(lack) for lack in lacks)
            return Incomplete(f"The gang {gang.key} waits for more pods: {text}.", lacks)
        chosen = {pod.uid for pod in required}
        others = [pod for pod in waiting if pod.uid not in chosen]
        return Formed((*required, *others), max(len(required), 1 if near else 0), near)

    def spare(self, members: UnitMembers) -> Spare | None:
        """Return the surplus over the minima; None where the gang never was whole."""
        gang, placed = members.gang, members.placed
        if gang is None:
            return Spare(len(placed)) if members.started else None
        if not _is_gang(gang):
            return Spare(len(placed))
        count = Counter(_role(pod) for pod in placed)
        surplus = [(role, count[role] - least) for role, least in gang.roles]
        beyond = len(placed) - max(gang.min_member - sum(least for _, least in gang.roles), 0)
        spare = beyond - sum(min(count[role], least) for role, least in gang.roles)  # one role stands in for no other
        if members.started or (spare >= 0 and all(left >= 0 for _, left in surplus)):
            roles = {pod.uid: _role(pod) for pod in placed} if surplus else {}
            of_roles = tuple((role, max(left, 0)) for role, left in surplus)
            return Spare(max(spare, 0), of_roles, roles, extra=_extra(placed, spare, dict(of_roles)))
        return None


def _extra(placed: tuple[Pod, ...], count: int, of_roles: dict[str, int]) -> frozenset[str]:
    """Return the pods (uids) that are more than a gang needs: the newest, of each role no more than it can spare."""
    found: list[str] = []
    for pod in sorted(placed, key=lambda pod: (pod.created_seconds, pod.uid), reverse=True) if count > 0 else ():
        role = _role(pod)
        if len(found) < count and of_roles.get(role, 1) > 0:
            found.append(pod.uid)
            if role in of_roles:
                of_roles[role] -= 1
    return frozenset(found)


def _is_gang(gang: Gang) -> bool:
    return gang.min_member > 1 or any(least > 0 for _, least in gang.roles)


def _role(pod: Pod) -> str:
    return pod.gang.role if pod.gang is not None else ""


def _turn(pod: Pod) -> tuple[int, int, str, str]:
    """Return the order in which pods of one gang are placed: by rank, age and name."""
    rank = pod.gang.index if pod.gang is not None else -1
    return (rank if rank >= 0 else LAST, pod.created_seconds, pod.name, pod.uid)


def _required(gang: Gang, waiting: list[Pod], placed: tuple[Pod, ...]) -> tuple[list[Pod], tuple[Lack, ...]]:
    """Return the waiting pods that complete the gang, in order, and what it still lacks, the whole first."""
    count = Counter(_role(pod) for pod in placed)
    chosen: dict[str, Pod] = {}
    lacks: list[Lack] = []
    for role, least in gang.roles:
        of_role = [pod for pod in waiting if _role(pod) == role]
        chosen.update((pod.uid, pod) for pod in of_role[: max(least - count[role], 0)])
        have = count[role] + len(of_role)
        if have < least:
            lacks.append(Lack(role, have, least))
    missing = gang.min_member - len(placed) - len(chosen)
    others = [pod for pod in waiting if pod.uid not in chosen]
    chosen.update((pod.uid, pod) for pod in others[: max(missing, 0)])
    if missing > len(others):
        lacks.insert(0, Lack("", len(placed) + len(waiting), gang.min_member))
    return [pod for pod in waiting if pod.uid in chosen], tuple(lacks)


def _said(lack: Lack) -> str:
    count = f"{lack.exist} of at least {lack.at_least}"
    return f"the role {lack.role} has {count}" if lack.role else f"{count} exist"


def _unknown(pod: Pod) -> str:
    assert pod.gang is not None, "only a pod of a gang has its unit"
    key = pod.gang.key
    if key.source in (GangSource.JOB, GangSource.JOB_SET):
        return f"The pod waits until its {key.source} {key.name} is seen."
    return f"The {key.source} {key.namespace}/{key.name}, which the pod names, does not exist."
