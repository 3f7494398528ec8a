"""RocketMQ's clients on the network: message topics and consumer groups of the broker, over gRPC."""
