"""The building blocks of a CRD schema: bounded strings, lists, selectors, amounts and conditions.

Invariants:
- Everything of variable length has a bound, so that the API server can compute the cost of the rules.
- A rule has a message for people and the path of its field.

Source: structural schemas and validation rules of `apiextensions.k8s.io/v1`.
"""

from typing import Any, Final

from aischeduler.model.selectors import LABEL_OPERATORS

Schema = dict[str, Any]

REQUIREMENTS_MAX: Final = 64
"""How many labels or expressions a selector may have."""
VALUES_MAX: Final = 256
"""How many values an expression of a selector may have."""
RESOURCES_MAX: Final = 64
"""How many resources a reported list may have, and a list in a spec of an older schema."""
LIMITED_RESOURCES_MAX: Final = 30
"""How many resources a list in a spec may have. An API server of 1.31 computes the cost of each access to an amount as
if it could fill a whole request, whatever its maxLength, and rejects a definition with a rule that costs too much.
"""
QUANTITY_LENGTH_MAX: Final = 40
"""The longest amount."""
COLUMN_LENGTH_MAX: Final = 128
"""The longest text of a printer column."""
CONDITIONS_MAX: Final = 16
"""How many conditions a status may have."""
KEY_LENGTH_MAX: Final = 317
"""A prefix of 253, a slash, a name of 63."""
VALUE_LENGTH_MAX: Final = 63

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
KEY_PATTERN: Final = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
RESOURCE_PATTERN: Final = (
    r"^(cpu|memory|ephemeral-storage|pods|hugepages-[0-9]{1,20}[KMGTPE]i|"
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)$"
)
RESOURCES_TEXT: Final = "such as cpu, memory, ephemeral-storage, pods, hugepages-2Mi or nvidia.com/gpu"
TYPE_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9 ._/+*-]*$"
VALUE_PATTERN: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"


def object_of(description: str, **properties: Schema) -> Schema:
    """Return an object with these fields."""
    return {"description": description, "type": "object", "properties": properties}


def string(description: str, **bounds: Any) -> Schema:
    """Return a string."""
    return {"description": description, "type": "string", **bounds}


def integer(description: str) -> Schema:
    """Return a count."""
    return {"description": description, "type": "integer", "format": "int64", "minimum": 0}


def switch(description: str) -> Schema:
    """Return a boolean with the default false."""
    return {"description": description, "type": "boolean", "default": False}


def array(description: str, items: Schema, **bounds: Any) -> Schema:
    """Return a list."""
    return {"description": description, "type": "array", "items": items, **bounds}


def rule(expression: str, message: str, path: str = "") -> Schema:
    """Return a validation rule; `path` is its field below `self`, such as `.values`."""
    return {"rule": expression, "message": message, **({"fieldPath": path} if path else {})}


def amounts(description: str) -> Schema:
    """Return a list of non-negative amounts by resource name, for a spec."""
    quantity = {
        "description": 'An amount: a whole number, or a quantity such as 500m, 64Gi or, in quotes, "1.5".',
        "x-kubernetes-int-or-string": True,
        "maxLength": QUANTITY_LENGTH_MAX,
        "x-kubernetes-validations": [
            rule(
                "type(self) in [int] || isQuantity(self)",  # `type(self) == int` costs one more access
                'must be a quantity such as 8, 500m, 64Gi or, in quotes, "1.5"',
            ),
            rule(
                "type(self) in [int] ? self >= 0 : !self.startsWith('-')",
                "must not be below zero",
            ),
        ],
    }
    return {
        "description": description,
        "type": "object",
        "maxProperties": LIMITED_RESOURCES_MAX,
        "additionalProperties": quantity,
        "x-kubernetes-validations": [
            rule(
                f"self.all(name, size(name) <= {KEY_LENGTH_MAX} && name.matches('{RESOURCE_PATTERN}'))",
                f"every name must be that of a resource, {RESOURCES_TEXT}",
            )
        ],
    }


def reported_amounts(description: str) -> Schema:
    """Return a list of amounts by resource name, for a status."""
    quantity = {
        "description": "An amount.",
        "x-kubernetes-int-or-string": True,
        "maxLength": QUANTITY_LENGTH_MAX,
    }
    return {
        "description": description,
        "type": "object",
        "maxProperties": RESOURCES_MAX,
        "additionalProperties": quantity,
    }


def label_selector(description: str, of: str) -> Schema:
    """Return a label selector of what `of` names."""
    expression = object_of(
        "One comparison of one label.",
        key=string("The label's key.", minLength=1, maxLength=KEY_LENGTH_MAX, pattern=KEY_PATTERN),
        operator=string(
            "How the label is compared: In and NotIn with values, Exists and DoesNotExist without. NotIn and "
            "DoesNotExist also match where the label is missing.",
            enum=sorted(map(str, LABEL_OPERATORS)),
        ),
        values=array(
            "What the label is compared with: at least one value for In and NotIn, none for Exists and DoesNotExist.",
            string("A label value.", maxLength=VALUE_LENGTH_MAX, pattern=VALUE_PATTERN),
            maxItems=VALUES_MAX,
        )
        | {"x-kubernetes-list-type": "atomic"},
    ) | {
        "required": ["key", "operator"],
        "x-kubernetes-validations": [
            rule(
                "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
                "In and NotIn need at least one value",
                ".values",
            ),
            rule(
                "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
                "Exists and DoesNotExist take no values",
                ".values",
            ),
        ],
    }
    return object_of(
        description,
        matchLabels={
            "description": f"Labels that {of} must have with exactly these values.",
            "type": "object",
            "maxProperties": REQUIREMENTS_MAX,
            "additionalProperties": string("A label value.", maxLength=VALUE_LENGTH_MAX, pattern=VALUE_PATTERN),
            "x-kubernetes-validations": [
                rule(f"self.all(key, size(key) <= {KEY_LENGTH_MAX} && key.matches('{KEY_PATTERN}'))", KEY_TEXT)
            ],
        },
        matchExpressions=array(
            f"Comparisons that the labels of {of} must all satisfy.", expression, maxItems=REQUIREMENTS_MAX
        )
        | {"x-kubernetes-list-type": "atomic"},
    ) | {"x-kubernetes-map-type": "atomic"}


KEY_TEXT: Final = "every key must be a label key: a name, or a prefix, a slash and a name"


def conditions(description: str, types: str) -> Schema:
    """Return the conditions of a status; `types` describes them."""
    condition = object_of(
        "One thing that is true, false or unknown.",
        type=string(types, maxLength=316, pattern=r"^[A-Za-z][A-Za-z0-9]*$"),
        status=string("True, False or Unknown.", enum=["True", "False", "Unknown"]),
        observedGeneration=integer("metadata.generation of the spec that this condition speaks of."),
        lastTransitionTime=string("When the status last changed.", format="date-time"),
        reason=string(
            "One word for why.", minLength=1, maxLength=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
        ),
        message=string("A sentence for people that names the field or the node.", maxLength=32768),
    ) | {"required": ["type", "status", "lastTransitionTime", "reason", "message"]}
    return array(description, condition, maxItems=CONDITIONS_MAX) | {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
