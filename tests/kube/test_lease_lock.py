import json

import pytest

from aischeduler.kube.election import (
    Lease,
    ObservedLease,
    acquire_patch,
    new_lease,
    read_lease,
    release_patch,
    renew_patch,
)

WALL = 1_700_000_000.25
HELD = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2023-11-14T22:13:20.250000Z"}


def a_lease(holder: str, *, version: str = "7", seconds: int | None = 15, renew: str = "t1", term: int = 3) -> Lease:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renew, "leaseTransitions": term}
    return read_lease(json.dumps({"metadata": {"name": "s", "resourceVersion": version}, "spec": spec}).encode())


def test_new_lease_is_held_in_term_zero() -> None:
    document = json.loads(new_lease("s", "ns", "a", 15, WALL))
    assert (document["kind"], document["metadata"]) == ("Lease", {"name": "s", "namespace": "ns"})
    assert document["spec"] == {**HELD, "acquireTime": HELD["renewTime"], "leaseTransitions": 0}


def test_acquiring_begins_a_new_term_at_the_version_that_was_read() -> None:
    patch = json.loads(acquire_patch(a_lease("b", term=3), "a", 15, WALL))
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"] == {**HELD, "acquireTime": HELD["renewTime"], "leaseTransitions": 4}


def test_renewing_changes_neither_the_term_nor_its_start() -> None:
    assert json.loads(renew_patch(a_lease("a"), "a", 15, WALL)) == {"metadata": {"resourceVersion": "7"}, "spec": HELD}


def test_release_writes_the_version_of_pods_and_the_next_term_removes_it() -> None:
    patch = json.loads(release_patch(a_lease("a"), "4711", WALL))
    assert patch["spec"]["holderIdentity"] == ""
    assert patch["spec"]["leaseDurationSeconds"] == 1
    free = read_lease(json.dumps(patch).encode())
    assert free.pods_seen == "4711"
    key = "scheduling.resource.aibee.cn/pods-seen"
    assert json.loads(acquire_patch(free, "b", 15, WALL))["metadata"]["annotations"] == {key: None}


@pytest.mark.parametrize(("seconds", "free_at"), [(15, 115.0), (30, 130.0), (None, 110.0), (0, 110.0), (10**9, 3700.0)])
def test_lease_expires_its_duration_after_its_last_change(seconds: int | None, free_at: float) -> None:
    observed = ObservedLease()
    observed.observe(a_lease("b", seconds=seconds), 100.0)
    observed.observe(a_lease("b", seconds=seconds, version="8"), 105.0)  # a field outside of the spec
    assert observed.expires_at(10.0) == free_at


def test_duration_starts_again_with_each_renewal() -> None:
    observed = ObservedLease()
    observed.observe(a_lease("b", renew="t1"), 100.0)
    observed.observe(a_lease("b", renew="t2"), 105.0)
    assert observed.expires_at(10.0) == 120.0


def test_lease_without_a_holder_is_free_at_once() -> None:
    observed = ObservedLease()
    assert observed.expires_at(10.0) == float("-inf")
    observed.observe(a_lease(""), 100.0)
    assert observed.expires_at(10.0) == float("-inf")
