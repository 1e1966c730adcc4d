"""What the configuration says of all tenants, and of namespaces, as the engine takes it."""

from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import Config, NamespaceSelector
from aischeduler.model.selectors import LabelSelector, SelectorError, label_requirement, label_selector
from aischeduler.model.tenant_queue import TenantSettings


def tenants_of(config: Config) -> TenantSettings:
    """Return what a configuration says of all tenants; raises ConfigError for what only its use shows to be wrong."""
    spared = config.non_preemptible_namespaces
    return TenantSettings(
        card_unlimited_cpu_memory=config.card_unlimited_cpu_memory,
        over_commit_milli=config.over_commit_milli,
        service_types=tuple(sorted(config.pod_owner_reference_to_service_type.items())),
        non_preemptible=selector_of("nonPreemptibleNamespaces", spared) if spared is not None else None,
    )


def selector_of(path: str, selector: NamespaceSelector) -> LabelSelector:
    """Return a selector of the configuration; raises ConfigError for a key that is too long to be a label key."""
    try:
        expressions = tuple(
            label_requirement(path, expression.key, expression.operator, expression.values)
            for expression in selector.match_expressions
        )
        return label_selector(path, selector.match_labels, expressions)
    except SelectorError as error:
        raise ConfigError(str(error)) from error
