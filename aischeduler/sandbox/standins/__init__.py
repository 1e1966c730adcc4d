"""What runs a cluster beside its API server, in the simplest form that keeps its promises; pure steps on given time."""
