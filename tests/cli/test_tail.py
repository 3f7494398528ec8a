"""`headgate tail` and `headgate publish`."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import Run
from headgate.clock import now_ms
from headgate.log import resolve_stream
from headgate.log.writer import Writer
from waiting import LIMIT_S


def test_tail_gives_every_message_in_order(orders: Run) -> None:
    shown = orders("tail", "orders", "--offsets")
    assert shown.status == 0
    assert [int(line) for line in shown.lines] == list(range(30))


def test_tail_keeps_the_messages_for_which_the_filter_is_true(orders: Run) -> None:
    shown = orders(
        "tail", "orders", "--filter", "region = 'EMEA' AND price >= 50 AND p.subject LIKE 'order.%'", "--json"
    )
    assert [message["offset"] for message in shown.json] == [15, 16, 17, 18, 19]
    assert shown.json[0]["application_properties"] == {"region": "EMEA", "price": 50}
    assert shown.json[0]["body"] == {"data": "order 5"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--filter-value", "AMER"], range(10)),
        (["--filter-value", "AMER", "--filter-value", "EMEA"], range(20)),
        (["--filter-value", "EMEA", "--match-unfiltered"], range(10, 30)),
        (["--from", "25"], range(25, 30)),
        (["--from", "last"], range(20, 30)),
        (["--from", "next"], range(0)),
        (["--from", "5", "--until", "8"], range(5, 8)),
        (["--until", "last"], range(20)),
        (["--until", "100"], range(30)),
        (["--from", "10m", "-n", "3"], range(3)),
        (["--from", "2001-01-01T00:00:00Z", "-n", "12"], range(12)),
        (["--until", "2001-01-01T00:00:00Z"], range(0)),
    ],
)
def test_tail_begins_and_ends_where_it_is_told(orders: Run, options: list[str], expected: range) -> None:
    assert [int(line) for line in orders("tail", "orders", "--offsets", *options).lines] == list(expected)


def test_tail_says_that_it_begins_behind_what_is_not_there_any_more(run: Run) -> None:
    assert run("stream", "create", "late", "--initial-offset", "10").status == 0
    assert run("publish", "late", stdin='{"body": "x"}\n').status == 0
    shown = run("tail", "late", "--offsets", "--from", "5")
    assert shown.lines == ["10"] and "offsets 5 to 9 are not there any more" in shown.err
    for start in ("0", "first", "10"):
        shown = run("tail", "late", "--offsets", "--from", start)
        assert shown.lines == ["10"] and "not there" not in shown.err


def test_tail_counts_what_the_stages_skipped(orders: Run) -> None:
    shown = orders("tail", "orders", "--filter-value", "AMER", "--filter", "price > 70", "--counters", "--json")
    counters = json.loads(shown.err)
    assert (counters["chunks_examined"], counters["chunks_skipped"]) == (3, 2)
    assert (counters["messages_evaluated"], counters["messages_matched"]) == (10, 2)


def test_lines_of_json_hold_control_characters_as_escapes(orders: Run) -> None:
    text = "a\x85b\x9b2J\x7f\u2028\u202e\U000e0001 é 日本 😀\\"
    line = json.dumps({"subject": text, "application_properties": {text: text}, "body": text})
    assert orders("publish", "orders", stdin=line + "\n").status == 0
    found = orders("tail", "orders", "--from", "last", "-n", "1", "--json", "--filter", "p.subject LIKE 'a%'")
    assert found.out.removesuffix("\n").isprintable()
    assert r"a\u0085b\u009b2J\u007f\u2028\u202e\udb40\udc01 é 日本 😀\\" in found.out
    (shown,) = found.json
    assert (shown["properties"]["subject"], shown["application_properties"]) == (text, {text: text})


def test_tail_writes_one_line_per_message_without_control_characters(orders: Run) -> None:
    orders("publish", "orders", stdin='{"subject": "a\\tb\\u001b[31m", "body": "x\\ny"}')
    line = orders("tail", "orders", "--from", "30").out
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert line.split("\t")[2:] == ["a·b·[31m", "", "x·y\n"]


def test_table_of_messages_feeds_filter_test(orders: Run, tmp_path: Path) -> None:
    (tmp_path / "messages.jsonl").write_text(orders("tail", "orders", "--from", "10", "--table").out)
    cases = [
        {"id": str(price), "sql": f"price = {price}", "accepted": True, "matches": [10 + price // 10, 20 + price // 10]}
        for price in (0, 90)
    ]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    shown = orders("filter", "test", tmp_path / "cases.jsonl", "--messages", tmp_path / "messages.jsonl")
    assert shown.lines == ["2 passed, 0 failed"]


def test_tail_shows_bytes_that_are_no_message(orders: Run, tmp_path: Path) -> None:
    with Writer.open(resolve_stream("orders", tmp_path / "root"), now_ms=now_ms()) as writer:
        writer.append([(b"\xff\x00", None)], now_ms=now_ms())
    assert orders("tail", "orders", "--from", "30", "--json").json[0]["encoded_hex"] == "ff00"
    assert "malformed" in orders("tail", "orders", "--from", "30").out
    assert orders("tail", "orders", "--from", "30", "--filter", "TRUE").out == ""


def test_what_tail_writes_can_be_published_again(orders: Run) -> None:
    orders("stream", "create", "copy")
    typed = orders("tail", "orders", "--json", "--typed").out
    assert orders("publish", "copy", stdin=typed).status == 0
    assert [line["application_properties"] for line in orders("tail", "copy", "--json", "--typed").json] == [
        line["application_properties"] for line in orders("tail", "orders", "--json", "--typed").json
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--filter", "a = 1", "--dialect", "sql"], "sql"),
        (["--dialect", "rabbitmq"], "--dialect"),
        (["--match-unfiltered"], "match_unfiltered"),
        (["--from", "yesterday"], "yesterday"),
        (["--until", "soon"], "soon"),
        (["--follow", "--until", "last"], "--until"),
        (["--typed"], "--typed"),
        (["--json", "--offsets"], "--offsets"),
        (["-n", "0"], "-n"),
        (["--bogus"], "--bogus"),
    ],
)
def test_wrong_options_are_named(orders: Run, options: list[str], named: str) -> None:
    shown = orders("tail", "orders", *options)
    assert (shown.status, shown.out) == (2, "")
    assert named in shown.err


def test_refused_filter_shows_its_place(orders: Run) -> None:
    shown = orders("tail", "orders", "--filter", "region = AND")
    assert shown.status == 1
    assert "  region = AND\n           ^^^" in shown.err


def test_stream_that_is_not_there_is_an_error_without_a_traceback(run: Run) -> None:
    shown = run("tail", "nothing")
    assert shown.status == 1
    assert shown.err.startswith("headgate: ")
    assert "nothing" in shown.err


def test_corrupt_chunk_fails_or_is_passed_over(orders: Run, tmp_path: Path) -> None:
    segment = next((tmp_path / "root" / "streams" / "orders").glob("*.segment"))
    damaged = bytearray(segment.read_bytes())
    damaged[-3] ^= 0xFF
    segment.write_bytes(damaged)
    failed = orders("tail", "orders", "--offsets")
    assert failed.status == 1
    assert segment.name in failed.err
    assert len(orders("tail", "orders", "--offsets", "--skip-corrupt").lines) == 20


@pytest.mark.slow
def test_follow_waits_for_more_and_stops_at_its_end(orders: Run, tmp_path: Path) -> None:
    following = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headgate.cli",
            "tail",
            "orders",
            "--follow",
            "--from",
            "28",
            "--until",
            "31",
            "--offsets",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert [following.stdout.readline() for _ in range(2)] == ["28\n", "29\n"]
    orders("publish", "orders", stdin='{"body": "more"}\n{"body": "too much"}')
    assert following.communicate(timeout=LIMIT_S)[0] == "30\n"
    assert following.returncode == 0


@pytest.mark.slow
def test_closed_output_ends_quietly(orders: Run) -> None:
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    ended = subprocess.run(
        [sys.executable, "-m", "headgate.cli", "tail", "orders", "--json"], stdout=writing_end, stderr=subprocess.PIPE
    )
    os.close(writing_end)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_publish_names_the_line_that_is_wrong(orders: Run) -> None:
    for line, named in [
        ("{", "line 2"),
        ("[1]", "object"),
        ('{"propertys": {}}', "propertys"),
        ('{"id": 7, "price": 1.5, "body": "x"}', "--map 'id bigint, price double'"),
        ('{"properties": {"subjct": "x"}}', "subjct"),
        ('{"subject": "a", "properties": {"subject": "b"}}', "subject"),
        ('{"filter_value": 5}', "filter_value"),
        ('{"application_properties": {"x": {"t": "uint", "v": -1}}}', "uint"),
    ]:
        shown = orders("publish", "orders", stdin='{"body": "good"}\n' + line)
        assert shown.status == 1, line
        assert "line 2" in shown.err
        assert named in shown.err
    assert [line["body"] for line in orders("tail", "orders", "--from", "30", "--json").json] == [{"data": "good"}] * 8


def test_publisher_that_runs_again_adds_only_what_is_new(run: Run) -> None:
    run("stream", "create", "orders")
    lines = ['{"body": "1"}', "", '{"body": "3"}']
    assert run("publish", "orders", "--publisher", "shop", stdin="\n".join(lines)).status == 0
    again = run("publish", "orders", "--publisher", "shop", stdin="\n".join([*lines, '{"body": "4"}']))
    assert "1 message published, 2 already there" in again.err
    assert [line["body"]["data"] for line in run("tail", "orders", "--json").json] == ["1", "3", "4"]


def test_declared_source_gives_the_filter_value_and_refuses_another(run: Run) -> None:
    run("stream", "create", "orders", "--filter-source", "application_properties.region")
    for region in ("AMER", "EMEA"):
        run("publish", "orders", stdin=json.dumps({"application_properties": {"region": region}}))
    assert run("tail", "orders", "--filter-value", "EMEA", "--offsets").out == "1\n"
    pruned = run("tail", "orders", "--filter", "region = 'AMER'", "--counters", "--json")
    assert json.loads(pruned.err)["chunks_skipped"] == 1
    refused = run("publish", "orders", stdin='{"application_properties": {"region": "APJ"}, "filter_value": "EMEA"}')
    assert refused.status == 1
    assert "APJ" in refused.err


def test_message_that_is_no_message_source_is_refused_when_a_stream_is_created(run: Run) -> None:
    shown = run("stream", "create", "orders", "--filter-source", "region")
    assert shown.status == 2
    assert "region" in shown.err


def test_a_folder_is_no_file_of_lines_and_text_is_no_json(orders: Run, tmp_path: Path) -> None:
    shown = orders("publish", "orders", tmp_path)
    assert shown.status == 2
    assert f"{tmp_path}: found a folder, expected a file of JSON lines" in shown.err
    shown = orders("publish", "orders", stdin='{"subject": "a"}\nfalse alarm\n')
    assert shown.status == 1
    assert "1 message published" in shown.err
    assert "line 2: found 'false alarm', expected a JSON object" in shown.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--from", "100"], "--from: found 100, .*the stream has offsets 0 to 29; --follow waits"),
        (["--from", "8", "--until", "5"], "--from: found 8, which lies behind --until 5"),
        (["--from", "1h", "--until", "2001-01-01"], "--from: found 1h, which lies behind --until 2001-01-01"),
        (["--from", "9", "--until", "5", "--follow"], "--from: found 9"),
        (["--from", "2999-01-01"], "--from: found 2999-01-01T00:00:00.000Z, .*offsets 0 to 29"),
        (["--from", "tomorrow"], "--from: 'tomorrow'"),
    ],
)
def test_a_begin_behind_the_end_is_refused(orders: Run, options: list[str], named: str) -> None:
    shown = orders("tail", "orders", "--offsets", *options)
    assert (shown.status, shown.out) == (2, "")
    assert re.search(named, shown.err)


@pytest.mark.parametrize("start", ["30", "next", "1s"])
def test_a_begin_at_the_end_gives_nothing(orders: Run, start: str) -> None:
    shown = orders("tail", "orders", "--offsets", "--from", start, "--until", "next")
    assert (shown.status, shown.err) == (0, "")


@pytest.mark.slow
def test_follow_from_an_offset_to_come_says_that_it_begins_with_the_next_message(orders: Run) -> None:
    following = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "tail", "orders", "-f", "--from", "100", "-n", "1", "--offsets"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stderr is not None
    assert select.select([following.stderr], [], [], LIMIT_S)[0], "it says nothing"
    assert "offset 100 is still to come; shown is what comes next, from offset 30 on" in following.stderr.readline()
    orders("publish", "orders", stdin='{"body": "more"}')
    assert following.communicate(timeout=LIMIT_S)[0] == "30\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["/nonexistent"], "no stream '/nonexistent'"),
        (["ordesr"], "did you mean 'orders'"),
        (["orders", "/nonexistent"], "headgate: /nonexistent: No such file or directory"),
        (["/nonexistent", "/nonexistent"], "headgate: /nonexistent: No such file or directory"),
        (["orders", "/"], "/: found a folder, expected a file"),
    ],
)
def test_publish_gives_one_error_for_a_stream_or_file_that_is_not_there(
    orders: Run, arguments: list[str], named: str
) -> None:
    shown = orders("publish", *arguments)
    assert shown.status != 0
    assert shown.err.count("\n") == 1
    assert named in shown.err


def test_publish_says_that_standard_input_is_closed(orders: Run) -> None:
    command = f"{sys.executable} -m headgate.cli publish orders <&-"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "headgate: standard input is closed; name a file of JSON lines, or pipe them in\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_are_published_once_and_shown_like_others(run: Run, codec: str) -> None:
    run("stream", "create", "orders", "--filter-source", "application_properties.region")
    lines = [
        json.dumps({"application_properties": {"region": region}, "body": f"{region} {number}"})
        for region in ("AMER", "EMEA")
        for number in range(50)
    ]
    for count in (50, 100):
        given = "\n".join(lines[:count]) + "\n"
        assert run("publish", "orders", "--publisher", "p", "--compression", codec, stdin=given).status == 0
    shown = run("tail", "orders", "--json").json
    assert [row["body"]["data"] for row in shown] == [json.loads(line)["body"] for line in lines]
    assert run("tail", "orders", "--offsets", "--filter-value", "EMEA").lines == [str(n) for n in range(50, 100)]
    filtered = run("tail", "orders", "--json", "--filter", "region = 'AMER'", "--counters")
    assert [row["offset"] for row in filtered.json] == list(range(50))
    assert json.loads(filtered.err)["chunks_skipped"] == 1
    assert [(row["entries"], row["records"]) for row in run("stream", "dump", "orders", "--json").json] == [(1, 50)] * 2
    assert run("stream", "verify", "orders").status == 0


def test_a_codec_that_there_is_not_is_refused_with_the_list(run: Run) -> None:
    run("stream", "create", "orders")
    shown = run("publish", "orders", "--compression", "brotli", stdin="{}")
    assert shown.status == 2
    assert all(name in shown.err for name in ("none", "gzip", "snappy", "lz4", "zstd"))
