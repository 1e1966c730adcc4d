"""Random days on which most pods have affinity terms: `test_engine` has them on a quarter of the pods."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from aischeduler.model.pod_affinity import pod_affinity
from tests import seeds
from tests.build import a_pod
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import TakingBack
from tests.properties.test_exceptions import BreakingEngine, play_exceptions
from tests.properties.wishes import NAMESPACES, PODS_MAX, POOLS, TERMS, Wishes

PODS = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["100m", "100m", "1", "2"]),
        "pool": st.sampled_from([*POOLS, ""]),
        "priority": st.sampled_from([0, 0, 5, 10]),
        "copies": st.integers(1, 3),
        "namespace": st.sampled_from(NAMESPACES),
        "app": st.sampled_from(["x", "x", "y"]),
        "terms": st.sampled_from(range(len(TERMS))),
    }
)


class AffinityEngine(TakingBack):
    """One engine, to which pods with terms come; most are small, so that terms decide where they fit."""

    @rule(wishes=PODS)
    def pods_with_terms_come(self, wishes: Wishes) -> None:
        self._with_terms(**wishes)
        self.world.go_on()

    @rule(wishes=PODS)
    def more_pods_with_terms_come(self, wishes: Wishes) -> None:
        self._with_terms(**wishes)
        self.world.go_on()

    def _with_terms(
        self, *, cpu: str, pool: str, priority: int, copies: int, namespace: str, app: str, terms: int
    ) -> None:
        for _ in range(copies):
            if len(self.world.pods) >= PODS_MAX:
                self._oldest_pod_ends()
            pod = a_pod(
                self.world.next_pod_name(),
                cpu=cpu,
                pool=pool,
                priority=priority,
                namespace=namespace,
                labels={"app": app},
                created=int(self.world.now),
                pod_affinity=pod_affinity(**TERMS[terms]),
            )
            self.world.put(pod)


def test_random_days_with_affinity_briefly() -> None:
    play(AffinityEngine, seeds.number("affinity, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_affinity() -> None:
    play(AffinityEngine, seeds.number("affinity"), runs=3)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_affinity_at_length(number: int) -> None:
    play(AffinityEngine, seeds.number(f"affinity, at length {number}"), runs=300)


class BreakingAffinityEngine(BreakingEngine, AffinityEngine):
    """One engine that raises at calls that the seed chooses, to which pods with terms come."""


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_exception_costs_a_pod_with_affinity_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    play_exceptions(monkeypatch, 4, BreakingAffinityEngine)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_exception_costs_a_pod_with_affinity_one_attempt_at_length(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    play_exceptions(monkeypatch, 50, BreakingAffinityEngine, f"affinity, at length {number}")
