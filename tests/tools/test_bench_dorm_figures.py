# SPDX-License-Identifier: Apache-2.0
"""bench/dorm --live reads its figures from journals and from what the trainings print, and finds what went wrong."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import dorm_figures  # noqa: E402

DAY_MS = 1700000000000
ROW = {"id": "a", "units": 2, "gpus": 0, "weight": 1, "max": 4, "steps": 10}
RESULT = {"accuracy": 0.9, "loss": 0.3}


def finished(tmp_path, records, outputs, row=ROW, state="SUCCEEDED"):
    """A job that has arrived when the day began, and ended 20 s later. Times of records and outputs are in seconds."""
    base = tmp_path / f"job{len(list(tmp_path.iterdir()))}"
    lines = [{"e": "submitted", "t": 0, "wall_ms": DAY_MS - 900}, {"e": "master_started", "t": 1000, "wall_ms": DAY_MS + 1000}]
    lines += [{**r, "t": int(r["t"] * 1000)} for r in records]
    for attempt, words in enumerate(outputs, 1):
        log = base / "logs/worker-0" / str(attempt)
        log.mkdir(parents=True)
        (log / "stdout").write_text("".join(json.dumps({k: DAY_MS + int(v * 1000) if k in ("began", "ended") else v
                                                        for k, v in w.items()}) + "\n" for w in words))
    (base / "journal").write_text("".join(json.dumps(r) + "\n" for r in lines))
    return dorm_figures.Job(row, base, DAY_MS, {"submitted_ms": DAY_MS, "ended_ms": DAY_MS + 20000}, {"state": state, "message": "", "resizes": 1})


def starts(slot, generation, attempt, t):
    return {"e": "attempt_started", "slot": slot, "generation": generation, "attempt": attempt, "t": t}


GROWS = [{"e": "allocated", "slot": 0, "container": "c0", "t": 2}, starts(0, 1, 1, 2.5),
         {"e": "allocated", "slot": 1, "container": "c1", "t": 9}, starts(0, 2, 2, 11), starts(1, 2, 1, 11),
         {"e": "completed", "slot": 0, "container": "c0", "t": 19}, {"e": "completed", "slot": 1, "container": "c1", "t": 18.5}]


def output(first, again=5):
    """Of two generations; the first one begins to train at second 3, the second one at `first`."""
    return [[{"began": 3, "step": 0, "workers": 1}, {"ended": 10, "step": 5}],
            [{"began": first, "step": again, "workers": 2}, {"ended": 18, "step": 10}, RESULT]]


def test_lost_time_is_divided_by_its_reason(tmp_path):
    job = finished(tmp_path, GROWS, output(13))
    assert [(c.from_s, c.to_s, c.generations) for c in job.containers] == [(2, 19, {1, 2}), (9, 18.5, {2})]
    # c0: 2 to 3 is the start, 10 to 13 the resize, 18 to 19 the end. c1: 9 to 13 the resize, 18 to 18.5 the end.
    assert job.lost == pytest.approx({"start": 1, "resizes": 3 + 4, "end": 1.5})
    assert job.held == pytest.approx(17 + 9.5)
    figures = dorm_figures.figures([job], {"units": 4}, 10, 5, lambda rows: [1] * len(rows))
    assert figures["overhead %"] == pytest.approx(100 * 7 / 26.5)
    assert figures["utilization, first part"] == pytest.approx((8 * 2 + 1 * 2) / 10 / 4)
    assert figures["utilization"] == pytest.approx(26.5 * 2 / 20 / 4)
    # Samples at 2.5, 7.5, 12.5 and 17.5 s: 1, 1, 2 and 2 containers of half of the machine each.
    assert figures["fairness loss"] == pytest.approx((0 + 0 + 0.5 + 0.5) / 4)


def test_loss_of_samples():
    """bench/arbiter: of 8 slots, each job may have 6. Alone its fair part is 6, with another one 4."""
    fair = lambda rows: [min(row[4], 8 // len(rows)) for row in rows]  # noqa: E731
    samples = [{}, {"a": 0}, {"a": 6}, {}, {"a": 6, "b": 0}, {"a": 5, "b": 3}, {}, {}]
    assert dorm_figures.loss_of_samples(samples, 8, 6, fair) == pytest.approx((6 + 0 + 0 + (2 + 4) + (1 + 1)) / 8 / 5)
    assert dorm_figures.loss_of_samples([{}], 8, 6, fair) == 0


def test_steps_that_are_trained_again_are_overhead(tmp_path):
    once, again = (finished(tmp_path, GROWS, output(13, n)) for n in (5, 4))
    # 1 of 6 steps of two workers in 5 s was trained before.
    assert again.lost["resizes"] - once.lost["resizes"] == pytest.approx(2 * 5 / 6)


def faults(jobs, units=4, seen=0, rows=(ROW,), alone=RESULT):
    return dorm_figures.faults(jobs, rows, {"units": units}, {row["id"]: alone for row in rows}, seen, 0.25)


def test_faults_are_found(tmp_path):
    good = finished(tmp_path, GROWS, output(13))
    assert faults([good]) == []
    assert "not in the history" in faults([good], rows=(ROW, {**ROW, "id": "b"}))[0]
    assert "instead of" in faults([good], alone={"accuracy": 0.9, "loss": 0.31})[0]
    assert "4 units were held at once; the pool has 3" in faults([good], units=3)[0]
    assert "5 units were held at once; the pool has 4" in faults([good], seen=5)[0]
    assert "is FAILED" in faults([finished(tmp_path, GROWS, output(13), state="FAILED")])[0]
    assert "left steps out" in faults([finished(tmp_path, GROWS, output(13, 6))])[0]
    assert "left steps out" in faults([finished(tmp_path, GROWS, output(13), row={**ROW, "steps": 11})])[0]
