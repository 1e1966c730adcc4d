"""The plugin framework: kube-scheduler's extension points as masks and vectors over node rows."""
