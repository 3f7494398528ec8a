"""The match index: results of registered filters, calculated ahead, so that a reader need not evaluate them again.

Hides the two layouts (`bit_map` for `bloom`; one bit per filter for `exact`), the registry of a stream's filters, how a
sidecar is built, and when a reader may believe it. The bytes of a sidecar are `headgate.log.sidecar`.
"""
