"""The requests of pods and the resources of nodes, calculated from Kubernetes' documentation without product code.

Invariants:
- CPU is in thousandths, every other resource in ones; fractions are rounded up, as in kube-scheduler.
- A pod requests what runs at the same time: its containers and all sidecars, or one init container and the sidecars
  started before it, whichever is more. Pod-level requests replace that sum; overhead is added.
- Only the spec counts: resources that a kubelet grants during a resize do not.
"""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000 ** (power + 1)) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")},
}
MILLI_RESOURCES = ("cpu",)
POD_LEVEL = ("cpu", "memory", "hugepages-")
"""The resources, or prefixes of their names, that pod-level requests may have."""


@cache
def amount(quantity: str) -> Fraction:
    """Return a quantity as an exact number."""
    digits = quantity.rstrip("numkMGTPEiK")
    suffix = quantity[len(digits) :]
    if suffix in SUFFIXES:
        return Fraction(digits) * SUFFIXES[suffix]
    raise ValueError(f"{quantity!r} is no quantity")


def amounts(quantities: Mapping[str, Any] | None) -> Counter[str]:
    """Return a resource list as whole numbers."""
    return Counter(
        {
            name: ceil(amount(str(quantity)) * (1000 if name in MILLI_RESOURCES else 1))
            for name, quantity in (quantities or {}).items()
        }
    )


def requests(spec: Mapping[str, Any]) -> Counter[str]:
    """Return the requests of a pod of this spec, with one of `pods`."""
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
        else:
            most |= asked + sidecars
    main = sidecars.copy()
    for container in spec.get("containers") or ():
        main += _asked(container)
    total = main | most
    total.update({name: asked - total[name] for name, asked in _asked(spec).items() if name.startswith(POD_LEVEL)})
    return total + amounts(spec.get("overhead")) + Counter({"pods": 1})


def _asked(document: Mapping[str, Any]) -> Counter[str]:
    return amounts((document.get("resources") or {}).get("requests"))
