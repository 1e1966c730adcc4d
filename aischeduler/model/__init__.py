"""Values: pods, nodes, Pools, events and actions. It imports no other package of the scheduler."""
