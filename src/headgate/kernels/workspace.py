"""Memory at an address that is known beforehand, for kernels on one small thing: no array is made for the call."""

from __future__ import annotations

import threading

import numpy as np

from headgate.kernels.loading import address_of


class Workspace(threading.local):
    """Bytes for one kernel call at a time, `memory` from `address` on; each thread has its own, as kernels run without
    the interpreter lock. What is in it belongs to the function that calls the kernel, until it returns.
    """

    def __init__(self, size_bytes: int) -> None:
        array = np.zeros(size_bytes, dtype=np.uint8)
        self.address = address_of(array)
        self.memory = array.data
