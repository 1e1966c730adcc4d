"""When to look again at what waiting pods were told: some seconds after the last change of all that reasons speak of.

Law: changes without end put it off only so long; one change is looked at once.
"""

from dataclasses import dataclass
from typing import Final

REST_SECONDS: Final = 10.0
"""How long nothing may have changed before reasons are looked at again."""
UNREST_SECONDS_MAX: Final = 60.0
"""After this long they are looked at though things go on changing."""

Versions = tuple[int, ...]
"""Of everything that reasons speak of: nodes, what runs on them, pools, loans and queues."""


@dataclass(slots=True)
class Unrest:
    """The versions that were seen last, and since when, and until when, they have been changing."""

    versions: Versions = ()
    since: float = 0.0
    until: float | None = None

    def note(self, versions: Versions, now: float) -> None:
        """Note how things stand now."""
        if versions == self.versions:
            return
        if self.until is None:
            self.since = now
        self.versions, self.until = versions, min(now + REST_SECONDS, self.since + UNREST_SECONDS_MAX)

    def ended(self, now: float) -> bool:
        """Say, once, whether it is time to look."""
        if self.until is None or self.until > now:
            return False
        self.until = None
        return True
