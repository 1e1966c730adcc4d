"""How a rule plugs in: Kubernetes' extension points as masks and vectors over node rows."""
