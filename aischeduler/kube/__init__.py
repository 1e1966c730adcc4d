"""The Kubernetes client: it turns API server answers into events, and actions into requests. It decides nothing."""
