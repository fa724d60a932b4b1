"""What a watch says of itself: how far it reaches, what it cannot prove, its heartbeat."""
