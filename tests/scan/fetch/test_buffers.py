"""Buffers are used again when nothing refers to them, and not before."""

from __future__ import annotations

import threading

from headgate.scan.fetch.buffers import BufferPool

MEBIBYTE = 1 << 20


def test_a_buffer_is_given_again_once_nobody_has_a_view_of_it() -> None:
    pool = BufferPool()
    first = pool.take(MEBIBYTE)
    identity = id(first)
    part = first[100:200].data
    del first
    other = pool.take(MEBIBYTE)
    assert id(other) != identity
    del part
    assert id(pool.take(MEBIBYTE - 5)) == identity


def test_a_buffer_much_larger_than_asked_for_is_not_given() -> None:
    pool = BufferPool()
    large = id(pool.take(8 * MEBIBYTE))
    assert id(pool.take(3 * MEBIBYTE)) != large
    assert len(pool.take(100)) == 100


def test_beyond_its_limit_a_pool_keeps_nothing() -> None:
    pool = BufferPool(most_bytes=2 * MEBIBYTE)
    held = [pool.take(MEBIBYTE) for _ in range(5)]
    assert len({id(buffer) for buffer in held}) == 5
    kept = pool.bytes_held
    assert kept == 2 * MEBIBYTE
    del held
    pool.trim()
    assert pool.bytes_held == 0


def test_threads_never_share_a_buffer() -> None:
    pool = BufferPool()
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            buffer = pool.take(MEBIBYTE // 2)
            buffer[:64] = number
            if (buffer[:64] != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
