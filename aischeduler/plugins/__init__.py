"""One rule a file, named as kube-scheduler names it; no plugin imports another."""
