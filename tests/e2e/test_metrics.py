# SPDX-License-Identifier: Apache-2.0
"""Metrics of tasks: what the executor measures, what programs report, and what a new master still knows."""

import os
import pathlib
import subprocess
import time

import pytest
from conftest import wait_until
from lib_jobs import kill9, lab, make_lab  # noqa: F401 (fixtures)
from test_gpu import fake_nvml
from test_progress import Talk

FAST = {"tony.task.metrics-interval-ms": "200"}
EIGHT = {f"{kind}_{what}" for kind in ("MAX", "AVG")
         for what in ("MEMORY_BYTES", "GPU_UTILIZATION", "GPU_FB_MEMORY_USAGE", "GPU_MAIN_MEMORY_USAGE")}


def metrics(doc, task=0):
    return doc["tasks"][task].get("metrics", {})


def cpu_ms(pid):
    """CPU time of a process and its reaped children, from /proc."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) * 1000 // os.sysconf("SC_CLK_TCK")


def written(pid):
    """Bytes that a process and its reaped children have written to disks, from /proc."""
    lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes:")).split()[1])


@pytest.mark.parametrize("groups", ["", "none"])
def test_a_whole_tree_is_measured(make_lab, tmp_path, groups):
    """
    The first process has three descendants: a child that used CPU time and has ended, a child that holds
    memory, and an orphan that has written a file. The figures of the task contain all of them.
    """
    lab = make_lab(**({"TONY_CGROUPS": groups} if groups else {}))
    t = Talk(lab, tmp_path, """
        import subprocess, tempfile
        subprocess.run([sys.executable, "-c", "for i in range(8000000): pass"])
        holds = subprocess.Popen([sys.executable, "-c", "b = bytearray(150 << 20); print('full', flush=True); input()"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        holds.stdout.readline()
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as big:
            write = f"(head -c 20000000 /dev/zero > {big.name}; sync {big.name}; echo $$; exec sleep 1000)"
            p = subprocess.Popen(["sh", "-c", f"setsid sh -c '{write}' &"], stdout=subprocess.PIPE)
            p.wait()
            print("orphan", int(p.stdout.readline()), flush=True)
            wait()
        holds.kill()
        """, role={"memory": "400m"}, conf=FAST)
    doc = t.until(lambda d: metrics(d).get("memory_bytes", 0) > 150 << 20 and d, "the memory of the child is measured")
    said = wait_until(lambda: lab.ok("logs", t.app, "--stdout"), "the orphan has written")
    orphan = int(said.split()[1])
    # A process that replaces its program has no environment for a moment, by which it could be found: the orphan's
    # `exec sleep` may miss one measurement.
    doc = t.until(lambda d: metrics(d)["written_bytes"] >= written(orphan) and metrics(d)["threads"] >= 3 and d, "the orphan is measured")
    m = metrics(doc)
    assert 150 << 20 < m["memory_bytes"] < 300 << 20
    assert m["memory_peak_bytes"] >= m["memory_bytes"]
    assert m["threads"] < 10  # at least the first process, its child, the orphan
    assert doc["usage"]["tasks"] == 1 and doc["usage"]["memory_bytes"] >= 150 << 20
    seen = cpu_ms(doc["tasks"][0]["pid"])
    assert seen >= 100 and seen - 50 <= m["cpu_ms"] <= seen + 1000
    t.open()
    os.kill(orphan, 9)
    t.over()
    lab.settled()


@pytest.mark.parametrize("groups", ["", "none"])
def test_a_process_that_is_not_reaped_has_no_threads(make_lab, tmp_path, groups):
    """A zombie counts as no thread. Its CPU time counts; with control groups v1 only after it was reaped."""
    lab = make_lab(**({"TONY_CGROUPS": groups} if groups else {}))
    t = Talk(lab, tmp_path, """
        if os.fork() == 0:
            for i in range(4000000): pass
            os._exit(0)
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        say(json.dumps({"metrics": {"ended": 1}}))
        wait()
        """, conf=FAST)
    m = metrics(t.until(lambda d: "ended" in metrics(d) and d, "the child has ended, and the task was measured since"))
    assert m["threads"] == 1 and (m["cpu_ms"] >= 50 or not groups), m
    t.open()
    assert metrics(t.over())["cpu_ms"] >= 50
    lab.settled()


@pytest.mark.parametrize("groups", ["", "none"])
def test_threads_whose_first_thread_has_ended_count(make_lab, tmp_path, groups):
    """/proc shows such a process as one that was not reaped."""
    lab = make_lab(**({"TONY_CGROUPS": groups} if groups else {}))
    t = Talk(lab, tmp_path, """
        import subprocess
        code = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(1000,)).start(); ctypes.CDLL(None).pthread_exit(None)"
        p = subprocess.Popen([sys.executable, "-c", code])
        while open(f"/proc/{p.pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.01)
        say(json.dumps({"metrics": {"ended": 1}}))
        wait()
        p.kill()
        """, conf=FAST)
    m = metrics(t.until(lambda d: "ended" in metrics(d) and d, "the first thread has ended, and the task was measured since"))
    assert m["threads"] == 2, m
    t.open()
    t.over()
    lab.settled()


@pytest.mark.parametrize("groups", ["", "none"])
def test_a_short_task_is_measured_at_its_end(make_lab, groups):
    lab = make_lab(**({"TONY_CGROUPS": groups} if groups else {}))
    app = lab.submit(lab.workers("head -c 30000000 /dev/zero | tr '\\0' x | sort > /dev/null", n=2))
    assert lab.run("wait", app).returncode == 0
    for i in range(2):
        m = metrics(lab.status(app), i)
        assert m["cpu_ms"] > 0 and m["memory_peak_bytes"] > 1 << 20
        assert EIGHT <= m.keys()
        assert m["MAX_GPU_UTILIZATION"] == -1
    lab.settled()


def test_what_exec_starts_does_not_count(make_lab, tmp_path):
    """Without a control group: a process that `tony exec` has started counts neither with its memory, which
    exceeds the limit of the task, nor with its CPU time."""
    lab = make_lab(TONY_CGROUPS="none")
    t = Talk(lab, tmp_path, """
        step = 0
        while not os.path.exists(os.environ["GATE"] + ".go"):
            step += 1
            say(json.dumps({"step": step}))
            time.sleep(0.05)
        """, role={"memory": "120m"}, conf=FAST)
    t.until(lambda d: metrics(d).get("step"), "the task is measured")

    def after_a_measurement():  # it has the step of the task
        now = metrics(lab.status(t.app))["step"]
        return t.until(lambda d: metrics(d)["step"] > now + 10 and d, "the task was measured again")
    hungry = "b = bytearray(300 << 20)\nfor i in range(20000000): pass\nprint('full', flush=True)\ninput()"
    p = subprocess.Popen([lab.bin / "tony", "exec", "-i", t.app, "worker:0", "--", "/usr/bin/python3", "-c", hungry], env=lab.env,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"full\n"
    for ends in (False, True):
        doc = after_a_measurement()
        assert metrics(doc)["memory_bytes"] < 100 << 20 and metrics(doc)["memory_peak_bytes"] < 100 << 20
        assert metrics(doc)["cpu_ms"] <= cpu_ms(doc["tasks"][0]["pid"]) + 200 and metrics(doc)["threads"] == 1
        if not ends:
            p.communicate(b"\n", timeout=60)
            assert p.returncode == 0
    (tmp_path / "gate.go").touch()
    m = metrics(t.over())
    assert m["MAX_MEMORY_BYTES"] < 100 << 20
    lab.settled()


def test_numbers_of_a_program(tony, tmp_path):
    t = Talk(tony, tmp_path, """
        sys.path.insert(0, "clients")
        import tony_task
        tony = tony_task.connect()
        tony.metrics(loss=0.5, lr=1e-3)
        tony.metrics({"val/acc": 0.25, "bad": float("nan")})
        wait()
        tony.metrics(loss=0.125)
        answers = []
        for line in ('{"metrics": {"cpu_ms": 1}}', '{"metrics": {"a b": 1}}', '{"metrics": {"loss": "low"}}',
                     '{"metrics": [1]}', '{"metrics": {"x": 1e999}}'):
            say(line)
            answers.append(json.loads(heard())["error"])
        for i in range(26):
            say(json.dumps({"metrics": {f"m{i}_{k}": k for k in range(10)}}))
        answers.append(json.loads(heard())["error"])
        print("\\n".join(answers), flush=True)
        """, conf=FAST)
    doc = t.until(lambda d: "val/acc" in metrics(d) and d, "the first numbers are known")
    assert metrics(doc)["loss"] == 0.5 and metrics(doc)["lr"] == 1e-3 and metrics(doc)["val/acc"] == 0.25
    assert "bad" not in metrics(doc)
    t.open()
    m = metrics(t.over())  # the last numbers count, although they were reported just before the end
    assert m["loss"] == 0.125
    assert len([name for name in m if name[0] == "m" and name[1].isdigit()]) == 256 - 3
    answers = tony.ok("logs", t.app, "worker:0", "--stdout").splitlines()
    for word, answer in zip(("cpu_ms", "letters", "'loss' is not a number", "object", "", "256"), answers, strict=True):
        assert word in answer, answers


def test_a_new_master_knows_them(lab, tmp_path):
    """After kill -9 of the master, the next master continues the file and knows the latest values, also those of
    tasks that have ended."""
    text = """
        say('{"metrics": {"loss": 0.5}}')
        if os.environ["TASK_INDEX"] == "0":
            wait()
        """
    t = Talk(lab, tmp_path, text, n=2, conf=FAST)
    t.until(lambda d: d["tasks"][1]["state"] == "ended" and "loss" in metrics(d, 0) and metrics(d, 1).get("loss") == 0.5 and d,
            "one task has ended, one runs")
    file = lab.home / "jobs" / t.app / "metrics"
    wait_until(lambda: b"MAX_MEMORY_BYTES" in file.read_bytes(), "the end of the task is in the file")
    before = file.read_bytes()
    kill9(lab.one("master", t.app))
    doc = t.until(lambda d: d["epoch"] == 2 and "loss" in metrics(d, 0) and d, "there is a new master, and it knows the running task")
    assert metrics(doc, 1)["loss"] == 0.5 and EIGHT <= metrics(doc, 1).keys()
    wait_until(lambda: len(file.read_bytes()) > len(before), "the new master writes on")
    assert file.read_bytes().startswith(before[:-64])
    t.open()
    doc = t.over()
    assert metrics(doc, 0)["loss"] == 0.5 and metrics(doc, 1)["loss"] == 0.5
    assert (lab.home / "history" / t.app / "metrics").exists()
    lab.settled()


def test_gpus_of_a_task(make_lab, tmp_path):
    """A task has metrics only of its own GPUs. The process tony-gpu does not count as part of the task, and ends
    with it."""
    lab = make_lab(TONY_NVML=fake_nvml(), FAKE_GPUS="3", TONY_GPU_LOCKS=str(tmp_path))
    t = Talk(lab, tmp_path, "wait()", n=1, role={"gpus": 2}, conf=FAST)
    doc = t.until(lambda d: "gpu1_percent" in metrics(d) and d, "the GPUs are measured")
    m = metrics(doc)
    assert m["gpu0_percent"] == 50 and m["gpu1_percent"] == 51
    assert m["gpu0_memory_bytes"] == 1 << 30 and m["gpu1_memory_percent"] == 12.5
    assert "gpu2_percent" not in m and "gpu0_power_watts" not in m  # this stand-in does not report power
    assert doc["usage"]["gpus"] == 2 and doc["usage"]["gpu_percent"] == 50.5
    t.open()
    began = time.monotonic()
    m = metrics(t.over())
    assert time.monotonic() - began < 10
    assert m["MAX_GPU_UTILIZATION"] == 51 and 50 <= m["AVG_GPU_UTILIZATION"] <= 51
    assert m["MAX_GPU_FB_MEMORY_USAGE"] == 12.5 and m["MAX_GPU_MAIN_MEMORY_USAGE"] == -1
    lab.settled()


def test_gpus_are_not_measured_if_the_job_says_so(make_lab, tmp_path):
    lab = make_lab(TONY_NVML=fake_nvml(), FAKE_GPUS="1", TONY_GPU_LOCKS=str(tmp_path))
    t = Talk(lab, tmp_path, "wait()", n=1, role={"gpus": 1}, conf={**FAST, "tony.task.gpu-metrics.enabled": "false"})
    doc = t.until(lambda d: "cpu_ms" in metrics(d) and d, "the task is measured")
    t.open()
    doc = t.over()
    assert not [name for name in metrics(doc) if name.startswith("gpu")]
    lab.settled()


def test_each_attempt_counts_for_itself(tony, tmp_path):
    """A task that restarts: counters begin again, and numbers of the first attempt do not stay in the second."""
    t = Talk(tony, tmp_path, """
        if os.environ["TONY_ATTEMPT"] == "1":
            say('{"metrics": {"only_first": 1}}')
            x = 0
            for i in range(5000000): x += i
            sys.exit(1)
        say('{"metrics": {"second": 2}}')
        wait()
        """, conf=FAST, role={"restart": "on-failure", "max-restarts": 1})
    doc = t.until(lambda d: "second" in metrics(d) and "cpu_ms" in metrics(d) and d, "the second attempt is measured")
    assert metrics(doc)["cpu_ms"] < 10000 and "only_first" not in metrics(doc)
    t.open()
    m = metrics(t.over())
    assert "only_first" not in m and m["second"] == 2 and EIGHT <= m.keys()


def test_series_are_shown(lab, tmp_path):
    """`tony metrics` of a running and of a finished job: table, CSV, JSON, charts, and what is chosen of them."""
    text = """
        for i in range(1, 6):
            say(json.dumps({"step": i, "metrics": {"loss": 1 / i, "rank": int(os.environ["TASK_INDEX"])}}))
            time.sleep(0.3)
        while not os.path.exists(os.environ["GATE"] + ".go"):
            time.sleep(0.05)
        """
    t = Talk(lab, tmp_path, text, n=2, conf=FAST)
    t.until(lambda d: metrics(d, 0).get("loss") == metrics(d, 1).get("loss") == 0.2, "the last loss is known")
    for over in (False, True):
        # Each task's values are written when they arrive: the chart of worker:0 below needs those of both.
        wait_until(lambda: [s["points"][-1 - over][1] for s in lab.json("metrics", t.app, "worker", "--name", "loss")["series"]
                            if len(s["points"]) > over] == [0.2, 0.2], "the file has the last loss of both tasks")
        doc = lab.json("metrics", t.app, "worker:1", "--name", "loss", "--name", "rank")
        assert [(s["task"], s["name"]) for s in doc["series"]] == [("worker:1", "loss"), ("worker:1", "rank")]
        points = [p for p in doc["series"][0]["points"] if p[1] is not None]
        assert points == sorted(points) and [p[1] for p in points] == sorted((p[1] for p in points), reverse=True)
        assert all(abs(p[1] - 1 / round(1 / p[1])) < 1e-5 for p in points)
        assert doc["first_ms"] <= points[0][0] <= points[-1][0] <= doc["last_ms"]
        assert (doc["series"][0]["points"][-1][1] is None) == over  # a finished task has an end
        rows = [line.split(",") for line in lab.ok("metrics", t.app, "worker", "--csv", "--name", "loss").splitlines()]
        assert rows[0] == ["time_ms", "task", "name", "value"]
        assert {r[1] for r in rows[1:]} == {"worker:0", "worker:1"} and {r[2] for r in rows[1:]} == {"loss"}
        table = lab.ok("metrics", t.app)
        for name in ("cpu_ms", "memory_bytes", "loss", "step"):
            assert any(line.split()[:2] == ["worker:0", name] for line in table.splitlines()), table
        assert "MAX_MEMORY_BYTES" not in table
        chart = lab.ok("metrics", t.app, "worker:0", "--name", "loss", "--plot")
        assert chart.startswith("worker:0 loss\n") and "0.2" in chart and len(chart.splitlines()) == 12
        assert "\u2588" in chart
        plain = lab.ok("metrics", t.app, "worker:0", "--name", "loss", "--plot", env={"LANG": "C", "LC_ALL": "C"})
        assert plain.isascii()
        if not over:
            (tmp_path / "gate.go").touch()
            t.over()
    r = lab.run("metrics", t.app, "--name", "nothing")
    assert r.returncode == 1 and "has no metric 'nothing'" in r.stderr
    r = lab.run("metrics", t.app, "worker:2")
    assert r.returncode == 1 and "has no metrics of a task 'worker:2'" in r.stderr
    assert lab.run("metrics", t.app, "--csv", "--json").returncode == 2
    lab.settled()
