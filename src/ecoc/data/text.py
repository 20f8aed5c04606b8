r"""Raw text files: decompressed, decoded and checked in blocks of whole lines; every fault is reported by line.

The output is valid UTF-8 without byte-order mark or NUL, with `\n` at line ends and no line over `LONGEST_LINE`.
Parsers get nothing else. A faulty line that may be skipped becomes an empty line, so that line numbers stay correct.
"""

import codecs
import io
import stat
from collections.abc import Callable, Generator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import IO

import pyarrow as pa

from ecoc.data.bad_rows import BadRows
from ecoc.data.schema import Reason
from ecoc.errors import InputError

LONGEST_LINE = 1 << 20
_BLOCK = 1 << 20
_MARKED = "ecoc-marked"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_REFUSED = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "a bzip2 file; unpack it first, or use gzip or zstd",
    b"\xfd7zXZ": "an xz file; unpack it first, or use gzip or zstd",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"\x89PNG": "a picture, not a log",
    b"%PDF": "a PDF, not a log",
    b"\x7fELF": "a program, not a log",
}
_BYTE_ORDER_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def check_encoding(name: str) -> str:
    """Return the codec name of a text encoding; refuse one that Python does not support."""
    try:
        codec = codecs.lookup(name)
        "".encode(codec.name)
    except (LookupError, UnicodeError):
        raise InputError(
            f"unknown encoding '{name}'; common ones are utf-8, latin-1, utf-16, cp1252, gb18030"
        ) from None
    return codec.name


class TextFile:
    """A text file of lines, plain or compressed (recognised by content), read in blocks of whole lines."""

    def __init__(self, path: Path, bad: BadRows, encoding: str = "utf-8") -> None:
        self.path = path
        self.encoding = check_encoding(encoding)
        self.bytes_read = 0
        self.quotes = 0
        self._bad = bad
        self._position = 0  # in the decoded text, of the first line not yet yielded
        self._head = read_head(path, 8)
        for magic, what in _REFUSED.items():
            if self._head.startswith(magic):
                raise InputError(f"{path}:1: this is {what}")
        self._compression = next((name for magic, name in _MAGIC.items() if self._head.startswith(magic)), None)
        if self._compression is None and path.suffix in {".gz", ".zst"}:
            raise InputError(
                f"{path}:1: the name ends in {path.suffix}, the file is not compressed; rename it or compress it again"
            )

    def blocks(self) -> Generator[bytes, None, None]:
        """Yield checked blocks of whole lines; every line ends in a newline, the last one too."""
        self.quotes = 0
        self._position = 0
        received = 0
        carry = b""
        is_too_long = False
        for chunk in self._decoded():
            received += len(chunk)
            data = carry + chunk
            if is_too_long:
                data = data[data.find(b"\n") :] if b"\n" in data else b""  # the long line becomes an empty one
                is_too_long = not data
            cut = data.rfind(b"\n") + 1
            if cut:
                yield self._checked(data[:cut])
                self._position = received - (len(data) - cut)
            carry = data[cut:]
            if len(carry) > LONGEST_LINE:
                self._fault(0, f"a line longer than {LONGEST_LINE} bytes")
                is_too_long, carry = True, b""
        if carry or is_too_long:
            yield self._checked(carry + b"\n")

    def stream(self, skip_lines: int, transform: Callable[[bytes], bytes]) -> io.BufferedReader:
        """The blocks, each transformed, as a readable binary stream without its first `skip_lines` lines."""
        return io.BufferedReader(_BlockStream(self._transformed(transform), skip_lines), buffer_size=_BLOCK)

    def _transformed(self, transform: Callable[[bytes], bytes]) -> Generator[bytes, None, None]:
        with closing(self.blocks()) as blocks:
            for block in blocks:
                yield transform(block)

    def first_line(self) -> str:
        """The first line; an empty file is refused."""
        quiet = TextFile(self.path, BadRows(skip=True), self.encoding)  # faults are reported when the rows are read
        with closing(quiet.blocks()) as blocks:
            block = next(blocks, None)
        if block is not None:
            line = block[: block.find(b"\n")].decode()
            if not line.strip():
                raise InputError(f"{self.path}:1: the first line is blank; a header or a row was expected there")
            return line
        raise InputError(f"{self.path}:1: the file is empty; a log with a header and rows was expected")

    def _decoded(self) -> Generator[bytes, None, None]:
        r"""Chunks of UTF-8 text with `\n` line ends, from any supported compression and encoding."""
        decoder = None
        if self.encoding != "utf-8":
            decoder = codecs.getincrementaldecoder(self.encoding)(errors=_MARKED)
        pending_cr = False
        first = True
        for raw in chain(self._raw_chunks(), [b""] if decoder else []):
            chunk = raw if decoder is None else self._transcoded(decoder, raw)
            if first:
                chunk, first = self._without_mark(chunk), False
            if pending_cr:
                chunk = b"\r" + chunk
            pending_cr = chunk.endswith(b"\r")
            if pending_cr:
                chunk = chunk[:-1]
            if b"\r" in chunk:
                chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            yield chunk
        if pending_cr:
            yield b"\n"

    def _transcoded(self, decoder: codecs.IncrementalDecoder, chunk: bytes) -> bytes:
        try:
            return decoder.decode(chunk, final=not chunk).encode("utf-8", "surrogatepass")
        except UnicodeError as error:  # a few codecs raise other errors
            raise InputError(
                f"{self.path}:{self._next_line()}: not {self.encoding} text ({error}); pass the right --encoding"
            ) from None

    def _without_mark(self, chunk: bytes) -> bytes:
        if self.encoding == "utf-8":
            for mark, name in _BYTE_ORDER_MARKS.items():
                if chunk.startswith(mark):
                    raise InputError(f"{self.path}:1: starts with a {name} byte-order mark; pass --encoding {name}")
        return chunk.removeprefix(codecs.BOM_UTF8)

    def _raw_chunks(self) -> Generator[bytes, None, None]:
        with _open_raw(self.path) as raw:
            stream = raw if self._compression is None else pa.CompressedInputStream(raw, self._compression)
            while True:
                try:
                    chunk = stream.read(_BLOCK)
                except (OSError, pa.ArrowInvalid, EOFError) as error:
                    raise InputError(
                        f"{self.path}:{self._next_line()}: the {self._compression or 'file'} data is damaged or cut"
                        f" off ({str(error)[:80]}); fetch the file again"
                    ) from None
                if not chunk:
                    return
                self.bytes_read = raw.tell()
                yield chunk

    def _checked(self, block: bytes) -> bytes:
        """Check a block of whole lines; faulty lines are refused or emptied."""
        if b"\0" in block:
            block = self._without_lines(block, lambda line: b"\0" in line, "a NUL byte; plain text was expected")
        if not block.isascii() and _undecodable(block):
            name = "UTF-8" if self.encoding == "utf-8" else self.encoding
            advice = f"bytes that are not {name}; if it is another encoding, pass --encoding, e.g. latin-1"
            block = self._without_lines(block, _undecodable, advice)
        if b'"' in block:
            self.quotes += block.count(b'"')
        return block

    def _next_line(self) -> int:
        """Number of the first line not yet yielded; reads the file again, because counting every line would be slow."""
        again = TextFile(self.path, BadRows(skip=True), self.encoding)
        left, line = self._position, 1
        with closing(again._decoded()) as chunks:
            while left > 0:
                chunk = next(chunks)
                line += chunk[:left].count(b"\n")
                left -= len(chunk)
        return line

    def _without_lines(self, block: bytes, is_faulty: Callable[[bytes], bool], what: str) -> bytes:
        lines = block.split(b"\n")
        for index, line in enumerate(lines):
            if is_faulty(line):
                self._fault(index, what)
                lines[index] = b""
        return b"\n".join(lines)

    def _fault(self, index: int, what: str) -> None:
        """Refuse or count the line that is `index` lines after the first one not yet yielded."""
        if not self._position and not index:  # with a faulty header or first row the rest cannot be trusted
            raise InputError(f"{self.path}:1: {what}; give a text log or the right --encoding")
        self._bad.count(Reason.MALFORMED_ROW, 1)
        if self._bad.room("text"):
            self._bad.example("text", self.path, self._next_line() + index, what)


def _undecodable(line: bytes) -> bool:
    try:
        str(line, "utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _mark(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes that cannot be decoded by a character that is not valid UTF-8; `_checked` then reports its line."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ud800", error.end


codecs.register_error(_MARKED, _mark)


def read_head(path: Path, count: int) -> bytes:
    """The first bytes of a file. Only regular files are accepted: a log is read twice, and a pipe may block."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: not a regular file; write the log to a file first")
        with path.open("rb") as stream:
            return stream.read(count)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a readable file") from None


def _open_raw(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a readable file") from None


class _BlockStream(io.RawIOBase):
    """A generator of blocks as a binary stream."""

    def __init__(self, blocks: Generator[bytes, None, None], skip_lines: int) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")
        self._skip = skip_lines

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._blocks.close()
        super().close()

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            start = 0
            while self._skip and start < len(block):
                start = block.find(b"\n", start) + 1
                self._skip -= 1
            self._rest = memoryview(block)[start:]
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
