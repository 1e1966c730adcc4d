"""Members by group, and things that select pods by their labels."""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from aischeduler.model.selectors import Labels, LabelSelector, Operator

Group = TypeVar("Group", bound=Hashable)
Member = TypeVar("Member", bound=Hashable)
Value = TypeVar("Value")


class Groups(dict[Group, dict[Member, Value]]):
    """Group -> its members with a value each, in the order in which they came; a group without members is not kept."""

    def put(self, group: Group, member: Member, value: Value) -> None:
        """Add a member to a group, or replace its value."""
        self.setdefault(group, {})[member] = value

    def drop(self, group: Group, member: Member) -> None:
        """Remove a member from a group, if it is there."""
        members = self.get(group)
        if members is not None:
            members.pop(member, None)
            if not members:
                del self[group]


class Tallies(dict[Group, Counter[Member]]):
    """Group -> how often it has each member; a member or group that it has no longer is not kept."""

    def add(self, group: Group, member: Member) -> None:
        """Count a member of a group once more."""
        self.setdefault(group, Counter())[member] += 1

    def subtract(self, group: Group, member: Member) -> None:
        """Undo `add`."""
        members = self[group]
        members[member] -= 1
        if not members[member]:
            del members[member]
        if not members:
            del self[group]


class SelectorIndex(Generic[Member]):
    """Things with a selector of pods in a namespace.

    One whose selector requires one value of a label is found by that label; only the others are candidates for every
    pod of the namespace.
    """

    def __init__(self) -> None:
        self._found: Groups[tuple[str, tuple[str, str] | None], Member, None] = Groups()

    def put(self, namespace: str, selector: LabelSelector | None, member: Member) -> None:
        """Add a thing that selects pods of this namespace."""
        self._found.put((namespace, required_label(selector)), member, None)

    def drop(self, namespace: str, selector: LabelSelector | None, member: Member) -> None:
        """Remove a thing that was added with this selector."""
        self._found.drop((namespace, required_label(selector)), member)

    def candidates(self, namespace: str, labels: Labels) -> Iterator[Member]:
        """Yield each thing that may select a pod of this namespace with these labels."""
        for label in (*labels.items(), None):
            yield from self._found.get((namespace, label), ())


def required_label(selector: LabelSelector | None) -> tuple[str, str] | None:
    """Return a label that every selected pod has with one value; None where there is none."""
    for requirement in selector.requirements if selector is not None else ():
        if requirement.operator is Operator.IN and len(requirement.values) == 1:
            return requirement.key, requirement.values[0]
    return None
