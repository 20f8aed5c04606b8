"""The whole corpus, in one list; names are unique."""

from bad_case import Case
from corpus_binary import BINARY
from corpus_json import JSON
from corpus_sources import SOURCES
from corpus_text import TEXT
from corpus_values import VALUES

CASES: list[Case] = [*TEXT, *VALUES, *JSON, *BINARY, *SOURCES]
