# SPDX-License-Identifier: Apache-2.0
"""`tony init` writes a job file that `tony plan` accepts."""

import json

import pytest


def init(tony, here, *args):
    r = tony.run("init", *args, cwd=here)
    assert r.returncode == 0, r.stderr
    assert (here / "job.yaml").read_text() == r.stdout
    return r.stdout, json.loads(tony.ok("plan", "job.yaml", "--json", cwd=here))


def test_init_finds_what_is_there(tony, tmp_path):
    (tmp_path / "helpers.py").write_text("import tensorflow\n")
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "requirements.txt").touch()
    text, plan = init(tony, tmp_path)
    assert "framework: pytorch   # from: import torch" in text and 'command: "python3 train.py"' in text
    assert "pip install -r requirements.txt" in text
    assert tony.run("init", cwd=tmp_path).returncode == 2
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/usr/bin/python3")
    text = init(tony, tmp_path, "--force")[0]
    assert "venv: .venv" in text and 'command: "venv/bin/python train.py"\n' in text  # python3 would not find its packages
    text = init(tony, tmp_path, "--force", "--from-torchrun", "torchrun -m pkg")[0]
    assert 'command: "venv/bin/python -m pkg"\n' in text


def test_init_of_a_script_with_a_blank_in_its_name(tony, tmp_path):
    (tmp_path / "my train.py").write_text("import torch\n")
    assert "command: \"python3 'my train.py'\"\n" in init(tony, tmp_path)[0]


def test_init_of_an_empty_directory(tony, tmp_path):
    text, plan = init(tony, tmp_path)
    assert "framework: generic" in text and "# no program was found here" in text


@pytest.mark.parametrize("line, words", [
    ("torchrun --nproc-per-node 4 --nnodes=2 train.py --lr 0.1 'a b'",
     ["framework: pytorch", "ranks: 4", "instances: 2", "command: \"python3 train.py --lr 0.1 'a b'\""]),
    ("torchrun --standalone --nproc_per_node=2 --rdzv-backend c10d train.py",
     ["ranks: 2", "# gpus: 2", "not translated: --standalone", "not translated: --rdzv-backend c10d"]),
    ("mpiexec -n 8 ./solve -x", ["framework: mpi", "instances: 8", 'command: "./solve -x"']),
    ("srun -n 3 --gpus-per-task=1 --mem 4G -p long python3 t.py \"it's\"",
     ["framework: generic", "instances: 3", "gpus: 1", 'memory: "4G"', "not translated: -p long", "'it'\\\\''s'"]),
    # the value of an option is never taken for the program, in no form of the option
    ("torchrun --nnodes 2:8 --max_restarts=3 --rdzv-conf timeout=9 --tee 3 -m pkg.train --x",
     ['command: "python3 -m pkg.train --x"', "instances: 2 ", "min-instances: 2 ", "max-instances: 8\n", "restart: on-failure\n",
      "max-restarts: 3\n", "not translated: --rdzv-conf timeout=9", "not translated: --tee 3"]),
    ("torchrun --no-python --nproc-per-node gpu ./solve", ['command: "./solve"', "# --nproc-per-node gpu: one process for each GPU of a machine", "# ranks: 8", "# gpus: 8"]),
    ("python3 -m torch.distributed.run --nproc-per-node 2 train", ["framework: pytorch", "ranks: 2", 'command: "python3 train"']),
    ("mpirun -np 4 -x A=b -x MARK --mca btl tcp,self --bind-to core ./solve",
     ["instances: 4", 'env:\n  A: "b"\nroles:', "not translated: -x MARK", "not translated: --mca btl tcp,self", 'command: "./solve"']),
    ("srun -N2 --ntasks-per-node=4 -c 8 --gres=gpu:1 -ppart python3 t.py",
     ["instances: 8 ", "vcores: 8\n", "not translated: --gres=gpu:1", "not translated: -ppart", 'command: "python3 t.py"']),
    ("srun -N 2 -n 8 hostname", ["instances: 8 ", "not translated: --nodes 2"]),
    ("srun --nodes 3 hostname", ["instances: 3 ", 'command: "hostname"']),
    # Slurm's --mem is that of a node, as are --gres and --gpus-per-node
    ("srun -N 2 --ntasks-per-node 4 --mem 32G --gres gpu:a100:4 python3 t.py", ["instances: 8 ", 'memory: "8g"', "gpus: 1 "]),
    ("srun -n 8 -N 4 --mem=3000 --gpus-per-node=2 -J long hostname", ['name: "long"\n', 'memory: "1500m"', "gpus: 1 "]),
    ("srun -n 3 --mem 4G hostname", ['memory: "4G"', "the line has that of a node: divide it"]),
    ("srun -n4 --mem-per-cpu=2G -c4 -G 8 hostname", ['memory: "8g"', "gpus: 2 "]),
    ("srun -n 2 --mem-per-gpu 3G --gpus-per-task 2 hostname", ['memory: "6g"', "gpus: 2 "]),
    ("srun -n 2 --mem=0 -G 3 --gres=nvme:2 hostname", ['memory: "2g"', "not translated: --mem=0", "# gpus: 1 ", "not translated: -G 3", "not translated: --gres=nvme:2"]),
    ("accelerate launch --num_processes 8 --num_machines=2 --mixed_precision fp16 --multi_gpu train.py --lr 1",
     ["framework: pytorch", "instances: 2 ", "ranks: 4", "not translated: --mixed_precision fp16", "not translated: --multi_gpu", 'command: "python3 train.py --lr 1"']),
    ("accelerate launch --num_processes 3 --num_machines 2 -m pkg", ["instances: 2 ", "not translated: --num_processes 3", 'command: "python3 -m pkg"']),
    ("deepspeed --num_gpus=4 --num_nodes 2 --hostfile h train.py --deepspeed ds.json",
     ["framework: pytorch", "instances: 2 ", "ranks: 4", "# gpus: 4", "not translated: --hostfile h", 'command: "python3 train.py --deepspeed ds.json"']),
    ("horovodrun -np 4 -H a:2,b:2 --verbose python3 train.py",
     ["framework: horovod", "instances: 4 ", "not translated: -H a:2,b:2", "not translated: --verbose", 'command: "python3 train.py"']),
    # what belongs to the shell is no argument of the program
    ("torchrun train.py 'a > b' 7 2>&1 | tee log", ["command: \"python3 train.py 'a > b' 7\"\n", "not translated: 2>&1 | tee log"]),
    ("torchrun t.py >log", ['command: "python3 t.py"\n', "not translated: >log"]),
    ("OMP_NUM_THREADS=4 CUDA_VISIBLE_DEVICES=0 /opt/bin/torchrun t.py",
     ['env:\n  OMP_NUM_THREADS: "4"\nroles:', "not translated: CUDA_VISIBLE_DEVICES=0", 'command: "python3 t.py"']),
    ("mpiexec.hydra -n 2 -genv A b -ppn 1 ./solve", ['env:\n  A: "b"\nroles:', "instances: 2 ", 'command: "./solve"']),
    ("venv/bin/python -m torch.distributed.run 'a\nb' \\\n x", ['command: "python3 \'a\\x0ab\' x"'])])
def test_init_translates_a_line(tony, tmp_path, line, words):
    r = tony.run("init", "--from-torchrun", line, cwd=tmp_path, env={"MARK": "of the shell"})
    assert r.returncode == 0, r.stderr
    for word in words:
        assert word in r.stdout
    assert tony.run("plan", "job.yaml", "--json", cwd=tmp_path).returncode in (0, 2)


@pytest.mark.parametrize("line, words", [
    ("mpirun -n 2 ./a : -n 3 ./b", "starts several programs"), ("A=b", "does not begin"), ("cd x && torchrun t.py", "does not begin"),
    ("python3 x.py", "does not begin with"), ("accelerate config", "does not begin with"), ("torchrun --nnodes 2", "no program"), ("torchrun 'x", "quotation"), ("", "does not begin")])
def test_init_refuses_other_lines(tony, tmp_path, line, words):
    r = tony.run("init", "--from-torchrun", line, cwd=tmp_path)
    assert r.returncode == 2 and words in r.stderr
    assert not (tmp_path / "job.yaml").exists()
