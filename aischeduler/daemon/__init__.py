"""The scheduler as a process: wires the core to Kubernetes; it decides nothing."""
