"""The broker on the network: listeners and one driver for all protocols, configuration, metrics, health.

Each protocol has a handler that turns the events of its core (`protocols`) into commands of the broker (`broker`).
"""
