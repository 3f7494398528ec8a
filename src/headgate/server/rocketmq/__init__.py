"""RocketMQ's clients on the network: over gRPC (`grpc`), and by the classic protocol (`remoting`)."""
