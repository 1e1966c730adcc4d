"""The names of card types: one table that makes one name of the spellings of a card.

Invariants:
- Normalising a name twice gives the same as once; case, blanks, `_` and the order of memory and form do not matter.
- `card_names` begins with the full name; further names leave out parts: A100-SXM4-80GB, A100-SXM4, A100-80GB, A100.
- A MIG slice is no whole card: its names end in `-MIG-` and the profile. Where a card is rare, so are its slices.

Source: gpu-feature-discovery (`nvidia.com/gpu.product`, `-SHARED`, `-MIG-`), koordlet (the product without its vendor),
capacity-card (`NVIDIA-H200/mig-1g.18gb-mixed`).
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from aischeduler.model.device import DEVICE_PREFIXES
from aischeduler.model.names import GPU_SHARE

TYPE_LENGTH_MAX: Final = 63
"""The longest name of a type: that of a label value."""
FORM_LENGTH_MAX: Final = 128
"""The longest name of a card with its form."""
MPS_PREFIX: Final = "/mps-"
MIG_RESOURCE: Final = "/mig-"
"""What the names of the resources of MIG slices have before the profile: nvidia.com/mig-1g.18gb."""
SHARED_RESOURCE: Final = "/gpu.shared"
TYPES_MAX: Final = 16
"""The most types that one pod may name."""
NAMES_CACHED_MAX: Final = 4096

VENDOR_WORDS: Final = frozenset(
    ("NVIDIA", "TESLA", "GEFORCE", "QUADRO", "AMD", "INSTINCT", "RADEON", "HUAWEI", "INTEL", "GENERATION", "SHARED")
)
"""Words that tell no two cards apart, and what sharing by time adds; they are left out."""
FORM: Final = re.compile(r"SXM\d*|PCIE|NVL\d*|OAM|MXM")
"""How a card is built in."""
MEMORY: Final = re.compile(r"(\d+)GB?")
"""The memory of a card; 144G is 144GB."""
MEMORY_KIND: Final = re.compile(r"HBM\d*E?|GDDR\d*X?")
"""The kind of its memory."""
_BETWEEN: Final = re.compile(r"[-\s_/]+")
_MPS: Final = re.compile(r"/mps-.*", re.IGNORECASE | re.DOTALL)
"""What capacity-card adds to the name of a card that is shared by MPS."""
_MIG: Final = "MIG"
_MIXED: Final = "MIXED"
_LAX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/+*-]*", re.ASCII)


class TypeNameError(ValueError):
    """A text that cannot be the name of a card type; the message quotes nothing of it."""


@lru_cache(maxsize=NAMES_CACHED_MAX)
def card_names(product: str) -> tuple[str, ...]:
    """Return the names of a card or of a MIG slice, the full name first; none where the text names no card."""
    words = [word for word in _BETWEEN.split(_MPS.sub("", product).upper()) if word and word not in VENDOR_WORDS]
    at = next((at for at, word in enumerate(words) if at and word == _MIG), len(words))
    profile = [word for word in words[at + 1 :] if word != _MIXED]
    if not profile:
        return _names_of_card(words)
    suffix = f"-{_MIG}-{'-'.join(profile).lower().replace('+', '.')}"
    return tuple(f"{name}{suffix}" for name in _names_of_card(words[:at]))


def type_name(text: str) -> str:
    """Return the full name of a type that a user wrote; raises TypeNameError where it cannot be one."""
    if len(text) > TYPE_LENGTH_MAX:
        raise TypeNameError(f"is longer than {TYPE_LENGTH_MAX} characters")
    names = card_names(text) if _LAX.fullmatch(text) else ()
    if not names:
        raise TypeNameError("is not the name of a card type such as A100 or A100-80GB")
    return names[0]


def card_form(text: str) -> str:
    """Return the form of a card in which its quota is kept; raises TypeNameError for a text that names none.

    That is the full name of a whole card or a MIG slice; of a share by MPS the full name, `/mps-` and what follows.
    """
    if len(text) > FORM_LENGTH_MAX:
        raise TypeNameError(f"is longer than {FORM_LENGTH_MAX} characters")
    share = _MPS.search(text)
    names = card_names(text) if _LAX.fullmatch(text) else ()
    if not names:
        raise TypeNameError("is not the name of a card such as NVIDIA-H200 or NVIDIA-H200/mig-1g.18gb-mixed")
    return names[0] + (share[0].lower() if share is not None else "")


@lru_cache(maxsize=NAMES_CACHED_MAX)
def form_names(card: str, resource: str) -> tuple[str, ...]:
    """Return the forms that units of this resource have on a node with this card, the full name first.

    `card` is a full name, on a node that shares it by MPS with `/mps-` and what follows. A quota for one of these forms
    covers them. Shares by MPS of a node that does not say how it shares have none.
    """
    base, slash, share = card.partition(MPS_PREFIX)
    names = card_names(base)
    if MIG_RESOURCE in resource:
        profile = resource.partition(MIG_RESOURCE)[2]
        return tuple(f"{name}-{_MIG}-{profile}" for name in names)
    if resource.endswith(SHARED_RESOURCE):
        return tuple(f"{name}{slash}{share}" for name in names) if share else ()
    return names


def is_card(resource: str, gpu_resources: tuple[str, ...]) -> bool:
    """Return whether units of a resource are cards, or parts of cards; `gpu_resources` are whole cards."""
    if resource in gpu_resources or resource == GPU_SHARE or MIG_RESOURCE in resource:
        return True
    return resource.endswith(SHARED_RESOURCE) and not resource.startswith(DEVICE_PREFIXES)  # those are numbers of GPUs


@lru_cache(maxsize=NAMES_CACHED_MAX)
def covered_names(name: str) -> frozenset[str]:
    """Return the names of a card and, for a MIG slice, those of the whole card: what a rare type may be called."""
    names = card_names(name)
    whole = names[0].partition("-MIG-")[0] if names else ""
    return frozenset((*names, *card_names(whole)))


def shortest(names: Iterable[str]) -> str:
    """Return the name that leaves out most: the model, as A100."""
    return min(names, key=lambda name: (len(name), name))


def _names_of_card(words: list[str]) -> tuple[str, ...]:
    """Return the names of a whole card: the words before the first part are its model, others end the full name."""
    model: list[str] = []
    form = memory = kind = ""
    rest: list[str] = []
    for word in words:
        if not form and FORM.fullmatch(word):
            form = word
        elif not memory and (found := MEMORY.fullmatch(word)):
            memory = f"{found[1]}GB"
        elif not kind and MEMORY_KIND.fullmatch(word):
            kind = word
        elif form or memory or kind:
            rest.append(word)
        else:
            model.append(word)
    if not model:
        return ()
    parts = ((form, memory, kind, *rest), (form, memory, kind), (form, memory), (form,), (memory,), ())
    return tuple(dict.fromkeys("-".join(filter(None, (*model, *kept))) for kept in parts))
