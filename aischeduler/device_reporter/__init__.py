"""The agent of a node that reports its GPUs and other devices, and which of them the kubelet gave to pods."""
