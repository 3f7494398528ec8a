"""What RocketMQ's clients say and are told."""
