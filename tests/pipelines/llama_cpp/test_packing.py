from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.llama_cpp import packing

LENGTHS = st.lists(st.integers(0, 1000), min_size=1, max_size=20)


def test_neighbours_share_a_pass_and_every_gap_begins_another() -> None:
    assert [packing.passes(streams) for streams in ([], [3], [3, 4, 2], [0, 2, 3, 7])] == [0, 1, 1, 3]


def test_the_cheapest_sequence_is_moved_into_the_cheapest_hole() -> None:
    assert packing.next_swap([0, 1, 3, 7], [9, 9, 5, 9, 1, 1, 1, 2]) == (7, 2)
    assert packing.next_swap([4, 5, 6], [0] * 8) is None


@given(lengths=LENGTHS, data=st.data())
def test_swaps_lead_to_a_single_run_with_one_swap_at_most_for_each_stream(
    lengths: list[int], data: st.DataObject
) -> None:
    streams = data.draw(st.sets(st.integers(0, len(lengths) - 1), min_size=1))
    lengths = list(lengths)
    for _ in range(len(streams)):
        swap = packing.next_swap(streams, lengths)
        if swap is None:
            break
        inside, outside = swap
        assert inside in streams
        assert outside not in streams
        streams = (streams - {inside}) | {outside}
        lengths[inside], lengths[outside] = lengths[outside], lengths[inside]
    assert packing.passes(streams) == 1
