# SPDX-License-Identifier: Apache-2.0
"""
A real NVIDIA GPU with its driver, nvidia-smi, and PyTorch in the Python that runs these tests. Everywhere else
tests/e2e/test_gpu.py runs, with a stand-in for NVIDIA's library. Run only when asked for, so nothing is skipped here.
"""

import csv
import io
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import pytest
from conftest import BIN, ROOT, app_of, wait_until
from lib_jobs import Gated, kill9, lab, make_lab  # noqa: F401 (fixtures)

sys.path.insert(0, str(ROOT / "tests"))
from lib_prometheus import free_port  # noqa: E402

EACH_S = {"tony.task.metrics-interval-ms": "1000"}
MIB = 1 << 20
# Metric of GPU 0, the field of nvidia-smi, and how many of tony's units one of nvidia-smi's has.
COMPARED = (("gpu0_memory_bytes", "memory.used", MIB), ("gpu0_percent", "utilization.gpu", 1),
            ("gpu0_power_watts", "power.draw", 1), ("gpu0_temperature_celsius", "temperature.gpu", 1))


def smi(*fields, kind="gpu"):
    r = subprocess.run(["nvidia-smi", f"--query-{kind}={','.join(fields)}", "--format=csv,noheader,nounits"],
                       stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return [[x.strip() for x in line.split(",")] for line in r.stdout.splitlines()]


def tony_gpu():
    r = subprocess.run([BIN / "tony-gpu"], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return [json.loads(line) for line in r.stdout.splitlines()]


def program(lab, name, text):
    path = lab.base / name
    path.write_text(text)
    return f"{sys.executable} {path}"


def torch_job(lab, name, text, role=None, args=(), **top):
    """Submits a job whose workers run a Python program with one GPU each, unless `role` says otherwise."""
    role = {"memory": "16g", "gpus": 1, **(role or {})}
    return lab.submit(lab.workers(program(lab, name, text), role=role, **top), *args)


def said(lab, app):
    assert lab.run("wait", app, timeout=200).returncode == 0, lab.run("why", app).stdout + lab.log(app, "worker:0", "stderr")
    return lab.log(app, "worker:0")


def test_the_gpus_that_are_found(lab):
    found = [[str(g["index"]), g["uuid"], g["name"], str(g["memory_mib"])] for g in tony_gpu()]
    assert found and found == smi("index", "uuid", "name", "memory.total")
    assert lab.json("pool", "start")["capacity"]["gpus"] == len(found)
    doctor = lab.run("doctor").stdout
    assert found[0][2] in doctor, doctor
    lab.settled()


def test_a_task_sees_its_gpu_and_only_that(lab):
    text = "import torch; print(torch.cuda.device_count(), *[torch.cuda.get_device_properties(i).uuid for i in range(torch.cuda.device_count())])"
    uuid = tony_gpu()[0]["uuid"].removeprefix("GPU-")
    assert said(lab, torch_job(lab, "with.py", text)).split() == ["1", uuid]
    assert said(lab, torch_job(lab, "without.py", text, role={"gpus": 0})).split() == ["0"]
    lab.settled()


def test_a_job_waits_until_the_gpu_is_free(lab):
    n = len(tony_gpu())
    first = Gated(lab, n, role={"gpus": 1}).running()
    second = Gated(lab, 1, role={"gpus": 1})
    wait_until(lambda: lab.state(second.app) == "WAITING", "the second job waits")
    assert "GPU" in lab.ok("why", second.app)
    first.release_all()
    second.running()
    second.release_all()
    second.over()
    lab.settled()


BUSY = """
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
blocks = []
start = time.monotonic()
while time.monotonic() - start < 40:  # every 10 s another 4 GiB; and a third of the time the GPU rests
    if len(blocks) < (time.monotonic() - start) / 10:
        blocks.append(torch.zeros(4 << 30, dtype=torch.uint8, device="cuda"))
    if int(time.monotonic() - start) % 3:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
    else:
        time.sleep(0.1)
"""


def readings(out):
    """What nvidia-smi printed each 250 ms: [(ms, {field: value})]."""
    found = []
    for line in out.splitlines():
        when, *values = [x.strip() for x in line.split(",")]
        stamp, _, fraction = when.partition(".")
        ms = int(time.mktime(time.strptime(stamp, "%Y/%m/%d %H:%M:%S"))) * 1000 + int(fraction)
        found.append((ms, dict(zip((x[1] for x in COMPARED), map(float, values), strict=True))))
    return found


def test_metrics_agree_with_nvidia_smi(lab):
    """Each value lies within the readings of nvidia-smi in the 1.5 s before and after it. If these readings
    differ, the value may be outside of them by a quarter of the difference, because power falls within
    milliseconds."""
    fields = ["timestamp", *(x[1] for x in COMPARED)]
    beside = subprocess.Popen(["nvidia-smi", "-i", "0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-lms", "250"],
                              stdout=subprocess.PIPE, text=True)
    try:
        app = torch_job(lab, "busy.py", BUSY, conf=EACH_S)
        top = wait_until(lambda: (lambda t: re.search(r"running.* (100|[5-9]\d) ", t) and t)(lab.run("top", app).stdout), "tony top shows a busy GPU")
        said(lab, app)
        doc = lab.status(app)
    finally:
        beside.terminate()
        out, _ = beside.communicate(timeout=60)
    print(top)
    theirs = readings(out)
    ours = [r for r in csv.DictReader(io.StringIO(lab.ok("metrics", app, "--csv"))) if r["value"]]
    wrong, most = [], {}
    for name, field, unit in COMPARED:
        mine = [(int(r["time_ms"]), float(r["value"]) / unit) for r in ours if r["name"] == name]
        assert len(mine) >= 5, f"{name}: {mine}"
        for when, value in mine:
            near = [v[field] for t, v in theirs if abs(t - when) <= 1500]
            slack = 1 + 0.02 * value + 0.25 * (max(near, default=0) - min(near, default=0))
            if near and not min(near) - slack <= value <= max(near) + slack:
                wrong.append(f"{name} at {when}: {value}, nvidia-smi has {min(near)} to {max(near)}")
        most[name] = max(v for _, v in mine), max(v[field] for _, v in theirs)
    print({name: f"at most {a:.0f}, nvidia-smi {b:.0f}" for name, (a, b) in most.items()})
    assert not wrong, "\n".join(wrong)
    assert most["gpu0_memory_bytes"][0] > 16 * 1024 and most["gpu0_percent"][0] > 50
    eight = doc["tasks"][0]["metrics"]
    print(eight)
    assert 50 < eight["MAX_GPU_UTILIZATION"] <= 100 and 0 < eight["AVG_GPU_UTILIZATION"] < eight["MAX_GPU_UTILIZATION"]
    assert 0 < eight["MAX_GPU_FB_MEMORY_USAGE"] <= 100 and 0 <= eight["MAX_GPU_MAIN_MEMORY_USAGE"] <= 100
    lab.settled()


def test_a_command_beside_the_task_sees_its_gpu(make_lab):
    port = free_port()
    lab = make_lab(site={"pool.page-port": port})
    job = Gated(lab, 1, role={"gpus": 1, "memory": "16g"}, conf=EACH_S).running()
    assert tony_gpu()[0]["uuid"] in lab.ok("exec", job.app, "worker:0", "--", "nvidia-smi", "-L")
    count = lab.ok("exec", job.app, "worker:0", "--", sys.executable, "-c", "import torch; print(torch.cuda.device_count())")
    assert count.strip() == "1"
    wait_until(lambda: "gpu0_power_watts" in lab.ok("metrics", job.app, "--csv"), "the GPU is measured")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as r:
        text = r.read().decode()
    assert "tony_task_gpu_power_watts" in text and 'gpu="0"' in text
    job.release_all()
    job.over()
    lab.settled()


def test_too_much_memory_of_the_gpu_is_explained(lab):
    r = lab.run("run", lab.workers(program(lab, "big.py", "import torch; torch.empty(1 << 42, dtype=torch.uint8, device='cuda')"),
                                   role={"memory": "16g", "gpus": 1}), timeout=200)
    assert r.returncode != 0
    why = lab.ok("why", app_of(r))
    print(why)
    assert "out of memory" in why and "GPU" in why
    lab.settled()


def test_a_fault_in_a_kernel_is_explained(lab):
    text = "import torch; x = torch.zeros(4, device='cuda'); print(x[torch.tensor([1 << 20], device='cuda')].cpu())"
    r = lab.run("run", lab.workers(program(lab, "fault.py", text), role={"memory": "16g", "gpus": 1}), timeout=200)
    assert r.returncode != 0
    why = lab.ok("why", app_of(r))
    print(why)
    assert "GPU" in why
    lab.settled()


@pytest.mark.parametrize("victim", ["task", "executor", "keeper"])
def test_the_memory_of_a_killed_task_is_free_again(lab, victim):
    """kill -9: its processes end, so the driver takes the memory back, and the next job gets the GPU."""
    hold = "import time, torch; x = torch.zeros(8 << 30, dtype=torch.uint8, device='cuda'); print('held', flush=True); time.sleep(1000)"
    before = int(smi("memory.used")[0][0])
    app = torch_job(lab, "hold.py", hold, conf={"tony.task.restarts.node-lost": 0})
    wait_until(lambda: "held" in lab.log_so_far(app, "worker:0"), "the task holds memory of the GPU", 120)
    assert int(smi("memory.used")[0][0]) > before + 8000
    pid = lab.status(app)["tasks"][0]["pid"]
    kill9(pid if victim == "task" else lab.one(victim, app))
    lab.json("pool", "start")
    lab.in_history(app)
    wait_until(lambda: int(smi("memory.used")[0][0]) <= before + 100, "the memory is free again")
    assert said(lab, torch_job(lab, "next.py", "import torch; print(torch.ones(1, device='cuda').item())")) == "1.0\n"
    lab.settled()


def test_ddp_with_nccl(lab):
    text = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1).cuda())
model(torch.ones(4, 8, device="cuda")).sum().backward()
print(dist.get_rank(), dist.get_world_size(), model.module.weight.grad.sum().item())
dist.destroy_process_group()
"""
    assert said(lab, torch_job(lab, "ddp.py", text, framework="pytorch")).split() == ["0", "1", "32.0"]
    lab.settled()


def test_jax(lab):
    text = """
import os, jax
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"]))
print(jax.process_count(), jax.devices()[0].platform, int(jax.numpy.arange(10).sum()))
"""
    assert said(lab, torch_job(lab, "with_jax.py", text, framework="jax")).split() == ["1", "gpu", "45"]
    lab.settled()


def test_what_watching_costs():
    """Measuring all GPUs takes less than 50 ms of CPU time: 1 % of a core at an interval of 5 s. The time that the
    driver uses for the calls counts."""
    p = subprocess.Popen([BIN / "tony-gpu", "--watch", "50"], stdout=subprocess.PIPE, text=True)
    try:
        stat = pathlib.Path(f"/proc/{p.pid}/stat")

        def ticks():
            return sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13]))

        p.stdout.readline()
        start = ticks()
        for _ in range(200 * len(tony_gpu())):
            p.stdout.readline()
        each_ms = (ticks() - start) * 10 / 200
    finally:
        p.kill()
        p.wait()
    print(f"one measurement of all GPUs takes {each_ms:.2f} ms of CPU time")
    assert each_ms < 50
