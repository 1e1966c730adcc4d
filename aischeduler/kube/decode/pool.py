"""Convert a Pool object to the model, or name the invalid field.

Invariants:
- A spec that the current schema rejects (it was stored under an older one) is rejected as a whole; `invalid` names the
  field, nothing is raised, and the pool owns, lends and borrows nothing.
- Unknown fields are ignored: a newer schema may define them.
- The limits are those of `aischeduler/crds/pools.yaml`, which a test compares; the daemon does not read that file.
- User text is shortened and escaped before it appears in a message.
"""

from collections.abc import Mapping
from typing import Any, Final

from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.decode.fields import PROBLEMS, FieldError, amounts, choice, is_name, selector, typed
from aischeduler.kube.decode.meta_types import Metadata
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.card_types import TypeNameError, type_name
from aischeduler.model.pool import WHOLE_LOAD, GroupRule, MakeRoomOrder, PlacementStrategy, Pool, ReclaimPolicy
from aischeduler.model.selectors import is_label_value
from aischeduler.model.user_text import quoted, shown

POOLS_NAMED_MAX: Final = 256
RARE_TYPES_MAX: Final = 32
GROUP_RULES_MAX: Final = 32
MAX_LOAD_MIN: Final = 0.001


def read_pool(document: PoolDocument) -> Pool:
    """Return the Pool; if the spec is invalid, `invalid` names the field and nothing else of the spec counts."""
    metadata = document.metadata
    try:
        return _pool(metadata, typed("spec", document.spec, dict))
    except PROBLEMS as error:
        return Pool(metadata.name, metadata.uid, metadata.generation, invalid=str(error)[:INVALID_LENGTH_MAX])


def _pool(metadata: Metadata, spec: Mapping[str, Any]) -> Pool:
    return Pool(
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        selector=selector("spec.nodeSelector", spec.get("nodeSelector")),
        placement=choice("spec.placement", spec.get("placement"), PlacementStrategy),
        disable_preemption=typed("spec.disablePreemption", spec.get("disablePreemption"), bool),
        disable_borrowing=typed("spec.disableBorrowing", spec.get("disableBorrowing"), bool),
        disable_sharing=typed("spec.disableSharing", spec.get("disableSharing"), bool),
        borrowing_pools=_lenders("spec.borrowingPools", spec.get("borrowingPools"), metadata.name),
        lending_limit=amounts("spec.lendingLimit", spec.get("lendingLimit")),
        borrowing_limit=amounts("spec.borrowingLimit", spec.get("borrowingLimit")),
        make_room=choice("spec.makeRoom", spec.get("makeRoom"), MakeRoomOrder),
        reclaim_policy=choice("spec.reclaimPolicy", spec.get("reclaimPolicy"), ReclaimPolicy)
        or ReclaimPolicy.ON_DEMAND,
        allowed_namespaces=selector("spec.allowedNamespaces", spec.get("allowedNamespaces")),
        rare_types=_rare_types("spec.rareTypes", spec.get("rareTypes")),
        lend_rare_types=typed("spec.lendRareTypes", spec.get("lendRareTypes"), bool),
        machine_groups=_group_rules("spec.machineGroups", spec.get("machineGroups")),
        profile=_profile("spec.profile", spec.get("profile")),
        non_preemptible_namespaces=selector("spec.nonPreemptibleNamespaces", spec.get("nonPreemptibleNamespaces")),
        max_load_thousandths=_max_load("spec.maxLoad", spec.get("maxLoad")),
    )


def _max_load(path: str, value: Any) -> int:
    """Return a share of at most 1 in thousandths."""
    if value is None:
        return WHOLE_LOAD
    if not isinstance(value, int | float) or isinstance(value, bool) or not MAX_LOAD_MIN <= value <= 1:
        raise FieldError(f"{path}: must be a number from {MAX_LOAD_MIN} to 1, not {shown(value)}")
    return round(value * WHOLE_LOAD)


def _profile(path: str, value: Any) -> str:
    name = typed(path, value, str)
    if name and not is_name(name):
        raise FieldError(f"{path}: {quoted(name)} is not the name of a scheduler")
    return name


def _rare_types(path: str, value: Any) -> tuple[str, ...]:
    """Return the full names of the types, each once."""
    names: dict[str, None] = {}
    for index, rare_type in enumerate(typed(path, value, list, RARE_TYPES_MAX)):
        text = typed(f"{path}[{index}]", rare_type, str)
        try:
            names[type_name(text)] = None
        except TypeNameError as error:
            raise FieldError(f"{path}[{index}]: {quoted(text)} {error}") from error
    return tuple(names)


def _group_rules(path: str, value: Any) -> tuple[GroupRule, ...]:
    """Return who may name which group."""
    rules: dict[str, GroupRule] = {}
    for index, rule in enumerate(typed(path, value, list, GROUP_RULES_MAX)):
        where, fields = f"{path}[{index}]", typed(f"{path}[{index}]", rule, dict)
        name = typed(f"{where}.name", fields.get("name"), str)
        if not name or not is_label_value(name):
            raise FieldError(f"{where}.name: {quoted(name)} is not the name of a machine group, which is a label value")
        if name in rules:
            raise FieldError(f"{where}.name: {quoted(name)} appears twice")
        namespaces = selector(f"{where}.namespaceSelector", fields.get("namespaceSelector"))
        if namespaces is None:
            raise FieldError(f"{where}.namespaceSelector: is missing; {{}} allows every namespace")
        rules[name] = GroupRule(name, namespaces)
    return tuple(rules.values())


def _lenders(path: str, value: Any, own_name: str) -> tuple[str, ...] | None:
    """Return the pools to borrow from; None means any pool."""
    names: dict[str, None] = {}
    for index, lender in enumerate(typed(path, value, list, POOLS_NAMED_MAX)):
        name = typed(f"{path}[{index}]", lender, str)
        if not is_name(name):
            raise FieldError(f"{path}[{index}]: {quoted(name)} is not the name of a Pool")
        if name == own_name:
            raise FieldError(f"{path}: a pool cannot borrow from itself")
        if name in names:
            raise FieldError(f"{path}[{index}]: {quoted(name)} appears twice")
        names[name] = None
    return tuple(names) or None
