"""When to update the reasons of waiting pods: some seconds after the last change of what reasons depend on.

Invariant: endless changes delay an update by a limited time; one change causes one update.
"""

from dataclasses import dataclass
from typing import Final

REST_SECONDS: Final = 10.0
"""The pause after the last change before an update."""
UNREST_SECONDS_MAX: Final = 60.0
"""The longest delay of an update by further changes."""

Versions = tuple[int, ...]
"""The versions of everything that reasons depend on: nodes, running pods, pools, loans and queues."""


@dataclass(slots=True)
class Unrest:
    """The last versions, when they began to change, and when an update is due."""

    versions: Versions = ()
    since: float = 0.0
    until: float | None = None

    def note(self, versions: Versions, now: float) -> None:
        """Note the versions of now."""
        if versions == self.versions:
            return
        if self.until is None:
            self.since = now
        self.versions, self.until = versions, min(now + REST_SECONDS, self.since + UNREST_SECONDS_MAX)

    def ended(self, now: float) -> bool:
        """Return whether an update is due, once per change."""
        if self.until is None or self.until > now:
            return False
        self.until = None
        return True
