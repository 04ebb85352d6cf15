# SPDX-License-Identifier: Apache-2.0
"""The prepared control groups of bench/floor: beside those of the pool, with the same limit of memory."""
import tempfile
from pathlib import Path

LIMIT = 4 << 20  # bytes, as in World.job()


def mounts():
    """(mount point, root within the hierarchy, type, options of the file system) of each mount of this process."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        yield Path(fields[4]), fields[3], kind[0], kind[2].split(",")


def group_of(pid, controller):
    """The directory of the control group of a process; controller: "" for version 2. None: it is not mounted."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if (controller in names.split(",")) if controller else not names:
            for point, root, kind, options in mounts():
                if kind == ("cgroup" if controller else "cgroup2") and (not controller or controller in options):
                    below = path[len(root):] if root != "/" and path.startswith(root) else path if root == "/" else ""
                    return point / below.lstrip("/")
    return None


class Groups:
    """Groups 0, 1, ... in one directory. Without the right to make them, `why` says so, and there are none."""

    def __init__(self, pool_pid):
        self.dir, self.n, self.why = None, 0, None
        try:
            self.open(pool_pid)
        except OSError as e:
            self.close()
            self.why = f"bench/floor ran without control groups: {e}"

    def open(self, pool_pid):
        place, self.limit = group_of(pool_pid, "memory"), "memory.limit_in_bytes"
        if place is None:
            place, self.limit = group_of(pool_pid, ""), "memory.max"
            if place is None or place.name != "pool":  # docs/decisions/0021
                raise OSError("the pool makes none")
            place = place.parent
        self.dir = Path(tempfile.mkdtemp(prefix="tony-bench-", dir=place))
        if self.limit == "memory.max":
            (self.dir / "cgroup.subtree_control").write_text("+memory")

    def ready(self, n):
        """Makes groups until there are n. Returns the directory, "-" if there are none."""
        while self.dir and self.n < n:
            (self.dir / str(self.n)).mkdir()
            (self.dir / str(self.n) / self.limit).write_text(str(LIMIT))
            self.n += 1
        return str(self.dir) if self.dir else "-"

    def close(self):
        while self.dir and self.n > 0:
            self.n -= 1
            (self.dir / str(self.n)).rmdir()
        if self.dir and self.dir.is_dir():
            self.dir.rmdir()
        self.dir = None
