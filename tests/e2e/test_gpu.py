# SPDX-License-Identifier: Apache-2.0
"""GPUs as whole devices: a stand-in for NVIDIA's library says which exist."""

import os
import pathlib

import pytest
from conftest import BIN, wait_until
from lib_jobs import Gated, kill9, lab, make_lab  # noqa: F401 (fixtures)


def fake_nvml():
    build = pathlib.Path(os.environ.get("TONY_BUILD", BIN.parent))
    found = list((build / "tests" / "fixtures").glob("*fake_nvml*.so"))
    if not found or not (BIN / "tony-gpu").exists():
        pytest.skip("the fake library or tony-gpu is not built")
    return str(found[0])


@pytest.fixture
def gpus(make_lab, tmp_path):
    """gpus(n): a home on a machine with n devices. Other runs of these tests use other devices."""
    def make(n, **extra):
        return make_lab(TONY_NVML=fake_nvml(), FAKE_GPUS=str(n), TONY_GPU_LOCKS=str(tmp_path), **extra)
    return make


SHOW = "echo \"$CUDA_VISIBLE_DEVICES\" > seen$TASK_INDEX;"


def seen(job):
    """The devices of each task of a job. A task first records that it started, then its devices."""
    for i in range(job.n):
        path = job.dir / f"seen{i}"
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"), f"task {i} has said what it sees")
    return [[int(x) for x in (job.dir / f"seen{i}").read_text().strip().split(",") if x] for i in range(job.n)]


def gated(lab, n, gpus, **top):
    return Gated(lab, n, before=SHOW, role={"gpus": gpus}, **top)


def test_each_running_task_has_its_own_devices(gpus):
    lab = gpus(4)
    doc = lab.json("pool", "start")
    assert doc["capacity"]["gpus"] == 4 and doc["used"]["gpus"] == 0
    one, two = gated(lab, 2, 1).running(), gated(lab, 1, 2).running()
    held = seen(one) + seen(two)
    assert [len(x) for x in held] == [1, 1, 2]
    assert sorted(sum(held, [])) == [0, 1, 2, 3]
    assert lab.json("pool", "status")["used"]["gpus"] == 4
    assert sorted(t["gpus"] for t in lab.tasks(one.app).values()) == sorted(str(x[0]) for x in seen(one))
    one.release_all()
    one.over()
    wait_until(lambda: lab.json("pool", "status")["used"]["gpus"] == 2, "its devices are free again")
    three = gated(lab, 1, 2).running()
    assert sorted(seen(three)[0]) == sorted(sum(seen(one), []))
    for job in (two, three):
        job.release_all()
        job.over()
    wait_until(lambda: lab.json("pool", "status")["used"]["gpus"] == 0, "all devices are free again")
    lab.settled()


def test_more_gpus_than_the_machine_has_are_refused(gpus):
    lab = gpus(2)
    for n, each in ((1, 3), (3, 1)):
        r = lab.run("run", lab.workers("true", n=n, role={"gpus": each}))
        assert r.returncode == 2, r.stderr
        assert "3" in r.stderr and "2" in r.stderr and "GPU" in r.stderr
    assert lab.jobs_on_disk() == []
    assert lab.run("run", lab.workers("true", n=2, role={"gpus": 1})).returncode == 0
    lab.settled()


def test_a_machine_without_gpus(lab):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("hardware: this machine has GPUs")
    r = lab.run("run", lab.workers("true", role={"gpus": 1}))
    assert r.returncode == 2 and "GPU" in r.stderr
    assert lab.jobs_on_disk() == []


def test_a_task_without_gpus_sees_no_device(gpus):
    """The job holds devices for its other tasks, and this task must not use them."""
    lab = gpus(2)
    path = lab.job_file({"worker": {"instances": 1, "gpus": 1,
                                    "command": "while [ ! -e $HOME/ps ]; do sleep 0.01; done; echo see[$CUDA_VISIBLE_DEVICES]"},
                         "ps": {"instances": 1, "command": "echo see[$CUDA_VISIBLE_DEVICES]; touch $HOME/ps"}})
    app = lab.submit(path)
    assert lab.run("wait", app).returncode == 0
    assert lab.log(app, "ps:0") == "see[]\n"
    assert lab.log(app, "worker:0") in ("see[0]\n", "see[1]\n")
    lab.settled()


def test_a_job_waits_for_devices(gpus):
    lab = gpus(2)
    first = gated(lab, 1, 2).running()
    second = gated(lab, 2, 1)
    doc = lab.status(second.app)
    assert doc["state"] == "WAITING"
    assert doc["waiting"]["needs"]["gpus"] == 2 and doc["waiting"]["free"]["gpus"] == 0
    first.release_all()
    second.running()
    assert sorted(sum(seen(second), [])) == [0, 1]
    second.release_all()
    second.over()
    lab.settled()


def test_stages_share_devices(gpus):
    """A job with stages holds as many devices as its largest stage needs. The second stage gets the devices of the
    first."""
    lab = gpus(1)
    path = lab.job_file({"prep": {"instances": 1, "gpus": 1, "command": "echo $CUDA_VISIBLE_DEVICES"},
                         "train": {"instances": 1, "gpus": 1, "command": "echo $CUDA_VISIBLE_DEVICES"}},
                        conf={"tony.application.prepare-stage": "prep", "tony.application.training-stage": "train"})
    app = lab.submit(path)
    assert lab.run("wait", app).returncode == 0
    assert lab.log(app, "prep:0") == lab.log(app, "train:0") == "0\n"
    lab.settled()


def test_two_homes_do_not_share_a_device(gpus):
    """Two pools on one machine: a device that one pool holds is not used by the other pool, which waits or takes
    another device."""
    one, two = gpus(2), gpus(2)
    held = gated(one, 1, 1).running()
    other = gated(two, 1, 1).running()
    assert seen(held)[0] != seen(other)[0]
    third = gated(two, 1, 1)
    wait_until(lambda: two.state(third.app) == "WAITING", "both devices are held: it waits")
    held.release_all()
    held.over()
    third.running()
    assert seen(third)[0] == seen(held)[0]
    for job in (other, third):
        job.release_all()
        job.over()
    one.settled()
    two.settled()


@pytest.mark.parametrize("victims", [("pool",), ("pool", "master"), ("keeper",), ("pool", "keeper")])
def test_a_job_keeps_its_gpus_until_it_ends(gpus, victims):
    """No other job gets the GPUs of a live job, whichever process of tony is killed. After the end they are free."""
    lab = gpus(2)
    job = gated(lab, 1, 1).running()
    mine = seen(job)[0]
    kill9(*[lab.one(kind, None if kind == "pool" else job.app) for kind in victims])
    lab.json("pool", "start")
    if "keeper" in victims:
        job.over("FAILED")
    else:
        other = gated(lab, 1, 1).running()
        assert seen(other)[0] != mine
        other.release_all()
        other.over()
        job.release_all()
        job.over()
    all_of_it = gated(lab, 1, 2).running()
    assert sorted(seen(all_of_it)[0]) == [0, 1]
    all_of_it.release_all()
    all_of_it.over()
    lab.settled()


def test_the_site_sets_the_number_of_gpus(make_lab):
    """tony.pool.gpus sets the number of GPUs, for devices of another vendor or to use fewer devices."""
    lab = make_lab(site={"pool.gpus": 1}, TONY_NVML=fake_nvml(), FAKE_GPUS="4")
    assert lab.json("pool", "start")["capacity"]["gpus"] == 1
    assert lab.run("run", lab.workers("true", role={"gpus": 2})).returncode == 2
    lab.settled()


def test_a_broken_driver_is_no_obstacle(gpus):
    lab = gpus(0)
    doc = lab.json("pool", "start")
    assert doc["capacity"]["gpus"] == 0
    assert lab.run("run", lab.workers("true")).returncode == 0
    lab.settled()


@pytest.mark.parametrize("policy", ["drf", "dorm"])
def test_a_policy_divides_the_devices(gpus, policy):
    """
    Two jobs whose workers have one device each share four devices. Each worker locks its device, so a device
    that two live workers have is noticed.
    """
    lab = gpus(4, site={"pool.policy": policy, "pool.policy.interval": 100, "pool.policy.loss-max": 0.2})
    lock = f'exec 9>{lab.base}/device$CUDA_VISIBLE_DEVICES; flock -n 9 || echo "$TONY_TASK" >> {lab.base}/double; exec sleep 1000'
    role = {"gpus": 1, "memory": "16m", "min-instances": 1, "max-instances": 4}

    def submit(n):
        return lab.submit(lab.workers(lock, n=n, role=role))

    def have(**wanted):
        def look():
            docs = {app: lab.status(app) for app in wanted}
            held = {app: [t["gpus"] for t in doc.get("tasks", []) if t["state"] == "running"] for app, doc in docs.items()}
            devices = sum(held.values(), [])
            return (not any("resize" in doc for doc in docs.values()) and {app: len(x) for app, x in held.items()} == wanted
                    and len(set(devices)) == len(devices))
        wait_until(look, f"{wanted} devices, each once", 60, 0.05)

    first = submit(4)
    have(**{first: 4})
    second = submit(2)
    have(**{first: 2, second: 2})
    assert lab.json("pool", "status")["used"]["gpus"] == 4
    lab.run("kill", first)
    lab.in_history(first)
    have(**{second: 4})
    lab.run("kill", second)
    lab.in_history(second)
    assert not (lab.base / "double").exists(), (lab.base / "double").read_text()
    lab.settled()
