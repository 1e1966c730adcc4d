"""Why each pool does not lend to a pod, in a sentence with the numbers."""

from typing import assert_never

from aischeduler.analysis.explanation import Missing, MissingKind, NearestMiss, NoLoan
from aischeduler.analysis.nearest_miss import nearest_by_amounts, refusals
from aischeduler.analysis.what_if import Question
from aischeduler.model.card_shares import counted, unit_of
from aischeduler.model.proposal import LenderRefusal, NoLender
from aischeduler.model.quantity import readable
from aischeduler.model.resources import ResourceList
from aischeduler.plugins.spread_filter import Skew
from aischeduler.state.ledger import BORROWS, LENDS, within


def no_loans(question: Question, found: NoLender) -> tuple[NoLoan, ...]:
    """Return the pools that do not lend, sorted; the home pool alone where that may not borrow."""
    if found.home is not None:
        return (NoLoan(question.home, found.home, _home_reason(question, found.home)),)
    return tuple(NoLoan(name, refusal, _reason(question, name, refusal)) for name, refusal in found.refused)


def missing_text(nearest: NearestMiss) -> str:
    """Return what the nearest node lacks, as in `gpu-7 lacks 2 of 8 nvidia.com/gpu`."""
    if any(lack.kind is MissingKind.SCHEDULABLE for lack in nearest.missing):
        return f"{nearest.node} is cordoned"
    skews = [_skew(lack.skew) for lack in nearest.missing if lack.skew is not None]
    lacks = " and ".join(thing(lack) for lack in nearest.missing if lack.skew is None)
    if not skews:
        return f"{nearest.node} lacks {lacks}"
    return f"{nearest.node}: {'; '.join([f'it lacks {lacks}', *skews] if lacks else skews)}"


def _skew(skew: Skew) -> str:
    """Return the numbers, as in `zone=east has 3 matching pods, the fewest is 1, maxSkew is 1`."""
    pods = f"{skew.matching} matching pod{'s' * (skew.matching != 1)}"
    own = f" ({skew.with_pod} with this pod)" if skew.with_pod != skew.matching else ""
    fewest = f"the fewest is {skew.fewest}"
    if skew.min_domains:
        fewest = f"the fewest counts as 0 (fewer domains than minDomains {skew.min_domains})"
    return f"{skew.topology_key}={skew.domain} has {pods}{own}, {fewest}, maxSkew is {skew.max_skew}"


def thing(missing: Missing) -> str:
    """Return one missing thing for people."""
    match missing.kind:
        case MissingKind.RESOURCE:
            resource = missing.name
            return f"{readable(resource, missing.amount)} of {readable(resource, missing.asked)} {resource}"
        case MissingKind.LABEL:
            return f"the label {missing.name}"
        case MissingKind.TOLERATION:
            return f"a toleration of {missing.name}"
        case MissingKind.SCHEDULABLE:
            return "spec.unschedulable: false"
        case MissingKind.PORT:
            return f"the free host port {missing.name}"
        case MissingKind.NAME:
            return f"the name that the pod requires ({missing.name})"
        case MissingKind.SPREAD:
            return f"a smaller skew of {missing.name}"
        case _:
            assert_never(missing.kind)


def _home_reason(question: Question, refusal: LenderRefusal) -> str:
    pool = question.cluster.pools.pools[question.home]
    if refusal is LenderRefusal.BORROWING_LIMIT:
        borrowed = question.cluster.ledger.of(BORROWS, question.home)
        return _over(question, "borrows", pool.borrowing_limit, borrowed)
    if refusal is LenderRefusal.NOT_ACCEPTED:
        return f"its spec is refused: {pool.invalid}"
    return "its disableBorrowing is true"


def _reason(question: Question, name: str, refusal: LenderRefusal) -> str:
    cluster = question.cluster
    pool = cluster.pools.pools[name]
    match refusal:
        case LenderRefusal.NOT_SHARING:
            return f"its spec is refused: {pool.invalid}" if pool.invalid else "its disableSharing is true"
        case LenderRefusal.NOT_LISTED:
            return f"it is not in borrowingPools of {question.home}"
        case LenderRefusal.LENDING_LIMIT:
            return _over(question, "lends", pool.lending_limit, cluster.ledger.of(LENDS, name))
        case LenderRefusal.HOME_PODS:
            waiting = sum(record.usable and record.home == name for record in cluster.queues[name].records())
            return f"{waiting} pod{'s' * (waiting != 1)} of its own {'waits' if waiting == 1 else 'wait'} for that room"
        case LenderRefusal.RARE_TYPES:
            return "the nodes that fit have a rare GPU type, and its lendRareTypes is false"
        case LenderRefusal.NO_ROOM:
            return _no_room(question, name)
        case _:
            return "it was tried already"


def _over(question: Question, verb: str, limit: ResourceList, sums: ResourceList) -> str:
    resource = within(limit, sums, question.total)
    unit, scale = unit_of(resource)
    used, most = readable(unit, counted(resource, sums)), readable(unit, limit[resource] * scale)
    asked = readable(unit, counted(resource, question.total.request.taken))
    who = "the pod requests" if question.record.leads is None else "the pods that start together request"
    return f"it {verb} {used} of at most {most} {resource}; {who} {asked}"


def _no_room(question: Question, name: str) -> str:
    rows = question.rows_of(name)
    if not len(rows):
        return "it has no nodes"
    with question.beside(name) as (fits, short):
        found = f"{fits} of the {len(question.record.together)} pods fit" if fits else "no node fits"
        spec = short.pod.spec
        allowed = rows[question.cluster.runner.allowed(spec, rows)]
        nearest = nearest_by_amounts(question.cluster.nodes, spec, allowed)
        if nearest is not None and nearest.missing:
            return f"{found}; {missing_text(nearest)}"
        refused = refusals(question.cluster, spec, rows)
    near = next((missing_text(refusal.nearest) for refusal in reversed(refused) if refusal.nearest is not None), "")
    return f"{found}; {near}" if near else found
