"""Rows N1-N5 and N13 of kube-scheduler's own cases."""

import pytest

from aischeduler.model.node import PREFER_NO_SCHEDULE, Taint
from aischeduler.model.pod import Toleration
from aischeduler.plugins.taint_toleration import REASON, TaintToleration
from tests.build import a_node, a_pod, a_taint, tolerates
from tests.plugins.table import a_table, passing, reasons, scores

TAINTS = TaintToleration()
DEDICATED = a_taint("dedicated", "user1", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        ((), False),
        ((Toleration("dedicated", "Equal", "user2", "NoSchedule"),), False),
        ((Toleration("dedicated", "Equal", "user1", "NoSchedule"),), True),
        ((tolerates("dedicated", effect="NoSchedule"),), True),
        ((Toleration("dedicated", "Equal", "user1", ""),), True),
        ((Toleration("dedicated", "Equal", "user1", "PreferNoSchedule"),), False),
        ((Toleration("", "Exists", "", ""),), True),
    ],
)
def test_n4_taint_excludes_pods_that_do_not_tolerate_it(toleration: tuple[Toleration, ...], passes: bool) -> None:
    table = a_table(a_node("n", taints=(DEDICATED,)))
    assert (passing(TAINTS, a_pod(tolerations=toleration), table) == ["n"]) is passes


def test_no_execute_excludes_pods_too_and_the_reason_counts_nodes() -> None:
    table = a_table(
        a_node("a", taints=(a_taint("x", "", "NoExecute"), DEDICATED)), a_node("b", taints=(DEDICATED,)), a_node("c")
    )
    assert passing(TAINTS, a_pod(), table) == ["c"]
    assert reasons(TAINTS, a_pod(), table) == {REASON: 2}


def test_n5_prefer_no_schedule_excludes_no_pod() -> None:
    assert passing(TAINTS, a_pod(), a_table(a_node("n", taints=(a_taint("x", "", PREFER_NO_SCHEDULE),)))) == ["n"]


def test_n2_fewer_untolerated_preferences_score_higher() -> None:
    prefer = [Taint(key, "", PREFER_NO_SCHEDULE) for key in "xy"]
    table = a_table(a_node("a"), a_node("b", taints=(prefer[0],)), a_node("c", taints=tuple(prefer)))
    assert scores(TAINTS, a_pod(), table) == [100, 50, 0]


def test_n1_node_whose_preference_is_tolerated_scores_like_one_without() -> None:
    foo = [Taint("foo", value, PREFER_NO_SCHEDULE) for value in ("bar", "blah")]
    table = a_table(a_node("a", taints=(foo[0],)), a_node("b", taints=(foo[1],)))
    assert scores(TAINTS, a_pod(tolerations=(Toleration("foo", "Equal", "bar", PREFER_NO_SCHEDULE),)), table) == [
        100,
        0,
    ]


def test_n3_only_preferences_count_in_the_score() -> None:
    prefer = [Taint(key, "", PREFER_NO_SCHEDULE) for key in "xy"]
    table = a_table(a_node("a"), a_node("b", taints=(DEDICATED,)), a_node("c", taints=tuple(prefer)))
    tolerations = (tolerates("dedicated", effect="NoSchedule"), tolerates("x", effect="NoSchedule"))
    assert scores(TAINTS, a_pod(tolerations=tolerations), table) == [100, 100, 0]


def test_tolerations_of_other_effects_do_not_count_for_preferences() -> None:
    table = a_table(a_node("a"), a_node("b", taints=(Taint("foo", "bar", PREFER_NO_SCHEDULE),)))
    pod = a_pod(tolerations=(Toleration("foo", "Equal", "bar", "NoSchedule"),))
    assert scores(TAINTS, pod, table) == [100, 0]
    pod = a_pod(tolerations=(Toleration("foo", "Equal", "bar", PREFER_NO_SCHEDULE),))
    assert scores(TAINTS, pod, table) == [100, 100]


def test_a_node_helps_if_all_its_hard_taints_are_tolerated() -> None:
    spec = a_pod(tolerations=(tolerates("dedicated"),)).spec
    assert TAINTS.helps(spec, a_node(taints=(DEDICATED, a_taint("soft", "", PREFER_NO_SCHEDULE))))
    assert not TAINTS.helps(spec, a_node(taints=(DEDICATED, a_taint("other"))))
