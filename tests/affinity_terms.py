"""Builders of affinity terms in few words."""

from aischeduler.model.pod_affinity import PodAffinityTerm
from aischeduler.model.selectors import LabelSelector, Requirement, label_requirement


def chosen(text: str) -> LabelSelector:
    """Return a label selector of expressions as kubectl takes them, without values with commas: `a=1,b!=2,c,!d`."""
    return LabelSelector(tuple(_expression(one) for one in text.split(",") if one))


def _expression(text: str) -> Requirement:
    if "!=" in text:
        key, _, values = text.partition("!=")
        return label_requirement("term", key, "NotIn", tuple(values.split("|")))
    key, equals, values = text.partition("=")
    if equals:
        return label_requirement("term", key, "In", tuple(values.split("|")))
    return label_requirement("term", text.lstrip("!"), "DoesNotExist" if text.startswith("!") else "Exists", ())


def term(key: str, pods: str | None, *namespaces: str, among: str | None = None) -> PodAffinityTerm:
    """Return a term about the pods that `pods` selects: of `namespaces` and those that `among` selects, or of default.

    None as `pods` is a term without a selector.
    """
    named = namespaces if namespaces or among is not None else ("default",)
    selected = None if pods is None else chosen(pods)
    return PodAffinityTerm(key, selected, named, None if among is None else chosen(among))
