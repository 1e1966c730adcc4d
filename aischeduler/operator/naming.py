"""The names of what a BatchProcess gets: its gang and Service, and a pod of each role and index.

Invariants:
- A name depends on the BatchProcess alone, so that each run of the operator names the same pods.
- Every name is a DNS label of at most 63 characters: it is a hostname, a label value and the name of an object.
- A name that had to be changed ends in a hash of the whole, so that two names do not meet.
"""

import re
from hashlib import sha256
from typing import Final

from aischeduler.model.names import GROUP, VERSION

BRAINPP_GROUP: Final = "workspace.brainpp.cn"
"""The group in which Brain++ defines BatchProcess."""
GROUPS: Final = (GROUP, BRAINPP_GROUP)
KIND: Final = "BatchProcess"
PLURAL: Final = "batchprocesses"
BATCH_VERSION: Final = VERSION
"""The version of BatchProcess in both groups."""

KEY_PREFIX: Final = GROUP + "/"
INDEX_KEY: Final = KEY_PREFIX + "role-index"
"""The label with the index of a pod in its role."""
RANK_KEY: Final = "apps.kubernetes.io/pod-index"
"""The label with the rank of a pod, as the environment variable RANK; StatefulSets have the same label."""
ATTEMPT_KEY: Final = KEY_PREFIX + "attempt"
"""The annotation of a pod: it is the n-th pod of its name."""
RECORD_KEY: Final = KEY_PREFIX + "record"
"""The annotation of a BatchProcess whose definition does not keep our status: what the operator must not forget."""
MADE_BY_KEY: Final = "app.kubernetes.io/managed-by"
MADE_BY: Final = "ai-scheduler-operator"
"""The value of `MADE_BY_KEY` on every object that the operator makes."""

LABEL_LENGTH_MAX: Final = 63
ROLE_LENGTH_MAX: Final = 40
_HASH_LENGTH: Final = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)


def dns_label(text: str, length_max: int = LABEL_LENGTH_MAX) -> str:
    """Return the text if it is a DNS label (RFC 1035) of this length, else a label made from it with a hash."""
    if len(text) <= length_max and _LABEL.fullmatch(text):
        return text
    clean = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    lettered = clean if clean[:1].isalpha() else f"b-{clean}"
    kept = lettered[: length_max - _HASH_LENGTH - 1].rstrip("-")
    return f"{kept}-{sha256(text.encode()).hexdigest()[:_HASH_LENGTH]}"


def pod_name(process: str, role: str, index: int) -> str:
    """Return the name of the pod of a role with this index, from 0."""
    return dns_label(f"{process}-{role}-{index}")
