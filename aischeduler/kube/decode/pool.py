"""Convert a Pool object to the model, or name the invalid field.

Invariants:
- A spec that the current schema rejects (it was stored under an older one) is rejected as a whole; `invalid` names the
  field, nothing is raised, and the pool owns, lends and borrows nothing.
- Unknown fields are ignored: a newer schema may define them.
- The limits are those of `aischeduler/crds/pools.yaml`, which a test compares; the daemon does not read that file.
- User text is shortened and escaped before it appears in a message.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.decode.fields import FieldError, typed
from aischeduler.kube.decode.meta_types import Metadata
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.card_types import TypeNameError, type_name
from aischeduler.model.names import POOL_NAME_LENGTH_MAX
from aischeduler.model.pool import GroupRule, MakeRoomOrder, PlacementStrategy, Pool, ReclaimPolicy
from aischeduler.model.quantity import QuantityError
from aischeduler.model.resources import ResourceList, parse_resource_list
from aischeduler.model.selectors import (
    LabelSelector,
    Requirement,
    SelectorError,
    is_label_value,
    label_requirement,
    label_selector,
)
from aischeduler.model.user_text import quoted, shown

POOLS_NAMED_MAX: Final = 256
RARE_TYPES_MAX: Final = 32
GROUP_RULES_MAX: Final = 32
REQUIREMENTS_MAX: Final = 64
VALUES_MAX: Final = 256
RESOURCES_MAX: Final = 64
"""How many resources a limit may have under an older definition; the present one allows fewer."""
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
RESOURCE: Final = re.compile(
    r"(cpu|memory|ephemeral-storage|pods|hugepages-[0-9]{1,20}[KMGTPE]i|"
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)",
    re.ASCII,
)
RESOURCES_TEXT: Final = "such as cpu, memory, ephemeral-storage, pods, hugepages-2Mi or nvidia.com/gpu"

Choice = TypeVar("Choice", bound=StrEnum)


def read_pool(document: PoolDocument) -> Pool:
    """Return the Pool; if the spec is invalid, `invalid` names the field and nothing else of the spec counts."""
    metadata = document.metadata
    try:
        return _pool(metadata, typed("spec", document.spec, dict))
    except (FieldError, QuantityError, SelectorError) as error:
        return Pool(metadata.name, metadata.uid, metadata.generation, invalid=str(error)[:INVALID_LENGTH_MAX])


def _pool(metadata: Metadata, spec: Mapping[str, Any]) -> Pool:
    return Pool(
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        selector=_selector("spec.nodeSelector", spec.get("nodeSelector")),
        placement=_choice("spec.placement", spec.get("placement"), PlacementStrategy),
        disable_preemption=typed("spec.disablePreemption", spec.get("disablePreemption"), bool),
        disable_borrowing=typed("spec.disableBorrowing", spec.get("disableBorrowing"), bool),
        disable_sharing=typed("spec.disableSharing", spec.get("disableSharing"), bool),
        borrowing_pools=_lenders("spec.borrowingPools", spec.get("borrowingPools"), metadata.name),
        lending_limit=_limit("spec.lendingLimit", spec.get("lendingLimit")),
        borrowing_limit=_limit("spec.borrowingLimit", spec.get("borrowingLimit")),
        make_room=_choice("spec.makeRoom", spec.get("makeRoom"), MakeRoomOrder),
        reclaim_policy=_choice("spec.reclaimPolicy", spec.get("reclaimPolicy"), ReclaimPolicy)
        or ReclaimPolicy.ON_DEMAND,
        allowed_namespaces=_selector("spec.allowedNamespaces", spec.get("allowedNamespaces")),
        rare_types=_rare_types("spec.rareTypes", spec.get("rareTypes")),
        lend_rare_types=typed("spec.lendRareTypes", spec.get("lendRareTypes"), bool),
        machine_groups=_group_rules("spec.machineGroups", spec.get("machineGroups")),
        profile=_profile("spec.profile", spec.get("profile")),
        non_preemptible_namespaces=_selector("spec.nonPreemptibleNamespaces", spec.get("nonPreemptibleNamespaces")),
    )


def _profile(path: str, value: Any) -> str:
    name = typed(path, value, str)
    if name and not _is_name(name):
        raise FieldError(f"{path}: {quoted(name)} is not the name of a scheduler")
    return name


def _is_name(text: str) -> bool:
    return len(text) <= POOL_NAME_LENGTH_MAX and NAME.fullmatch(text) is not None


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
        namespaces = _selector(f"{where}.namespaceSelector", fields.get("namespaceSelector"))
        if namespaces is None:
            raise FieldError(f"{where}.namespaceSelector: is missing; {{}} allows every namespace")
        rules[name] = GroupRule(name, namespaces)
    return tuple(rules.values())


def _lenders(path: str, value: Any, own_name: str) -> tuple[str, ...] | None:
    """Return the pools to borrow from; None means any pool."""
    names: dict[str, None] = {}
    for index, lender in enumerate(typed(path, value, list, POOLS_NAMED_MAX)):
        name = typed(f"{path}[{index}]", lender, str)
        if not _is_name(name):
            raise FieldError(f"{path}[{index}]: {quoted(name)} is not the name of a Pool")
        if name == own_name:
            raise FieldError(f"{path}: a pool cannot borrow from itself")
        if name in names:
            raise FieldError(f"{path}[{index}]: {quoted(name)} appears twice")
        names[name] = None
    return tuple(names) or None


def _limit(path: str, value: Any) -> ResourceList:
    """Return the amounts by resource, sorted by name: CPU in millicores, all others in units."""
    amounts: dict[str, int] = {}
    for name, quantity in sorted(typed(path, value, dict, RESOURCES_MAX).items()):
        if not RESOURCE.fullmatch(name):
            raise FieldError(f"{path}.{quoted(name)}: is not the name of a resource, {RESOURCES_TEXT}")
        if isinstance(quantity, float):
            raise FieldError(f'{path}.{name}: a fraction must be in quotes: "{quantity}"')
        if isinstance(quantity, bool) or not isinstance(quantity, int | str):
            raise FieldError(f"{path}.{name}: must be a quantity such as 8, 500m or 64Gi, not {shown(quantity)}")
        amounts |= parse_resource_list(path, {name: str(quantity)})
    return amounts


def _selector(path: str, value: Any) -> LabelSelector | None:
    if value is None:
        return None
    selector = typed(path, value, dict)
    labels = typed(f"{path}.matchLabels", selector.get("matchLabels"), dict, REQUIREMENTS_MAX)
    expressions = typed(f"{path}.matchExpressions", selector.get("matchExpressions"), list, REQUIREMENTS_MAX)
    return label_selector(
        path,
        {key: typed(f"{path}.matchLabels.{quoted(key)}", label, str) for key, label in labels.items()},
        tuple(
            _expression(f"{path}.matchExpressions[{index}]", expression) for index, expression in enumerate(expressions)
        ),
    )


def _expression(path: str, value: Any) -> Requirement:
    fields = typed(path, value, dict)
    values = typed(f"{path}.values", fields.get("values"), list, VALUES_MAX)
    return label_requirement(
        path,
        typed(f"{path}.key", fields.get("key"), str),
        typed(f"{path}.operator", fields.get("operator"), str),
        tuple(typed(f"{path}.values[{index}]", item, str) for index, item in enumerate(values)),
    )


def _choice(path: str, value: Any, choices: type[Choice]) -> Choice | None:
    """Return the enum value; None if the field is absent."""
    if value is None:
        return None
    text = typed(path, value, str)
    if text not in tuple(choices):
        raise FieldError(f"{path}: {quoted(text)} is not one of {', '.join(choices)}")
    return choices(text)
