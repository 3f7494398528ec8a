"""Streams on disk: append-only logs of chunks in RabbitMQ's own file format. Bytes and filter values, no messages.

A reader never needs the writer, the writer never waits for a reader. The public names, and the module behind each:

    find       resolve_stream, find_stream, list_streams, stream_folder, check_root, lock_root          root
    read       Stream, Segment, SegmentReader, ChunkTable, OffsetSpecification          stream, segment, offsets
    decode     ChunkHeader, decode_headers; walk_entries, unpack_chunk, SubBatch   format, entry_positions, entries
    write      Writer, Appended, Durability; StreamLock; Run, build_runs                      writer, lock, runs
    pin        Pin, read_pin: what retention must keep, and up to how much; `pinned_bytes`         pin, retention
    build      build_chunks, ChunkLimits, FilterValues; parse_compression                chunk_builder, compression
    commit     StagingFile, StagedChunks, BatchManifest, commit_batch: exactly once    staging, manifest, commit
    track      read_tracking, TrackingState, MessageCounts: offsets, sequences, counts  tracking, message_counts
               decode_records, TrackingKind: the records of a chunk                     tracking_records
    skip       BloomMatcher, bloom_bytes; Sidecar, write_sidecar, append_block: match index       bloom, sidecar
               BloomSizing, filter_statistics: what a filter's size costs and achieves           bloom_sizing
    derive     Area, AreaParts, encode_areas, read_directory: bytes of a derived file, with checksums       areas
               derived_folder, sweep_derived, headers_digest: files derived of segments                  derived
    look       stream_info, dump_chunks, verify_stream; recover, repair_stream      inspection, recovery, repair
               given_up_offsets: what repairs gave up, by an operator's decision              salvage, pairs
    store      DiskFile, replace_file, remove_file, storage_error: files as all of Headgate writes them    files
               encode_checked, decode_checked_if_noted: small files of JSON with a checksum     checked_json
    move       move_segments, delete_remote, unmoved_bytes: segments in object storage                      remote
               Archiver: everything of a stream that RabbitMQ writes                                  archive
    in tests   unflushed                                                                                   files

Hidden: how an append becomes visible or is taken back (`last_pair`), mending after a crash (`recovery`,
`roll_forward`), and which segments are kept (`retention`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.log.archive import Archiver, ArchiveReport
    from headgate.log.areas import Area, AreaParts, ReadBytes, encode_areas, read_area, read_directory
    from headgate.log.bloom import (
        DEFAULT_FILTER_SIZE_BYTES,
        MAX_FILTER_SIZE_BYTES,
        MIN_FILTER_SIZE_BYTES,
        BloomMatcher,
        bit_positions,
        bloom_bytes,
        check_filter_size,
        false_positive_rate,
        phash2,
        phash2_of_list,
    )
    from headgate.log.bloom_sizing import BloomSizing, FilterStatistics, filter_statistics, size_for
    from headgate.log.checked_json import decode_checked_if_noted, encode_checked
    from headgate.log.checksums import crcs_of_ranges, first_mismatch
    from headgate.log.chunk_builder import (
        MAX_BYTES,
        MAX_MESSAGES,
        BuiltChunks,
        ChunkLimits,
        FilterValues,
        Int64Array,
        build_chunks,
        chunk_boundaries,
        gather,
    )
    from headgate.log.commit import Helpers, PublishedBatch, abort_batch, commit_batch, output_of
    from headgate.log.compression import COMPRESSION_NAMES, EXPANSION_LIMIT_BYTES, parse_compression
    from headgate.log.crash_points import BuildStep, CommitStep, PublishStep, reached
    from headgate.log.derived import (
        KEPT_FOLDER,
        OpenedFiles,
        building,
        changing,
        delete_derived,
        derived_bytes,
        derived_folder,
        derived_folder_of,
        derived_path,
        drop_remote_derived,
        finish_derived,
        headers_digest,
        make_derived_folder,
        remote_derived,
        remove_unfinished,
        streams_with_derived,
        sweep_derived,
    )
    from headgate.log.derived_names import GRACE_MS, segment_of_name
    from headgate.log.entries import SubBatch, entries_of, unpack_chunk, unpack_entries
    from headgate.log.entry_positions import StopReason, WalkedEntries, walk_entries
    from headgate.log.files import (
        NEW_SUFFIX,
        DiskFile,
        OpenFile,
        remove_file,
        replace_file,
        storage_error,
        sync_file,
        sync_folder,
        unflushed,
    )
    from headgate.log.format import ChunkHeader, ChunkHeaders, ChunkType, decode_headers
    from headgate.log.inspection import (
        ChunkDump,
        CrcState,
        Damage,
        DeclaredValues,
        StreamInfo,
        check_data,
        dump_chunks,
        stream_info,
        verify_stream,
    )
    from headgate.log.lock import StreamLock, Wait, lock_note, no_wait
    from headgate.log.manifest import ONE_TIME_PREFIX, BatchManifest, ManifestFolder, Output, root_of
    from headgate.log.message_counts import MessageCounts
    from headgate.log.offsets import OffsetKind, OffsetSpecification
    from headgate.log.pairs import MATCH_SUFFIX, given_up_offsets
    from headgate.log.pin import Pin, read_pin
    from headgate.log.recovery import recover
    from headgate.log.remote import is_cached_derived, make_derived_present
    from headgate.log.remote.mover import (
        MoveReport,
        RemoteState,
        apply_remote_limits,
        delete_remote,
        has_local_to_release,
        move_segments,
        remote_state,
    )
    from headgate.log.repair import Offer, Repaired, repair_stream, streams_beside
    from headgate.log.retention import pinned_bytes
    from headgate.log.root import (
        HTTP_NOTE,
        STREAMS_FOLDER,
        absolute_root,
        check_root,
        deleted_folder,
        find_stream,
        foreign_stream,
        list_streams,
        lock_root,
        name_of_folder,
        place_in_folder,
        private_folder,
        remove_set_aside,
        resolve_stream,
        server_lock_folder,
        set_aside,
        shown_root,
        storage_root,
        stream_folder,
        stream_names,
    )
    from headgate.log.runs import Entries, Run, build_runs
    from headgate.log.salvage import GivenUp
    from headgate.log.segment import Segment, SegmentReader, memory_of
    from headgate.log.segment_list import SegmentList
    from headgate.log.settings import (
        DEFAULT_MAX_SEGMENT_SIZE_BYTES,
        MAX_INITIAL_OFFSET,
        StreamArguments,
        StreamSettings,
        check_identity,
        load_settings,
    )
    from headgate.log.sidecar import (
        ENTRY_DTYPE,
        HEADER_BYTES_DTYPE,
        BlockContent,
        IndexedFilter,
        Sidecar,
        SidecarBlock,
        append_block,
        noted_entries,
        sidecar_path,
        write_sidecar,
    )
    from headgate.log.staging import PRIVATE_FOLDER, StagedChunks, StagedFile, StagingFile, add_to_each
    from headgate.log.stream import Attachment, Stream
    from headgate.log.table import ChunkTable
    from headgate.log.tail import StreamTail, read_tail
    from headgate.log.tracking import TrackingState, read_tracking
    from headgate.log.tracking_records import MAX_REFERENCE_BYTES, TrackingKind, decode_records, encode_offsets
    from headgate.log.writer import Appended, Durability, Writer
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
