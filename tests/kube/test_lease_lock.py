import json

import pytest

from aischeduler.kube.lease_lock import (
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


def test_new_lease_is_held_from_the_first_moment_in_term_zero() -> None:
    document = json.loads(new_lease("s", "ns", "a", 15, WALL))
    assert (document["kind"], document["metadata"]) == ("Lease", {"name": "s", "namespace": "ns"})
    assert document["spec"] == {**HELD, "acquireTime": HELD["renewTime"], "leaseTransitions": 0}


def test_taking_begins_a_new_term_over_the_version_that_was_read() -> None:
    patch = json.loads(acquire_patch(a_lease("b", term=3), "a", 15, WALL))
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"] == {**HELD, "acquireTime": HELD["renewTime"], "leaseTransitions": 4}


def test_renewing_changes_neither_term_nor_the_time_it_began() -> None:
    assert json.loads(renew_patch(a_lease("a"), "a", 15, WALL)) == {"metadata": {"resourceVersion": "7"}, "spec": HELD}


def test_giving_back_tells_up_to_where_pods_were_seen_and_the_next_term_forgets_it() -> None:
    patch = json.loads(release_patch(a_lease("a"), "4711", WALL))
    assert patch["spec"]["holderIdentity"] == ""
    assert patch["spec"]["leaseDurationSeconds"] == 1
    free = read_lease(json.dumps(patch).encode())
    assert free.pods_seen == "4711"
    key = "scheduling.resource.aibee.cn/pods-seen"
    assert json.loads(acquire_patch(free, "b", 15, WALL))["metadata"]["annotations"] == {key: None}


@pytest.mark.parametrize(("seconds", "free_at"), [(15, 115.0), (30, 130.0), (None, 110.0), (0, 110.0), (10**9, 3700.0)])
def test_lease_is_free_so_long_after_its_last_change_as_it_says_itself(seconds: int | None, free_at: float) -> None:
    observed = ObservedLease()
    observed.observe(a_lease("b", seconds=seconds), 100.0)
    observed.observe(a_lease("b", seconds=seconds, version="8"), 105.0)  # a field that is not of the spec
    assert observed.expires_at(10.0) == free_at


def test_time_of_a_holder_begins_anew_with_each_renewal() -> None:
    observed = ObservedLease()
    observed.observe(a_lease("b", renew="t1"), 100.0)
    observed.observe(a_lease("b", renew="t2"), 105.0)
    assert observed.expires_at(10.0) == 120.0


def test_lease_that_nobody_holds_is_free_at_once() -> None:
    observed = ObservedLease()
    assert observed.expires_at(10.0) == float("-inf")
    observed.observe(a_lease(""), 100.0)
    assert observed.expires_at(10.0) == float("-inf")
