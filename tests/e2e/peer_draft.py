"""A pending pod of the differential test while it is written."""

from dataclasses import dataclass
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from tests.e2e.peer_states import Machine, State
from tests.objects import Json

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Draft:
    """A pending pod for a state, while it is written."""

    chance: Random
    state: State
    pod: Json

    @property
    def spec(self) -> Json:
        spec: Json = self.pod["spec"]
        return spec

    @property
    def main(self) -> Json:
        """The main container."""
        container: Json = self.spec["containers"][0]
        return container

    def machine(self) -> Machine:
        """Return a node of the state."""
        return self.chance.choice(self.state.machines)

    def affinity(self, kind: str) -> Json:
        """Return a part of the pod's affinity, to be changed."""
        part: Json = self.spec.setdefault("affinity", {}).setdefault(kind, {})
        return part

    def request(self, resource: str, amount: str) -> None:
        """Let the main container ask for this; other than CPU and memory it is a limit too."""
        resources = self.main.setdefault("resources", {})
        resources.setdefault("requests", {})[resource] = amount
        if resource not in ("cpu", "memory", "ephemeral-storage"):
            resources.setdefault("limits", {})[resource] = amount
