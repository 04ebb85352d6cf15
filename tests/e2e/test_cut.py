# SPDX-License-Identifier: Apache-2.0
"""
The network between a master and a node is cut. At most one run of a task is alive at any time, and exactly
one when the network works again.
"""

import pytest
from conftest import wait_until
from lib_cut import make_cluster  # noqa: F401 (fixture)


class GivenUp:
    """A cluster of two nodes; the node of task 0 is cut off."""

    def __init__(self, make_cluster, how):
        self.c, self.how = make_cluster(), how
        self.first, self.untouched = self.c.running(0), self.c.running(1)
        self.node = self.c.node_of(0)
        self.c.cut(self.node, how)

    def check(self):
        c = self.c
        c.running(0, 2, limit=60)
        assert not c.live(0)[:-1] and self.first not in [pid for _, pid in c.live(0)], f"{self.how}: the first run is dead by now"
        assert c.node_of(0) != self.node
        c.heal(self.node)
        c.one_each()
        assert c.runs(1) == [(1, self.untouched)], self.how
        c.over()


@pytest.mark.takes(10)
def test_a_task_on_a_lost_node_is_replaced_after_its_lease(make_cluster):
    """
    The cluster reports at once that the node is lost. The task lives on until its executor's lease is over,
    and is replaced then. Messages to the node are lost, or those from it, or both: three clusters, so that
    their leases end at the same time.
    """
    clusters = [GivenUp(make_cluster, how) for how in ("both", "to", "from")]
    for c in clusters:
        c.check()


def test_a_short_cut_does_not_disturb_the_tasks(make_cluster):
    c = make_cluster(**{"tony.task.master-away-limit": 60000})
    first = [c.running(i) for i in range(2)]
    node = c.node_of(0)
    c.cut(node, given_up=False)
    before = c.net.lost_segments(node)
    wait_until(lambda: c.net.lost_segments(node) > before + 1, "what the executor says is lost")
    c.heal(node)
    c.one_each()
    assert [c.runs(i) for i in range(2)] == [[(1, pid)] for pid in first]
    c.over()
