"""Tenant queues as they are read: our own, Volcano's, and what is wrong with them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.decode.tenant_queue import DURATION_SECONDS_MAX, read_queue, read_volcano_queue
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.tenant_queue import CardQuota, QueueSource, QueueState, TenantQueue
from tests.build import replace
from tests.queue_objects import queue_object, volcano_queue_object

OWN = TenantQueue("q", uid="u", generation=3)
QUOTA = "metadata.annotations[volcano.sh/card.quota]"


def decoded(document: dict[str, Any]) -> QueueDocument:
    found = {**document, "metadata": {**document["metadata"], "uid": "u", "generation": 3}}
    return msgspec.json.decode(json.dumps(found), type=QueueDocument)


def own(spec: Any, status: Any = None) -> TenantQueue:
    return read_queue(decoded({**queue_object("q"), "spec": spec, "status": status}))


def volcano(**fields: Any) -> TenantQueue:
    return read_volcano_queue(decoded(volcano_queue_object("q", **fields)))


def test_queue_is_read() -> None:
    found = own(
        {
            "parent": "tenant",
            "capability": {"cpu": "1500m", "memory": "4Gi", "nvidia.com/gpu": 8},
            "cards": {"NVIDIA-GeForce-RTX-4090": 4, "H200": 8, "NVIDIA-H200/mig-1g.18gb-mixed": 2},
            "priority": 80000,
            "reclaimable": False,
            "state": "Closed",
            "allowedNamespaces": {},
            "minRuntime": "1h30m",
            "shrinkAfter": "90s",
            "drainAfter": "0s",
            "somethingNewer": 1,
        }
    )
    assert found.allowed_namespaces is not None
    assert found.allowed_namespaces.matches({"any": "namespace"})
    assert replace(found, allowed_namespaces=None) == replace(
        OWN,
        parent="tenant",
        capability={"cpu": 1500, "memory": 4 * 2**30, "nvidia.com/gpu": 8},
        cards=(
            CardQuota("H200", "H200", 8),
            CardQuota("NVIDIA-GeForce-RTX-4090", "RTX-4090", 4),
            CardQuota("NVIDIA-H200/mig-1g.18gb-mixed", "H200-MIG-1g.18gb", 2),
        ),
        priority=80000,
        reclaimable=False,
        state=QueueState.CLOSED,
        min_runtime_seconds=5400,
        shrink_after_seconds=90,
    )


@pytest.mark.parametrize("spec", [None, {}, {"cards": {}, "capability": {}, "parent": ""}])
def test_queue_that_says_nothing_limits_nothing(spec: Any) -> None:
    assert own(spec) == OWN


def test_times_are_those_of_the_conditions_that_are_in_force() -> None:
    def since(conditions: Any) -> tuple[int, int]:
        found = own({}, {"conditions": conditions})
        return found.over_quota_since_seconds, found.draining_since_seconds

    over = {"type": "OverQuota", "status": "True", "reason": "OverQuota", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    drains = {"type": "Ready", "status": "False", "reason": "Draining", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    assert since([over, drains]) == (1767225600, 1767225660)
    assert since([{**over, "status": "False"}, {**drains, "reason": "Closed"}]) == (0, 0)
    for malformed in (None, 5, [5], [{**over, "lastTransitionTime": None}], [{**over, "lastTransitionTime": "soon"}]):
        assert since(malformed) == (0, 0)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (5, "spec: must be a mapping, not 5"),
        ({"parent": "q"}, "spec.parent: a queue cannot be its own parent"),
        ({"parent": "A B"}, "spec.parent: 'A B' is not the name of a Queue"),
        ({"capability": {"gpu": 1}}, "spec.capability.'gpu': is not the name of a resource"),
        ({"capability": {"cpu": "-1"}}, "spec.capability.cpu: "),
        ({"cards": {"H200": 1, "NVIDIA-H200": 2}}, "spec.cards['NVIDIA-H200']: names the same card as 'H200'"),
        ({"cards": {"H200": -1}}, "spec.cards['H200']: must be a whole number from 0 to 2147483647, not -1"),
        ({"cards": {"H200": 1.5}}, "spec.cards['H200']: must be a whole number from 0 to 2147483647, not 1.5"),
        ({"cards": {"H200": True}}, "spec.cards['H200']: must be a whole number from 0 to 2147483647, not true"),
        ({"cards": {"?": 1}}, "spec.cards['?']: is not the name of a card"),
        ({"cards": {f"A{number}": 1 for number in range(65)}}, "spec.cards: has 65 names, which is more than 64"),
        ({"priority": 2**31}, "spec.priority: must be a whole number from 0 to 2147483647, not 2147483648"),
        ({"reclaimable": "no"}, "spec.reclaimable: must be true or false, not 'no'"),
        ({"state": "Shut"}, "spec.state: 'Shut' is not one of Open, Closed, Draining"),
        ({"minRuntime": ""}, "spec.minRuntime: '' is not a duration such as 90s or 1h30m"),
        ({"drainAfter": "1d"}, "spec.drainAfter: '1d' is not a duration such as 90s or 1h30m"),
        ({"shrinkAfter": 5}, "spec.shrinkAfter: must be a string, not 5"),
        ({"allowedNamespaces": []}, "spec.allowedNamespaces: must be a mapping, not an empty list"),
    ],
)
def test_malformed_field_is_named(spec: Any, reason: str) -> None:
    assert own(spec).invalid.startswith(reason)


def test_queue_that_cannot_be_read_still_counts_at_its_parent_and_gives_nothing_up() -> None:
    found = own({"parent": "tenant", "priority": 7, "reclaimable": 1, "minRuntime": "x", "drainAfter": "x"})
    assert found == replace(
        OWN,
        parent="tenant",
        priority=7,
        reclaimable=False,
        min_runtime_seconds=DURATION_SECONDS_MAX,
        drain_after_seconds=DURATION_SECONDS_MAX,
        invalid="spec.reclaimable: must be true or false, not 1",
    )


def test_queue_of_volcano_has_its_cards_in_an_annotation_and_root_is_no_parent() -> None:
    found = volcano(cards={"NVIDIA-GeForce-RTX-4090": 8}, priority=80000, capability={"cpu": 4, "memory": "4Gi"})
    assert found == replace(
        OWN,
        source=QueueSource.VOLCANO,
        cards=(CardQuota("NVIDIA-GeForce-RTX-4090", "RTX-4090", 8),),
        priority=80000,
        capability={"cpu": 4000, "memory": 4 * 2**30},
    )
    assert volcano(parent="tenant").parent == "tenant"


@pytest.mark.parametrize(
    ("state", "read"),
    [("", "Open"), ("Open", "Open"), ("Unknown", "Open"), ("Closed", "Closed"), ("Closing", "Closed")],
)
def test_state_of_a_queue_of_volcano_is_that_of_its_status(state: str, read: str) -> None:
    assert volcano(state=state).state == read


def test_fields_of_volcano_without_a_meaning_here_are_named_where_they_differ_from_its_defaults() -> None:
    defaults = {"weight": 1, "guarantee": {"resource": {}}, "deserved": {}, "dequeueStrategy": "traverse", "type": ""}
    assert volcano(**defaults).ignored == ()
    used = {"weight": 2, "guarantee": {"resource": {"cpu": 1}}, "dequeueStrategy": "fifo", "affinity": {"x": [1]}}
    assert volcano(**used).ignored == ("spec.weight", "spec.guarantee", "spec.affinity", "spec.dequeueStrategy")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", f"{QUOTA}: must be JSON such as {{\"NVIDIA-H200\": 8}}, not ''"),
        ("{H200: 8}", f'{QUOTA}: must be JSON such as {{"NVIDIA-H200": 8}}, not '),
        ("[" * 100_000, f"{QUOTA}: must be JSON"),
        ("[]", f"{QUOTA}: must be a mapping, not an empty list"),
        ('{"H200": -1}', f"{QUOTA}['H200']: must be a whole number from 0 to 2147483647, not -1"),
        ('{"H200": 1.5}', f"{QUOTA}['H200']: must be a whole number from 0 to 2147483647, not 1.5"),
        ('{"": 1}', f"{QUOTA}['']: is not the name of a card"),
    ],
)
def test_card_quota_that_cannot_be_read_is_named_and_the_rest_is_read(text: str, reason: str) -> None:
    found = volcano(annotations={"volcano.sh/card.quota": text}, priority=5, reclaimable=False)
    assert found.invalid.startswith(reason)
    assert len(found.invalid) <= INVALID_LENGTH_MAX
    assert (found.priority, found.reclaimable, found.cards) == (5, False, ())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["parent", "capability", "cards", "priority", "reclaimable", "state", "drainAfter", "allowedNamespaces", "weight"]
)


@given(ANYTHING | st.dictionaries(FIELDS, ANYTHING), ANYTHING, st.none() | st.text())
def test_no_object_raises(spec: Any, status: Any, quota: str | None) -> None:
    annotations = {} if quota is None else {"annotations": {"volcano.sh/card.quota": quota}}
    body = json.dumps({"metadata": {"name": "q", **annotations}, "spec": spec, "status": status})
    try:
        document = msgspec.json.decode(body, type=QueueDocument)
    except msgspec.DecodeError:  # a lone surrogate
        return
    for read in (read_queue, read_volcano_queue):
        assert len(read(document).invalid) <= INVALID_LENGTH_MAX
