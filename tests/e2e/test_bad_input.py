# SPDX-License-Identifier: Apache-2.0
"""Users' mistakes: exit code 2, one sentence with file and line, a hint, no job, and no file left behind."""

import json
import os
import resource

import pytest

from conftest import wait_until

GOOD_ROLE = "roles:\n  worker: {instances: 1, command: 'true', memory: 16m}\n"
XML_HEAD = "<?xml version='1.0'?>\n"


def prop(name, value):
    return f"<property><name>{name}</name><value>{value}</value></property>\n"


def xml(*properties):
    return XML_HEAD + "<configuration>\n" + "".join(properties) + "</configuration>\n"


def refused(tony, directory, *args, where=None, sentence=None, command="run", hint=True):
    """Run the command and check what all refusals have in common."""
    before = tony.jobs_on_disk()
    files = sorted(os.listdir(directory))
    r = tony.run(command, *args, cwd=directory)
    assert r.returncode == 2, f"exit {r.returncode}\n{r.stdout}\n{r.stderr}"
    assert r.stdout == ""
    lines = r.stderr.splitlines()
    assert 1 <= len(lines) <= 2, r.stderr
    assert lines[0].startswith("tony: "), r.stderr
    if where:
        assert where in lines[0], r.stderr
    if sentence:
        assert sentence.lower() in r.stderr.lower(), r.stderr
    if hint:
        assert len(lines) == 2 and lines[1].startswith("  hint: "), r.stderr
    assert sorted(os.listdir(directory)) == files, "something was written beside the job file"
    assert tony.jobs_on_disk() == before
    return r.stderr


# file name, content, the place that the sentence names, a text in it
TABLE = [
    ("unknown top-level key", "job.yaml", "name: x\ninstanses: 3\n" + GOOD_ROLE, "job.yaml:2", "instanses"),
    ("unknown role key", "job.yaml", "roles:\n  worker:\n    instances: 1\n    comand: x\n", "job.yaml:4", "command"),
    ("unknown key in conf", "job.yaml", GOOD_ROLE + "conf:\n  tony.worker.memry: 1g\n", "job.yaml:4", "tony.worker.memory"),
    ("foreign key in conf", "job.yaml", GOOD_ROLE + "conf:\n  yarn.foo: 1\n", "job.yaml:4", "yarn.foo"),
    ("a number that is none", "job.yaml", "roles:\n  worker:\n    instances: two\n    command: x\n", "job.yaml:3", "two"),
    ("a size that is none", "job.yaml", "roles:\n  worker:\n    instances: 1\n    memory: lots\n    command: x\n", "job.yaml:4", "lots"),
    ("a fraction of memory", "job.yaml", "roles:\n  worker:\n    instances: 1\n    memory: 1.5g\n    command: x\n", "job.yaml:4", "1.5g"),
    ("no memory at all", "job.yaml", "roles:\n  worker:\n    instances: 1\n    memory: 0\n    command: x\n", "job.yaml:4", "memory"),
    ("negative instances", "job.yaml", "roles:\n  worker:\n    instances: -1\n    command: x\n", "job.yaml:3", "-1"),
    ("absurd instances", "job.yaml", "roles:\n  worker:\n    instances: 99999999999999999999\n    command: x\n", "job.yaml:3", "9999"),
    ("too many tasks", "job.yaml", "roles:\n  worker:\n    instances: 2000000\n    command: x\n    memory: 1m\n", "job.yaml:3", None),
    ("a list for a number", "job.yaml", "roles:\n  worker:\n    instances: [1, 2]\n    command: x\n", "job.yaml:3", "instances"),
    ("a map for a command", "job.yaml", "roles:\n  worker:\n    instances: 1\n    command: {a: b}\n", "job.yaml:4", "command"),
    ("roles are no map", "job.yaml", "roles: [worker]\n", "job.yaml:1", "roles"),
    ("a role without command", "job.yaml", "roles:\n  worker:\n    instances: 2\n    memory: 16m\n", "job.yaml", "command"),
    ("neither role nor command", "job.yaml", "name: x\n", "job.yaml:1", "command"),
    ("a role of nothing", "job.yaml", "roles:\n  worker:\n", "job.yaml:1", "command"),
    ("reserved role name", "job.yaml", "roles:\n  application: {instances: 1, command: x}\n", "job.yaml:2", "application"),
    ("reserved role name am", "job.yaml", "roles:\n  am: {instances: 1, command: x}\n", "job.yaml:2", "am"),
    ("role name with a dot", "job.yaml", "roles:\n  a.b: {instances: 1, command: x}\n", "job.yaml:2", "a.b"),
    ("role name with a slash", "job.yaml", "roles:\n  ../a: {instances: 1, command: x}\n", "job.yaml:2", "../a"),
    ("stage of an unknown role", "job.yaml", GOOD_ROLE + "conf:\n  tony.application.prepare-stage: loader\n", "job.yaml:4", "loader"),
    ("stages in a circle", "job.yaml",
     "roles:\n  a: {instances: 1, command: x}\n  b: {instances: 1, command: x}\nconf:\n  tony.a.depends-on: b\n  tony.b.depends-on: a\n",
     "job.yaml", None),
    ("more than max-instances", "job.yaml", "roles:\n  worker: {instances: 5, max-instances: 4, command: x}\n", "job.yaml:2", "4"),
    ("unknown framework", "job.yaml", "framework: tensorflov\n" + GOOD_ROLE, "job.yaml:1", "tensorflow"),
    ("framework without its role", "job.yaml", "framework: ray\n" + GOOD_ROLE, "job.yaml:1", "head"),
    ("pytorch without workers", "job.yaml", "framework: pytorch\nroles:\n  trainer: {instances: 1, command: x, memory: 16m}\n", "job.yaml:1", "worker"),
    ("unknown cluster", "job.yaml", "cluster: lokal\n" + GOOD_ROLE, "job.yaml:1", "local"),
    ("cluster that tony does not know", "job.yaml", "cluster: kubernetes\n" + GOOD_ROLE, "job.yaml:1", "kubernetes"),
    ("missing src", "job.yaml", "src: nowhere\n" + GOOD_ROLE, "job.yaml:1", "nowhere"),
    ("missing venv", "job.yaml", "venv: nowhere.zip\n" + GOOD_ROLE, "job.yaml:1", "nowhere.zip"),
    ("missing resource", "job.yaml", GOOD_ROLE + "resources: [here, nowhere.txt]\n", "job.yaml:3", "here"),
    ("an unknown mapping in conf", "job.yaml", GOOD_ROLE + "conf:\n  tony: {application: {name: x}}\n", "job.yaml:4", "unknown key 'tony'"),
    ("an empty resource", "job.yaml", GOOD_ROLE + "resources: ['']\n", "job.yaml:3", "empty"),
    ("two things of one name", "job.yaml", "resources: [job.yaml]\n" + GOOD_ROLE.replace("16m", "16m, resources: ['/etc/passwd::job.yaml']"),
     "job.yaml:3", "::NAME"),
    ("one archive, unpacked and not", "job.yaml", GOOD_ROLE + "resources: ['job.yaml#archive', job.yaml]\n", "job.yaml:3", "::NAME"),
    ("a control character in the name", "job.yaml", 'name: "a\\x9b31mb"\n' + GOOD_ROLE, "job.yaml:1", "control"),
    ("resource with two names", "job.yaml", GOOD_ROLE + "resources: ['job.yaml::a::b']\n", "job.yaml:3", "::"),
    ("resource elsewhere", "job.yaml", GOOD_ROLE + "resources: ['hdfs://nn/a']\n", "job.yaml:3", "hdfs://nn/a"),
    ("does not parse", "job.yaml", "name: x\nroles:\n  worker: {instances: 1\n", "job.yaml:", None),
    ("a tab", "job.yaml", "name: x\n\tframework: y\n", "job.yaml:2", None),
    ("a repeated key", "job.yaml", "name: x\nframework: generic\nname: y\n" + GOOD_ROLE, "job.yaml:3", "name"),
    ("a repeated role", "job.yaml", GOOD_ROLE + "  worker: {instances: 2, command: x}\n", "job.yaml:3", "worker"),
    ("an alias", "job.yaml", "name: &a x\nframework: *a\n" + GOOD_ROLE, "job.yaml:1", None),
    ("a tag", "job.yaml", "name: !!python/object:os.system x\n" + GOOD_ROLE, "job.yaml:1", None),
    ("two documents", "job.yaml", "name: x\n---\n" + GOOD_ROLE, "job.yaml:", None),
    ("no document", "job.yaml", "", "job.yaml:1", None),
    ("a scalar", "job.yaml", "hello\n", "job.yaml:1", None),
    ("XML that does not parse", "job.xml", XML_HEAD + "<configuration>\n<property>\n</configuration>\n", "job.xml:4", None),
    ("YAML in a file named .xml", "job.xml", "name: x\n" + GOOD_ROLE, "job.xml:1", ".yaml"),
    ("XML of something else", "job.xml", XML_HEAD + "<html></html>\n", "job.xml:2", None),
    ("unknown key in XML", "job.xml", xml(prop("tony.worker.instances", 1), prop("tony.worker.comand", "x")), "job.xml:4", "command"),
    ("wrong type in XML", "job.xml", xml(prop("tony.worker.instances", "many")), "job.xml:3", "many"),
    ("a repeated key in XML", "job.xml", xml(prop("tony.worker.instances", 1), prop("tony.worker.instances", 2)), "job.xml:4", "tony.worker.instances"),
    ("neither role nor command in XML", "job.xml", xml(prop("tony.application.name", "x")), "job.xml", "command"),
    ("empty XML", "job.xml", "", "job.xml", None),
]


@pytest.mark.parametrize("name, content, where, sentence", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_refused_with_file_and_line(tony, tmp_path, name, content, where, sentence):
    (tmp_path / name).write_text(content)
    refused(tony, tmp_path, name, where=where, sentence=sentence)


@pytest.mark.parametrize("command", ["run", "submit", "plan"])
def test_each_command_reports_the_line_of_an_error(tony, tmp_path, command):
    (tmp_path / "job.yaml").write_text("nmae: x\n")
    refused(tony, tmp_path, "job.yaml", where="job.yaml:1", sentence="name", command=command)


def test_missing_file(tony, tmp_path):
    refused(tony, tmp_path, "nowhere.yaml", where="nowhere.yaml", sentence="no such file")


def test_a_directory(tony, tmp_path):
    (tmp_path / "d").mkdir()
    refused(tony, tmp_path, "d", where="'d'")


def test_unreadable_file(own_tony):
    tony = own_tony(as_nobody=True)
    (tony.base / "d").mkdir(0o755)
    (tony.base / "d" / "job.yaml").write_text(GOOD_ROLE)
    (tony.base / "d" / "job.yaml").chmod(0)
    refused(tony, tony.base / "d", "job.yaml", where="job.yaml", sentence="permission denied", hint=False)


def test_a_home_that_is_read_only(own_tony):
    tony = own_tony(as_nobody=True)
    tony.home.mkdir(mode=0o555)
    tony.give(tony.home)
    r = tony.run("list")
    assert r.returncode == 4 and "Permission denied" in r.stderr and "hint: set TONY_HOME to a directory that you can write to" in r.stderr


@pytest.mark.parametrize("name", ["job.yaml", "job.xml"])
@pytest.mark.parametrize("content", [b"name: \x00x\n", b"name: \xff\xfe\n", b"name: \xc3(\n", b"name: \xed\xa0\x80\n"],
                         ids=["NUL", "UTF-16", "not UTF-8", "a surrogate"])
def test_not_text(tony, tmp_path, name, content):
    if name.endswith("xml"):
        content = b"<configuration><property><name>tony.application.name</name><value>" + content + b"</value></property></configuration>"
    (tmp_path / name).write_bytes(content)
    refused(tony, tmp_path, name, where=f"{name}:1")


@pytest.mark.parametrize("name", ["job.yaml", "job.xml"])
def test_a_file_of_100_gb(tony, tmp_path, name):
    """The job file is a sparse file of 100 GB. A client that read all of it would not end in time."""
    with open(tmp_path / name, "wb") as f:
        f.write(b"name: x\n" if name.endswith("yaml") else b"<configuration>")
        f.truncate(100 << 30)
    refused(tony, tmp_path, name, where=name, hint=False)


@pytest.mark.parametrize("name, content", [
    ("job.yaml", "name: " + "[" * 10000 + "]" * 10000),
    ("job.yaml", "\n".join(" " * i + "a:" for i in range(1500))),
    ("job.xml", "<configuration>" * 10000),
], ids=["flow", "block", "xml"])
def test_too_deep_nesting_is_refused(tony, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    refused(tony, tmp_path, name, where=f"{name}:", hint=False)


BOMB = ("<?xml version='1.0'?>\n<!DOCTYPE c [\n<!ENTITY a 'aaaaaaaaaa'>\n" +
        "".join(f"<!ENTITY {chr(98 + i)} '{('&' + chr(97 + i) + ';') * 10}'>\n" for i in range(9)) +
        "]>\n<configuration><property><name>tony.application.name</name><value>&j;</value></property></configuration>\n")


@pytest.mark.parametrize("content", [
    BOMB,
    "<?xml version='1.0'?>\n<!DOCTYPE c [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>\n"
    "<configuration><property><name>tony.application.name</name><value>&x;</value></property></configuration>\n",
], ids=["bomb", "external"])
def test_xml_entities_are_refused(tony, tmp_path, content):
    (tmp_path / "job.xml").write_text(content)
    err = refused(tony, tmp_path, "job.xml", where="job.xml:2")
    assert "root:" not in err


def test_alias_bomb(tony, tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 10)]
    (tmp_path / "job.yaml").write_text("\n".join(lines) + "\n")
    refused(tony, tmp_path, "job.yaml", where="job.yaml:1", hint=False)


@pytest.mark.parametrize("text", [
    "env:\n" + "".join(f"  V{i}: x\n" for i in range(40000)),
    "env: [" + ", ".join(f"V{i}=1" for i in range(40000)) + "]\n",
    "env: '" + ", ".join(f"V{i}=1" for i in range(40000)) + "'\n",
], ids=["map", "list", "text"])
def test_more_variables_than_any_program_could_be_given(tony, tmp_path, text):
    (tmp_path / "job.yaml").write_text("name: x\n" + text + GOOD_ROLE)
    refused(tony, tmp_path, "job.yaml", where="job.yaml:2", sentence="4096 variables")


def test_a_name_that_is_too_long_keeps_its_reason(tony, tmp_path):
    refused(tony, tmp_path, "d/" * 1000 + "job.yaml", sentence="no such file")
    refused(tony, tmp_path, "d" * 3000, sentence="file name too long")


def test_a_flood_of_warnings_is_counted(tony, tmp_path):
    (tmp_path / "job.yaml").write_text(GOOD_ROLE + "".join(f"  r{i}: {{memory: 1m}}\n" for i in range(100)))
    r = tony.run("plan", "job.yaml", cwd=tmp_path)
    assert r.returncode == 0
    assert len(r.stderr.splitlines()) == 21 and r.stderr.endswith("tony: and 80 more of this kind\n")


@pytest.mark.parametrize("args, sentence", [
    (["--conf", "tony.worker.instances=x"], "--conf"),
    (["--conf", "tony.worker.instanses=1"], "tony.worker.instances"),
    (["--conf", "nonsense"], "KEY=VALUE"),
    (["--conf", "foo.bar=1"], "foo.bar"),
    (["--src_dir", "nowhere"], "--src_dir"),
    (["--cluster", "mars"], "mars"),
    (["--shell_env", "=x"], "--shell_env"),
])
def test_options(tony, tmp_path, args, sentence):
    (tmp_path / "job.yaml").write_text(GOOD_ROLE)
    refused(tony, tmp_path, "job.yaml", *args, sentence=sentence, hint=False)


def test_a_final_value_of_the_site_cannot_be_changed(own_tony, tmp_path):
    tony = own_tony(TONY_CONF_DIR=str(tmp_path / "conf"))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tony-site.xml").write_text(
        "<configuration><property><name>tony.application.name</name><value>site</value><final>true</final></property></configuration>")
    (tmp_path / "job.yaml").write_text("name: mine\n" + GOOD_ROLE)
    err = refused(tony, tmp_path, "job.yaml", where="job.yaml:1", hint=False)
    assert "tony-site.xml" in err


def test_a_task_larger_than_the_machine_is_refused(tony, tmp_path):
    (tmp_path / "job.yaml").write_text("roles:\n  worker: {instances: 1, memory: 4000g, command: x}\n")
    err = refused(tony, tmp_path, "job.yaml", hint=False)
    assert "GB" in err or "MiB" in err


def test_a_gang_that_can_never_be_held(own_tony, tmp_path):
    """
    Two workers at the default of 2 GB, on a pool of 3 GB: each fits alone, both together do not. The message
    names the default.
    """
    tony = own_tony(TONY_CONF_DIR=str(tmp_path / "conf"))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tony-site.yaml").write_text("conf: {tony.pool.memory: 3g, tony.pool.gpus: 0}\n")
    (tmp_path / "job.yaml").write_text("roles:\n  worker: {instances: 2, command: x}\n")
    err = refused(tony, tmp_path, "job.yaml", hint=False)
    assert "4" in err and "3" in err and "tony.worker.memory" in err and "default" in err
    r = tony.run("plan", "job.yaml", "--json", cwd=tmp_path)
    assert r.returncode == 2 and json.loads(r.stdout)["fits"] is False
    assert "needs 4 GB of memory and 0 GPUs at once, and the pool has 3 GB and 0" in r.stderr


def test_more_gpus_than_the_machine_has(tony, tmp_path):
    (tmp_path / "job.yaml").write_text("roles:\n  worker: {instances: 1, memory: 16m, gpus: 64, command: x}\n")
    err = refused(tony, tmp_path, "job.yaml", hint=False)
    assert "64" in err and "GPU" in err


# ---- the directory for jobs ----

def test_home_is_a_file(own_tony):
    tony = own_tony()
    tony.home.write_text("mine")
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 4 and str(tony.home) in r.stderr
    assert tony.home.read_text() == "mine"


def test_home_is_read_only(own_tony):
    tony = own_tony(as_nobody=True)
    tony.home.mkdir(0o500)
    tony.give(tony.home)
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 4 and str(tony.home) in r.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_home_is_another_users(own_tony):
    tony = own_tony()
    tony.home.mkdir(0o755)
    os.chown(tony.home, 12345, 12345)
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 4 and str(tony.home) in r.stderr
    assert os.listdir(tony.home) == []
    os.chown(tony.home, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_another_users_files_in_home(own_tony):
    tony = own_tony()
    tony.ok("list")
    os.chown(tony.home / "jobs", 12345, 12345)
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 4 and str(tony.home / "jobs") in r.stderr
    r = tony.run("doctor")
    assert r.returncode == 1 and "TONY_HOME" in r.stdout
    os.chown(tony.home / "jobs", 0, 0)


def test_home_on_a_very_long_path(own_tony):
    tony = own_tony()
    long = tony.base
    while len(str(long)) < 600:
        long = long / ("d" * 100)
    long.mkdir(parents=True)
    tony.home = long / "home"
    tony.env["TONY_HOME"] = str(tony.home)
    assert tony.run("run", tony.workers("true")).returncode == 0


def test_home_on_a_path_that_is_too_long(own_tony):
    tony = own_tony(TONY_HOME="/tmp/" + "/".join(["d" * 200] * 25))
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 4 and "2048" in r.stderr


def test_full_disk(small_disk):
    tony = small_disk
    good = tony.submit(tony.workers("true"))
    tony.in_history(good)
    wait_until(lambda: not any(line.startswith("tony-keeper ") or "--keeper" in line for line in tony.processes().values()), "its keeper has removed the rest")
    filler = tony.home / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError):
        while True:
            os.write(fd, b"x" * 4096)
    os.close(fd)
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 4 and "No space left" in r.stderr
    assert tony.jobs_on_disk() == [good], "a half-made job was left"
    filler.unlink()
    assert tony.status(good)["state"] == "SUCCEEDED"
    assert tony.run("run", tony.workers("true")).returncode == 0


def test_full_disk_while_shipping(small_disk, tmp_path):
    tony = small_disk
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "big").write_bytes(os.urandom(4 << 20))
    r = tony.run("run", tony.workers("true"), "--src_dir", tmp_path / "src")
    assert r.returncode == 4 and "No space left" in r.stderr
    assert [p.name for p in (tony.home / "store").rglob("big")] == []
    assert tony.jobs_on_disk() == []


def test_a_gang_with_more_connections_than_the_master_may_open(own_tony):
    """Such a job is refused at once. Otherwise it would wait for executors that cannot connect, until the limit
    for their registration."""
    tony = own_tony()
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))}
    r = tony.run("run", tony.workers("true", n=60, role={"memory": "16m", "vcores": 0}), **few)
    assert r.returncode == 2 and "60 tasks" in r.stderr and "64 files" in r.stderr and "ulimit" in r.stderr, r.stderr
    assert tony.jobs_on_disk() == []
    assert tony.run("run", tony.workers("true", n=40, role={"memory": "16m", "vcores": 0}), **few).returncode == 0
