# SPDX-License-Identifier: Apache-2.0
"""
The figures of one day of bench/dorm --live, from the journals of its jobs and from what the trainings have printed. No
decision of the policy is read.

Times are in seconds since the day began. A container is *held* from the record `allocated` to the record `completed` of
the journal. It is *at work* while a generation of its job trains in which it takes part: from the line `began` to the
line `ended` of rank 0. Whatever is held and not at work is lost:

  start    before the first generation trains
  resizes  between two generations that train, and for steps that are trained again
  end      after the last generation
"""
import json


class Container:
    def __init__(self, slot, from_s):
        self.slot, self.from_s, self.to_s, self.generations = slot, from_s, None, set()


def records_of(directory):
    for line in (directory / "journal").read_text().splitlines():
        yield json.loads(line)


def containers_of(directory, day_ms):
    """The containers that a finished job has held."""
    found, at_slot, zero_ms, t = {}, {}, 0, 0.0
    for r in records_of(directory):
        if "t" not in r:
            continue
        if "wall_ms" in r:  # only the first record of a master has a wall time
            zero_ms = r["wall_ms"] - r["t"] - day_ms
        t = (zero_ms + r["t"]) / 1000
        if r["e"] == "allocated":
            found[r["container"]] = at_slot[r["slot"]] = Container(r["slot"], t)
        elif r["e"] == "attempt_started":
            at_slot[r["slot"]].generations.add(r["generation"])
        elif r["e"] == "completed" and r.get("container") in found:
            found[r["container"]].to_s = t
    for c in found.values():
        c.to_s = t if c.to_s is None else c.to_s  # the job was over before it heard of the end
    return list(found.values())


def generations_of(directory, day_ms):
    """
    {generation: (from_s, to_s, first step, next step, workers)} of the generations that trained, from the output of rank
    0, and its last line: the result.
    """
    logs = sorted((directory / "logs/worker-0").iterdir(), key=lambda p: int(p.name))
    attempts = {r["attempt"]: r["generation"] for r in records_of(directory) if r["e"] == "attempt_started" and r["slot"] == 0}
    found, result = {}, None
    for log in logs:
        words = {}
        for line in (log / "stdout").read_text().splitlines():
            words.update({("first" if k == "step" and "began" in line else k): v for k, v in json.loads(line).items()})
        if "ended" in words:
            found[attempts[int(log.name)]] = ((words["began"] - day_ms) / 1000, (words["ended"] - day_ms) / 1000, words["first"], words["step"],
                                              words["workers"])
        if "accuracy" in words:
            result = {k: words[k] for k in ("accuracy", "loss")}
    return found, result


class Job:
    """A finished job of the day: what it held, and what that was used for."""

    def __init__(self, row, directory, day_ms, listed, status):
        self.row, self.status = row, status
        self.containers = containers_of(directory, day_ms)
        self.generations, self.result = generations_of(directory, day_ms)
        self.arrived_s = (listed["submitted_ms"] - day_ms) / 1000
        self.ended_s = (listed["ended_ms"] - day_ms) / 1000
        self.lost = {"start": 0.0, "resizes": 0.0, "end": 0.0}
        for c in self.containers:
            self.divide(c)
        self.held = sum(c.to_s - c.from_s for c in self.containers)
        self.again()

    def divide(self, c):
        """Divide the time that a container was held and not at work by its reason."""
        work = sorted(self.generations.items())
        at = c.from_s
        for number, (generation, (from_s, to_s, *_)) in enumerate(work):
            if generation not in c.generations:
                continue
            self.lost["resizes" if number else "start"] += max(0.0, from_s - at)
            at = max(at, min(to_s, c.to_s))
        last = max(self.generations, default=0)
        self.lost["end" if last in c.generations else "resizes"] += max(0.0, c.to_s - at)

    def again(self):
        """Counts the time of steps that were trained twice as lost in resizes."""
        done = 0
        for _, (from_s, to_s, first, after, workers) in sorted(self.generations.items()):
            if first < done and after > first:
                self.lost["resizes"] += workers * (to_s - from_s) * min(1.0, (done - first) / (after - first))
            done = max(done, after)

    def at(self, t):
        return sum(c.from_s <= t < c.to_s for c in self.containers)


def steps(jobs, kind="units"):
    """(time, units or GPUs held from then on) in the order of time; a unit is the least container."""
    changes = sorted((t, sign * job.row[kind]) for job in jobs for c in job.containers for t, sign in ((c.from_s, 1), (c.to_s, -1)))
    line, held = [(0.0, 0)], 0
    for t, change in changes:
        held += change
        line.append((t, held))
    return line


def mean_use(line, until, units):
    """The mean utilization from 0 to `until`."""
    area = sum(held * (min(to, until) - min(t, until)) for (t, held), (to, _) in zip(line, line[1:]))
    return area / until / units


def most_at_once(line, slack_s):
    """
    The most units held for longer than slack_s. The pool gives room away when its keeper has said that a container has
    ended. The journal of the job may have the end some ms later than another journal has the new container.
    """
    return max([held for (t, held), (to, _) in zip(line, line[1:]) if to - t > slack_s], default=0)


def share_of(row, capacity):
    """The dominant share of one container."""
    return max(row[kind] / n for kind, n in capacity.items())


def loss_of_fairness(jobs, capacity, every_s, fair):
    """
    The mean over samples of the day: the sum, over the jobs present, of the distance of each from its fair share of the
    machine. fair(rows) returns the fair number of containers of each job.
    """
    end, samples, t = max(j.ended_s for j in jobs), [], every_s / 2
    while t < end:
        present = [j for j in jobs if j.arrived_s <= t < j.ended_s]
        ideal = fair(tuple((j.row["id"], j.row["units"], j.row["gpus"], j.row["weight"], j.row["max"]) for j in present)) if present else ()
        samples.append(sum(abs(j.at(t) - n) * share_of(j.row, capacity) for j, n in zip(present, ideal)))
        t += every_s
    return sum(samples) / len(samples)


def loss_of_samples(samples, slots, most, fair):
    """
    The same of samples {job: containers held; 0: it waits}, for jobs that are all alike: each may have `most` of the slots.
    The day is from the first sample with a job to the last one; a sample between them without a job counts as 0.
    """
    total, busy = 0.0, [i for i, held in enumerate(samples) if held]
    day = samples[busy[0]:busy[-1] + 1] if busy else []
    for held in day:
        present = sorted(held)
        ideal = fair(tuple((job, 1, 0, 1, most) for job in present)) if present else ()
        total += sum(abs(held[job] - n) for job, n in zip(present, ideal)) / slots
    return total / len(day) if day else 0.0


def figures(jobs, capacity, first_s, every_s, fair):
    """capacity: of the pool, {"units": N} or {"units": N, "gpus": N}."""
    line, units = steps(jobs), capacity["units"]
    end = max(j.ended_s for j in jobs)
    held = sum(j.held * j.row["units"] for j in jobs)
    percent = {why: 100 * sum(j.lost[why] * j.row["units"] for j in jobs) / held for why in ("start", "resizes", "end")}
    stalls = sorted(b[0] - a[1] for j in jobs for a, b in zip(sorted(j.generations.values()), sorted(j.generations.values())[1:]))
    gpus = capacity.get("gpus")
    return {"utilization, first part": mean_use(line, first_s, units), "utilization": mean_use(line, end, units),
            "GPUs": mean_use(steps(jobs, "gpus"), end, gpus) if gpus else 0.0,
            "mean completion s": sum(j.ended_s - j.arrived_s for j in jobs) / len(jobs),
            "fairness loss": loss_of_fairness(jobs, capacity, every_s, fair), "adjustments": sum(j.status.get("resizes", 0) for j in jobs),
            "overhead %": percent["resizes"], "lost at starts %": percent["start"], "lost at ends %": percent["end"],
            "median stall s": stalls[len(stalls) // 2] if stalls else 0.0, "end s": end}


def faults(jobs, rows, capacity, alone, seen_most, slack_s):
    """What went wrong, as sentences: a lost job, a unit or a GPU given twice, a wrong result."""
    found = [f"job {row['id']} is not in the history" for row in rows if row["id"] not in {j.row["id"] for j in jobs}]
    for j in jobs:
        want = alone[j.row["id"]]
        trained = sorted((g[2], g[3]) for g in j.generations.values())
        if j.status["state"] != "SUCCEEDED":
            found.append(f"job {j.row['id']} is {j.status['state']}: {j.status['message']}")
        elif not j.result or j.result["accuracy"] != want["accuracy"] or abs(j.result["loss"] - want["loss"]) > 1e-5:
            found.append(f"job {j.row['id']} ends with {j.result} instead of {want}")
        elif trained[0][0] != 0 or trained[-1][1] != j.row["steps"] or any(b[0] > a[1] for a, b in zip(trained, trained[1:])):
            found.append(f"job {j.row['id']} left steps out: {trained}")
    for kind, n in capacity.items():
        most = max(most_at_once(steps(jobs, kind), slack_s), seen_most if kind == "units" else 0) if jobs else 0
        if most > n:
            found.append(f"{most} {kind} were held at once; the pool has {n}")
    return found


