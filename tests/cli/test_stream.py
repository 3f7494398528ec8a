"""`headgate stream`: create, ls, info, dump, verify, adopt, on folders of ours and of RabbitMQ."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from command_line import Run
from headgate.log import ChunkType, Stream, Writer, resolve_stream
from headgate.log.format import FILE_HEAD_BYTES
from log_streams import damage_chunk

OSIRIS = Path(__file__).parent.parent / "vectors" / "osiris"
FIRST = f"{0:020d}"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A stream folder as RabbitMQ wrote it."""
    folder = tmp_path / "__regions_1795188559216060824"
    folder.mkdir()
    for kind in ("segment", "index"):
        shutil.copy(OSIRIS / f"osiris-64.{kind}", folder / f"{FIRST}.{kind}")
    return folder


def test_created_stream_has_the_limits_it_was_given(run: Run, tmp_path: Path) -> None:
    shown = run(
        "stream", "create", "a/b", "--filter-size", "32", "--max-segment-size", "8MB", "--max-length", "1GiB",
        "--max-age", "7D", "--max-segment-age", "1h", "--filter-source", "properties.subject", "--drop-settled",
        "--initial-offset", "1000",
    )  # fmt: skip
    assert shown.status == 0
    settings = json.loads((Path(shown.out.strip()) / "stream.json").read_text())
    assert settings["name"] == "a/b"
    assert settings["filter_source"] == "properties.subject"
    assert settings["arguments"] == {
        "filter_size_bytes": 32,
        "max_segment_size_bytes": 8_000_000,
        "max_segment_chunks": 256_000,
        "max_segment_age_ms": 3_600_000,
        "max_length_bytes": 2**30,
        "max_age_ms": 604_800_000,
        "drops_settled": True,
        "initial_offset": 1000,
    }
    listed = run("stream", "ls", "--json").json[0]
    assert (listed["name"], listed["first_offset"], listed["next_offset"]) == ("a/b", 1000, 1000)


def test_second_stream_of_a_name_is_refused(run: Run) -> None:
    assert run("stream", "create", "orders").status == 0
    shown = run("stream", "create", "orders")
    assert shown.status == 1
    assert "orders" in shown.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--filter-size", "8"], "--filter-size: "),
        (["--max-length", "0"], "--max-length: "),
        (["--max-age", "0s"], "--max-age: "),
        (["--max-segment-age", "0s"], "--max-segment-age: "),
        (["--max-segment-size", "5GB"], "--max-segment-size: "),
        (["--initial-offset", "-1"], "--initial-offset: "),
        (["--filter-size", "x"], "--filter-size"),
        (["--max-segment-size", "big"], "--max-segment-size"),
        (["--max-length", "-1"], "--max-length"),
        (["--max-age", "7"], "--max-age"),
        (["--filter-source", "properties.subjct"], "subjct"),
    ],
)
def test_wrong_argument_of_a_stream_is_named_and_makes_nothing(
    run: Run, tmp_path: Path, options: list[str], named: str
) -> None:
    shown = run("stream", "create", "orders", *options)
    assert shown.status == 2
    assert named in shown.err
    assert not (tmp_path / "root" / "streams" / "orders").exists()


def test_listing_an_empty_root_says_how_to_make_a_stream(run: Run, tmp_path: Path) -> None:
    tmp_path.joinpath("root").mkdir()
    shown = run("stream", "ls")
    assert (shown.status, shown.out) == (0, "")
    assert "stream create" in shown.err


def test_a_damaged_stream_is_told_beside_the_list_of_the_others(run: Run, tmp_path: Path) -> None:
    for name in ("good", "wrong"):
        run("stream", "create", name)
    tmp_path.joinpath("root", "streams", "wrong", "stream.json").write_bytes(b"")
    shown = run("stream", "ls", "--json")
    assert [row["name"] for row in shown.json] == ["good"]
    assert shown.status == 1
    assert "wrong/stream.json: not the settings of a stream" in shown.err


def test_info_counts_messages_and_names_publishers(orders: Run) -> None:
    orders("publish", "orders", "--publisher", "shop", stdin='{"body": "x"}\n')
    shown = orders("stream", "info", "orders", "--json").json[0]
    assert (shown["messages"], shown["chunks"], shown["next_offset"], shown["kind"]) == (31, 4, 31, "own")
    assert shown["publishers"] == {"shop": 1}
    assert "publisher shop" in orders("stream", "info", "orders").out


def test_the_list_and_the_info_of_a_stream_tell_one_size(orders: Run, tmp_path: Path) -> None:
    (row,) = orders("stream", "ls", "--json").json
    pair = [
        *(tmp_path / "root" / "streams" / "orders").glob("*.segment"),
        *tmp_path.glob("root/streams/orders/*.index"),
    ]
    assert len(pair) == 2 and row["size_bytes"] == sum(path.stat().st_size for path in pair)
    assert orders("stream", "info", "orders", "--json").json[0]["size_bytes"] == row["size_bytes"]


def test_info_reads_a_folder_of_rabbitmq_in_place(run: Run, foreign: Path) -> None:
    described = json.loads((OSIRIS / "osiris-64.json").read_text())
    shown = run("stream", "info", foreign, "--json").json[0]
    assert (shown["name"], shown["kind"]) == ("regions", "foreign")
    assert shown["filter_size_bytes"] == described["stream_filter_size"]
    assert shown["chunks"] == sum(chunk["header"]["type"] == ChunkType.USER for chunk in described["chunks"])


def test_dump_shows_every_chunk_header_with_bloom_fill_and_crc(run: Run, foreign: Path) -> None:
    described = json.loads((OSIRIS / "osiris-64.json").read_text())["chunks"]
    shown = run("stream", "dump", foreign, "--json")
    assert shown.status == 0
    assert [
        (row["position"], row["chunk_id"], row["records"], row["bloom_bytes"], row["crc"]) for row in shown.json
    ] == [
        (
            chunk["position"],
            chunk["header"]["chunk_id"],
            chunk["header"]["num_records"],
            len(chunk["bloom_hex"]) // 2,
            "good",
        )
        for chunk in described
    ]
    for row, chunk in zip(shown.json, described, strict=True):
        bits = int(chunk["bloom_hex"] or "0", 16).bit_count()
        expected = round(bits / (4 * len(chunk["bloom_hex"])), 3) if chunk["bloom_hex"] else None
        assert row["bloom_fill"] == expected
    assert {row["crc"] for row in run("stream", "dump", foreign, "--no-crc", "--json").json} == {"unchecked"}


def test_dump_off_a_terminal_is_a_table_with_tabs(run: Run, foreign: Path) -> None:
    head, *rows = run("stream", "dump", foreign).lines
    assert head.startswith("segment\tposition\tchunk_id\t")
    assert {row.count("\t") for row in rows} == {head.count("\t")}


def test_names_cannot_write_lines_and_colours_into_tables(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    forged = "x\n2026-11-23 error\x1b[31m\tFORGED"
    assert run("stream", "create", "s").status == 0
    with Writer.open(resolve_stream("s", root), now_ms=0) as writer:
        writer.append([(b"m", None)], now_ms=0, publisher=forged, sequences=[1])
    assert run("stream", "create", forged).status == 0
    for command in (("stream", "ls"), ("stream", "info", "s")):
        shown = run(*command)
        assert r"x\n2026-11-23 error\x1b[31m\tFORGED" in shown.out
        assert "\x1b" not in shown.out and not any(line.startswith("2026-11-23") for line in shown.lines)


def test_repair_makes_a_damaged_index_again_and_says_what_it_cannot(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "s", "--filter-source", "properties.subject")
    for number in range(9):
        assert run("publish", "s", stdin=f'{{"subject": "v{number}", "body": "m"}}\n').status == 0
    folder = tmp_path / "root" / "streams" / "s"
    index = folder / f"{0:020d}.index"
    flip(index, 148, 7)
    for command in (("tail", "s"), ("stream", "info", "s")):
        shown = run(*command)
        assert shown.status == 1
        assert str(index) in shown.err and "stream repair" in shown.err
    shown = run("stream", "verify", "s")
    assert shown.status == 1 and f"{index}, byte 124: no index record for chunk 4" in shown.out
    assert run("publish", "s", stdin='{"body": "m"}\n').status == 1
    shown = run("stream", "repair", "s")
    assert shown.status == 0 and f"repaired: {index}" in shown.out
    flip(index, 148, 7)
    (said,) = run("stream", "repair", "s", "--json").json
    assert said["stream"] == "s" and said["damaged"] == []
    assert [each["path"] for each in said["repaired"]] == [str(index)]
    nothing: dict[str, object] = {"repaired": [], "given_up": [], "would_be_given_up": [], "damaged": []}
    assert run("stream", "repair", "s", "--json").json == [{"stream": "s", **nothing}]
    assert len(run("tail", "s", "--json").json) == 9
    flip(folder / f"{0:020d}.segment", 8 + 48 + 3, 0)
    shown = run("stream", "verify", "s")
    assert shown.status == 1 and "the Bloom filter of chunk 0 is not that of its messages" in shown.out


def test_what_is_damaged_is_given_up_by_decision_only_and_what_lies_behind_is_read(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "s")
    for number in range(4):
        assert run("publish", "s", stdin=f'{{"body": "m{number}"}}\n').status == 0
    folder = tmp_path / "root" / "streams" / "s"
    damage_chunk(Stream.open(folder), 1, 55)
    for _ in range(2):
        shown = run("stream", "repair", "s")
        assert shown.status == 1 and "--skip-damaged would give up: " in shown.out
        assert "offsets 1 to 1 (1 messages)" in shown.out
    assert run("stream", "repair", "s", "--skip-damaged", "--cut").status == 2
    (said,) = run("stream", "repair", "s", "--skip-damaged", "--json").json
    assert [(each["first_offset"], each["next_offset"], each["exact"]) for each in said["given_up"]] == [(1, 2, True)]
    assert said["damaged"] == [] and len(list((folder / "damaged").iterdir())) == 1
    assert [each["offset"] for each in run("tail", "s", "--json").json] == [0, 2, 3]
    assert run("stream", "verify", "s").status == 0
    (info,) = run("stream", "info", "s", "--json").json
    assert (info["messages"], info["next_offset"], info["given_up_offsets"]) == (3, 4, 1)
    assert run("publish", "s", stdin='{"body": "m4"}\n').status == 0
    assert run("stream", "ls").status == 0


def test_damaged_settings_are_told_as_other_damage(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "s")
    settings = tmp_path / "root" / "streams" / "s" / "stream.json"
    settings.write_bytes(b"{")
    for command in ("verify", "repair"):
        shown = run("stream", command, "s", "--json")
        assert shown.status == 1
        (said,) = shown.json
        assert [damage["path"] for damage in said["damaged"]] == [str(settings)]
        assert str(settings) in run("stream", command, "s").out
        assert run("stream", command, "elsewhere", "--json").out == ""


def test_a_stream_with_damaged_settings_is_deleted_by_force_only(run: Run, tmp_path: Path) -> None:
    run("stream", "create", "a/b")
    folder = tmp_path / "root" / "streams" / "a%2Fb"
    (folder / "stream.json").write_bytes(b"")
    refused = run("stream", "rm", "a/b")
    assert refused.status == 1
    assert str(folder / "stream.json") in refused.err and "headgate stream rm --force" in refused.err
    assert run("stream", "rm", "a/b", "--force").status == 0
    assert not folder.exists()
    assert run("stream", "ls").status == 0


def test_a_stream_that_a_topic_forwards_to_is_deleted_by_force_only(run: Run, tmp_path: Path) -> None:
    for name in ("paid", "orders"):
        run("topic", "create", name)
    assert run("subscription", "create", "orders", "on", "--forward-to", "paid").status == 0
    refused = run("stream", "rm", "paid")
    assert refused.status != 0 and "topic 'orders' forwards to it; --force" in refused.err
    assert run("stream", "rm", "paid", "--force").status == 0
    assert run("stream", "rm", "orders").status == 0


def flip(path: Path, byte: int, bit: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[byte] ^= 1 << bit
    path.write_bytes(raw)


def test_verify_passes_a_whole_stream_and_names_each_damaged_place(run: Run, foreign: Path) -> None:
    shown = run("stream", "verify", foreign)
    assert (shown.status, shown.out) == (0, "")
    assert "all is well" in shown.err
    described = json.loads((OSIRIS / "osiris-64.json").read_text())["chunks"]
    checked = {
        "chunks": len(described),
        "records": sum(chunk["header"]["num_records"] for chunk in described),
        "size_bytes": (foreign / f"{FIRST}.segment").stat().st_size - FILE_HEAD_BYTES,
    }
    (said,) = run("stream", "verify", foreign, "--json").json
    assert said == {"stream": str(foreign), "checked": checked, "damaged": []}
    segment = foreign / f"{FIRST}.segment"
    damaged = bytearray(segment.read_bytes())
    chunk = json.loads((OSIRIS / "osiris-64.json").read_text())["chunks"][2]
    damaged[chunk["position"] + 48 + len(chunk["bloom_hex"]) // 2 + 5] ^= 1
    segment.write_bytes(damaged)
    shown = run("stream", "verify", foreign)
    assert shown.status == 1
    assert f"{segment}, byte {chunk['position']}" in shown.out
    (said,) = run("stream", "verify", foreign, "--json").json
    (damage,) = said.pop("damaged")
    assert (damage["path"], damage["position"]) == (str(segment), chunk["position"])
    assert said == {"stream": str(foreign), "checked": checked}
    assert run("stream", "dump", foreign).status == 1


def test_foreign_folder_is_written_to_only_after_it_was_adopted(run: Run, foreign: Path) -> None:
    before = run("stream", "info", foreign, "--json").json[0]
    refused = run("publish", foreign, stdin='{"body": "x"}\n')
    assert refused.status == 1
    assert "headgate stream adopt" in refused.err
    assert run("stream", "adopt", foreign).status == 0
    assert run("publish", foreign, stdin='{"body": "x"}\n').status == 0
    after = run("stream", "info", foreign, "--json").json[0]
    assert (after["name"], after["kind"]) == ("regions", "own")
    assert after["messages"] == before["messages"] + 1
    assert run("tail", foreign, "--from", before["next_offset"], "--json").json[0]["body"] == {"data": "x"}
    assert run("stream", "adopt", foreign).status == 1


def test_stream_is_found_by_name_or_by_folder(orders: Run, tmp_path: Path) -> None:
    by_folder = orders("stream", "info", tmp_path / "root" / "streams" / "orders")
    assert by_folder.out == orders("stream", "info", "orders").out


def test_dump_of_a_stream_that_is_not_there_writes_no_table(run: Run) -> None:
    shown = run("stream", "dump", "nowhere")
    assert (shown.status, shown.out) == (1, "")
    assert "no stream 'nowhere'" in shown.err
