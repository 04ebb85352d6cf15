# SPDX-License-Identifier: Apache-2.0
"""`tony simulate` on two traces with known results (by another program, with the same rules), and on traces that it must refuse."""

import json
import re
import statistics
import subprocess
import xml.etree.ElementTree

import pytest
from conftest import BIN, ROOT

HEAD = "# resources cores\n# nodes 1 4\nid,arrival_s,cores,weight,min,max,static,duration_s,exponent\n"
TRACES = ROOT / "tests" / "data" / "partition" / "traces"
COLUMNS = ("util_5h", "util", "jct_mean_s", "jct_p95_s", "loss", "adjustments", "overhead_percent")
EXACT = {
    ("dorm50", "static"): (0.741583, 1.384101, 29066.773, 47670.886, 0.993866, 0, 0.00000),
    ("dorm50", "fifo"): (0.741583, 1.554543, 23167.015, 35489.804, 0.856944, 0, 0.00000),
    ("dorm50", "drf"): (1.496371, 1.807818, 14932.054, 32465.878, 0.026389, 466, 13.77338),
    ("dorm50", "las"): (0.741583, 1.417968, 26164.517, 52074.330, 1.061574, 49, 0.69083),
    ("dorm50", "srtf"): (0.741583, 1.513177, 23247.147, 40477.112, 0.911921, 10, 0.17448),
    ("heavy2000", "static"): (0.782393, 0.921439, 49223.532, 96167.257, 2.045197, 0, 0.00000),
    ("heavy2000", "fifo"): (0.814652, 1.098127, 9141.754, 28993.139, 1.254067, 0, 0.00000),
    ("heavy2000", "drf"): (0.896786, 1.138707, 3189.948, 11840.931, 0.055664, 1126, 1.15178),
    ("heavy2000", "las"): (0.699220, 1.055874, 6240.842, 37565.465, 1.164983, 661, 0.61735),
    ("heavy2000", "srtf"): (0.707188, 0.959680, 4381.333, 14844.006, 0.608804, 370, 0.22903),
}
# A search has no unique answer: it must be about as good as another program's, or better.
DORM = {
    "dorm50": (1.545233, 1.786249, 10859.498, 27210.136, 0.449421, 141, 6.73109),
    "heavy2000": (0.989284, 1.202923, 3524.578, 12085.194, 0.747902, 866, 1.98251),
}


def simulate(*args, limit=250):
    done = subprocess.run([str(BIN / "tony"), "simulate", *map(str, args)], capture_output=True, text=True, timeout=limit)
    return done.returncode, done.stdout, done.stderr


def rows(*args):
    rc, out, errors = simulate(*args, "--json")
    assert (rc, errors) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("trace, policy", EXACT)
def test_known_results(trace, policy):
    [row] = rows(TRACES / f"{trace}.csv", "--policy", policy)
    known = dict(zip(COLUMNS, EXACT[trace, policy]))
    assert row["policy"] == policy
    for column in COLUMNS:
        assert row[column] == pytest.approx(known[column], rel=0.01 if column == "adjustments" else 1e-3, abs=1e-6), column
    assert row["never_run"] == 0
    # The time from a job's arrival to its end is the time it waits and the time it runs. Without resizes it runs for its
    # duration.
    [head, *jobs] = [x for x in (TRACES / f"{trace}.csv").read_text().splitlines() if x[0] != "#"]
    ran = statistics.mean(float(job.split(",")[head.split(",").index("duration_s")]) for job in jobs)
    assert row["wait_mean_s"] <= row["jct_mean_s"] and row["wait_median_s"] <= row["wait_p95_s"] <= row["jct_p95_s"]
    assert row["jct_median_s"] <= row["jct_p95_s"]
    if policy in ("static", "fifo"):
        assert row["wait_mean_s"] == pytest.approx(row["jct_mean_s"] - ran, rel=1e-3, abs=0.1) and row["lost_container_s"] == 0


@pytest.mark.parametrize("trace", DORM)
def test_dorm(trace):
    rc, out, errors = simulate(TRACES / f"{trace}.csv", "--policy", "dorm", "--json")
    assert rc == 0, errors
    [row], known = json.loads(out), dict(zip(COLUMNS, DORM[trace]))
    assert row["util_5h"] >= 0.98 * known["util_5h"]
    assert row["util"] >= 0.98 * known["util"]
    assert row["jct_mean_s"] <= 1.10 * known["jct_mean_s"]
    assert row["loss"] <= 1.25 * known["loss"] + 0.05
    assert row["adjustments"] <= 1.5 * known["adjustments"]


ROWS = ["util_5h", "util", "jct_mean_s", "jct_median_s", "jct_p95_s", "wait_mean_s", "wait_median_s", "wait_p95_s", "loss", "adjustments",
        "overhead_%", "lost_container_s", "gap_%"]


def table(out):
    """{policy: {name of the row: text}}. The columns of each part of the table are aligned, and fit a terminal."""
    found = {}
    for part in out.split("\n\n"):
        head, *lines = part.splitlines()
        assert len({len(line) for line in [head, *lines]}) == 1 and len(head) <= 80, part
        assert [line.split()[0] for line in lines] == ROWS, part
        for i, policy in enumerate(head.split()[1:]):
            found[policy] = {line.split()[0]: line.split()[1 + i] for line in lines}
    return found


def test_table():
    rc, out, errors = simulate(TRACES / "dorm50.csv", "--policy", "backfill,static")
    assert (rc, errors) == (0, "")
    found = table(out)
    assert list(found) == ["backfill", "static"] and out.startswith("policy ")
    known = dict(zip(COLUMNS, EXACT["dorm50", "static"]))
    for name, digits in {"util_5h": 4, "util": 4, "jct_mean_s": 1, "jct_p95_s": 1, "loss": 4, "adjustments": 0}.items():
        assert found["static"][name] == f"{known[name]:.{digits}f}", out
    assert found["static"]["overhead_%"] == "0.00" and found["static"]["gap_%"] == "-", out


def test_the_table_fits_a_terminal(tmp_path):
    """... also with all policies, whose names are long. The text has the figures of --json."""
    trace = tmp_path / "t.csv"
    trace.write_text(HEAD.replace("# nodes", "# resize_s 7\n# nodes") + "a,0,1,1,1,4,3,100,1\nb,10,1,1,1,4,2,50,1\n")
    policies = "static,fifo,backfill,drf,dorm,market,las,srtf,srtf-elastic,las-elastic"
    rc, out, errors = simulate(trace, "--policy", policies)
    assert (rc, errors) == (0, "")
    found = table(out)
    assert list(found) == policies.split(",") and out.count("\n\n") >= 1, out
    for row in rows(trace, "--policy", policies):
        text = found[row["policy"]]
        for name in ROWS:
            value = row.get(name.replace("_%", "_percent"))
            assert text[name] == "-" if value is None else abs(float(text[name]) - value) <= 0.051, (row, name, text)
    assert float(found["drf"]["lost_container_s"]) >= 7 and float(found["drf"]["overhead_%"]) > 0  # a shrinks when b comes, and grows later
    assert [policy for policy, text in found.items() if text["gap_%"] != "-"] == ["dorm"], out
    # Large numbers make the columns wider, and no wider than a terminal.
    large = tmp_path / "large.csv"
    large.write_text(trace.read_text().replace(",100,1", ",123456789.5,1"))
    rc, out, errors = simulate(large, "--policy", policies)
    assert (rc, errors) == (0, "") and list(table(out)) == policies.split(","), out
    [row] = rows(trace, "--policy", "dorm")
    assert 0 <= row["gap_percent"] <= row["worst_gap_percent"] <= 100, row


def test_other_nodes(tmp_path):
    [row] = rows(TRACES / "dorm50.csv", "--policy", "fifo", "--nodes", "30x12,131072,0 10x12,131072,1")
    assert row["jct_mean_s"] < EXACT["dorm50", "fifo"][2]
    # Without GPUs, 10 jobs can never run.
    rc, out, errors = simulate(TRACES / "dorm50.csv", "--policy", "fifo", "--nodes", "20x12,131072,0")
    assert rc == 0 and "fifo: 10 jobs can never run and are left out" in errors
    # Without memory, none can run. There are no figures then, and one note for all policies.
    rc, out, errors = simulate(TRACES / "dorm50.csv", "--policy", "fifo,drf", "--nodes", "20x12,512,1")
    assert (rc, errors) == (0, "tony: fifo, drf: 50 jobs can never run and are left out\n"), errors
    assert all(set(text.values()) == {"-"} for text in table(out).values()), out
    rc, _, errors = simulate(TRACES / "dorm50.csv", "--nodes", "20x12,131072")
    assert rc == 2 and "there must be a count and 3 amounts" in errors
    rc, _, errors = simulate(TRACES / "dorm50.csv", "--nodes", "20")
    assert rc == 2 and "tony: --nodes: '20' is not COUNTxAMOUNT" in errors
    rc, _, errors = simulate(TRACES / "dorm50.csv", "--nodes", "nodes:1")
    assert rc == 2 and "tony: --nodes: 'nodes:1' is not COUNTxAMOUNT" in errors
    rc, _, errors = simulate(TRACES / "dorm50.csv", "--nodes", " ")
    assert rc == 2 and "tony: --nodes: the list has no COUNTxAMOUNT" in errors
    with_blanks, without = (rows(TRACES / "dorm50.csv", "--policy", "fifo", "--nodes", nodes)[0]["jct_mean_s"]
                            for nodes in (" 20x12,131072,0  2x12,131072,1 ", "20x12,131072,0 2x12,131072,1"))
    assert with_blanks == without


def test_elastic_is_for_other_traces():
    rc, out, errors = simulate(TRACES / "dorm50.csv", "--elastic", "0.5,2,0.9")
    assert (rc, out) == (2, "") and "--elastic is for traces of other clusters" in errors
    rc, out, errors = simulate("--from-history", "--elastic", "0.5,2,0.9")
    assert (rc, out) == (2, "") and "--elastic is for traces of other clusters" in errors


def test_small(tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text(HEAD + "a,0,1,1,1,4,3,100,1\nb,0,1,1,1,4,2,50,1\nc,0,1,1,1,4,1,100,1\nd,0,5,1,1,1,1,9,1\n")
    static, fifo = rows_with_note(trace, "static,fifo")
    assert static["jct_mean_s"] == pytest.approx((100 + 150 + 200) / 3)  # c waits behind b, and fits beside it
    assert fifo["jct_mean_s"] == pytest.approx((100 + 150 + 100) / 3)  # c starts beside a
    assert static["never_run"] == fifo["never_run"] == 1


def rows_with_note(trace, policies):
    rc, out, _ = simulate(trace, "--policy", policies, "--json")
    assert rc == 0
    return json.loads(out)


@pytest.mark.parametrize("text, sentence", [
    ("", "it has no line '# resources'"),
    ("# resources cores\n", "it has no line '# nodes'"),
    ("# nodes 1 4\n", "t.csv:1: a line '# resources' must come first"),
    ("# resources a b c d e f g h i\n", "t.csv:1: resources: there must be 1 to 8"),
    ("# resources cores\n# nodes 0 4\n", "t.csv:2:"),
    ("# resources cores\n# nodes 1 -4\n", "t.csv:2:"),
    ("# resources cores\n# nodes 1 4 4\n", "t.csv:2: nodes: there must be a count and 1 amounts"),
    ("# resources cores\n# nodes 1 4\n# horizon_s nan\n", "t.csv:3: horizon_s: 'nan' is not a number"),
    ("# resources cores\n# nodes 1 4\n# las 5 5\n", "t.csv:3: las: the levels do not rise"),
    ("# resources cores\n# nodes 1 4\nid,cores\n", "t.csv:3: the columns must be id,arrival_s"),
    (HEAD + "a,0,1,1,1,4,3,100\n", "t.csv:4: the line has 8 fields, but needs 9"),
    (HEAD + "a,0,1,1,1,4,5,100,1\n", "t.csv:4:"),
    (HEAD + "a,0,0,1,1,4,3,100,1\n", "t.csv:4: the job demands nothing"),
    (HEAD + "a,0,1,1,1,4,3,inf,1\n", "t.csv:4: duration_s: 'inf' is not a number"),
    (HEAD + "a,0,1,1,1,4,3,-1,1\n", "t.csv:4: duration_s: -1 is outside of"),
    (HEAD + "a,5,1,1,1,4,3,1,1\nb,4,1,1,1,4,3,1,1\n", "t.csv:5: arrival_s: the job arrives before the one above"),
    (HEAD + "a,5,1,1,1,4,3,1,1\nb,5,1,1,1,4,3,1,1\na,6,1,1,1,4,3,1,1\n", "t.csv:6: id: 'a' is the id of an earlier job"),
    (HEAD + ",5,1,1,1,4,3,1,1\n", "t.csv:4: id: must have 1 to 200 bytes"),
])
def test_refused(tmp_path, text, sentence):
    trace = tmp_path / "t.csv"
    trace.write_text(text)
    rc, out, errors = simulate(trace)
    assert (rc, out) == (2, "")
    assert sentence in errors
    assert errors.count("\n") == 1


def test_no_such_trace(tmp_path):
    rc, _, errors = simulate(tmp_path / "none.csv")
    assert rc == 2 and "cannot open trace" in errors


def test_generate(tmp_path):
    made = {}
    for kind, seed in (("small", 1), ("small", 2), ("heavy", 1)):
        rc, out, errors = simulate("--generate", kind, "--seed", seed)
        assert (rc, errors) == (0, "")
        assert simulate("--generate", kind, "--seed", seed)[1] == out
        made[kind, seed] = out
    assert made["small", 1] != made["small", 2]
    assert [text.count("\nj") for text in made.values()] == [50, 50, 2000]
    trace = tmp_path / "t.csv"
    trace.write_text(made["small", 1])
    for row in rows(trace):
        assert row["never_run"] == 0 and 0 < row["util"] <= 3
    jobs = [line.split(",") for line in made["heavy", 1].splitlines() if line.startswith("j")]
    gpu = sorted(float(job[9]) for job in jobs if job[4] == "1")
    assert 0.42 < len(gpu) / len(jobs) < 0.52
    assert 120 < gpu[len(gpu) // 2] < 350  # the median is 206 s
    rc, out, _ = simulate("--generate", "small", "--jobs", 3)
    assert rc == 0 and out.count("\nj") == 3
    rc, _, errors = simulate("--generate", "big")
    assert rc == 2 and "there is no workload 'big'; there are: small, heavy" in errors


def test_no_trace():
    rc, _, errors = simulate()
    assert rc == 2 and "no TRACE is given" in errors


def test_plot(tmp_path):
    page = tmp_path / "charts.svg"
    rc, _, errors = simulate(TRACES / "dorm50.csv", "--policy", "fifo,drf", "--plot", page)
    assert (rc, errors) == (0, "")
    root = xml.etree.ElementTree.parse(page).getroot()
    tags = [child.tag.split("}")[1] for child in root]
    assert tags.count("polyline") == 4  # two charts with a line for each policy
    assert tags.count("rect") > 2 + 50 * 2
    rc, _, errors = simulate(TRACES / "dorm50.csv", "--policy", "fifo", "--plot", tmp_path / "none" / "x.svg")
    assert rc == 4 and "cannot write charts" in errors


def test_a_job_is_drawn_until_its_end(tmp_path):
    """Jobs whose sizes change at the same time: each area ends at the bottom of the chart."""
    page = tmp_path / "charts.svg"
    assert simulate(TRACES / "dorm50.csv", "--policy", "dorm", "--plot", page, "--charts", "partitions")[0] == 0
    areas = re.findall(r"<path fill='hsl.* d='M[0-9.]+ ([0-9.]+)V(.*)Z'", page.read_text())
    assert len(areas) == 50
    assert [bottom for bottom, rest in areas if not re.search(f"H[0-9.]+V{bottom}$", rest)] == []


# ---- traces of other clusters

FOREIGN = ROOT / "tests" / "data" / "traces"


def foreign(*args):
    return subprocess.run([str(BIN / "tony"), "simulate", *map(str, args)], capture_output=True, text=True, timeout=60)


def test_a_trace_of_helios():
    done = foreign(FOREIGN / "helios.csv", "--nodes", "2x48,8", "--policy", "fifo", "--json")
    assert done.returncode == 0, done.stderr
    assert "helios.csv: 1 job is left out: never run, not ended, or without a demand" in done.stderr
    # All jobs run at once: 3,600, 600 and 600 s.
    assert json.loads(done.stdout)[0]["jct_mean_s"] == pytest.approx(1600)


def test_a_byte_order_mark_is_skipped(tmp_path):
    for path, args in ((FOREIGN / "helios.csv", ["--nodes", "2x48,8"]), (TRACES / "dorm50.csv", [])):
        marked = tmp_path / path.name
        marked.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        with_mark, without = (foreign(p, *args, "--policy", "fifo", "--json") for p in (marked, path))
        assert with_mark.returncode == 0, with_mark.stderr
        strip = lambda text: [{k: v for k, v in row.items() if k not in ("decide_s", "longest_decision_s")} for row in json.loads(text)]  # noqa: E731
        assert strip(with_mark.stdout) == strip(without.stdout)


def test_an_elastic_job_of_another_trace_grows():
    done = foreign(FOREIGN / "philly.json", "--nodes", "2x8", "--policy", "static,drf", "--elastic", "0.25,4,1", "--json")
    static, drf = json.loads(done.stdout)
    assert drf["jct_mean_s"] < static["jct_mean_s"]


def test_a_trace_of_another_cluster_needs_nodes():
    done = foreign(FOREIGN / "pai.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not say which nodes there are" in done.stderr and "--nodes 'COUNTxcore_percent,memory_mib,gpu_percent'" in done.stderr


def test_columns_by_name():
    done = foreign(FOREIGN / "other.csv", "--columns", "id=name,submit=queued,duration=took,gpus=cards", "--nodes", "1x2", "--policy", "fifo", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["jct_mean_s"] == pytest.approx((30 + 79.5) / 2)


def text_box(text):
    """Where a text of a chart is, at most: 8 pixels for each letter of size 12."""
    x, y, width = float(text.get("x")), float(text.get("y")), 8 * len(text.text)
    left = x - {"middle": width / 2, "end": width}.get(text.get("text-anchor"), 0)
    return left, left + width, y - 10, y + 3


@pytest.mark.parametrize("trace", ["dorm50.csv", "heavy2000.csv"])
def test_texts_of_the_charts_do_not_overlap(tmp_path, trace):
    page = tmp_path / "charts.svg"
    assert simulate(TRACES / trace, "--policy", "static,drf", "--plot", page)[0] == 0
    root = xml.etree.ElementTree.parse(page).getroot()
    boxes = [(text_box(child), child.text) for child in root if child.tag.endswith("text")]
    assert len([text for _, text in boxes if text.endswith(" h")]) >= 4 * 3  # each chart has an axis of time
    for i, (a, one) in enumerate(boxes):
        assert a[0] >= 0 and a[1] <= float(root.get("width")) and a[3] <= float(root.get("height")), one
        for b, other in boxes[i + 1:]:
            assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2], f"'{one}' and '{other}' overlap"


def test_100_000_jobs_on_2_000_nodes(tmp_path):
    """The queue has thousands of jobs. bench/simulate measures the time; here only the work is counted."""
    rc, out, errors = simulate("--generate", "heavy", "--jobs", 100000)
    assert (rc, errors) == (0, "")
    trace = tmp_path / "large.csv"
    trace.write_text("".join(ten_times_faster(line) for line in out.splitlines(True)))
    [row] = rows(trace, "--policy", "backfill", "--nodes", "240x64,512,8 1760x64,256,0")
    assert row["never_run"] == 0 and row["util"] > 1.1, row  # the cluster is busy, and jobs wait for hours
    assert row["wait_mean_s"] > 36000, row
    # A decision each 300 s, and no job is decided on after its end.
    assert row["decisions"] <= row["end_s"] / 300 + 2, row


def ten_times_faster(line):
    if not line.startswith("j"):
        return line
    fields = line.split(",")
    return ",".join([fields[0], f"{float(fields[1]) / 10:.3f}", *fields[2:]])


# trace, policy: at least so many of the truths in the range, in percent; the median error at most this part of the median wait
ESTIMATES = {
    ("dorm50", "static"): (95, 0.2),
    ("dorm50", "backfill"): (95, 0.3),
    ("dorm50", "srtf"): (50, 1.0),
    ("heavy2000", "static"): (95, 0.2),
    ("heavy2000", "backfill"): (70, 0.2),
    ("heavy2000", "drf"): (40, 1.1),
    ("heavy2000", "market"): (80, 0.5),
}


@pytest.mark.parametrize("trace, policy", ESTIMATES)
def test_estimated_starts(trace, policy):
    """The start is estimated at the arrival, from run times that are not the true ones, and compared with the true start."""
    [row] = rows(TRACES / f"{trace}.csv", "--policy", policy, "--estimates")
    found, (within, error) = row["estimates"], ESTIMATES[trace, policy]
    assert found["samples"] >= 8, found
    assert within <= found["within_percent"] <= 100, found
    assert found["median_error_s"] <= error * found["median_wait_s"], found


@pytest.mark.parametrize("trace, error", [("dorm50", 0.3), ("heavy2000", 0.2)])
def test_estimated_starts_under_las(tmp_path, trace, error):
    """Without levels no job is stopped for a newer one, so jobs wait."""
    path = tmp_path / f"{trace}.csv"
    path.write_text("".join(line for line in (TRACES / f"{trace}.csv").read_text().splitlines(True) if not line.startswith("# las")))
    [row] = rows(path, "--policy", "las", "--estimates")
    found = row["estimates"]
    assert found["samples"] >= 8 and found["within_percent"] >= 95, found
    assert found["median_error_s"] <= error * found["median_wait_s"], found


def test_las_estimates_know_the_levels(tmp_path):
    """b starts when a has reached the level, long before a would end. No run time has an influence on that."""
    path = tmp_path / "level.csv"
    path.write_text("# resources cores\n# nodes 1 4\n# las 500\nid,arrival_s,cores,weight,min,max,static,duration_s,exponent\n"
                    "a,0,4,1,1,1,1,100000,1\nb,10,4,1,1,1,1,100,1\n")
    [row] = rows(path, "--policy", "las", "--estimates")
    assert row["estimates"]["samples"] == 1 and row["estimates"]["within_percent"] == 100, row
    assert row["estimates"]["median_wait_s"] == pytest.approx(490, abs=1) and row["estimates"]["median_error_s"] < 1, row


def test_estimates_under_dorm_and_as_text(tmp_path):
    """Two jobs for one place: the second one starts when the first one has ended."""
    path = tmp_path / "two.csv"
    path.write_text("# resources cores\n# nodes 1 4\nid,arrival_s,cores,weight,min,max,static,duration_s,exponent\n"
                    "a,0,4,1,1,1,1,1000,1\nb,10,4,1,1,1,1,100,1\n")
    for policy in ("dorm", "static", "las"):
        [row] = rows(path, "--policy", policy, "--estimates")
        if policy == "las":
            continue  # it stops a for b
        assert row["estimates"]["samples"] == 1 and row["estimates"]["within_percent"] == 100, row
        assert row["estimates"]["median_wait_s"] == pytest.approx(990), row
    rc, out, errors = simulate(path, "--policy", "static", "--estimates")
    assert rc == 0 and "\n\nstatic: starts of 1 job estimated at arrival\n  median error " in out and "within the range: 100 %" in out, (out, errors)
    assert max(len(line) for line in out.splitlines()) <= 80, out
    rc, out, errors = simulate(path, "--policy", "static,drf", "--estimates", "--nodes", "1x8")
    assert rc == 0 and out.endswith("\n\nstatic: no job of the sample had to wait\ndrf: no job of the sample had to wait\n"), (out, errors)
    assert "estimates" not in rows(path, "--policy", "static")[0]
    seeds = [rows(path, "--policy", "static", "--estimates", "--seed", s)[0]["estimates"]["median_error_s"] for s in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2], seeds
