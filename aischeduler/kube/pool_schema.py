"""The OpenAPI schema of Pool: the name, meaning, default and validation of each field.

Invariant: a description says what the field does, what happens without it, and gives an example if words are not
enough.
"""

from typing import Any, Final

from aischeduler.kube.schema_types import (
    COLUMN_LENGTH_MAX,
    NAME_PATTERN,
    TYPE_PATTERN,
    VALUE_LENGTH_MAX,
    VALUE_PATTERN,
    Schema,
    amounts,
    array,
    conditions,
    integer,
    label_selector,
    object_of,
    reported_amounts,
    rule,
    string,
    switch,
)
from aischeduler.model.card_types import TYPE_LENGTH_MAX
from aischeduler.model.names import DEFAULT_POOL, GPU_TYPE_KEY, MACHINE_GROUP_KEY, POOL_KEY, POOL_NAME_LENGTH_MAX
from aischeduler.model.pool import MakeRoomOrder, PlacementStrategy, ReclaimPolicy
from aischeduler.model.pool_summary import CARD_TYPES_MAX, OTHER_TYPES

POOLS_NAMED_MAX: Final = 256
"""How many lenders a pool may name."""
RARE_TYPES_MAX: Final = 32
"""How many card types a pool may call rare."""
GROUP_RULES_MAX: Final = 32
"""How many rules for machine groups a pool may have."""
PROFILE_LENGTH_MAX: Final = 253
PROFILE_PATTERN: Final = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""The name of a profile, which is that of a scheduler."""

POOL_TEXT: Final = (
    "A Pool is a set of nodes that one business owns. Pods name their pool in the annotation "
    f"{POOL_KEY}; every pool has its own queue and its own scheduling loop. Idle nodes are lent to pods of other "
    "pools, and the pool's own pods take the room back when they need it. Nodes that no Pool or more than one selects "
    f"belong to the pool named {DEFAULT_POOL}, as do pods that name no Pool."
)

OWN_NAME_RULE: Final = rule(
    "!has(self.spec) || !has(self.spec.borrowingPools) || !(self.metadata.name in self.spec.borrowingPools) || "
    "(oldSelf.hasValue() && has(oldSelf.value().spec) && has(oldSelf.value().spec.borrowingPools) && "
    "self.spec.borrowingPools == oldSelf.value().spec.borrowingPools)",
    "a pool cannot borrow from itself: take its own name out of the list",
    ".spec.borrowingPools",
) | {"optionalOldSelf": True}
"""A list that was invalid before this rule existed may stay, so that the status of the pool can be written."""


def pool_schema() -> Schema:
    """Return the schema of the whole object."""
    return object_of(
        POOL_TEXT,
        apiVersion=string("Version of the schema of this object."),
        kind=string("Kind of this object: Pool."),
        metadata={"type": "object"},
        spec=_spec(),
        status=_status(),
    ) | {"x-kubernetes-validations": [OWN_NAME_RULE]}


def _spec() -> Schema:
    return object_of(
        "What the pool owns, what it lends and what it borrows; written by people.",
        nodeSelector=label_selector(
            "The nodes that belong to the pool: all parts have to match. Absent: the pool owns no nodes, its pods can "
            "only borrow. Empty ({}): every node matches. Nodes that several Pools select belong to the pool named "
            f"{DEFAULT_POOL}, and each of those Pools has the condition Conflict. The selector of the pool named "
            f'{DEFAULT_POOL} is ignored. Example: matchLabels: {{gpu: "true"}}.',
            "a node",
        ),
        **_switches(),
        **_loans(),
        **_cards_and_groups(),
        makeRoom=string(
            "What is tried first for a pod of this pool that fits on none of its nodes. PreemptThenBorrow: evict "
            "borrowers and pods of lower priority on the pool's own nodes, then look for idle nodes of other pools. "
            "BorrowThenPreempt: the other way round, which disturbs fewer running pods. Absent: as the scheduler's "
            "configuration says, which is PreemptThenBorrow where it says nothing.",
            enum=[str(order) for order in MakeRoomOrder],
        ),
        reclaimPolicy=string(
            "When pods of other pools on this pool's nodes are evicted. OnDemand (the default): only when a pod of "
            "this pool needs their room. Evict: also as soon as this spec no longer allows the loan, because sharing "
            "was switched off or lendingLimit was lowered; the newest loans end first.",
            enum=[str(policy) for policy in ReclaimPolicy],
            default=str(ReclaimPolicy.ON_DEMAND),
        ),
        allowedNamespaces=label_selector(
            "The namespaces whose pods may name this pool, by their labels. A pod from any other namespace waits, with "
            "a reason that says so. Absent: every namespace. Example: matchLabels: {team: vision}, or "
            "matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [vision, speech]}].",
            "a namespace",
        ),
        placement=string(
            "Which of the nodes that fit is preferred. Spread: the emptiest. Pack: the fullest, which keeps whole "
            "machines free. Fragmentation: the one where the fewest free GPUs become useless to pods that ask for "
            "several. Absent: pods that ask for GPUs pack, all others spread.",
            enum=[str(placement) for placement in PlacementStrategy],
        ),
        profile=string(
            "The profile of the scheduler's configuration whose plugins judge the pool's pods, by its schedulerName, "
            "whichever schedulerName of the scheduler the pods have. Absent: the profile of the pod's schedulerName. A "
            "profile that does not exist is reported in the condition Accepted and changes nothing. Example: batch.",
            maxLength=PROFILE_LENGTH_MAX,
            pattern=PROFILE_PATTERN,
        ),
    )


def _switches() -> dict[str, Schema]:
    return {
        "disablePreemption": switch(
            "Whether the pool's own pods may not evict others on its nodes: neither pods of lower priority nor "
            "borrowers whose room they need. Default: false, they may."
        ),
        "disableBorrowing": switch(
            "Whether the pool's own pods may not run on idle nodes of other pools. Default: false, they may."
        ),
        "disableSharing": switch(
            "Whether pods of other pools may not run on this pool's idle nodes. Once it is true no new loan starts; "
            "running ones end by themselves unless reclaimPolicy is Evict. Default: false, they may."
        ),
    }


def _loans() -> dict[str, Schema]:
    return {
        "borrowingPools": array(
            "The only pools whose idle nodes this pool's pods may use, by name, in any order. Absent or "
            "empty: any pool that shares. The pool itself cannot be named. Example: [cpu-pool, default].",
            string("Name of a Pool.", minLength=1, maxLength=POOL_NAME_LENGTH_MAX, pattern=NAME_PATTERN),
            maxItems=POOLS_NAMED_MAX,
        )
        | {"x-kubernetes-list-type": "set"},
        "lendingLimit": amounts(
            "The most that pods of other pools may ask for, all together, on this pool's nodes. A resource that is not "
            "named is not limited; 0 lends none of it. Lowering a limit ends no running loan unless reclaimPolicy is "
            "Evict. Example: {cpu: 64, nvidia.com/gpu: 8, memory: 256Gi}."
        ),
        "borrowingLimit": amounts(
            "The most that this pool's pods may ask for, all together, on nodes of other pools. A resource that is not "
            "named is not limited; 0 borrows none of it. The pool's own nodes never count. Example: "
            "{nvidia.com/gpu: 4}."
        ),
    }


def _cards_and_groups() -> dict[str, Schema]:
    rule_of_group = object_of(
        "Who may name one machine group.",
        name=string(
            f"The group: the value of the label {MACHINE_GROUP_KEY} of its nodes.",
            minLength=1,
            maxLength=VALUE_LENGTH_MAX,
            pattern=VALUE_PATTERN,
        ),
        namespaceSelector=label_selector(
            "The namespaces whose pods may name the group, by their labels. Empty ({}): every namespace.", "a namespace"
        ),
    ) | {"required": ["name", "namespaceSelector"]}
    return {
        "rareTypes": array(
            "Card types whose nodes in this pool are closed to pods that do not name them in the annotation "
            f"{GPU_TYPE_KEY}, whether or not they ask for GPUs. Case, vendor and the order of parts do not matter; "
            "A100 means every A100. Types that the configuration calls rare are rare too. Example: [H200, A100-80GB].",
            string("Name of a card type.", minLength=1, maxLength=TYPE_LENGTH_MAX, pattern=TYPE_PATTERN),
            maxItems=RARE_TYPES_MAX,
        )
        | {"x-kubernetes-list-type": "set"},
        "lendRareTypes": switch(
            "Whether nodes of rare types are lent too, to pods of other pools that name the type. Default: false, pods "
            "of other pools get no such node."
        ),
        "machineGroups": array(
            f"Who may name which machine group in the annotation {MACHINE_GROUP_KEY}, by the labels of the pod's "
            "namespace. Rules of several Pools and of the scheduler's configuration for one group add up; a group for "
            "which there is no rule may be named by every pod. Example: [{name: vision, namespaceSelector: "
            "{matchLabels: {team: vision}}}].",
            rule_of_group,
            maxItems=GROUP_RULES_MAX,
        )
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }


def _status() -> Schema:
    return object_of(
        "What the scheduler made of the spec, and the pool in numbers; written by the scheduler alone, on change and "
        "at most once a second.",
        observedGeneration=integer("metadata.generation of the spec that this status describes."),
        scheduler=string(
            "The schedulerName of the scheduler that writes this status. A scheduler of another name does not write it "
            "while renewTime changes.",
            maxLength=253,
        ),
        renewTime=string(
            "When the scheduler last said that this status holds: with every change, and every minute without one.",
            format="date-time",
        ),
        nodes=integer("Nodes that belong to the pool."),
        pods=integer("Unfinished pods on the pool's nodes, terminating ones included."),
        pendingPods=integer("Pods that wait in the pool's queue, with borrowers, without pods with scheduling gates."),
        preemption=_in_force("evict others on its nodes"),
        borrowing=_in_force("run on idle nodes of other pools"),
        sharing=_in_force("lend its idle nodes"),
        **{name: reported_amounts(text) for name, text in _AMOUNTS.items()},
        gpus=object_of(
            "The same amounts of GPUs: of all resources together that are GPUs by the scheduler's configuration.",
            **{name: integer(f"GPUs of {name}.") for name in _AMOUNTS},
        ),
        cardsByType=array(
            "The GPUs by the type of their cards, of the nodes whose labels have one; the most first. Types beyond "
            f"the limit of the list are one entry named {OTHER_TYPES}.",
            object_of(
                "The GPUs of one type.",
                type=string("The model, as A100.", maxLength=TYPE_LENGTH_MAX),
                total=integer("What the nodes offer to pods."),
                used=integer("What unfinished pods on them ask for."),
            )
            | {"required": ["type", "total", "used"]},
            maxItems=CARD_TYPES_MAX,
        )
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        columns=object_of(
            "The pool in ready-made texts, for the columns of kubectl get pool. Programs read the fields beside this.",
            **{name: string(text, maxLength=COLUMN_LENGTH_MAX) for name, text in _COLUMNS.items()},
        ),
        conditions=conditions(
            "What is true of the pool now.",
            "What the condition says: Ready (the pool takes part in scheduling as its spec says), Accepted (the spec "
            "is understood and in force), Conflict (other pools select the same nodes; the message names one) or "
            "NodesMissing (no node matches the nodeSelector; the message shows it).",
        ),
    )


def _in_force(may: str) -> Schema:
    """Return a boolean of the status: the switch after the whole configuration, not the field of the spec."""
    return {"description": f"Whether the pool may {may} now.", "type": "boolean"}


_AMOUNTS: Final[dict[str, Any]] = {
    "capacity": "What the pool's nodes have.",
    "allocatable": "What the pool's nodes offer to pods.",
    "used": "What unfinished pods on the pool's nodes ask for: own, shared and system together.",
    "own": "The part of used that is this pool's own pods.",
    "shared": "The part of used that is pods of other pools: what is lent now.",
    "system": "The part of used that is pods of other schedulers, such as daemons.",
    "borrowed": "What this pool's own pods ask for on nodes of other pools.",
    "free": "allocatable minus used, minus the room that is held for pods while their victims terminate.",
    "pending": "What the pods that wait in the pool's queue ask for.",
}

_COLUMNS: Final[dict[str, Any]] = {
    "cpu": "CPU used of what is allocatable, in cores: 12/64.",
    "memory": "Memory used of what is allocatable: 96Gi/512Gi.",
    "gpu": "GPUs used of what is allocatable: 3/8.",
    "shared": "What is lent to other pools.",
    "borrowed": "What is borrowed from other pools.",
    "flags": "Preemption, borrowing and sharing, on or off: p✓ b✓ s✗. Or refused: see the condition Accepted.",
    "own": "What the pool's own pods ask for on its nodes.",
    "system": "What pods of other schedulers ask for on its nodes.",
    "free": "What is free on its nodes.",
    "cards": "GPUs used of what is allocatable by card type: A100 6/8, V100 0/4.",
}
