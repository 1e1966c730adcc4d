"""Victims and nodes, case by case: first kube-scheduler's own, then those of pools."""

from itertools import permutations

import numpy as np
import pytest

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort
from aischeduler.model.selectors import label_selector
from aischeduler.policies.preemption import VICTIMS_MAX, Candidate, fewest
from aischeduler.state.running_pods import Spare
from tests.build import a_node, a_request, replace
from tests.policies.crowd import (
    HIGH,
    LARGE,
    LOW,
    MEDIUM,
    MID,
    NEGATIVE,
    SMALL,
    TOP,
    WHOLE,
    Crowd,
    Held,
    held,
    preemptor,
)

FREE_PODS = 32


def node(name: str, cpu: str = "500m", pods: int = FREE_PODS) -> Node:
    return a_node(name, cpu=cpu, memory="500", pods=pods)


def on(name: str, *kinds: tuple[int, int]) -> list[Held]:
    """Fill a node with pods of half of it each: (priority, start)."""
    return [
        held(f"{name}-{i}", name, a_request(cpu="250m", memory="250"), priority, started=start)
        for i, (priority, start) in enumerate(kinds)
    ]


def budget(name: str, app: str, allowed: int, disrupted: frozenset[str] = frozenset()) -> DisruptionBudget:
    return DisruptionBudget("default", name, "", label_selector("s", {"app": app}, ()), allowed, disrupted)


APP = (("app", "web"),)


class TestAsKubeScheduler:
    def test_pods_of_equal_priority_are_no_victims(self) -> None:
        crowd = Crowd([node("n1")], [held("a", "n1", WHOLE, MID)])
        assert crowd.refusal(preemptor(WHOLE, MID)) == (
            "0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )

    def test_no_eviction_helps_where_a_static_filter_refuses(self) -> None:
        crowd = Crowd([node("n1")], [held("a", "n1", WHOLE, LOW)])
        assert crowd.refusal(preemptor(WHOLE, HIGH, node_selector={"zone": "z"})) == (
            "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )

    def test_node_with_the_lower_pod_is_chosen(self) -> None:
        crowd = Crowd(
            [node("n1", pods=1), node("n2", pods=1)], [held("a", "n1", SMALL, HIGH), held("b", "n2", SMALL, LOW)]
        )
        assert crowd.victims(preemptor(SMALL, MID)) == ("n2", ("b",))

    def test_no_eviction_helps_on_a_node_that_is_too_small_when_empty(self) -> None:
        crowd = Crowd([node("n1", "200m")], [held("a", "n1", SMALL, LOW)])
        assert crowd.refusal(preemptor(LARGE, HIGH)) == (
            "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )

    def test_node_where_too_many_pods_must_stay_is_counted_by_its_resource(self) -> None:
        crowd = Crowd([node("n1")], [held("a", "n1", SMALL, LOW), held("b", "n1", LARGE, HIGH)])
        assert crowd.refusal(preemptor(LARGE, HIGH)) == (
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
        )

    def test_first_reason_that_a_pod_may_end_has_victims_searched_whatever_reasons_follow(self) -> None:
        # kube-scheduler stops at the ports, and learns on the empty node alone that the node is too small
        ports = (HostPort("TCP", 80),)
        crowd = Crowd([node("n1", "200m")], [held("a", "n1", SMALL, LOW, host_ports=ports)])
        assert crowd.refusal(preemptor(LARGE, HIGH, host_ports=ports)) == (
            "0/1 nodes are available: 1 Insufficient cpu."
        )
        assert crowd.refusal(preemptor(LARGE, LOW, host_ports=ports)) == (
            "0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )

    def test_reasons_are_counted_side_by_side(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2"), node("n3", "200m")],
            [held("a", "n1", SMALL, LOW), held("b", "n1", LARGE, HIGH), held("c", "n2", WHOLE, HIGH)],
        )
        assert crowd.refusal(preemptor(LARGE, HIGH)) == (
            "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory,"
            " 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
        )

    def test_a_small_low_pod_stays_where_the_large_one_must_be_evicted_anyway(self) -> None:
        crowd = Crowd([node("n1")], [held("low", "n1", SMALL, LOW), held("mid", "n1", LARGE, MID)])
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("mid",))

    def test_more_important_pods_stay_as_long_as_the_pod_fits_beside_them(self) -> None:
        crowd = Crowd(
            [node("n1")],
            [
                held("mid-small", "n1", SMALL, MID),
                held("low-small", "n1", SMALL, LOW),
                held("mid-medium", "n1", MEDIUM, MID, started=2),
                held("high-small", "n1", SMALL, HIGH),
            ],
        )
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("low-small", "mid-medium"))

    def test_of_equal_pods_the_later_started_is_evicted(self) -> None:
        crowd = Crowd(
            [node("n1")],
            [
                held("five", "n1", SMALL, LOW, started=5),
                held("four", "n1", SMALL, LOW, started=4),
                held("mid-medium", "n1", MEDIUM, MID, started=2),
                held("high-small", "n1", SMALL, HIGH),
            ],
        )
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("five", "mid-medium"))

    def test_lowest_highest_victim_decides(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2"), node("n3")],
            [*on("n1", (MID, 1), (MID, 1)), *on("n2", (MID, 1), (LOW, 1)), *on("n3", (LOW, 1), (LOW, 1))],
        )
        assert crowd.victims(preemptor(WHOLE, HIGH))[0] == "n3"

    def test_then_the_lowest_sum_of_priorities(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2"), node("n3")],
            [*on("n1", (MID, 1), (MID, 1)), *on("n2", (MID, 1), (LOW, 1)), *on("n3", (MID, 1), (MID, 1))],
        )
        assert crowd.victims(preemptor(WHOLE, HIGH))[0] == "n2"

    def test_then_the_fewest_victims_even_where_priorities_are_negative(self) -> None:
        quarter = a_request(cpu="125m", memory="125")
        crowd = Crowd(
            [node("n1"), node("n2"), node("n3")],
            [
                *(held(f"n1-{i}", "n1", quarter, p) for i, p in enumerate((MID, MID, NEGATIVE, NEGATIVE))),
                *on("n2", (MID, 1), (NEGATIVE, 1)),
                held("n3-0", "n3", a_request(cpu="250m", memory="250"), MID),
                held("n3-1", "n3", quarter, NEGATIVE),
                held("n3-2", "n3", quarter, LOW),
            ],
        )
        assert crowd.victims(preemptor(WHOLE, HIGH))[0] == "n2"

    @pytest.mark.parametrize(
        ("starts", "expected"),
        [(((2, 2), (3, 3), (1, 1)), "n2"), (((4, 2), (5, 1), (3, 6)), "n3")],
    )
    def test_then_the_latest_of_the_earliest_starts(self, starts: tuple[tuple[int, int], ...], expected: str) -> None:
        names = ("n1", "n2", "n3")
        pods = [
            one for name, pair in zip(names, starts, strict=True) for one in on(name, *((MID, start) for start in pair))
        ]
        assert Crowd([node(name) for name in names], pods).victims(preemptor(WHOLE, HIGH))[0] == expected

    def test_only_the_starts_of_the_highest_victims_count(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2"), node("n3")],
            [*on("n1", (MID, 2), (LOW, 9)), *on("n2", (MID, 6), (LOW, 1)), *on("n3", (MID, 5), (LOW, 8))],
        )
        assert crowd.victims(preemptor(WHOLE, HIGH))[0] == "n2"

    def test_a_pod_without_a_start_time_counts_as_the_youngest(self) -> None:
        crowd = Crowd([node("n1")], [held("new", "n1", MEDIUM, LOW, started=0), held("old", "n1", MEDIUM, LOW)])
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("new",))

    @pytest.mark.parametrize(("disrupted", "violations"), [(frozenset[str](), 1), (frozenset(("a",)), 0)])
    def test_a_budget_breaks_once_its_disruptions_are_used_up(self, disrupted: frozenset[str], violations: int) -> None:
        pods = [held(name, "n1", MEDIUM, MID, labels=APP) for name in ("a", "b")]
        chosen = Crowd([node("n1")], pods, [budget("web", "web", 1, disrupted)]).choose(preemptor(WHOLE, HIGH))
        assert isinstance(chosen, Candidate)
        assert (chosen.victims, chosen.violations) == (("b", "a"), violations)

    def test_where_violations_are_equal_the_lower_highest_victim_decides(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2")],
            [
                held("n1-low", "n1", MEDIUM, LOW, labels=APP),
                held("n1-high", "n1", LARGE, HIGH),
                held("n2-mid", "n2", WHOLE, MID, labels=APP),
            ],
            [budget("web", "web", 0)],
        )
        assert crowd.victims(preemptor(WHOLE, TOP)) == ("n2", ("n2-mid",))

    def test_a_protected_low_pod_stays_and_the_unprotected_higher_one_is_evicted(self) -> None:
        crowd = Crowd(
            [node("n1")],
            [held("low", "n1", MEDIUM, LOW, labels=APP), held("mid", "n1", MEDIUM, MID)],
            [budget("web", "web", 0)],
        )
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("mid",))

    def test_fewest_violations_beat_fewer_and_lower_victims(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2"), node("n3")],
            [
                held("n1-a", "n1", WHOLE, LOW, labels=APP),
                held("n2-a", "n2", MEDIUM, LOW, labels=APP),
                held("n2-b", "n2", LARGE, LOW, labels=APP),
                *(held(f"n3-{i}", "n3", SMALL, MID) for i in range(5)),
            ],
            [budget("web", "web", 0)],
        )
        node_name, victims = crowd.victims(preemptor(WHOLE, HIGH))
        assert (node_name, len(victims)) == ("n3", 5)

    def test_a_budget_of_another_namespace_protects_nothing(self) -> None:
        crowd = Crowd(
            [node("n1")],
            [held("low", "n1", MEDIUM, LOW, labels=APP, namespace="other"), held("mid", "n1", MEDIUM, MID)],
            [budget("web", "web", 0)],
        )
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("low",))


class TestInPools:
    def test_a_borrower_of_higher_priority_than_the_preemptor_is_evicted(self) -> None:
        crowd = Crowd([node("n1")], [held("loan", "n1", WHOLE, TOP, borrower=True)])
        assert crowd.victims(preemptor(WHOLE, LOW)) == ("n1", ("loan",))

    def test_a_borrower_of_any_priority_is_evicted_before_any_home_pod(self) -> None:
        crowd = Crowd(
            [node("n1")], [held("loan", "n1", MEDIUM, TOP, borrower=True), held("home", "n1", MEDIUM, NEGATIVE)]
        )
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("loan",))

    def test_a_node_with_borrowers_only_beats_one_with_the_lowest_home_pod(self) -> None:
        loans = [held(f"loan-{i}", "n2", SMALL, TOP, borrower=True) for i in range(5)]
        crowd = Crowd([node("n1"), node("n2")], [held("home", "n1", WHOLE, -(2**31)), *loans])
        assert crowd.victims(preemptor(WHOLE, HIGH))[0] == "n2"

    def test_borrowers_are_evicted_before_home_pods_and_the_least_important_first(self) -> None:
        crowd = Crowd(
            [node("n1")],
            [
                held("home-low", "n1", SMALL, LOW),
                held("home-mid", "n1", SMALL, MID),
                held("loan-low", "n1", SMALL, LOW, borrower=True),
                held("loan-high", "n1", MEDIUM, HIGH, borrower=True),
            ],
        )
        assert crowd.victims(preemptor(WHOLE, HIGH)) == ("n1", ("loan-low", "loan-high", "home-low", "home-mid"))

    def test_a_protected_borrower_stays_where_a_home_pod_can_be_evicted_instead(self) -> None:
        crowd = Crowd(
            [node("n1")],
            [held("loan", "n1", MEDIUM, LOW, borrower=True, labels=APP), held("home", "n1", MEDIUM, LOW)],
            [budget("web", "web", 0)],
        )
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("home",))

    def test_pods_that_are_not_evictable_are_never_victims(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2")],
            [
                held("foreign", "n1", WHOLE, LOW, evictable=False),
                held("daemon", "n2", WHOLE, LOW, borrower=True, evictable=False),
            ],
        )
        assert crowd.refusal(preemptor(WHOLE, HIGH)) == (
            "0/2 nodes are available: 2 No preemption victims found for incoming pod."
        )

    def test_no_pod_is_evicted_where_leaving_pods_free_enough_room(self) -> None:
        crowd = Crowd(
            [node("n1"), node("n2")],
            [held("cheap", "n1", WHOLE, NEGATIVE), held("going", "n2", WHOLE, HIGH, leaving=True)],
        )
        assert crowd.victims(preemptor(WHOLE, MID)) == ("n2", ())

    def test_leaving_pods_of_any_kind_count_as_gone_and_are_not_chosen_again(self) -> None:
        crowd = Crowd(
            [node("n1")],
            [
                held("going", "n1", MEDIUM, TOP, leaving=True, evictable=False),
                held("loan", "n1", SMALL, LOW, borrower=True),
                held("home", "n1", MEDIUM, LOW),
            ],
        )
        assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("loan",))

    def test_leaving_pods_are_no_victims(self) -> None:
        crowd = Crowd([node("n1")], [held("going", "n1", SMALL, LOW, leaving=True), held("home", "n1", LARGE, HIGH)])
        assert crowd.refusal(preemptor(LARGE, HIGH)) == (
            "0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )

    def test_a_pod_that_may_not_be_evicted_stays_and_the_next_best_is_evicted(self) -> None:
        others = (held("a", "n1", WHOLE, LOW), held("b", "n2", WHOLE, MID))
        assert Crowd([node("n1"), node("n2")], others).victims(preemptor(WHOLE, HIGH)) == ("n1", ("a",))
        stays = (held("a", "n1", WHOLE, LOW, evictable=False), held("b", "n2", WHOLE, MID))
        assert Crowd([node("n1"), node("n2")], stays).victims(preemptor(WHOLE, HIGH)) == ("n2", ("b",))

    def test_a_pod_with_the_host_port_that_the_preemptor_needs_is_evicted(self) -> None:
        port = HostPort("TCP", 80)
        crowd = Crowd(
            [node("n1")],
            [held("cheap", "n1", SMALL, NEGATIVE), held("web", "n1", SMALL, MID, host_ports=(port,))],
        )
        assert crowd.victims(preemptor(SMALL, HIGH, host_ports=(port,))) == ("n1", ("web",))

    def test_a_port_of_a_pod_that_stays_is_the_reason(self) -> None:
        port = HostPort("TCP", 80)
        crowd = Crowd(
            [node("n1")],
            [
                held("cheap", "n1", SMALL, NEGATIVE),
                held("web", "n1", SMALL, MID, host_ports=(port,), evictable=False),
            ],
        )
        assert crowd.refusal(preemptor(SMALL, HIGH, host_ports=(port,))) == (
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
        )

    def test_equal_nodes_are_chosen_by_name_and_equal_pods_by_uid_in_any_order_of_arrival(self) -> None:
        pods = [held(name, name[:2], MEDIUM, LOW, started=0) for name in ("n1-a", "n1-b", "n2-a", "n2-b")]
        for order in permutations(pods):
            for names in (("n1", "n2"), ("n2", "n1")):
                crowd = Crowd([node(name) for name in names], order)
                assert crowd.victims(preemptor(LARGE, HIGH)) == ("n1", ("n1-b",))

    def test_no_rows_have_a_reason_of_their_own(self) -> None:
        assert Crowd([], []).refusal(preemptor(SMALL, HIGH)) == "no nodes available to schedule pods"

    def test_only_the_given_rows_are_searched(self) -> None:
        crowd = Crowd([node("n1"), node("n2")], [held("a", "n1", WHOLE, LOW), held("b", "n2", WHOLE, MID)])
        crowd.rows = np.array([crowd.table.rows["n2"]], dtype=np.intp)
        assert crowd.victims(preemptor(WHOLE, HIGH)) == ("n2", ("b",))

    def test_a_claim_is_viable_once_its_victims_are_gone(self) -> None:
        pods = [held("going", "n1", LARGE, LOW, leaving=True), held("stays", "n1", MEDIUM, LOW)]
        crowd = Crowd([node("n1")], pods)
        assert crowd.fits_after_departures(preemptor(LARGE, HIGH), "n1")
        assert not crowd.fits_after_departures(preemptor(WHOLE, HIGH), "n1")
        assert not crowd.fits_after_departures(preemptor(SMALL, HIGH, node_selector={"zone": "z"}), "n1")

    def test_no_more_pods_of_a_node_than_the_limit_are_victims_the_least_important_ones(self) -> None:
        tiny = a_request(cpu="1m", memory="1")
        pods = [held(f"p{i:03}", "n1", tiny, LOW, started=1 + i) for i in range(VICTIMS_MAX + 10)]
        crowd = Crowd([node("n1", cpu=f"{len(pods)}m", pods=1_000)], pods)
        node_name, victims = crowd.victims(preemptor(a_request(cpu=f"{VICTIMS_MAX}m"), HIGH))
        assert (node_name, len(victims)) == ("n1", VICTIMS_MAX)
        assert (victims[0], victims[-1]) == ("p521", "p010")
        assert crowd.refusal(preemptor(a_request(cpu=f"{VICTIMS_MAX + 1}m"), HIGH)) == (
            "0/1 nodes are available: 1 Insufficient cpu."
        )

    def test_a_choice_changes_no_table(self) -> None:
        port = HostPort("TCP", 80)
        crowd = Crowd(
            [node("n1")],
            [
                held("a", "n1", MEDIUM, LOW, host_ports=(port,)),
                held("b", "n1", MEDIUM, LOW, host_ports=(HostPort("UDP", 53),), leaving=True),
            ],
        )
        table = crowd.table
        before = (
            table.used.copy(),
            table.scored.copy(),
            table.version,
            {r: dict(p) for r, p in table.ports.on.items()},
        )
        held_ports = {port: table.ports.rows.rows(port) for port in table.ports.rows.values()}
        crowd.choose(preemptor(a_request(cpu="400m", extended={"never/seen": "0"}), HIGH, host_ports=(port,)))
        crowd.fits_after_departures(preemptor(WHOLE, HIGH), "n1")
        assert np.array_equal(before[0], table.used)
        assert np.array_equal(before[1], table.scored)
        assert (table.version, table.ports.on) == before[2:]
        assert {port: table.ports.rows.rows(port) for port in table.ports.rows.values()} == held_ports


class TestGangs:
    def victims(self, spare: Spare, *pods: Held) -> list[str]:
        """Return who goes for a pod of 200m on a node of 500m, which pods of one gang fill."""
        crowd = Crowd([node("n1")], pods)
        for one in pods:
            crowd.running.change(one.pod.uid, replace(one.facts, unit=1))
        crowd.running.set_spare(1, spare)
        asked = preemptor(MEDIUM, HIGH)
        chosen = crowd.choose(asked)
        assert isinstance(chosen, Candidate)
        return sorted(fewest(asked, crowd.runner, crowd.running, crowd.budgets, chosen, rows=crowd.rows).victims)

    def test_larger_pod_goes_alone_where_the_gang_cannot_spare_two_smaller_ones(self) -> None:
        pods = [held("a", "n1", LARGE, LOW), held("b", "n1", SMALL, LOW), held("c", "n1", SMALL, LOW)]
        assert self.victims(Spare(1), *pods) == ["a"]
        assert self.victims(Spare(2), *pods) == ["b", "c"]

    def test_fewest_pods_go_where_the_gang_cannot_spare_more_and_of_these_the_least_important(self) -> None:
        tiny = a_request(cpu="50m", memory="50")
        pods = [
            *(held(name, "n1", SMALL, LOW) for name in ("a", "b", "c")),
            *(held(name, "n1", tiny, LOW) for name in ("v", "w", "x", "y")),
        ]
        assert self.victims(Spare(4), *pods) == ["v", "w", "x", "y"]
        assert self.victims(Spare(3), *pods) == ["b", "c"]

    def test_gang_goes_whole_where_no_pods_that_it_can_spare_are_enough(self) -> None:
        pods = [held(f"a{i}", "n1", SMALL, LOW) for i in range(5)]
        assert self.victims(Spare(1), *pods) == ["a0", "a1", "a2", "a3", "a4"]

    def test_pod_that_may_not_go_by_itself_goes_with_its_gang_alone(self) -> None:
        pods = [held("a", "n1", LARGE, TOP), held("b", "n1", SMALL, LOW), held("c", "n1", SMALL, LOW)]
        assert self.victims(Spare(1), *pods) == ["a", "b", "c"]

    def test_pod_goes_whose_role_can_spare_one(self) -> None:
        pods = [held("a", "n1", LARGE, LOW), held("b", "n1", MEDIUM, LOW)]
        roles = {"a": "worker", "b": "launcher"}
        assert self.victims(Spare(1, (("launcher", 0), ("worker", 1)), roles), *pods) == ["a"]
