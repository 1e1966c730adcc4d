"""The file that points kubectl and the scheduler at a sandbox."""

import yaml

CONTEXT = "sandbox"


def kubeconfig(url: str) -> str:
    """Return the text of a kubeconfig whose only context is the sandbox at `url`."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": {"server": url}}],
            "users": [{"name": CONTEXT, "user": {}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}],
            "current-context": CONTEXT,
        },
        sort_keys=False,
    )
