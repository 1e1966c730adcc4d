"""What a plugin is: one file, one class, of one or more of these protocols.

Laws:
- A filter is a mask over the rows of an excerpt, a score is a vector over them; neither loops over nodes in Python.
- A plugin answers from its arguments alone: no clock, no chance, no memory of earlier pods.
- `static` rules read only labels, taints, cordons and names. Their answers are kept until those change;
  the others are asked again for each row that changed.
- None means "nothing to say": a filter that passes every row, a score that is zero everywhere. What a live filter says
  nothing of, it says nothing of whatever else counts on the rows.

Source: the extension points PreEnqueue, Filter and Score of kube-scheduler; `helps` stands for its QueueingHints.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.excerpt import Excerpt
from aischeduler.state.index import Mask

Scores = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One class of pods asking for a node: what it is, and which nodes its pool prefers."""

    spec: PodSpec
    placement: PlacementStrategy


class Filter(Protocol):
    """Says on which rows a pod may run."""

    name: str
    static: bool

    def filter(self, spec: PodSpec, at: Excerpt) -> Mask | None:
        """Return a mask as long as `at`: True where the pod may run."""
        ...

    def reasons(self, spec: PodSpec, at: Excerpt) -> Counter[str]:
        """Say why, for rows that this filter refused: each text with its number of rows."""
        ...

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Say, from the node as it is after a change, whether a parked pod could pass this filter there.

        It saves asking `filter` about a pod that the node can never suit: answer quickly, and yes when unsure.
        """
        ...


@runtime_checkable
class AmountFilter(Filter, Protocol):
    """A live filter that reads nothing but amounts, and so can be asked about any.

    Where it passes, it passes with less in use too. Its `reasons` may be asked about rows that it passes: those count
    for nothing.
    """

    by_amounts: bool


class Score(Protocol):
    """Says how good rows are, from 0 to 100; the sum over scores, each times its weight, decides.

    With `normalize` the raw values are scaled over the feasible rows so that the largest becomes 100; with
    `reverse` the largest raw value becomes 0. Only static scores are normalised.
    """

    name: str
    static: bool
    weight: int
    normalize: bool
    reverse: bool

    def score(self, ask: PlacementRequest, at: Excerpt) -> Scores | None:
        """Return a vector as long as `at`; only rows that passed every filter are meaningful."""
        ...


class Gate(Protocol):
    """Holds pods back before they are tried at all."""

    name: str

    def holds(self, pod: Pod) -> str:
        """Return why the pod may not be tried yet, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Plugins:
    """The rules in force, in the order in which they are asked."""

    gates: tuple[Gate, ...]
    filters: tuple[Filter, ...]
    scores: tuple[Score, ...]
