"""The network between a master and a node is cut: at most one run of a task lives at any time, and exactly one when it is whole again."""

import pytest
from conftest import wait_until
from lib_cut import make_cluster  # noqa: F401 (fixture)


@pytest.mark.parametrize("how", ["both", "to", "from"])
def test_a_node_that_was_given_up(make_cluster, how):
    """The cluster says at once that it is lost; the task there lives on until its executor's lease is over, and is replaced then."""
    c = make_cluster()
    other = 1 - (task := 0)
    first, untouched = c.running(task), c.running(other)
    node = c.node_of(task)
    c.cut(node, how)
    c.running(task, 2)
    assert not c.live(task)[:-1] and first not in [pid for _, pid in c.live(task)], "the first run is dead by now"
    assert c.node_of(task) != node
    c.heal(node)
    c.one_each()
    assert c.runs(other) == [(1, untouched)]
    c.over()


def test_a_short_cut_is_not_noticed(make_cluster):
    c = make_cluster(**{"tony.task.max-missed-heartbeats": 1000, "tony.task.master-away-limit": 60000})
    first = [c.running(i) for i in range(2)]
    node = c.node_of(0)
    c.cut(node, given_up=False)
    before = c.net.lost_segments(node)
    wait_until(lambda: c.net.lost_segments(node) > before + 1, "what the executor says is lost")
    c.heal(node)
    c.one_each()
    assert [c.runs(i) for i in range(2)] == [[(1, pid)] for pid in first]
    c.over()
