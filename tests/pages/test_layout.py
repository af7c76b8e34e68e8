"""The layout of the precision map: nothing overlaps, order is kept, and pictures are about as wide as screens."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from mplint.report.page.layout import Box, Link, arrange


def overlap(one: Box, other: Box) -> bool:
    return one.x < other.x + other.width and other.x < one.x + one.width and one.y < other.y + other.height and other.y < one.y + one.height


def test_a_chain_goes_down_columns_from_left_to_right() -> None:
    root = Box(inner=[Box(128, 34) for _ in range(400)])
    arrange(root, {id(root): [Link(at, at + 1) for at in range(399)]})
    places = [(box.x, box.y) for box in root.inner]
    assert places == sorted(places)
    assert 1.0 < root.width / root.height < 2.6


def test_what_feeds_late_stands_late() -> None:
    root = Box(inner=[Box(10, 10) for _ in range(6)])
    arrange(root, {id(root): [Link(0, 2), Link(2, 3), Link(3, 4), Link(1, 4), Link(4, 5)]})
    constant, before = root.inner[1], root.inner[3]
    assert constant.y == before.y


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_boxes_never_overlap_and_lie_within_their_own(data: st.DataObject) -> None:
    sizes = st.tuples(st.integers(10, 300), st.integers(10, 200))
    groups = data.draw(st.lists(st.lists(sizes, min_size=1, max_size=9), min_size=1, max_size=6))
    root = Box(inner=[Box(inner=[Box(*size) for size in group]) for group in groups])
    links = {
        id(box): {Link(*pair) for pair in data.draw(st.lists(st.tuples(*[st.integers(0, len(box.inner) - 1)] * 2), max_size=12))}
        for box in (root, *root.inner)
    }
    arrange(root, links)
    for box in (root, *root.inner):
        for inner in box.inner:
            assert box.x <= inner.x and inner.x + inner.width <= box.x + box.width
            assert box.y <= inner.y and inner.y + inner.height <= box.y + box.height
        assert not any(overlap(*pair) for pair in combinations(box.inner, 2))
