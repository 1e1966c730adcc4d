"""The scheduler as a process: connects the engine to Kubernetes; it decides nothing itself."""
