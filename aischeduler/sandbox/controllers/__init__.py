"""The parts of a cluster beside its API server: the controllers of kube-controller-manager, and the kubelets."""
