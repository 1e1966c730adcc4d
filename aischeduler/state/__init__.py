"""The state of the cluster as the engine knows it: one owner, no locks, no clock."""
