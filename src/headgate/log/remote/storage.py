"""Objects of one stream in object storage, by name: whole objects are written, ranges of them are read.

A location is a URI as `pyarrow.fs` takes it: `s3://bucket/prefix`, `abfs://…`, `hdfs://…`, `file:///folder`. It has no
secrets: they come from where the storage's own tools look for them (environment, profiles, the machine's role).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import zlib
from collections.abc import Callable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from headgate.errors import ConfigError, LogError, OffsetOutOfRangeError, RemoteStorageError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

PIECE_BYTES = 8 << 20
"""Bytes that are sent or read back at once."""

_ATTEMPTS = 5
_SILENT_S = 10
"""The library gives up after so many requests in a row; one fails after so many seconds without a byte. A minute."""

_SMALL_BYTES = 4096
"""The library does not try again where the storage's words about an error are longer than what was asked for."""

_BUSY = re.compile("SLOW_DOWN|SERVICE_UNAVAILABLE|NETWORK_CONNECTION|REQUEST_TIMEOUT|[Tt]imeout|curlCode")

GONE = "the object is gone; retention deleted it, or somebody removed it from the storage"

_NEW_SUFFIX = ".new"
_SECRETS = re.compile(r"//[^/?]*:[^/?]*@|[?&](?:secret|access|session|sas|account_key)[a-z_]*=", re.IGNORECASE)


class ObjectStorage:
    """The objects under one location. Every method raises RemoteStorageError, which names the object.

    The library tries again by itself where the storage says that it is busy, or does not answer.
    """

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self._files, self._base = _file_system(self.location, os.getpid())
        self._is_atomic = self._files.type_name in ("s3", "abfs", "gcs")

    def is_folder(self, folder: Path) -> bool:
        """Whether the location is a folder of this machine."""
        return self._files.type_name == "local" and os.path.realpath(self._base) == os.path.realpath(folder)

    def write(self, name: str, content: bytes) -> None:
        """Write an object; others see nothing of it, or all."""
        self._write(name, iter((content,)))

    def write_file(self, name: str, path: Path, *, goes_on: Callable[[], bool] = lambda: True) -> int:
        """Write a file as an object; gives the CRC-32 of the bytes that were sent. Raises OSError of the file.

        It gives up with RemoteStorageError, between two pieces, when `goes_on` says so.
        """
        crc = 0

        def pieces(file: RawIOBase) -> Iterator[bytes]:
            nonlocal crc
            while piece := file.read(PIECE_BYTES):
                if not goes_on():
                    raise RemoteStorageError("the upload was given up, as this process ends", path=self.url(name))
                crc = zlib.crc32(piece, crc)
                yield piece

        with open(path, "rb", buffering=0) as file:
            self._write(name, pieces(file))
        return crc

    def read(self, name: str) -> bytes | None:
        """A whole object; None if there is none of that name."""
        for tries in range(1, _ATTEMPTS + 1):
            size = _SMALL_BYTES
            try:
                # Opening waits while the storage is busy.
                with self._files.open_input_file(self._path(name)) as file:
                    size = file.size()
                    return _read_at(file, 0, size)
            except FileNotFoundError:
                return None
            except OSError as error:
                if size >= _SMALL_BYTES or tries == _ATTEMPTS:
                    raise self._error(name, error) from error
        raise AssertionError

    def crc_of(self, name: str) -> tuple[int, int]:
        """The number of bytes of an object, and their CRC-32. Reads it whole."""
        crc = count = 0
        try:
            with self._files.open_input_file(self._path(name)) as file:
                while piece := file.read(PIECE_BYTES):
                    crc, count = zlib.crc32(piece, crc), count + len(piece)
        except OSError as error:
            raise self._error(name, error) from error
        return count, crc

    def state_of(self, name: str) -> str | None:
        """A text that differs for another content of an object; None if there is none of that name."""
        path = self._path(name)
        try:
            found = self._files.get_file_info(path)
            if not found.is_file:
                return None
            with self._files.open_input_stream(path) as file:
                tag = (file.metadata() or {}).get("ETag", b"").decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(name, error) from error
        return f"{found.size} {found.mtime_ns} {tag}"

    def folders(self) -> list[str]:
        """The names of the folders at the location, sorted; none if it does not exist."""
        from pyarrow.fs import FileSelector, FileType

        try:
            found = self._files.get_file_info(FileSelector(self._base, allow_not_found=True))
        except OSError as error:
            raise self._error("", error) from error
        return sorted(each.base_name for each in found if each.type == FileType.Directory)

    def open(self, name: str) -> RemoteObject:
        """An object, for reading ranges of it. Raises OffsetOutOfRangeError if there is none of that name."""
        try:
            return RemoteObject(self, name, self._files.open_input_file(self._path(name)))
        except OSError as error:
            raise self.read_error(name, error) from error

    def check_credentials(self, name: str) -> None:
        """Raise OSError where credentials that have expired since an object was opened would end the process."""
        if isinstance(self._files, _AzureFiles):
            self._files.get_file_info(self._path(name))

    def read_error(self, name: str, error: OSError) -> LogError:
        """The error for an object that could not be read: OffsetOutOfRangeError if it is gone."""
        if isinstance(error, FileNotFoundError) or (not _BUSY.search(str(error)) and self._is_missing(name)):
            return OffsetOutOfRangeError(GONE, path=self.url(name))
        return self._error(name, error)

    def delete(self, name: str) -> None:
        """Delete an object, and what a killed process left of it; nothing happens if there is none of that name."""
        if not self._is_atomic and not name.endswith(_NEW_SUFFIX):
            self.delete(name + _NEW_SUFFIX)
        try:
            self._files.delete_file(self._path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            if self._is_missing(name):
                return
            raise self._error(name, error) from error

    def _is_missing(self, name: str) -> bool:
        from pyarrow.fs import FileType

        try:
            return bool(self._files.get_file_info(self._path(name)).type == FileType.NotFound)
        except OSError as error:
            raise self._error(name, error) from error

    def url(self, name: str) -> str:
        """The object, for messages."""
        return object_url(self.location, name)

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def _write(self, name: str, pieces: Iterator[bytes]) -> None:
        path = self._path(name)
        target = path if self._is_atomic else path + _NEW_SUFFIX
        try:
            if not self._is_atomic:
                self._files.create_dir(path.rpartition("/")[0], recursive=True)
            stream = self._files.open_output_stream(target)
            try:
                for piece in pieces:
                    stream.write(piece)
            except BaseException:
                # Now: else the garbage collector does it later, and the library cannot give up. This may publish the
                # part that was sent, which no catalogue names.
                with contextlib.suppress(OSError):
                    stream.close()
                raise
            stream.close()
            if not self._is_atomic:
                self._files.move(target, path)
        except OSError as error:
            raise self._error(name, error) from error

    def _error(self, name: str, error: Exception) -> RemoteStorageError:
        return RemoteStorageError(f"object storage: {error}", path=self.url(name))


class RemoteObject:
    """One object that is open for reading; for any thread."""

    __slots__ = ("_file", "_name", "_storage")

    def __init__(self, storage: ObjectStorage, name: str, file: NativeFile) -> None:
        self._storage = storage
        self._name = name
        self._file = file

    def size(self) -> int:
        """Bytes of the object."""
        return int(self._file.size())

    def read(self, start: int, stop: int) -> bytes:
        """The bytes `start … stop`. Raises RemoteStorageError, also if fewer came; OffsetOutOfRangeError."""
        try:
            self._storage.check_credentials(self._name)
            return _read_at(self._file, start, stop)
        except OSError as error:
            raise self._storage.read_error(self._name, error) from error


def _read_at(file: NativeFile, start: int, stop: int) -> bytes:
    begin = max(0, min(start, stop - _SMALL_BYTES))
    content: bytes = file.read_at(stop - begin, begin)
    if len(content) != stop - begin:
        raise OSError(f"{len(content)} bytes came from byte {begin} on, expected {stop - begin}")
    return content[start - begin :]


def object_url(location: str, name: str) -> str:
    """An object at a location, for messages."""
    return f"{unquote(location.partition('?')[0].rstrip('/'))}/{name}"


def check_no_secret(location: str, *, what: str) -> None:
    """Raise ConfigError for a location with a secret in it, which files and messages would show to everybody."""
    if _SECRETS.search(location):
        raise ConfigError(
            f"{what} has a secret in it, which files and messages would show to everybody; leave it to the "
            "environment, a profile or the role of the machine"
        )


def check_location(location: str) -> None:
    """Raise ConfigError for a location that is no URI of object storage, or has a secret in it."""
    if "://" not in location:
        raise ConfigError(f"remote is {location!r}; expected a URI, such as s3://bucket/prefix or file:///folder")
    check_no_secret(location, what="remote")
    try:
        _file_system(location, os.getpid())
    except ConfigError as error:
        raise ConfigError(f"remote is no place that can be used: {error}") from error


@functools.lru_cache(maxsize=64)
def _file_system(location: str, _process: int) -> tuple[FileSystem, str]:
    """The file system of a location, and the path in it. A forked process makes one of its own."""
    from pyarrow.fs import FileSystem

    try:
        found, path = _s3(location) if location.startswith("s3://") else FileSystem.from_uri(location)
    except (OSError, ValueError) as error:
        lines = str(error).splitlines()
        reason = next((advice for library, advice in _LIBRARIES.items() if lines and library in lines[0]), str(error))
        raise ConfigError(f"{location}: {reason}") from error
    return cast("FileSystem", _AzureFiles(found)) if found.type_name == "abfs" else found, path.rstrip("/")


_LIBRARIES = {
    "libjvm": "HDFS needs Java, which is not found; set JAVA_HOME to its folder",
    "libhdfs": "HDFS needs libhdfs.so of Hadoop, which is not found; set HADOOP_HOME to the folder of Hadoop, or "
    "ARROW_LIBHDFS_DIR to that of the library",
}
"""What to do where the library lists a page of places in which it looked for another one."""


_NO_TOKEN = (
    "no valid credentials of Azure were found: give some by AZURE_… in the environment, workload identity, managed "
    "identity or az login"
)


class _AzureFiles:
    """The file system of Azure, whose errors are OSError as those of the others.

    pyarrow 26 does not catch all exceptions where an object is opened, and one of them would end the process; the
    request before it raises an error instead.
    """

    type_name = "abfs"

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Callable[..., object]:
        from pyarrow import ArrowException

        def call(*arguments: object, **options: object) -> object:
            try:
                if name.startswith("open_input"):
                    self._files.get_file_info(arguments[0])
                return getattr(self._files, name)(*arguments, **options)
            except ArrowException as error:
                raise OSError(_NO_TOKEN if "AuthenticationException" in str(error) else str(error)) from error

        return call


def _s3(location: str) -> tuple[FileSystem, str]:
    """As `FileSystem.from_uri`, which gives up too soon and cannot be told not to."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    place = urlsplit(location)
    options = dict(parse_qsl(place.query))
    unknown = options.keys() - {"endpoint_override", "scheme", "region", "tls_ca_file_path"}
    if unknown or not place.netloc:
        raise ValueError(f"unknown option {min(unknown)}" if unknown else "the bucket is missing")
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if value := os.environ.get(name):
            options.setdefault("endpoint_override", value)
    is_told = any(name in os.environ for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"))
    if not is_told and not {"endpoint_override", "region"} & options.keys():
        options["region"] = resolve_s3_region(place.netloc)
    files = S3FileSystem(
        **options,
        # One request for a small object in place of three.
        allow_delayed_open=True,
        connect_timeout=_SILENT_S,
        request_timeout=_SILENT_S,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )
    return files, unquote(place.netloc + place.path)


def storage_at(location: str) -> ObjectStorage:
    """The storage of a location, one for each process. Raises ConfigError."""
    return _storage_at(location, os.getpid())


@functools.lru_cache(maxsize=64)
def _storage_at(location: str, _process: int) -> ObjectStorage:
    return ObjectStorage(location)
