"""Compressed answers and streams: every viewer gets the same compressed bytes, and reads what others read as it is."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.page_client import a_stream, get
from support.page_world import a_calm_cluster, a_storm, an_incident
from txnwatch.page.packed import PackedStream, Piece, packed
from txnwatch.page.truth import PageState

_GZIP = 31


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_any_pieces_are_a_gzip_stream_that_can_be_read_after_each_of_them(parts: list[bytes]) -> None:
    pieces = [Piece(one) for one in parts]
    assert gzip.decompress(packed(pieces)) == b"".join(parts)
    stream, reader = PackedStream(), zlib.decompressobj(_GZIP)
    assert [reader.decompress(stream.add([one])) for one in pieces] == parts
    assert reader.decompress(stream.end()) == b""
    assert reader.eof, "its sum and its length are right"


def test_a_picture_is_compressed_once_for_all_its_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    real = zlib.compressobj
    other, live = a_storm(1).site.live, a_storm(1_000).site.live
    for one in (other, live):
        asyncio.run(one.refresh())
    assert all(piece.packed for piece in other.whole(other.picture)), "what every picture has is compressed before"
    monkeypatch.setattr(zlib, "compressobj", lambda *how: (found.append(1), real(*how))[1])
    answers = [[piece.packed for piece in live.whole(live.picture)] for _ in range(10)]
    assert len({one[1] for one in answers}) == 1
    assert len(found) == 10 + 1, "a head for each, the picture once"


@pytest.mark.parametrize("hangs", [0, 100, 1_000])
def test_a_storm_is_read_within_a_tenth_of_a_second_at_50_kb_a_second(hangs: int) -> None:
    with a_storm(hangs).served() as url, a_stream(url, is_packed=True) as stream:
        picture = stream.until("snapshot")["picture"]
        assert stream.lines.received <= 5_000
        assert picture["order"] == get(url, "/api/v1/snapshot", Accept_Encoding="identity").json["picture"]["order"]


def test_a_compressed_stream_has_every_change_and_its_end() -> None:
    world = a_calm_cluster()
    with world.served() as url, a_stream(url, is_packed=True) as stream:
        assert stream.until("snapshot")["picture"]["status"]["state"] == PageState.CLEAR
        world.tell(an_incident("hang", 60))
        world.batch()
        assert stream.until("delta")["set"]["status"]["state"] == PageState.INCIDENT
        world.site.end()
        assert stream.until("bye") == {"why": "shutdown"}
        assert list(stream) == []
        assert stream.lines.is_whole
