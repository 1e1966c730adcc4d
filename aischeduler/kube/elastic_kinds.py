"""The kinds whose objects may be elastic, and where the API server has their objects.

Invariant: a kind is told from others by its name alone, as the owner of a pod is; the configuration adds none of a name
that is here.

Source: batch/v1; JobSet of jobset.x-k8s.io/v1alpha2; apps/v1.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from aischeduler.config.schema import ElasticKind

Collections = Mapping[str, tuple[str, str]]
"""Kind -> GROUP/VERSION, and the plural of the kind in paths."""
COLLECTIONS: Final[Collections] = MappingProxyType(
    {
        "Job": ("batch/v1", "jobs"),
        "JobSet": ("jobset.x-k8s.io/v1alpha2", "jobsets"),
        "Deployment": ("apps/v1", "deployments"),
        "StatefulSet": ("apps/v1", "statefulsets"),
    }
)
"""Those of the kinds that may always be elastic."""


def collections_with(kinds: Iterable[ElasticKind]) -> Collections:
    """Return the collections of these kinds too."""
    return {**COLLECTIONS, **{kind.kind: (kind.api_version, kind.resource) for kind in kinds}}
