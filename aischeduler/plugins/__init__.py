"""The plugins, one kube-scheduler plugin per file under its name; no plugin imports another."""
