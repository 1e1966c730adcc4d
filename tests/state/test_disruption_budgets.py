import numpy as np

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import Labels, LabelSelector, Operator, label_selector
from aischeduler.state.disruption_budgets import BudgetTable
from tests.build import a_pod, expression, replace

LOOKS: list[Labels] = []


class CountedSelector(LabelSelector, frozen=True):
    """A selector that counts the objects it is matched against."""

    def matches(self, labels: Labels) -> bool:
        LOOKS.append(labels)
        return super().matches(labels)


WEB = {"app": "web"}
KEY = ("default", "web")


def a_budget(
    name: str = "web", *, allowed: int = 1, app: str = "web", disrupted: frozenset[str] = frozenset()
) -> DisruptionBudget:
    return DisruptionBudget("default", name, "", label_selector("s", {"app": app}, ()), allowed, disrupted)


def a_web_pod(name: str) -> Pod:
    return replace(a_pod(name, uid=name), labels=WEB)


def a_table(*pods: Pod) -> BudgetTable:
    by_uid = {pod.uid: pod for pod in pods}
    return BudgetTable(by_uid.__getitem__)


def test_a_pod_counts_against_every_budget_that_covers_it_in_the_order_of_names() -> None:
    pod = a_web_pod("a")
    table = a_table(pod)
    for name in ("z", "b"):
        table.see(a_budget(name))
    table.see(a_budget("other", app="db"))
    assert table.covering(pod) == (("default", "b"), ("default", "z"))
    assert table.protects("a")


def broken(table: BudgetTable, *pods_and_rows: tuple[str, int]) -> list[bool]:
    uids = [uid for uid, _ in pods_and_rows]
    mask = table.broken(uids, np.array([row for _, row in pods_and_rows], dtype=np.intp))
    return [bool(one) for one in mask]


def test_without_budgets_no_pod_is_looked_up() -> None:
    assert broken(a_table(), ("unknown", 0)) == [False]
    assert not a_table().protects("unknown")


def test_the_pods_beyond_what_a_budget_allows_break_it_row_by_row() -> None:
    table = a_table(*(a_web_pod(name) for name in "abcd"), a_pod("free", uid="free"))
    table.see(a_budget(allowed=1))
    assert broken(table, ("a", 0), ("free", 0), ("b", 0), ("c", 1), ("d", 1)) == [False, False, True, False, True]
    table.see(a_budget("strict", allowed=0))
    assert broken(table, ("a", 0), ("free", 0)) == [True, False]


def test_a_budget_that_is_overdrawn_allows_nothing() -> None:
    table = a_table(a_web_pod("a"))
    table.see(a_budget(allowed=-2))
    assert broken(table, ("a", 0)) == [True]


def test_requested_evictions_count_until_the_next_status_of_the_budget() -> None:
    table = a_table()
    table.see(a_budget(allowed=2))
    table.note_eviction(a_web_pod("a"))
    table.note_eviction(a_web_pod("a"))
    assert table.left(KEY) == 1
    table.see(a_budget(allowed=1))
    assert table.left(KEY) == 1


def test_a_refused_eviction_does_not_count() -> None:
    table = a_table()
    table.see(a_budget(allowed=1))
    table.note_eviction(a_web_pod("a"))
    table.note_refusal(a_web_pod("a"))
    table.note_refusal(a_web_pod("never"))
    assert table.left(KEY) == 1


def test_a_deleted_budget_protects_nothing() -> None:
    table = a_table()
    table.see(a_budget())
    table.forget("default", "web")
    table.forget("default", "web")
    assert table.covering(a_web_pod("a")) == ()


def test_pods_of_other_namespaces_and_pods_that_the_budget_counted_are_not_covered() -> None:
    table = a_table()
    table.see(a_budget(disrupted=frozenset(("a",))))
    assert table.covering(a_web_pod("a")) == ()
    assert table.covering(replace(a_web_pod("b"), namespace="other")) == ()
    assert table.covering(a_web_pod("b")) == (KEY,)


def test_changed_labels_and_changed_selectors_take_effect() -> None:
    table = a_table()
    table.see(a_budget())
    assert table.covering(a_web_pod("a")) == (KEY,)
    assert table.covering(replace(a_web_pod("a"), labels={"app": "db"})) == ()
    table.see(a_budget(app="db"))
    assert table.covering(a_web_pod("a")) == ()


def test_evictions_under_way_count_after_the_next_status_too() -> None:
    table = a_table(a_web_pod("a"), a_web_pod("b"), a_pod("free", uid="free"))
    table.see(a_budget(allowed=3))
    table.note_eviction(a_web_pod("a"))
    table.note_eviction(a_web_pod("b"))
    table.see(a_budget(allowed=3), ("a", "free"))
    assert table.left(KEY) == 2, "b is no longer under way, and no budget covers the third pod"
    table.see(a_budget(allowed=2, disrupted=frozenset(("a",))), ("a",))
    assert table.left(KEY) == 2, "the status has counted it"
    table.see(a_budget("new", allowed=1), ("b",))
    assert table.left(("default", "new")) == 0, "the status of a new budget may be older too"
    table.note_refusal(a_web_pod("b"))
    assert table.left(("default", "new")) == 1


def test_refused_eviction_is_uncounted_by_a_budget_that_no_longer_covers_the_pod() -> None:
    table = a_table()
    table.see(a_budget(allowed=1))
    table.note_eviction(a_web_pod("a"))
    table.note_refusal(replace(a_web_pod("a"), labels={"app": "db"}))
    assert table.left(KEY) == 1


def test_new_status_of_a_budget_matches_no_pod_again() -> None:
    LOOKS.clear()
    pods = tuple(a_web_pod(name) for name in "abcd")
    table = a_table(*pods)
    selector = CountedSelector(label_selector("s", WEB, ()).requirements)
    for allowed in (1, 2, 3):
        table.see(DisruptionBudget("default", "web", "", selector, allowed))
        assert [table.covering(pod) for pod in pods] == [(KEY,)] * 4
    assert len(LOOKS) == len(pods)


def test_budgets_of_a_pod_are_kept_until_the_pod_is_gone() -> None:
    LOOKS.clear()
    pods = tuple(a_web_pod(f"p{number}") for number in range(20_000))
    table = a_table(*pods)
    table.see(DisruptionBudget("default", "web", "", CountedSelector(label_selector("s", WEB, ()).requirements), 1))
    for _ in range(2):
        assert {table.covering(pod) for pod in pods} == {(KEY,)}
    assert len(LOOKS) == len(pods)
    table.forget_pod(pods[7])
    assert table.covering(pods[7]) == (KEY,)
    assert len(LOOKS) == len(pods) + 1


def test_each_pod_is_covered_by_exactly_the_budgets_that_match_it() -> None:
    selectors = (
        None,
        label_selector("s", {}, ()),
        label_selector("s", WEB, ()),
        label_selector("s", {"app": "web", "tier": "front"}, ()),
        label_selector("s", {}, (expression("app", Operator.IN, "web", "db", "web"),)),
        label_selector("s", {}, (expression("app", Operator.NOT_IN, "web"),)),
        label_selector("s", {}, (expression("tier", Operator.EXISTS), expression("app", Operator.IN, "db"))),
        label_selector("s", {}, (expression("tier", Operator.DOES_NOT_EXIST),)),
    )
    budgets = [DisruptionBudget("default", f"b{i}", "", selector, 1) for i, selector in enumerate(selectors)]
    table = a_table()
    for budget in reversed(budgets):
        table.see(budget)
    for labels in (
        {},
        WEB,
        {"app": "db"},
        {"app": "web", "tier": "front"},
        {"app": "db", "tier": "back"},
        {"x": "web"},
    ):
        pod = replace(a_web_pod(str(labels)), labels=labels)
        assert table.covering(pod) == tuple(("default", budget.name) for budget in budgets if budget.covers(pod))


def test_budgets_of_a_pod_follow_budgets_that_come_change_and_go() -> None:
    pod = a_web_pod("a")
    table = a_table()
    for budgets, covering in (
        ((a_budget(),), (KEY,)),
        ((a_budget("z"), a_budget("b")), (("default", "b"), KEY, ("default", "z"))),
        ((a_budget("b", app="db"),), (KEY, ("default", "z"))),
        ((a_budget(disrupted=frozenset("a")),), (("default", "z"),)),
        ((a_budget(),), (KEY, ("default", "z"))),
    ):
        for budget in budgets:
            table.see(budget)
        assert table.covering(pod) == covering
    table.forget("default", "z")
    assert table.covering(pod) == (KEY,)
