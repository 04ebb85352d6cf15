/* SPDX-License-Identifier: Apache-2.0 */
/* The causes: their names, what they mean, and what a person can do about them. */
#include "cause/cause_int.h"

const struct cause cause_table[CAUSE_COUNT] = {
    [CAUSE_OUT_OF_MEMORY] = { "out_of_memory", "it needed more memory than it may use",
                              "raise tony.<role>.memory, or make batches smaller and use fewer "
                              "data-loading processes" },
    [CAUSE_GPU_MEMORY] = { "gpu_out_of_memory", "the memory of its GPU was full",
                           "make batches or the model smaller, accumulate gradients, or use GPUs "
                           "with "
                           "more memory; nvidia-smi shows who else uses the device" },
    [CAUSE_SHARED_MEMORY] = { "shared_memory", "there was no room in shared memory (/dev/shm)",
                              "use fewer data-loading processes (num_workers), or enlarge /dev/shm "
                              "on "
                              "the node (of a Docker container: --shm-size)" },
    [CAUSE_DISK_FULL] = { "disk_full", "a disk or a quota was full",
                          "make room (df -h shows where it is missing), or let it write "
                          "elsewhere" },
    [CAUSE_IO_ERROR] = { "io_error", "a disk or file system failed while it read or wrote",
                         "the node's disk, or the network file system, needs attention: dmesg, "
                         "mount; "
                         "let it work elsewhere meanwhile" },
    [CAUSE_MISSING_MODULE] = { "missing_module",
                               "a Python module that it needs is missing, or is of "
                               "another version than it expects",
                               "ship an environment that has it (venv:, --python_venv), or name "
                               "the "
                               "Python that has it in the command" },
    [CAUSE_MISSING_LIBRARY] = { "missing_library",
                                "a shared library that it needs is missing or does "
                                "not fit",
                                "install the library on the node, or ship it and name its "
                                "directory in "
                                "LD_LIBRARY_PATH (env:)" },
    [CAUSE_VERSION] = { "version_mismatch",
                        "something that it uses is of another version than it expects",
                        "ship an environment with versions that fit together (venv:, "
                        "--python_venv); pip check names what does not" },
    [CAUSE_PORT_IN_USE] = { "port_in_use", "the port that it wanted was taken",
                            "use the port that TONY_ADDRESS names, or port 0; a port written into "
                            "the "
                            "program meets whoever else uses it on that node" },
    [CAUSE_ADDRESS] = { "wrong_address", "the address that it wanted does not belong to its node",
                        "listen on 0.0.0.0, or on the host of TONY_ADDRESS" },
    [CAUSE_NAN] = { "nan", "a value became NaN or infinite",
                    "lower the learning rate, clip gradients, and look at the data; "
                    "torch.autograd.set_detect_anomaly(True) finds the operation" },
    [CAUSE_WRONG_PATH] = { "wrong_path", "a file or directory that it wanted is not there",
                           "ship it (src:, resources:), or name a path that exists on the node "
                           "where "
                           "the task runs; relative paths start in the working directory" },
    [CAUSE_EXISTS] = { "exists", "what it wanted to make is there already",
                       "remove it, or let each run and each task write under a name of its own "
                       "(TONY_APPLICATION_ID, TONY_TASK, TONY_ATTEMPT)" },
    [CAUSE_PERMISSION] = { "permission", "it was not permitted to do what it wanted",
                           "look at owner and mode of what the line names; tasks run as the job's "
                           "user, and what is shipped is read-only but for src" },
    [CAUSE_CREDENTIALS] = { "credentials",
                            "a service refused it: its credentials are missing, wrong or "
                            "too old",
                            "give it valid ones (env:, or a file that is shipped), and check what "
                            "they "
                            "are allowed" },
    [CAUSE_COMMAND_NOT_FOUND] = { "command_not_found", "the command is not there",
                                  "check its spelling and PATH on the node; a program of your own "
                                  "must "
                                  "be shipped (src:) and is called ./NAME" },
    [CAUSE_MISSING_INTERPRETER] = { "missing_interpreter",
                                    "the program that should run the script is not there",
                                    "install it on the node, or name another one in the first line "
                                    "of the script "
                                    "(#!/usr/bin/env python3), or start it by name: python3 FILE; "
                                    "the line must not end in a "
                                    "carriage return" },
    [CAUSE_NOT_EXECUTABLE] = { "not_executable", "the command is there but cannot be executed",
                               "chmod +x it, check its first line (#!) and that it was built for "
                               "this "
                               "machine, or name its interpreter: python3 FILE" },
    [CAUSE_OPEN_FILES] = { "open_files", "it had too many files open",
                           "raise the limit (ulimit -n) of whoever starts the pool or the node "
                           "manager, "
                           "or use fewer data-loading processes" },
    [CAUSE_THREADS] = { "too_many_processes", "it could not start another process or thread",
                        "set OMP_NUM_THREADS and use fewer data-loading processes, or raise the "
                        "limit "
                        "of processes (ulimit -u, pids of the control group)" },
    [CAUSE_ARGUMENTS] = { "wrong_arguments", "the program does not understand its arguments",
                          "compare the command of the role with what the program's --help says" },
    [CAUSE_TOO_LONG] = { "arguments_too_long",
                         "the arguments and environment of a program were longer than Linux takes",
                         "pass long values in files instead of variables or arguments; the "
                         "addresses of the tasks are in the file TONY_SPEC_FILE" },
    [CAUSE_SYNTAX] = { "syntax_error", "the program has a syntax error",
                       "correct the line; if it runs elsewhere, compare the versions of the "
                       "interpreter" },
    [CAUSE_NO_GPU] = { "no_gpu", "it found no GPU that it can use",
                       "ask for one (tony.<role>.gpus), and check the driver with nvidia-smi and "
                       "tony "
                       "doctor" },
    [CAUSE_GPU_FAULT] = { "gpu_fault", "an operation on its GPU failed",
                          "run it with CUDA_LAUNCH_BLOCKING=1 to see which; if it is always the "
                          "same "
                          "device, look for Xid errors in dmesg" },
    [CAUSE_GPU_TYPE] = { "gpu_type", "it was not built for this type of GPU",
                         "use a build whose list of architectures has this GPU's "
                         "(torch.cuda.get_arch_list())" },
    [CAUSE_HOST_NAME] = { "host_name", "a host name could not be resolved",
                          "check the name, and the resolver of the node; tony's own addresses are "
                          "numbers" },
    [CAUSE_NETWORK] = { "network", "it could not reach something outside of the job",
                        "check the address, and whether the nodes have a way out (proxy); better "
                        "ship "
                        "what it wants to download" },
    [CAUSE_DAMAGED_FILE] = { "damaged_file", "a file that it read is damaged or cut short",
                             "remove or restore the file; write checkpoints under another name and "
                             "rename them when they are complete" },
    [CAUSE_MODEL_MISMATCH] = { "model_mismatch", "the checkpoint does not belong to this model",
                               "load one that the same code has written, or begin without: the "
                               "lines "
                               "below say which parts differ" },
    [CAUSE_CPU_TYPE] = { "cpu_type", "it used an instruction that this CPU does not have",
                         "use a build for this type of CPU" },
    [CAUSE_LOST_PEER] = { "lost_peer", "it lost a peer, or a peer never came",
                          "look for the task that "
                          "ended first; if all others live, check that the address it dialled can "
                          "be "
                          "reached from its node",
                          .victim = true },
    [CAUSE_COLLECTIVE] = { "collective_timeout", "it waited in vain for the other tasks",
                           "look for the task that is missing, stuck or slower than the others, or "
                           "took another branch; if all take that long, raise the framework's "
                           "timeout",
                           .victim = true },
    [CAUSE_EXCEPTION] = { "exception", "the program ended with an error of its own",
                          "the lines below say where", .general = true },
    [CAUSE_SEGFAULT] = { "segfault",
                         "it accessed memory that it does not have (segmentation fault)",
                         "a library in it is faulty or does not fit: try python3 -X faulthandler, "
                         "and "
                         "other versions of what is compiled" },
    [CAUSE_BUS_ERROR] = { "bus_error", "it accessed mapped memory that is not there (bus error)",
                          "a file that it had mapped was cut short, or a disk or /dev/shm was "
                          "full" },
    [CAUSE_BROKEN_HEAP] = { "broken_heap", "it has damaged its own memory",
                            "a library in it is faulty or does not fit: try other versions of what "
                            "is "
                            "compiled, and valgrind or AddressSanitizer" },
    [CAUSE_ABORTED] = { "aborted", "it aborted itself", "the lines below say why, if it said so" },
    [CAUSE_ARITHMETIC] = { "arithmetic", "an integer division by zero or an overflow trapped",
                           "python3 -X faulthandler, or a debugger, shows where" },
    [CAUSE_KILLED] = { "killed", "someone outside of tony killed it (signal 9)",
                       "an administrator, a script, a limit (ulimit -t), or the kernel because the "
                       "whole "
                       "machine had no memory left: dmesg | grep -i oom tells",
                       .general = true },
    [CAUSE_TERMINATED] = { "terminated", "someone outside of tony told it to end (signal 15)",
                           "an administrator, a script, or the program itself sent it",
                           .general = true },
    [CAUSE_INTERRUPTED] = { "interrupted", "someone outside of tony interrupted it",
                            "an administrator, a script, or the program itself sent the signal",
                            .general = true },
    [CAUSE_RESOURCE_LIMIT] = { "resource_limit",
                               "it went over a limit of processor time or file size",
                               "raise the limit (ulimit -t, ulimit -f) of whoever starts the pool "
                               "or "
                               "the node manager" },
    [CAUSE_SIGNAL] = { "signal", "a signal ended it",
                       "the program itself or someone outside of tony "
                       "sent it",
                       .general = true },
    [CAUSE_TIMED_OUT] = { "timed_out", "it ran longer than a task may",
                          "raise tony.task.executor.execution-timeout-ms, or find out what it "
                          "waits "
                          "for" },
    [CAUSE_PREEMPTED] = { "preempted", "the scheduler took its container for someone else",
                          "use a queue with more guaranteed capacity, and save checkpoints" },
    [CAUSE_NODE_LOST] = { "node_lost", "its node or its executor is gone, or cannot be reached",
                          "look at the node: is it up, has it memory and disk, can it reach the "
                          "master" },
    [CAUSE_EXECUTOR_LOST] = { "executor_lost", "tony's executor was killed, and the task with it",
                              "an administrator, a script, or the kernel because the whole machine "
                              "had "
                              "no memory left: dmesg | grep -i oom tells; "
                              "tony.task.restarts.node-lost limits how often tony restarts a task "
                              "after that",
                              .general = true },
    [CAUSE_KEEPER_LOST] = { "keeper_lost",
                            "the process of tony that watched it was killed or has failed, and the "
                            "task ended with it",
                            "find out what ended it: an administrator, a script, or the kernel "
                            "because the whole machine had no memory left (dmesg | grep -i oom "
                            "tells); keeper.log of the job has its last messages; "
                            "tony.task.restarts.node-lost limits how often tony restarts a task "
                            "after that" },
    [CAUSE_DISK_FAILED] = { "disk_failed", "a disk of the node failed or was full",
                            "the node's disks need attention" },
    [CAUSE_LAUNCH_FAILED] = { "launch_failed", "it could not be started",
                              "the sentence above says why" },
    [CAUSE_EXIT_CODE] = { "exit_code", "the program chose this exit code", "its log may say why",
                          .vague = true },
    [CAUSE_UNKNOWN] = { "unknown", "it is unknown how it ended", "its log may say why",
                        .vague = true },
};
