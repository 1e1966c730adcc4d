"""What we believe about the cluster; one owner, no locks, no clock of its own."""
