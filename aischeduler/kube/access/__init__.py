"""Where the API server is, and who asks.

A kubeconfig, or the account of the pod, goes in; the address, TLS and credentials come out.
"""
