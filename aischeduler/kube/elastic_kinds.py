"""The kinds whose objects may be elastic, and where the API server has their objects.

Invariant: a kind is told from others by its name alone, as the owner of a pod is.

Source: batch/v1; JobSet of jobset.x-k8s.io/v1alpha2; apps/v1.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

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
