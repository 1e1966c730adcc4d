"""What a pending pod of the differential test asks about other pods: spread over domains, affinity, anti-affinity."""

from collections.abc import Callable

from tests.e2e.peer_draft import PREFERRED, REQUIRED, Draft
from tests.e2e.peer_states import APPS, KEYS, SELECTED, a_selector, a_term
from tests.objects import Json


def _spread(draft: Draft, unsatisfiable: str) -> Json:
    """Return a constraint of the pod, which it has already or gets now."""
    constraints = draft.spec.setdefault("topologySpreadConstraints", [])
    taken = {one["topologyKey"] for one in constraints if one["whenUnsatisfiable"] == unsatisfiable}
    free = [key for key in KEYS if key not in taken]
    if not free or (taken and draft.chance.random() < 0.5):
        of_kind: Json = draft.chance.choice([one for one in constraints if one["whenUnsatisfiable"] == unsatisfiable])
        return of_kind
    made = {
        "topologyKey": draft.chance.choice(free),
        "maxSkew": draft.chance.choice((1, 1, 2, 3)),
        "whenUnsatisfiable": unsatisfiable,
        "labelSelector": a_selector(draft.chance),
    }
    constraints.append(made)
    return made


def spread_hard(draft: Draft) -> None:
    _spread(draft, "DoNotSchedule")


def spread_soft(draft: Draft) -> None:
    _spread(draft, "ScheduleAnyway")


def spread_min_domains(draft: Draft) -> None:
    _spread(draft, "DoNotSchedule")["minDomains"] = draft.chance.randint(1, 5)


def spread_policies(draft: Draft) -> None:
    constraint = _spread(draft, draft.chance.choice(_kinds(draft)))
    constraint["nodeAffinityPolicy"] = draft.chance.choice(("Honor", "Ignore"))
    constraint["nodeTaintsPolicy"] = draft.chance.choice(("Honor", "Ignore"))
    if "nodeSelector" not in draft.spec and draft.chance.random() < 0.5:
        draft.spec["nodeSelector"] = {"disk": draft.chance.choice(("ssd", "hdd"))}


def spread_match_label_keys(draft: Draft) -> None:
    constraint = _spread(draft, draft.chance.choice(_kinds(draft)))
    constraint["matchLabelKeys"] = draft.chance.choice((["version"], ["absent"], ["version", "absent"]))


def _kinds(draft: Draft) -> list[str]:
    """Return the kinds of constraints that the pod may get: soft ones where some are compared."""
    soft = any(one["whenUnsatisfiable"] == "ScheduleAnyway" for one in draft.spec.get("topologySpreadConstraints", ()))
    return ["DoNotSchedule", "ScheduleAnyway"] if soft else ["DoNotSchedule"]


def spread_system_default(draft: Draft) -> None:
    """Be a pod of a Service, without constraints of its own."""
    draft.spec.pop("topologySpreadConstraints", None)
    draft.pod["metadata"]["labels"] = {"app": draft.chance.choice(APPS[:2]), "version": "1"}


def affinity_required(draft: Draft) -> None:
    part = draft.affinity("podAffinity")
    part.setdefault(REQUIRED, []).append(a_term(draft.chance))
    if draft.chance.random() < 0.2:
        part[REQUIRED].append(a_term(draft.chance))


def anti_affinity_required(draft: Draft) -> None:
    draft.affinity("podAntiAffinity").setdefault(REQUIRED, []).append(a_term(draft.chance))


def affinity_preferred(draft: Draft) -> None:
    _prefer(draft, "podAffinity")


def anti_affinity_preferred(draft: Draft) -> None:
    _prefer(draft, "podAntiAffinity")


def _prefer(draft: Draft, kind: str) -> None:
    for _ in range(draft.chance.randint(1, 2)):
        term = {"weight": draft.chance.randint(1, 100), "podAffinityTerm": a_term(draft.chance)}
        draft.affinity(kind).setdefault(PREFERRED, []).append(term)


def _term_to_change(draft: Draft) -> Json:
    """Return an affinity term of the pod, which it gets where it has none."""
    found: list[Json] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        part = draft.spec.get("affinity", {}).get(kind, {})
        found += [*part.get(REQUIRED, ()), *(one["podAffinityTerm"] for one in part.get(PREFERRED, ()))]
    if not found:
        found = [a_term(draft.chance)]
        draft.affinity(draft.chance.choice(("podAffinity", "podAntiAffinity")))[REQUIRED] = found
    return draft.chance.choice(found)


def namespace_selector(draft: Draft) -> None:
    """Select namespaces; see the page on compatibility for selectors that match a namespace without labels."""
    _term_to_change(draft)["namespaceSelector"] = draft.chance.choice(({}, *SELECTED))


def match_label_keys(draft: Draft) -> None:
    term = _term_to_change(draft)
    term[draft.chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]


def existing_anti_affinity(draft: Draft) -> None:
    """Be a pod that a required anti-affinity term of a running pod matches, in most cases."""
    _be_meant(draft, lambda affinity: affinity.get("podAntiAffinity", {}).get(REQUIRED, ()))


def existing_preferred(draft: Draft) -> None:
    def terms(affinity: Json) -> list[Json]:
        parts = [affinity.get(kind, {}) for kind in ("podAffinity", "podAntiAffinity")]
        weighed = [one["podAffinityTerm"] for part in parts for one in part.get(PREFERRED, ())]
        return [*weighed, *parts[0].get(REQUIRED, ())]

    _be_meant(draft, terms)


def _be_meant(draft: Draft, terms: Callable[[Json], object]) -> None:
    carriers = [pod for pod in draft.state.running if terms(pod["spec"].get("affinity", {}))]
    if carriers:
        of = draft.chance.choice(carriers)
        draft.pod["metadata"]["namespace"] = of["metadata"]["namespace"]
    draft.pod["metadata"]["labels"] = {"app": draft.chance.choice(APPS), "version": draft.chance.choice(("1", "2"))}
