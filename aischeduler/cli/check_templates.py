"""Pods in documents: a Pod itself, and the pod templates of whatever makes pods.

Law: a template is found by its shape, so that Jobs of every kind count, also of those that nobody knows here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from aischeduler.cli.check_documents import Body, Document, Finding, items_at, mapping_at, text_at
from aischeduler.config.schema import ConstraintRule
from aischeduler.config.spelling import nearest
from aischeduler.model.names import DEFAULT_POOL, POOL_KEY, SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.model.quantity import QuantityError, parse_nano, shorten
from aischeduler.model.unsupported_constraints import ConstraintKind

DEPTH_MAX: Final = 12
"""How deep in an object a template may lie."""
SCHEDULER_LIKENESS: Final = 0.9
"""How alike a misspelt name of a scheduler is: they all end in the same word."""
TEMPLATES_MAX: Final = 64
"""Templates of one object that are looked at."""


@dataclass(frozen=True, slots=True)
class Template:
    """What pods are made from; `lead` is its path with a dot at the end, empty for a Pod."""

    document: Document
    lead: str
    body: Body

    @property
    def pool(self) -> str:
        """The pool that its pods name, or nothing."""
        metadata = mapping_at(self.body, "metadata")
        annotation, label = (text_at(mapping_at(metadata, part), POOL_KEY) for part in ("annotations", "labels"))
        return annotation or label

    @property
    def pool_field(self) -> str:
        """The path of where it names its pool."""
        annotated = POOL_KEY in mapping_at(self.body, "metadata", "annotations")
        return f"{self.lead}metadata.{'annotations' if annotated else 'labels'}[{POOL_KEY}]"

    @property
    def spec(self) -> Body:
        """The spec of its pods."""
        return mapping_at(self.body, "spec")

    def found(self, field: str, sentence: str) -> Finding:
        """Return a finding about a field of the template."""
        return Finding(self.document, f"{self.lead}{field}", sentence)


def templates(document: Document) -> list[Template]:
    """Return the pod, or the pod templates, in a document."""
    if (document.api_version, document.kind) == ("v1", "Pod"):
        return [Template(document, "", document.body)]
    found = _search(document.body, "", 0)
    return [Template(document, f"{path}.", body) for path, body in found][:TEMPLATES_MAX]


def _search(value: Any, path: str, depth: int) -> Iterator[tuple[str, Body]]:
    if depth > DEPTH_MAX:
        return
    if isinstance(value, dict):
        for name, one in value.items():
            where = f"{path}.{name}".removeprefix(".")
            if name == "template" and items_at(mapping_at(one, "spec"), "containers"):
                yield where, one
            else:
                yield from _search(one, where, depth + 1)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _search(one, f"{path}[{index}]", depth + 1)


def asks_for(template: Template, scheduler_name: str) -> Iterator[Finding]:
    """Say what keeps pods that are meant for this scheduler from reaching it."""
    asked = text_at(template.spec, "schedulerName")
    if asked == scheduler_name:
        return
    if nearest(asked, [scheduler_name], SCHEDULER_LIKENESS):
        yield template.found(
            "spec.schedulerName", f"{shorten(asked)} is another scheduler; did you mean {scheduler_name}?"
        )
    elif template.pool and not asked:
        what = f"is missing: a pod that names a pool is scheduled by pools only with schedulerName: {scheduler_name}"
        yield template.found("spec.schedulerName", what)


def misplaced_pool(template: Template) -> Iterator[Finding]:
    """Say where a pool is named that no pod will ever see: beside the template, or under a misspelt key."""
    metadata = mapping_at(template.document.body, "metadata")
    for part in ("annotations", "labels"):
        if template.lead and not template.pool and POOL_KEY in mapping_at(metadata, part):
            what = f"names a pool, but pods are made from {template.lead}metadata: it belongs there"
            yield Finding(template.document, f"metadata.{part}[{POOL_KEY}]", what)
        for key in mapping_at(template.body, "metadata", part):
            if key != POOL_KEY and nearest(str(key), [POOL_KEY]):
                yield template.found(f"metadata.{part}[{key}]", f"means nothing; did you mean {POOL_KEY}?")


def unknown_pool(template: Template, pools: tuple[str, ...]) -> Iterator[Finding]:
    """Say that no such pool is known; `pools` are all, sorted."""
    if template.pool and template.pool not in pools:
        near = nearest(template.pool, pools)
        meant = f"; did you mean {near}?" if near else f"; its pods would belong to the pool {DEFAULT_POOL}"
        yield Finding(template.document, template.pool_field, f"there is no Pool {shorten(template.pool)}{meant}")


def unsupported(template: Template, pod: Pod, rule: ConstraintRule) -> Iterator[Finding]:
    """Say which hard constraints no rule looks at, and what becomes of the pods; of claims says `unknown_claims`."""
    outcome = "wait" if rule is ConstraintRule.HOLD else "are placed as if they did not state it"
    for one in pod.spec.unsupported_constraints:
        if one.kind is not ConstraintKind.VOLUME_CLAIM:
            sentence = f"is not supported by {SCHEDULER_NAME}: its pods {outcome} (unsupportedConstraints: {rule})"
            yield template.found(one.field, sentence)


def unknown_claims(template: Template, pod: Pod) -> Iterator[Finding]:
    """Say of every claim that its pods wait for it, which files cannot tell."""
    needs = "be bound to a volume that every node can use; files do not tell whether it will be"
    for use in pod.volume_claims:
        claim = "the claim of each pod" if use.owned else f'persistentvolumeclaim "{use.name}"'
        yield template.found(use.field, f"its pods wait: {claim} has to {needs}")
    if items_at(mapping_at(template.document.body, "spec"), "volumeClaimTemplates"):
        what = f"its pods wait: the claims made from it have to {needs}"
        yield Finding(template.document, "spec.volumeClaimTemplates", what)


def malformed_quantities(template: Template) -> Iterator[Finding]:
    """Say which amounts are none, each with its path, which the API server does not tell."""
    spec = template.spec
    resources = [("spec.resources", mapping_at(spec, "resources"))]
    for part in ("containers", "initContainers"):
        for index, container in enumerate(items_at(spec, part)):
            resources.append((f"spec.{part}[{index}].resources", mapping_at(container, "resources")))
    amounts = [("spec.overhead", mapping_at(spec, "overhead"))]
    amounts += [(f"{path}.{kind}", mapping_at(one, kind)) for path, one in resources for kind in ("requests", "limits")]
    for path, quantities in amounts:
        for name, sentence in no_quantities(quantities):
            yield template.found(f"{path}[{name}]", sentence)


def no_quantities(amounts: Body) -> Iterator[tuple[str, str]]:
    """Say by name which of these are no amounts, and why."""
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, str | int | float):
            yield name, "is no quantity such as 1, 500m, 1.5 or 2Gi"
            continue
        try:
            parse_nano(str(amount))
        except QuantityError as error:
            yield name, str(error)
