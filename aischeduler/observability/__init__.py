"""What operators see of the running daemon; it observes and changes nothing."""
