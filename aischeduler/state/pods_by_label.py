"""The pods on rows by the values of some labels: a count that begins reads those that it may count alone.

A key is learned when a count needs it first; from then on it is kept up to date.
"""

from collections.abc import Iterable, Iterator

from aischeduler.model.pod import Pod
from aischeduler.state.groups import Groups

OnRow = tuple[Pod, int, bool]
"""A pod, its row, and whether it owns a claim there instead of being there."""


class PodsByLabel:
    """Namespace, key and value -> the pods by uid and by where they are, for the keys that were learned."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._pods: Groups[tuple[str, str, str], tuple[str, int, bool], OnRow] = Groups()

    def add(self, pod: Pod, row: int, *, claims: bool) -> None:
        """Add a pod that came to a row."""
        for key in self._keys:
            self._add(key, (pod, row, claims))

    def remove(self, pod: Pod, row: int, *, claims: bool) -> None:
        """Remove a pod that left its row, or whose claim there ended."""
        for key in self._keys:
            value = pod.labels.get(key)
            if value is not None:
                self._pods.drop((pod.namespace, key, value), (pod.uid, row, claims))

    def learn(self, key: str, pods: Iterable[OnRow]) -> None:
        """Keep pods by this label from now on; `pods` are all on rows now. Nothing changes for a known key."""
        if key not in self._keys:
            self._keys[key] = None
            for one in pods:
                self._add(key, one)

    def having(self, namespace: str, label: tuple[str, str]) -> Iterator[OnRow]:
        """Yield the pods of this namespace with this label, whose key was learned."""
        yield from self._pods.get((namespace, *label), {}).values()

    def forget(self) -> None:
        """Forget all keys."""
        self._keys.clear()
        self._pods.clear()

    def _add(self, key: str, one: OnRow) -> None:
        pod, row, claims = one
        value = pod.labels.get(key)
        if value is not None:
            self._pods.put((pod.namespace, key, value), (pod.uid, row, claims), one)
