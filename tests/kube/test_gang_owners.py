"""Jobs and JobSets by whether they ask for a gang: every order of pods and owners, and owners that never turn up."""

import pytest
from msgspec.structs import astuple

from aischeduler.kube.decode import gang_owners
from aischeduler.kube.decode.gang_owners import UNSEEN_SECONDS_MAX, GangOwners
from aischeduler.model.events import Seen, gone
from aischeduler.model.gang import Gang, GangKey, GangSource

JOB = GangKey(GangSource.JOB, "default", "j")
JOB_SET = GangKey(GangSource.JOB_SET, "default", "s")
GANG = Gang(JOB, min_member=4, uid="u")
PLAIN = Seen(Gang(JOB, min_member=1, uid="u"))


def listed_owners() -> GangOwners:
    owners = GangOwners()
    owners.listed = {GangSource.JOB: lambda: True, GangSource.JOB_SET: lambda: True}
    return owners


def test_engine_hears_nothing_of_a_job_that_asks_for_no_gang() -> None:
    owners = listed_owners()
    assert owners.seen(GANG, asks=False) is None
    assert not owners.asks(JOB, "u", pending=True)
    assert owners.seen(GANG, asks=False) is None
    assert owners.gone(JOB, "u") is None
    assert owners.overdue(0.0) == owners.overdue(100.0) == []


def test_pods_of_a_job_that_asks_for_a_gang_have_a_claim() -> None:
    owners = listed_owners()
    assert owners.seen(GANG, asks=True) == Seen(GANG)
    assert owners.asks(JOB, "u", pending=True)
    assert owners.asks(JOB, "u", pending=False)
    assert owners.gone(JOB, "u") == gone(Gang, *astuple(JOB))
    assert owners.gone(JOB, "u") is None


def test_pods_that_were_seen_before_their_job_wait_until_it_says_that_it_asks_for_none() -> None:
    owners = listed_owners()
    assert owners.asks(JOB, "u", pending=True)
    assert owners.seen(GANG, asks=False) == PLAIN
    assert not owners.asks(JOB, "u", pending=True)
    assert owners.seen(GANG, asks=False) is None
    assert owners.gone(JOB, "u") == gone(Gang, *astuple(JOB))


def test_job_that_no_longer_asks_lets_its_pods_go_on() -> None:
    owners = listed_owners()
    owners.seen(GANG, asks=True)
    assert owners.seen(GANG, asks=False) == PLAIN
    assert not owners.asks(JOB, "u", pending=True)
    assert owners.seen(GANG, asks=True) == Seen(GANG)


def test_pods_on_nodes_wait_for_no_owner() -> None:
    owners = listed_owners()
    assert not owners.asks(JOB, "u", pending=False)
    owners.overdue(0.0)
    assert owners.overdue(UNSEEN_SECONDS_MAX) == []


@pytest.mark.parametrize("listed", [None, False])
def test_pods_wait_for_no_owner_of_a_kind_that_is_not_listed(listed: bool | None) -> None:
    owners = GangOwners()
    if listed is not None:
        owners.listed[GangSource.JOB] = lambda: False
    assert not owners.asks(JOB, "u", pending=True)


def test_owner_that_does_not_turn_up_in_time_holds_no_pod() -> None:
    owners = listed_owners()
    assert owners.asks(JOB, "u", pending=True)
    assert owners.overdue(100.0) == owners.overdue(100.0 + UNSEEN_SECONDS_MAX - 1) == []
    assert owners.overdue(100.0 + UNSEEN_SECONDS_MAX) == [Seen(Gang(JOB, min_member=1))]
    assert owners.asks(JOB, "u", pending=True)
    assert owners.overdue(1000.0) == owners.overdue(2000.0) == []
    assert owners.seen(GANG, asks=True) == Seen(GANG)


def test_owners_that_never_turned_up_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_owners, "RELEASED_MAX", 1)
    owners = listed_owners()
    other = GangKey(GangSource.JOB, "default", "k")
    for job, uid in ((JOB, "u"), (other, "v")):
        owners.asks(job, uid, pending=True)
    owners.overdue(0.0)
    assert owners.overdue(UNSEEN_SECONDS_MAX)[2:] == [gone(Gang, *astuple(JOB))]


def test_job_of_another_uid_is_another_job() -> None:
    owners = listed_owners()
    owners.seen(GANG, asks=False)
    assert owners.asks(JOB, "v", pending=True)
    assert owners.seen(Gang(JOB, 4, uid="v"), asks=True) == Seen(Gang(JOB, 4, uid="v"))
    assert owners.gone(JOB, "u") is None
    assert owners.asks(JOB, "v", pending=True)


@pytest.mark.parametrize("asks", [False, True])
def test_recreated_job_set_replaces_the_one_before(asks: bool) -> None:
    owners, old, new = listed_owners(), Gang(JOB_SET, 4, uid="old"), Gang(JOB_SET, 2, uid="new")
    assert owners.seen(old, asks=True) == Seen(old)
    expected = new if asks else Gang(JOB_SET, 1, uid="new")
    assert owners.seen(new, asks=asks) == Seen(expected)
    assert owners.gone(JOB_SET, "old") is None
    assert owners.asks(JOB_SET, "", pending=True) is asks
    assert owners.gone(JOB_SET, "new") == gone(Gang, *astuple(JOB_SET))


@pytest.mark.parametrize("key", [JOB, JOB_SET])
@pytest.mark.parametrize("asks", [False, True])
def test_pods_with_the_claim_of_a_deleted_owner_are_told_what_the_next_one_of_its_name_asks(
    key: GangKey, asks: bool
) -> None:
    owners, old, new = listed_owners(), Gang(key, 4, uid="old"), Gang(key, 2, uid="new")
    owners.seen(old, asks=True)
    assert owners.gone(key, "old") == gone(Gang, *astuple(key))
    assert owners.seen(new, asks=asks) == Seen(new if asks else Gang(key, 1, uid="new"))
    assert owners.gone(key, "new") == gone(Gang, *astuple(key))


def test_deleted_owners_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_owners, "RELEASED_MAX", 1)
    owners = listed_owners()
    other = GangKey(GangSource.JOB, "default", "k")
    for key, uid in ((JOB, "u"), (other, "v")):
        owners.seen(Gang(key, 4, uid=uid), asks=True)
        owners.gone(key, uid)
    assert owners.seen(GANG, asks=False) is None
    assert owners.seen(Gang(other, 4, uid="v"), asks=False) == Seen(Gang(other, 1, uid="v"))
