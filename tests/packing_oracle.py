"""A test oracle of room: whether pods fit on nodes together, found by trying all ways.

It uses no code of the product. It is for a few pods on a few nodes.
"""

from collections.abc import Iterable, Sequence

Amounts = tuple[int, ...]
"""One number for each resource, in the same order for nodes and pods."""


def fits(free: Iterable[Amounts], pods: Iterable[Amounts]) -> bool:
    """Return whether there is a way to put all pods on nodes with this free room."""
    return _fits(sorted(free), sorted(pods, reverse=True))


def count_that_fit(free: Iterable[Amounts], pod: Amounts) -> int:
    """Return how many such pods fit. Raises ValueError if a pod asks for nothing."""
    if not any(pod):
        raise ValueError("any number of pods that ask for nothing fits")
    return sum(min(has // asks for has, asks in zip(room, pod, strict=True) if asks) for room in map(_bounded, free))


def less(free: Amounts, pod: Amounts) -> Amounts:
    """Return what is left of a node beside the pod; negative where it does not fit."""
    return tuple(has - asks for has, asks in zip(free, pod, strict=True))


def _fits(free: Sequence[Amounts], pods: Sequence[Amounts]) -> bool:
    if not pods:
        return True
    tried = set[Amounts]()
    for number, room in enumerate(free):
        left = less(room, pods[0])
        if room not in tried and min(left) >= 0:
            tried.add(room)  # nodes with equal room are equal
            if _fits([*free[:number], left, *free[number + 1 :]], pods[1:]):
                return True
    return False


def _bounded(room: Amounts) -> Amounts:
    return tuple(max(amount, 0) for amount in room)
