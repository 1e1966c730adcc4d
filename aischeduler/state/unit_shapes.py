"""The shape of a unit: what decides by amounts where it fits. Units of one shape fit on the same rows."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final

from msgspec import Struct

from aischeduler.model.pod import PodSpec
from aischeduler.state.pod_records import Unit

CLASSES_MAX: Final = 4
"""The most classes of a unit of which each is counted for itself too."""

Classes = tuple[bytes, ...]
"""The keys of the classes of some pods, sorted."""


class Part(Struct, frozen=True, eq=False):
    """Pods of these classes, as many as must fit together; a spec of each class."""

    classes: Classes
    specs: tuple[PodSpec, ...]
    count: int


class Shape(Struct, frozen=True, eq=False):
    """The pods that start together, and where there are several classes but few, those of each class too.

    They start on nodes that share the values of these `labels`, and may span pools or not. Shapes with equal keys are
    equal.
    """

    key: Hashable
    parts: tuple[Part, ...]
    labels: tuple[str, ...] = ()
    spans: bool = False


def shape_of(specs: Sequence[PodSpec], labels: tuple[str, ...] = (), *, spans: bool = False) -> Shape:
    """Return the shape of pods with these specs that start together, on nodes that share the values of these labels."""
    counts = Counter(spec.key for spec in specs)
    by_key = {spec.key: spec for spec in specs}
    classes = tuple(sorted(counts))
    parts = [Part(classes, tuple(by_key[key] for key in classes), len(specs))]
    if 1 < len(classes) <= CLASSES_MAX:
        parts += [Part((key,), (by_key[key],), counts[key]) for key in classes]
    key = tuple((part.classes, part.count) for part in parts), labels, spans
    return Shape(key, tuple(parts), labels, spans)


def shape_of_unit(unit: Unit) -> Shape:
    """Return the shape of a unit that waits."""
    levels = unit.gang.topology if unit.gang is not None else ()
    labels = tuple(level.label for level in levels if level.required)
    return shape_of([record.pod.spec for record in unit.together], labels, spans=unit.spans)
