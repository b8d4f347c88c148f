"""Which of many token streams have the longest beginning in common with one: a radix tree. Pure, no lock.

A tree has arrays of its own, of four bytes for each token that is in no other stream at the same place behind the same
ones. So what it holds is bounded by what its streams have, and goes with them.
"""

from array import array
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from tenuto.sessions.tokens import shared

K = TypeVar("K", bound=Hashable)

Ids = array  # of type "I"


class _Node(Generic[K]):
    """An edge, and what hangs at its end. But for the root: it has keys, or children on two ways or more."""

    __slots__ = ("children", "edge", "keys", "parent")

    def __init__(self, edge: "Ids[int]", parent: "_Node[K] | None") -> None:
        self.edge, self.parent = edge, parent
        self.children: dict[int, _Node[K]] = {}  # by the first token of their edges
        self.keys: dict[K, None] = {}  # of the streams that end here


class PrefixTree(Generic[K]):
    """Streams by their keys. To put or to find one costs a comparison of its bytes and a step for each node on its way;
    a stream that has only grown is extended where it is.
    """

    def __init__(self) -> None:
        self._root: _Node[K] = _Node(array("I"), None)
        self._ends: dict[K, _Node[K]] = {}
        self.tokens = 0
        """How many tokens all edges have."""

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, key: K) -> bool:
        return key in self._ends

    def put(self, key: K, ids: "Ids[int]") -> None:
        """Let a key have this stream, in place of what it had. An empty one has no beginning, and is not kept."""
        old = self._ends.get(key)
        if old is not None:
            node, at, edge = self._walk(ids)
            if node is old and edge == 0 and at == len(ids):
                return
            if node is old and edge == 0 and not old.children and len(old.keys) == 1:
                old.edge.extend(ids[at:])
                self.tokens += len(ids) - at
                return
            self.remove(key)
        if ids:
            self._insert(key, ids)

    def remove(self, key: K) -> None:
        """Take a key's stream out, where it has one."""
        node = self._ends.pop(key, None)
        if node is None:
            return
        del node.keys[key]
        parent = node.parent
        if parent is not None and not node.keys and not node.children:
            del parent.children[node.edge[0]]
            self.tokens -= len(node.edge)
            node.parent = None
            node, parent = parent, parent.parent
        if parent is not None and not node.keys and len(node.children) == 1:
            (child,) = node.children.values()
            child.edge, child.parent = node.edge + child.edge, parent
            parent.children[child.edge[0]] = child
            node.parent = None  # no ring is left behind
            node.children.clear()

    def matches(self, ids: "Ids[int]", *, whole: bool = False) -> Iterator[tuple[int, K]]:
        """How many tokens each stream has in common with this one, and its key: the longest first, and of equal ones
        those with the fewest nodes behind that. Streams that have none in common are not told.

        `whole`: those alone that have nothing else. The tree must not change meanwhile.
        """
        node, at, edge = self._walk(ids)
        last: _Node[K] | None = None
        if edge:
            last = node.children[ids[at - edge]]
            if not whole:
                yield from ((at, key) for key in _below(last, None))
            at -= edge
        while node.parent is not None:
            keys = iter(node.keys) if whole else _below(node, last)
            yield from ((at, key) for key in keys)
            at -= len(node.edge)
            node, last = node.parent, node

    def _walk(self, ids: "Ids[int]") -> tuple[_Node[K], int, int]:
        """The last node on the way, how many tokens are the same, and how many of these lie on an edge behind it."""
        node, at = self._root, 0
        while at < len(ids) and (child := node.children.get(ids[at])) is not None:
            same = shared(child.edge, ids[at : at + len(child.edge)])
            at += same
            if same < len(child.edge):
                return node, at, same
            node = child
        return node, at, 0

    def _insert(self, key: K, ids: "Ids[int]") -> None:
        node, at, edge = self._walk(ids)
        if edge:
            child = node.children[ids[at - edge]]
            middle = _Node(child.edge[:edge], node)
            node.children[ids[at - edge]] = middle
            del child.edge[:edge]
            child.parent, middle.children[child.edge[0]] = middle, child
            node = middle
        if at < len(ids):
            leaf = _Node(ids[at:], node)
            node.children[ids[at]] = leaf
            self.tokens += len(leaf.edge)
            node = leaf
        node.keys[key] = None
        self._ends[key] = node


def _below(node: _Node[K], but: _Node[K] | None) -> Iterator[K]:
    """The keys of a node and of all below it, the nearest first, without those of one child."""
    nodes = deque((node,))
    while nodes:
        one = nodes.popleft()
        yield from one.keys
        nodes.extend(child for child in one.children.values() if child is not but)


class Prefixes(Generic[K]):
    """A tree for each group of streams that may be compared. A key is in one group at a time."""

    def __init__(self) -> None:
        self._trees: dict[str, PrefixTree[K]] = {}
        self._groups: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def tokens(self) -> int:
        """How many tokens all trees have."""
        return sum(tree.tokens for tree in self._trees.values())

    def put(self, group: str, key: K, ids: "Ids[int]") -> None:
        """Let a key have this stream, in place of what it had."""
        if self._groups.get(key, group) != group or not ids:
            self.remove(key)
        if ids:
            self._groups[key] = group
            self._trees.setdefault(group, PrefixTree()).put(key, ids)

    def remove(self, key: K) -> None:
        """Take a key's stream out, where it has one."""
        if (group := self._groups.pop(key, None)) is not None:
            tree = self._trees[group]
            tree.remove(key)
            if not len(tree):
                del self._trees[group]

    def matches(self, group: str, ids: "Ids[int]", *, whole: bool = False) -> Iterator[tuple[int, K]]:
        """As a tree's, of the group's streams alone."""
        tree = self._trees.get(group)
        return iter(()) if tree is None else tree.matches(ids, whole=whole)
