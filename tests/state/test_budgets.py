from dataclasses import replace

from aischeduler.model.budget import Budget
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import label_selector
from aischeduler.state.budgets import BudgetTable
from tests.build import a_pod

WEB = {"app": "web"}
KEY = ("default", "web")


def a_budget(
    name: str = "web", *, allowed: int = 1, app: str = "web", disrupted: frozenset[str] = frozenset()
) -> Budget:
    return Budget("default", name, "", label_selector("s", {"app": app}, ()), allowed, disrupted)


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
    assert table.covering_each(["a"]) == [(("default", "b"), ("default", "z"))]


def test_without_budgets_nobody_is_looked_up() -> None:
    assert a_table().covering_each(["unknown"]) == []


def test_evictions_asked_for_use_the_budget_up_until_it_tells_of_itself_again() -> None:
    table = a_table()
    table.see(a_budget(allowed=2))
    table.note_eviction(a_web_pod("a"))
    table.note_eviction(a_web_pod("a"))
    assert table.left(KEY) == 1
    table.see(a_budget(allowed=1))
    assert table.left(KEY) == 1


def test_an_eviction_that_came_to_nothing_uses_nothing_up() -> None:
    table = a_table()
    table.see(a_budget(allowed=1))
    table.note_eviction(a_web_pod("a"))
    table.note_refusal(a_web_pod("a"))
    table.note_refusal(a_web_pod("never"))
    assert table.left(KEY) == 1


def test_a_forgotten_budget_protects_nothing() -> None:
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


def test_other_labels_and_other_selectors_are_seen() -> None:
    table = a_table()
    table.see(a_budget())
    assert table.covering(a_web_pod("a")) == (KEY,)
    assert table.covering(replace(a_web_pod("a"), labels={"app": "db"})) == ()
    table.see(a_budget(app="db"))
    assert table.covering(a_web_pod("a")) == ()
