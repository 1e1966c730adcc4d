"""Preemption for a unit: the rows of its required pods, and the victims on all of them.

Invariants:
- Each pod gets the row that costs least beside the pods before it. What a victim frees anywhere counts for all of them.
- The set of victims is minimal for these rows: victims that the unit fits beside stay, the most important first. Pods
  of one unit that are lost together stay or go together.
- Nothing here changes state.
"""

from dataclasses import dataclass

import numpy as np

from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import allocation_of
from aischeduler.policies.preemption import Candidate, NoCandidate, Preemptor, choose_victims, most_important_first
from aischeduler.policies.unit_placement import UnitRequest, all_fit_after_departures
from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.label_index import Rows
from aischeduler.state.running_pods import RunningPods
from aischeduler.state.what_if import Trial


@dataclass(frozen=True, slots=True)
class UnitCandidate:
    """Rows on which the unit fits once the victims, and the pods that are leaving already, are gone.

    `victims` are uids, the least important first; `violations` of them are protected by a disruption budget.
    """

    pods: tuple[AssignedPod, ...]
    victims: tuple[str, ...]
    violations: int


def choose_unit_victims(
    unit: UnitRequest, runner: Runner, running: RunningPods, rows: Rows, budgets: BudgetTable
) -> UnitCandidate | NoCandidate:
    """Return rows for the required pods of the unit, and the victims whose eviction makes all of them fit."""
    pods, asks = unit.pods[: unit.required], unit.asks[: unit.required]
    priority = min(pod.priority for pod in pods)
    placed: list[AssignedPod] = []
    victims = set[int]()
    with running.trying():
        with Trial(runner.nodes) as trial:
            for pod, ask in zip(pods, asks, strict=True):
                found = choose_victims(Preemptor(ask.spec, priority), runner, running, rows, budgets)
                if not isinstance(found, Candidate):
                    return found
                slots = running.slots_of(found.victims)
                running.table["leaving"][slots] = True
                victims.update(slots.tolist())
                placed.append(AssignedPod(pod, ask.spec, found.row, allocation_of(ask.spec)))
                trial.place(placed[-1])
        leave = most_important_first(running, sorted(_reprieve(placed, victims, runner, running)))[::-1]
    uids = running.uids_of(leave)
    violations = int(budgets.broken(uids, np.zeros(len(uids), dtype=np.intp)).sum())
    return UnitCandidate(tuple(placed), tuple(uids), violations)


def _reprieve(placed: list[AssignedPod], victims: set[int], runner: Runner, running: RunningPods) -> set[int]:
    """Let the victims stay that the unit fits beside, the most important first; return the slots of the others."""
    groups: dict[tuple[int, int], list[int]] = {}
    for slot in most_important_first(running, sorted(victims)).tolist():
        unit = int(running.table["unit"][slot])
        groups.setdefault((unit, 0) if unit else (0, slot), []).append(slot)
    left = set[int]()
    for group in groups.values():
        running.table["leaving"][group] = False
        if not all_fit_after_departures(placed, runner, running):
            running.table["leaving"][group] = True
            left.update(group)
    return left
