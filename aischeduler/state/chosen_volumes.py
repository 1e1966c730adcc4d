"""The volumes that were chosen for unbound claims of placed pods, until the API server shows the claims bound.

Invariants:
- Several pods may have chosen for one claim, and then the same: the choice holds while one of them is placed.
- A choice counts while its claim is the same object and is not bound.
- `stamp` changes with every choice, in trials too.
- The choices of a row are known, so that they can be counted again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from aischeduler.model.volumes import VolumeChoice, VolumeClaim, VolumeClaimKey
from aischeduler.state.groups import Tallies
from aischeduler.state.kept import Stamp


class ChosenVolumes:
    """The choices by claim, each with the number of placed pods that have it."""

    def __init__(self, claims: Mapping[VolumeClaimKey, VolumeClaim]) -> None:
        self.by_claim: Tallies[VolumeClaimKey, VolumeChoice] = Tallies()
        self.stamp = Stamp()
        self._claims = claims
        self._on: Tallies[int, VolumeChoice] = Tallies()
        self._by_volume: Tallies[str, VolumeChoice] = Tallies()

    def put(self, choice: VolumeChoice, row: int) -> None:
        """Count a choice of a pod that is placed on this row."""
        self.stamp.change()
        self._on.add(row, choice)
        self.by_claim.add(choice.claim, choice)
        if choice.volume:
            self._by_volume.add(choice.volume, choice)

    def drop(self, choice: VolumeChoice, row: int) -> None:
        """Undo `put`."""
        self.stamp.change()
        self._on.subtract(row, choice)
        self.by_claim.subtract(choice.claim, choice)
        if choice.volume:
            self._by_volume.subtract(choice.volume, choice)

    def of(self, claim: VolumeClaim) -> VolumeChoice | None:
        """Return what was chosen for a claim; None where nothing that counts was."""
        return next((one for one in self.by_claim.get(claim.key, ()) if self._counts(one)), None)

    def taken(self) -> Iterator[tuple[str, VolumeClaimKey]]:
        """Yield the volumes that were chosen, each with its claim."""
        for volume, choices in self._by_volume.items():
            yield from ((volume, one.claim) for one in choices if self._counts(one))

    def all(self) -> Counter[VolumeChoice]:
        """Return every choice, each with the number of pods that have it."""
        return Counter({choice: pods for choices in self.by_claim.values() for choice, pods in choices.items()})

    def _counts(self, choice: VolumeChoice) -> bool:
        claim = self._claims.get(choice.claim)
        return claim is not None and claim.uid == choice.claim_uid and not claim.bound
