"""RocketMQ's clients on the network: the classic protocol in `headgate.server.rocketmq.remoting`."""
