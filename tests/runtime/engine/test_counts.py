"""What is counted has a place and keeps it, over the end of an engine, too."""

from tenuto.runtime.engine.counts import COUNTED, NOTHING, Family, Move, Saver, Tally, families, together
from tenuto.runtime.engine.snapshots import Figures, Flaw, Refusal

FIGURES = Figures(1, 2, 3, 4, 10, 11, 12, 13, 14, 15, {Refusal.DISK: 16}, {Flaw.CUT: 17})


def test_every_count_is_found_by_its_family_and_label() -> None:
    tally = Tally()
    tally.moved(Move.HOST_DISK, 100)
    tally.moved(Move.HOST_DISK, 50)
    tally.saved(Saver.SHARED, 7)
    found = families(tally.counts(FIGURES))
    assert found[Family.MOVES][Move.HOST_DISK] == 2
    assert found[Family.MOVED_BYTES][Move.HOST_DISK] == 150
    assert found[Family.SAVED_TOKENS] == {"device": 0, "host": 0, "disk": 0, "shared": 7}
    assert found[Family.SNAPSHOTS] == {"kept": 10, "restored": 12, "gave_way": 14, "expired": 15}
    assert found[Family.SNAPSHOT_BYTES] == {"kept": 11, "restored": 13}
    assert (found[Family.REFUSED][Refusal.DISK], found[Family.IGNORED][Flaw.CUT]) == (16, 17)
    assert sum(map(len, found.values())) == len(COUNTED)


def test_counts_are_the_same_object_while_nothing_has_changed() -> None:
    tally = Tally()
    assert tally.counts(None) == NOTHING
    told = tally.counts(FIGURES)
    assert tally.counts(FIGURES) is told
    tally.saved(Saver.DEVICE, 0)
    assert tally.counts(FIGURES) is told
    tally.saved(Saver.DEVICE, 1)
    assert tally.counts(FIGURES) != told


def test_what_an_engine_has_counted_before_its_end_counts() -> None:
    one, other = Tally(), Tally()
    for tally in (one, other):
        tally.moved(Move.DROPPED, 5)
    both = families(together(one.counts(None), other.counts(FIGURES)))
    assert (both[Family.MOVES][Move.DROPPED], both[Family.MOVED_BYTES][Move.DROPPED]) == (2, 10)
    assert both[Family.SNAPSHOTS]["kept"] == 10
