"""The warnings about a pod: their messages, and how often they are written."""

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import Action, Warn
from aischeduler.model.unsupported_constraints import Constraint, ConstraintKind
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds

APART = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
NEAR = "spec.affinity.podAffinity"
ANTI_AFFINITY = Constraint(ConstraintKind.RESOURCE_CLAIM, APART)
NEARBY = Constraint(ConstraintKind.RESOURCE_CLAIM, NEAR)
IGNORE = replace(default_profile(), hold_unsupported=False)


def warned(actions: list[Action], reason: str) -> list[str]:
    return [one.message for one in actions if isinstance(one, Warn) and (one.about.kind, one.reason) == ("Pod", reason)]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cpu ", " Did you mean cpu?"),
        ("CPU", " Did you mean cpu?"),
        ("cppu", " Did you mean cpu?"),
        ("research", ""),
    ],
)
def test_warning_of_an_unknown_pool_names_the_home_pool_and_a_similar_name(name: str, hint: str) -> None:
    session = Session(a_pool("cpu", labels={"cpu": "true"}), a_node("free", cpu="2"), a_pod("p", pool=name))
    said = session.decide()
    assert binds(said) == {"p": "free"}
    there_is_none = f'The Pool "{name}" does not exist (annotation or label resource.aibee.cn/pool)'
    until = "until it does," if name == name.lower().strip() else "no Pool can have this name, so"
    assert warned(said, "UnknownPool") == [f"{there_is_none}; {until} the pod belongs to the pool default.{hint}"]


def test_pod_whose_hard_constraint_is_ignored_is_placed_and_warned_once_by_field() -> None:
    session = Session(
        a_node("n", cpu="1"), a_pod("p", cpu="2", unsupported_constraints=(ANTI_AFFINITY,)), profile=IGNORE
    )
    said = session.decide()
    assert warned(said, "UnsupportedConstraint") == [
        f"{APART} is not supported by ai-scheduler; the pod is scheduled as if this was not set."
    ]
    session.see(a_node("n", cpu="2"))
    again = session.decide(60)
    assert binds(again) == {"p": "n"}
    assert warned(again, "UnsupportedConstraint") == []


def test_one_warning_has_all_fields_beside_the_warning_of_an_unknown_pool() -> None:
    pod = a_pod("p", pool="nowhere", unsupported_constraints=(ANTI_AFFINITY, NEARBY))
    session = Session(a_node("n"), pod, profile=IGNORE)
    said = session.decide()
    (message,) = warned(said, "UnsupportedConstraint")
    assert message.startswith(f"{APART}, {NEAR} are not supported")
    assert len(warned(said, "UnknownPool")) == 1


def test_pod_without_such_constraints_has_no_warning() -> None:
    assert [one for one in Session(a_node("n"), a_pod("p")).decide() if isinstance(one, Warn)] == []


def test_warning_about_a_pod_has_the_scheduler_name_of_the_pod() -> None:
    profile = replace(default_profile(), others={"batch": default_profile().plugins})
    pod = a_pod("p", pool="nowhere", scheduler_name="batch")
    said = Session(a_node("n"), replace(pod, spec=replace(pod.spec, profile="batch")), profile=profile).decide()
    assert [one.scheduler_name for one in said if isinstance(one, Warn)] == ["batch"]
