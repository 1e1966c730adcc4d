"""LicenseServer: pods with the label `license` run in a site that has the license, and no more of them than licenses.

Plain form: `filter_node` and `score_node` judge one node. The other methods are those of Reserve, Permit and PreBind:
a license is kept when a pod is placed, a Binding waits while none is free, and the license is taken before it is sent.
"""

from collections.abc import Callable
from typing import Any

from aischeduler.framework.per_node import PlainNode
from aischeduler.framework.plugin import Delayed, Vetoed
from aischeduler.model.pod import Pod, PodSpec

LICENSE = "license"
SITES = "example.com/licenses"
"""The label of nodes: the licenses of their site, joined by dots."""
PATIENCE_SECONDS = 600.0


class LicenseServer:
    """Counts the pods that hold a license."""

    name = "LicenseServer"
    static = True
    reads = (LICENSE,)
    weight = 1

    def __init__(self, args: dict[str, Any], take: Callable[[str, str], None] = lambda _, __: None) -> None:
        """Read the arguments: `licenses` has the number of each; `take` asks the server for one, and raises."""
        licenses = args.get("licenses", {})
        if not isinstance(licenses, dict) or not all(isinstance(number, int) for number in licenses.values()):
            raise ValueError("licenses must be a mapping such as {solver: 2}")
        self._total: dict[str, int] = licenses
        self._held: dict[str, dict[str, None]] = {name: {} for name in licenses}
        self._take = take

    def filter_node(self, pod: PodSpec, node: PlainNode) -> str | None:
        """Return why a pod of this class may not run on the node; None where it may."""
        wanted = pod.mark(LICENSE)
        if wanted and wanted not in node.node.labels.get(SITES, "").split("."):
            return f"node(s) were in a site without the license {wanted}"
        return None

    def score_node(self, pod: PodSpec, node: PlainNode) -> int:
        """Return 100 for nodes of a site without licenses if the pod needs none: they keep the others free."""
        return 0 if pod.mark(LICENSE) or node.node.labels.get(SITES) else 100

    def reserve(self, pod: Pod, node: str) -> None:
        """Put the pod in line for its license."""
        self._held.get(pod.labels.get(LICENSE, ""), {})[pod.uid] = None

    def release(self, pod: Pod, node: str) -> None:
        """Give the license back, or the place in line."""
        self._held.get(pod.labels.get(LICENSE, ""), {}).pop(pod.uid, None)

    def permit(self, pod: Pod, node: str, waited_seconds: float) -> Delayed | Vetoed | None:
        """Let the first in line be bound; the others wait, and give their nodes back after ten minutes."""
        wanted = pod.labels.get(LICENSE, "")
        if not wanted:
            return None
        if wanted not in self._total:
            return Vetoed(f"the server has no license {wanted}")
        if list(self._held[wanted]).index(pod.uid) < self._total[wanted]:
            return None
        return Delayed(5.0) if waited_seconds < PATIENCE_SECONDS else Vetoed(f"no license {wanted} became free")

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Take the license; an exception refuses the Binding."""
        if wanted := pod.labels.get(LICENSE, ""):
            self._take(wanted, pod.uid)
