"""The one edit of a Pool with which a waiting pod starts: a limit that is raised, or a flag that is changed.

Invariants:
- A limit is raised to the least that lets the pod borrow, for each resource that it exceeds.
- A pool that lends is edited only if the pod fits on one of its nodes now.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from aischeduler.analysis.explanation import EditPool, Remedy, RemedyKind
from aischeduler.analysis.quantities import quantity, readable
from aischeduler.analysis.what_if import Question, pool_as
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import Pool
from aischeduler.model.resources import ResourceList
from aischeduler.state.label_index import Mask
from aischeduler.state.ledger import BORROWS, LENDS

TRIED_MAX: Final = 32
"""The most edits of one kind that are tried, in the order of the pools' names, the home pool first."""
FOUND_MAX: Final = 3


def limit_remedies(question: Question) -> list[Remedy]:
    """Return the limits that keep the pod waiting, each with the least value that does not."""
    cluster, spec = question.cluster, question.total
    home = cluster.pools.pools[question.home]
    edits = [(home, "borrowing_limit", "borrowingLimit", cluster.ledger.of(BORROWS, home.name))]
    edits += [
        (cluster.pools.pools[name], "lending_limit", "lendingLimit", cluster.ledger.of(LENDS, name))
        for name in _with_room(question)
    ]
    found: list[Remedy] = []
    tried = 0
    for pool, attribute, field, sums in edits:
        limit: ResourceList = getattr(pool, attribute)
        raised = _raised(limit, sums, spec)
        if not raised or tried == TRIED_MAX:
            continue
        tried += 1
        named = ", ".join(f"{readable(name, amount)} {name}" for name, amount in raised.items())
        edit = EditPool(pool.name, {field: {name: quantity(name, amount) for name, amount in raised.items()}})
        change: dict[str, Any] = {attribute: {**limit, **raised}}
        remedy = _verified(
            question,
            RemedyKind.LIMIT,
            replace(pool, **change),
            (f"raise {field} of the Pool {pool.name} to {named}", edit),
        )
        found += [remedy] if remedy is not None else []
    return found


def flag_remedies(question: Question) -> list[Remedy]:
    """Return the flags that keep the pod waiting."""
    found: list[Remedy] = []
    for tried, (pool, change, said, patch) in enumerate(_flags(question)):
        if tried == TRIED_MAX or len(found) == FOUND_MAX:
            break
        remedy = _verified(question, RemedyKind.FLAG, replace(pool, **change), (said, EditPool(pool.name, patch)))
        found += [remedy] if remedy is not None else []
    return found


def _flags(question: Question) -> Iterator[tuple[Pool, dict[str, Any], str, dict[str, Any]]]:
    """Yield the flags that may keep the pod waiting: the Pool, its change, the text and the merge patch."""
    pools = question.cluster.pools.pools
    home = pools[question.home]
    if home.allowed_namespaces is not None:
        said = f"remove allowedNamespaces of the Pool {home.name}"
        yield home, {"allowed_namespaces": None}, said, {"allowedNamespaces": None}
    for attribute, field in (("disable_preemption", "disablePreemption"), ("disable_borrowing", "disableBorrowing")):
        if getattr(home, attribute):
            yield home, {attribute: False}, f"set {field} of the Pool {home.name} to false", {field: False}
    for name in _with_room(question):
        if home.borrowing_pools is not None and name not in home.borrowing_pools:
            names = (*home.borrowing_pools, name)
            said = f"add {name} to borrowingPools of the Pool {home.name}"
            yield home, {"borrowing_pools": names}, said, {"borrowingPools": list(names)}
        elif pools[name].disable_sharing:
            said = f"set disableSharing of the Pool {name} to false"
            yield pools[name], {"disable_sharing": False}, said, {"disableSharing": False}
        elif _keeps_rare(question, name):
            said = f"set lendRareTypes of the Pool {name} to true"
            yield pools[name], {"lend_rare_types": True}, said, {"lendRareTypes": True}
        elif pools[name].disable_preemption:  # what it could take back it need not keep for its own pods
            said = f"set disablePreemption of the Pool {name} to false"
            yield pools[name], {"disable_preemption": False}, said, {"disablePreemption": False}


def _with_room(question: Question) -> list[str]:
    """Return the other pools that have a node on which the pod fits now, sorted."""
    fits, _ = _fits_where_lent(question)
    return [name for name in question.others() if fits[question.rows_of(name)].any()]


def _keeps_rare(question: Question, name: str) -> bool:
    """Return whether the pod fits on nodes of this pool, all of which the pool keeps because their cards are rare."""
    rows, (fits, closed) = question.rows_of(name), _fits_where_lent(question)
    fitting = rows[fits[rows]]
    return closed is not None and len(fitting) > 0 and bool(closed[fitting].all())


def _fits_where_lent(question: Question) -> tuple[Mask, Mask | None]:
    """Return a mask of the rows on which the pod would fit if all were lent, and one of those that are not."""
    cluster = question.cluster
    ask = cluster.ask(question.spec, question.home, question.home)
    return cluster.runner.feasible(replace(ask, closed=None)), ask.closed


def _raised(limit: ResourceList, sums: ResourceList, spec: PodSpec) -> dict[str, int]:
    """Return the least value of each resource of the limit that the pod exceeds."""
    asked = spec.request.taken
    needed = {name: sums.get(name, 0) + asked[name] for name in sorted(limit) if name in asked}
    return {name: amount for name, amount in needed.items() if amount > limit[name]}


def _verified(question: Question, kind: RemedyKind, pool: Pool, change: tuple[str, EditPool]) -> Remedy | None:
    """Return the remedy if the pod starts with this Pool."""
    with pool_as(question.cluster, pool):
        start = question.start()
    text, edit = change
    return Remedy(kind, text, edit, start, (int(pool.name != question.home), text)) if start is not None else None
