import threading

import pytest

from gemmd._memory import lanes
from gemmd._memory.lanes import PIECE_BYTES, Pieces, run_lanes


def test_a_transfer_has_no_more_lanes_than_pieces(monkeypatch):
    monkeypatch.setattr(lanes, "MOST_LANES", 8)
    sizes = (0, 1, PIECE_BYTES, PIECE_BYTES + 1, 7 * PIECE_BYTES, 100 * PIECE_BYTES)
    assert [lanes.lanes_for(nbytes) for nbytes in sizes] == [1, 1, 1, 2, 7, 8]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_each_piece_is_moved_once_by_one_lane(count):
    nbytes = 21 * PIECE_BYTES + 5
    pieces, moved, threads = Pieces(nbytes), [], set()
    together = threading.Barrier(count)

    def work(lane):
        together.wait(10)  # every lane has a thread of its own
        threads.add((lane, threading.get_ident()))
        moved.extend(pieces)

    run_lanes(count, pieces, work)
    assert sorted(moved) == [
        (start, min(PIECE_BYTES, nbytes - start)) for start in range(0, nbytes, PIECE_BYTES)
    ]
    assert (0, threading.get_ident()) in threads and len(threads) == count


@pytest.mark.parametrize("failing", [0, 3])
def test_an_error_ends_all_lanes_and_is_the_callers(failing):
    pieces, before = Pieces(1000 * PIECE_BYTES), threading.active_count()
    moved = []
    failed = threading.Event()

    def work(lane):
        for start, _ in pieces:
            moved.append(start)
            if lane == failing:
                failed.set()
                raise ValueError("no more")
            failed.wait(10)

    with pytest.raises(ValueError, match="no more"):
        run_lanes(4, pieces, work)
    assert len(moved) < 1000
    assert list(pieces) == []
    assert threading.active_count() == before


def test_what_threads_there_are_do_the_work(monkeypatch):
    def none_left(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    pieces, moved = Pieces(9 * PIECE_BYTES), []
    run_lanes(8, pieces, lambda _lane: moved.extend(pieces))
    assert len(moved) == 9
