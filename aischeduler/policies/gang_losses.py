"""Which pods are of no use without others of their unit: a unit loses all its pods where more leave than it can spare.

Invariant: nothing here changes state.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, islice
from typing import Final

import numpy as np

from aischeduler.state.label_index import Mask
from aischeduler.state.running_pods import RunningPods, Slots

SPARED_MAX: Final = 32
"""The most sets of pods of a unit of which it is looked whether they would do where the whole unit would go."""


def lost_with(running: RunningPods, slots: Iterable[int]) -> list[int]:
    """Return the slots of the other pods that are lost with these pods.

    Where more of a unit leaves than it can spare, that is every other pod of it that may be evicted. Of an elastic job
    it is what a smaller size ends before them.
    """
    table, lost = running.table, list[int]()
    of_unit: dict[int, list[int]] = {}
    given = list(slots)
    for slot, unit in zip(given, table["unit"][given].tolist(), strict=True):
        of_unit.setdefault(unit, []).append(slot)
    for unit, going in of_unit.items():
        tail = running.spare_of(unit).tail if unit else ()
        before = _rest_of_tail(running, unit, going) if tail else []
        leave = [*going, *before]
        lost += before
        if not unit or (tail and {*map(running.uid_of, leave)} <= {*tail}):
            continue  # nobody needs them, whatever else of the unit leaves
        others = np.array(sorted(running.pods_of_unit(unit).keys() - leave), dtype=np.intp)
        leaving = table["leaving"][others]
        if len(others) and not _can_spare(running, unit, [*leave, *others[leaving].tolist()]):
            lost += others[~leaving & table["evictable"][others]].tolist()
    return lost


def _rest_of_tail(running: RunningPods, unit: int, leave: Iterable[int]) -> list[int]:
    """Return the slots of the pods that a size without these ends too, and that stay so far."""
    spare, going = running.spare_of(unit), {running.uid_of(slot) for slot in leave}
    goes = max((goes for uid, goes in zip(spare.tail, spare.tail_goes, strict=True) if uid in going), default=0)
    slots = running.slots_of(uid for uid in spare.tail[:goes] if uid not in going)
    before: list[int] = slots[~running.table["leaving"][slots]].tolist()
    return before


def units_lost(running: RunningPods, slots: Iterable[int]) -> list[int]:
    """Return the units of several pods that are of no use without these pods."""
    of_unit: dict[int, list[int]] = {}
    for slot in slots:
        of_unit.setdefault(int(running.table["unit"][slot]), []).append(slot)
    return [unit for unit, leave in of_unit.items() if unit and not _can_spare(running, unit, leave)]


def spared_instead(running: RunningPods, lost: Sequence[int], among: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield sets of pods `among` those of a unit that are `lost` together, without which the others would be of use.

    The smallest come first, and of one size those of the first pods; there are none where the unit is not lost.
    """
    unit = int(running.table["unit"][lost[0]])
    if not unit:
        return
    leaving = [slot for slot in running.pods_of_unit(unit) if running.table["leaving"][slot]]
    if _can_spare(running, unit, [*leaving, *lost]):
        return
    alone = [slot for slot in among if _can_spare(running, unit, [*leaving, slot])]
    sets = chain.from_iterable(combinations(alone, size) for size in range(1, len(alone) + 1))
    for few in islice(sets, SPARED_MAX):
        if _can_spare(running, unit, [*leaving, *few]):
            yield few


def rows_lost_with(running: RunningPods, slots: Slots) -> set[int]:
    """Return the rows of all pods of the units of these pods: what they cost changes with these."""
    units = {int(unit) for unit in running.table["unit"][slots]}
    return {int(running.table["row"][slot]) for unit in units if unit for slot in running.pods_of_unit(unit)}


def kept_by_unit(running: RunningPods, slots: Slots) -> Mask:
    """Return a mask of the pods that stay because a pod of their unit is kept that would be lost with them."""
    kept: Mask = np.zeros(len(slots), dtype=np.bool_)
    if not running.has_units or not running.table["kept"].any():
        return kept
    for at in np.flatnonzero(running.table["unit"][slots]).tolist():
        kept[at] = costs_kept(running, [int(slots[at])])
    return kept


def costs_kept(running: RunningPods, slots: Iterable[int]) -> bool:
    """Return whether a kept pod would be lost with these pods."""
    of_unit: defaultdict[int, list[int]] = defaultdict(list)
    for slot in slots:
        of_unit[int(running.table["unit"][slot])].append(slot)
    kept = running.table["kept"]
    return any(
        unit and not _can_spare(running, unit, leave) and bool(kept[list(running.pods_of_unit(unit))].any())
        for unit, leave in of_unit.items()
    )


def _can_spare(running: RunningPods, unit: int, leave: list[int]) -> bool:
    """Return whether the other pods of the unit are of use without these."""
    spare = running.spare_of(unit)
    if len(leave) > spare.pods or not spare.of_roles:
        return len(leave) <= spare.pods
    roles = Counter(spare.roles.get(running.uid_of(slot)) for slot in leave)
    return all(roles[role] <= left for role, left in spare.of_roles)
