"""Pools through the real kubectl on the sandbox, as a user of the sandbox sees them."""

from collections.abc import Iterator

import pytest

from aischeduler.kube.pool_crd import COLUMNS, WIDE_COLUMNS, pool_crd
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from tests.objects import pool_object
from tests.sandbox.kubectl import Kubectl, as_yaml, kubectl_on_sandbox

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    home = tmp_path_factory.mktemp("home")
    with kubectl_on_sandbox(home, KubeletOptions()) as run:
        run.apply(pool_crd())
        yield run


def test_pools_have_columns_and_wide_has_more(kubectl: Kubectl) -> None:
    kubectl.apply(pool_object("gpu", labels={"gpu": "true"}, makeRoom="BorrowThenPreempt"))
    heads, row = kubectl.ok("get", "pool").splitlines()
    assert heads.split() == ["NAME", *(name.upper() for name in COLUMNS), "AGE"]
    assert row.split()[0] == "gpu"
    wide, row = kubectl.ok("get", "pools", "-o", "wide").splitlines()
    assert wide.split() == [*heads.split(), *(name.upper() for name in WIDE_COLUMNS)]
    assert "BorrowThenPreempt" in row


def test_pools_are_explained(kubectl: Kubectl) -> None:
    said = " ".join(kubectl.ok("explain", "pool.spec.lendingLimit").split())
    assert "FIELD: lendingLimit <map[string]Object>" in said
    assert "The most that pods of other pools may ask for" in said
    assert "<empty>" not in kubectl.ok("explain", "pool.spec")
    assert "enum: PreemptThenBorrow, BorrowThenPreempt" in kubectl.ok("explain", "pool.spec")


def test_wrong_pool_is_refused_with_every_field_that_is_wrong(kubectl: Kubectl) -> None:
    wrong = pool_object("wrong", borrowingPools=["wrong"], lendingLimit={"cpu": "-1"})
    said = kubectl("apply", "-f", "-", stdin=as_yaml(wrong))
    assert said.code != 0
    assert "spec.borrowingPools: Invalid value: a pool cannot borrow from itself" in said.err
    assert 'spec.lendingLimit[cpu]: Invalid value: "-1": must not be below zero' in said.err


def test_pool_is_applied_edited_and_put_back(kubectl: Kubectl) -> None:
    kubectl.apply(pool_object("limits", lendingLimit={"cpu": 8, "memory": "64Gi"}))
    assert kubectl.apply(pool_object("limits", lendingLimit={"cpu": 8, "memory": "64Gi"})).endswith("unchanged\n")
    kubectl.apply(pool_object("limits", lendingLimit={"cpu": "8500m"}, borrowingPools=["gpu"]))
    spec = kubectl.get("pool", "limits")["spec"]
    assert (spec["lendingLimit"], spec["borrowingPools"]) == ({"cpu": "8500m"}, ["gpu"])
    kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=as_yaml(pool_object("limits")))
    assert kubectl.get("pool", "limits")["spec"]["reclaimPolicy"] == "OnDemand"
