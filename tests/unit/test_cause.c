/* SPDX-License-Identifier: Apache-2.0 */
/* The last lines of real programs, and the cause that each must give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "base/base.h"
#include "cause/cause.h"

#define TRACE                                                                                      \
    "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    main()\n"

static const struct sample {
    const char *cause;
    int exit_code, signal;
    const char *tail;
} samples[] = {
    /* missing modules and files */
    { "missing_module", 1, 0, TRACE "ModuleNotFoundError: No module named 'sklearn'\n" },
    { "missing_module", 1, 0, "/usr/bin/python3: No module named tensorboard\n" },
    { "missing_module", 1, 0,
      TRACE "ImportError: cannot import name 'triu' from 'scipy.linalg' (/usr/lib/python3)\n" },
    { "missing_library", 127, 0,
      "./prog: error while loading shared libraries: libcudart.so.11.0: cannot open shared object "
      "file: No such file or directory\n" },
    { "missing_library", 1, 0,
      TRACE "ImportError: libmkl_rt.so.1: cannot open shared object file: No such file or "
            "directory\n" },
    { "missing_library", 1, 0,
      "./prog: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by "
      "./prog)\n" },
    { "wrong_path", 2, 0,
      "/usr/bin/python3: can't open file '/w/tarin.py': [Errno 2] No such file or directory\n" },
    { "wrong_path", 1, 0,
      TRACE "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'\n" },
    { "command_not_found", 127, 0, "bash: line 1: pyhton3: command not found\n" },
    { "command_not_found", 127, 0, "bash: line 1: ./run.sh: No such file or directory\n" },
    { "command_not_found", 127, 0, "" },
    { "not_executable", 126, 0, "bash: line 1: ./train.py: Permission denied\n" },
    { "not_executable", 126, 0,
      "bash: line 1: ./a.out: cannot execute binary file: Exec format error\n" },
    { "missing_interpreter", 126, 0,
      "bash: line 1: ./x.py: /usr/bin/pyton: bad interpreter: No such file or directory\n" },
    { "permission", 1, 0,
      TRACE "PermissionError: [Errno 13] Permission denied: '/srv/model.pt'\n" },
    { "permission", 1, 0, TRACE "OSError: [Errno 30] Read-only file system: 'venv/x'\n" },
    { "wrong_arguments", 2, 0,
      "usage: train.py [-h] [--epochs EPOCHS]\ntrain.py: error: unrecognized arguments: "
      "--epoch\n" },
    { "syntax_error", 1, 0,
      "  File \"/w/train.py\", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n" },
    /* memory and disk */
    { "out_of_memory", 1, 0, TRACE "MemoryError\n" },
    { "out_of_memory", 1, 0,
      TRACE
      "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB for an array\n" },
    { "out_of_memory", 1, 0,
      TRACE
      "RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate "
      "memory: you tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate "
      "memory)\n" },
    { "out_of_memory", 0, SIGABRT,
      "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
      "std::bad_alloc\n" },
    { "gpu_out_of_memory", 1, 0,
      TRACE "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB (GPU 0; 79.15 GiB total "
            "capacity)\n" },
    { "gpu_out_of_memory", 1, 0,
      TRACE "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" },
    { "gpu_out_of_memory", 1, 0,
      TRACE "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying "
            "to allocate 8589934592 bytes.\n" },
    { "gpu_out_of_memory", 1, 0,
      TRACE "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating "
            "tensor with shape[8192,8192] on /job:localhost/replica:0/task:0/device:GPU:0\n" },
    { "shared_memory", 1, 0,
      "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
      "shared memory (shm).\n" TRACE
      "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.\n" },
    { "shared_memory", 1, 0,
      TRACE
      "RuntimeError: unable to open shared memory object </torch_23_1> in read-write mode: No "
      "space left on device (28)\n" },
    { "disk_full", 1, 0, TRACE "OSError: [Errno 28] No space left on device\n" },
    { "disk_full", 1, 0, "cp: error writing 'x': Disk quota exceeded\n" },
    { "damaged_file", 1, 0,
      TRACE "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
            "directory\n" },
    /* the machine */
    { "port_in_use", 1, 0, TRACE "OSError: [Errno 98] Address already in use\n" },
    { "port_in_use", 1, 0,
      TRACE
      "RuntimeError: The server socket has failed to listen on any local network address. The "
      "server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
      "use).\n" },
    { "open_files", 1, 0, TRACE "OSError: [Errno 24] Too many open files: 'x'\n" },
    { "too_many_processes", 1, 0, TRACE "RuntimeError: can't start new thread\n" },
    { "too_many_processes", 254, 0, "bash: fork: retry: Resource temporarily unavailable\n" },
    { "no_gpu", 1, 0, TRACE "RuntimeError: No CUDA GPUs are available\n" },
    { "no_gpu", 1, 0, TRACE "AssertionError: Torch not compiled with CUDA enabled\n" },
    { "gpu_fault", 1, 0, TRACE "RuntimeError: CUDA error: device-side assert triggered\n" },
    { "host_name", 1, 0, TRACE "socket.gaierror: [Errno -2] Name or service not known\n" },
    { "network", 1, 0,
      TRACE "requests.exceptions.SSLError: HTTPSConnectionPool(host='example.org', port=443): Max "
            "retries exceeded with url: /x\n" },
    /* results */
    { "nan", 1, 0, TRACE "ValueError: loss is nan at step 120\n" },
    { "nan", 1, 0, "step 41 loss NaN\n" TRACE "RuntimeError: training diverged\n" },
    { "nan", 1, 0,
      TRACE "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.\n" },
    { "exception", 1, 0, TRACE "ValueError: banana is no value\n" },
    { "exception", 1, 0, TRACE "AssertionError\n" },
    { "exception", 0, SIGABRT,
      "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no\n" },
    /* signals, also reported by a shell */
    { "segfault", 0, SIGSEGV, "" },
    { "segfault", 139, 0, "bash: line 1: 4711 Segmentation fault      python3 x.py\n" },
    { "segfault", 1, 0, "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n" },
    { "killed", 0, SIGKILL, TRACE "ModuleNotFoundError: No module named 'optional'\n" },
    { "killed", 137, 0, "bash: line 1: 4711 Killed                  python3 x.py\n" },
    { "terminated", 0, SIGTERM, "" },
    { "cpu_type", 0, SIGILL, "" },
    { "bus_error", 0, SIGBUS, "" },
    { "bus_error", 0, SIGBUS, TRACE "ModuleNotFoundError: No module named 'optional'\n" },
    { "disk_full", 0, SIGBUS, "cannot extend x.db: No space left on device\n" },
    { "arithmetic", 0, SIGFPE, "" },
    { "aborted", 0, SIGABRT, "" },
    { "resource_limit", 0, SIGXCPU, "" },
    { "signal", 0, SIGUSR1, "" },
    { "exit_code", 3, 0, "" },
    { "exit_code", 3, 0, "epoch 1 done\nepoch 2 done\n" },
    { "exit_code", 3, 0, "ERROR_FILE=/x/error.json\nmean_error=0.31 error=0.2\n" },
    /* victims */
    { "lost_peer", 1, 0,
      TRACE
      "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by "
      "peer [127.0.0.1]:31337\n" },
    { "lost_peer", 1, 0,
      TRACE "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error "
            "[127.0.0.1]:4711: Connection reset by peer\n" },
    { "lost_peer", 1, 0,
      TRACE "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1331, remote "
            "process exited or there was a network error, NCCL version 2.18.1\n" },
    { "collective_timeout", 0, SIGABRT,
      "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: "
      "WorkNCCL(SeqNum=8) ran for 1800000 milliseconds before timing out.\nterminate called after "
      "throwing an instance of 'std::runtime_error'\n" },
    { "collective_timeout", 1, 0,
      TRACE
      "RuntimeError: Timed out initializing process group in store based barrier on rank: 0\n" },
    { "lost_peer", 1, 0, TRACE "torch.distributed.DistStoreError: Socket Timeout\n" },
    { "lost_peer", 1, 0,
      TRACE "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted "
            "by: failed to connect to all addresses\n" },
    { "lost_peer", 0, SIGABRT,
      "2024-01-01 10:00:00.1: F external/xla/client.h:88] Terminating process because the JAX "
      "distributed service detected fatal errors.\n" },
    { "lost_peer", 1, 0,
      TRACE "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was "
            "caused by an exception on one of the ranks\n" },
    { "lost_peer", 1, 0,
      "Fatal error in internal_Allreduce: Unknown error class, error stack:\n"
      "MPIDI_CH3I_Progress(1): Communication error with rank 1\n" },
    { "lost_peer", 1, 0, TRACE "ConnectionRefusedError: [Errno 111] Connection refused\n" },
    { "lost_peer", 1, 0, TRACE "BrokenPipeError: [Errno 32] Broken pipe\n" },
    /* other languages, libraries and launchers */
    { "missing_module", 1, 0,
      "node:internal/modules/cjs/loader:936\n  throw err;\n  ^\n\nError: Cannot find module "
      "'express'\n" },
    { "missing_module", 1, 0, "Error in library(dplyr) : there is no package called 'dplyr'\n" },
    { "missing_module", 2, 0,
      "Can't locate JSON/XS.pm in @INC (you may need to install the JSON::XS module) at x.pl line "
      "3.\n" },
    { "missing_module", 1, 0,
      "Error: Could not find or load main class com.example.Train\n"
      "Caused by: java.lang.ClassNotFoundException: com.example.Train\n" },
    { "disk_full", 1, 0, /* Java prints the consequence first */
      "java.lang.IllegalStateException: no writer\n\tat com.example.Train.main(Train.java:9)\n"
      "Caused by: java.io.IOException: No space left on device\n"
      "\tat java.io.FileOutputStream.writeBytes(Native Method)\n" },
    { "disk_full", 1, 0, /* also if a rule knows the consequence */
      "java.lang.IllegalStateException: no writer: Input/output error\n"
      "\tat com.example.Train.main(Train.java:9)\n"
      "Caused by: java.io.IOException: No space left on device\n"
      "\tat java.io.FileOutputStream.writeBytes(Native Method)\n" },
    { "missing_library", 127, 0,
      "./train: symbol lookup error: ./train: undefined symbol: _ZN2at4_ops\n" },
    { "missing_library", 1, 0,
      TRACE "OSError: libnccl.so.2: cannot open shared object file: No such "
            "file or directory\n" },
    { "version_mismatch", 1, 0, TRACE "AttributeError: module 'numpy' has no attribute 'float'\n" },
    { "version_mismatch", 1, 0,
      TRACE
      "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 "
      "from C header, got 88 from PyObject\n" },
    { "version_mismatch", 1, 0,
      "RuntimeError: transformers>=4.40 is required, but found transformers==4.11\n" },
    { "version_mismatch", 1, 0, "ERROR: Package 'x' requires Python >= 3.11, this is 3.9\n" },
    { "wrong_arguments", 2, 0,
      "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: "
      "--lr\n" },
    { "wrong_arguments", 2, 0,
      "error: unexpected argument '--lr' found\n\nUsage: train [OPTIONS]\n" },
    { "wrong_arguments", 2, 0, "train: epochs must be a number\nusage: train -e EPOCHS\n" },
    { "wrong_arguments", 1, 0, "FATAL Flags parsing error: Unknown command line flag 'lrr'\n" },
    { "wrong_arguments", 2, 0,
      "flag provided but not defined: -lr\nUsage of ./train:\n  -e int\n" },
    { "wrong_arguments", 2, 0,
      "Unknown option: -z\nusage: /usr/bin/python3 [option] ... [-c cmd]\n" },
    { "arguments_too_long", 126, 0, "bash: line 1: /bin/ls: Argument list too long\n" },
    { "command_not_found", 127, 0, "sh: 1: pyhton3: not found\n" },
    { "missing_interpreter", 127, 0, "/usr/bin/env: 'python2': No such file or directory\n" },
    { "command_not_found", 127, 0, "env: 'pyhton3': No such file or directory\n" },
    { "missing_interpreter", 126, 0,
      "bash: ./t.py: /usr/bin/python9: bad interpreter: No such file or directory\n" },
    { "missing_interpreter", 127, 0,
      "/bin/bash: line 1: ./t.py: cannot execute: required file not found\n" },
    { "port_in_use", 1, 0, "Error: listen EADDRINUSE: address already in use :::8080\n" },
    { "port_in_use", 1, 0,
      "E0101 10:00:00 server.cc:12] Failed to bind to address 0.0.0.0:2222\n" },
    { "wrong_address", 1, 0, TRACE "OSError: [Errno 99] Cannot assign requested address\n" },
    { "open_files", 1, 0, TRACE "RuntimeError: received 0 items of ancdata\n" },
    { "too_many_processes", 1, 0,
      "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource temporarily "
      "unavailable\n" TRACE "KeyboardInterrupt\n" },
    { "out_of_memory", 2, 0, "fatal error: runtime: out of memory\n\ngoroutine 1 [running]:\n" },
    { "out_of_memory", 0, SIGABRT, "memory allocation of 1099511627776 bytes failed\n" },
    { "out_of_memory", 1, 0, "Error: cannot allocate vector of size 7.5 Gb\n" },
    { "gpu_out_of_memory", 1, 0,
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 3\n"
      "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n" },
    { "shared_memory", 1, 0,
      TRACE "OSError: [Errno 28] No space left on device: '/psm_1a2b3c4d'\n" },
    { "shared_memory", 1, 0,
      TRACE "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory.\n" },
    { "shared_memory", 1, 0,
      "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Vq3 (size "
      "9637888)\n" TRACE
      "torch.distributed.DistBackendError: NCCL error: unhandled system error\n" },
    { "disk_full", 1, 0,
      TRACE
      "OSError: [Errno 28] No space left on device\n\nDuring handling of the above exception, "
      "another exception occurred:\n\n" TRACE
      "RuntimeError: [enforce fail at inline_container.cc:588] . PytorchStreamWriter failed "
      "writing file data/7: file write failed\n" },
    { "disk_full", 1, 0,
      "tar: x: Wrote only 4096 of 10240 bytes\ntar: write error: No space left "
      "on device\n" },
    { "resource_limit", 1, 0, TRACE "OSError: [Errno 27] File too large\n" },
    { "resource_limit", 152, 0, "bash: line 1: 4711 CPU time limit exceeded python3 x.py\n" },
    { "resource_limit", 153, 0, "" },
    { "io_error", 1, 0, TRACE "OSError: [Errno 5] Input/output error: '/mnt/data/a.bin'\n" },
    { "io_error", 1, 0, TRACE "OSError: [Errno 116] Stale file handle\n" },
    { "exists", 1, 0, TRACE "FileExistsError: [Errno 17] File exists: 'out/run1'\n" },
    { "wrong_path", 1, 0,
      TRACE "RuntimeError: Dataset not found. You can use download=True to download it\n" },
    { "wrong_path", 1, 0,
      TRACE "tensorflow.python.framework.errors_impl.NotFoundError: /data/train.tfrecord; No such "
            "file or directory\n" },
    { "wrong_path", 1, 0,
      "botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling GetObject\n" },
    { "wrong_path", 1, 0, "cat: data/train.csv: No such file or directory\n" },
    { "credentials", 1, 0,
      TRACE "botocore.exceptions.NoCredentialsError: Unable to locate credentials\n" },
    { "credentials", 1, 0,
      TRACE "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the "
            "PutObject operation: Access Denied\n" },
    { "credentials", 1, 0,
      TRACE "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: "
            "https://hub.example.org/x\n" },
    { "credentials", 1, 0,
      TRACE "psycopg2.OperationalError: FATAL:  password authentication failed for user \"ml\"\n" },
    { "host_name", 6, 0, "curl: (6) Could not resolve host: data.example.org\n" },
    { "host_name", 1, 0,
      TRACE
      "socket.gaierror: [Errno -3] Temporary failure in name resolution\n\nDuring handling of "
      "the above exception, another exception occurred:\n\n" TRACE
      "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): Max "
      "retries exceeded with url: /\n" },
    { "network", 7, 0,
      "curl: (7) Failed to connect to data.example.org port 80: Connection refused\n" },
    { "network", 1, 0,
      TRACE "sqlalchemy.exc.OperationalError: could not connect to server: Connection refused\n" },
    { "damaged_file", 1, 0, TRACE "_pickle.UnpicklingError: invalid load key, '\\x00'.\n" },
    { "damaged_file", 1, 0,
      TRACE
      "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge\n" },
    { "damaged_file", 1, 0,
      TRACE "OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0)\n" },
    { "damaged_file", 1, 0,
      "gzip: stdin: unexpected end of file\ntar: Unexpected EOF in archive\n" },
    { "model_mismatch", 1, 0,
      TRACE "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: "
            "copying a param with shape torch.Size([10, 64])\n" },
    { "no_gpu", 1, 0, TRACE "RuntimeError: CUDA is not available on this node\n" },
    { "no_gpu", 1, 0,
      TRACE "RuntimeError: Attempting to deserialize object on a CUDA device but "
            "torch.cuda.is_available() is False.\n" },
    { "gpu_type", 1, 0,
      TRACE
      "RuntimeError: CUDA error: no kernel image is available for execution on the device\n" },
    { "gpu_fault", 1, 0, TRACE "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n" },
    { "broken_heap", 0, SIGABRT, "free(): invalid pointer\n" },
    { "broken_heap", 134, 0, "double free or corruption (!prev)\nbash: line 1: 77 Aborted ./a\n" },
    { "aborted", 0, SIGABRT, "train: train.c:12: main: Assertion `n > 0' failed.\n" },
    { "exception", 101, 0, "thread 'main' panicked at src/main.rs:3:5:\nindex out of bounds\n" },
    { "exception", 2, 0, "panic: runtime error: index out of range [3] with length 2\n" },
    { "exception", 1, 0,
      "Exception in thread \"main\" java.lang.IllegalStateException: no\n\tat A.b\n" },
    { "exception", 1, 0, "error: config 'x.yaml' has no section [model]\n" },
    { "exception", 1, 0, "2024-01-01 10:00:00,123 - train - ERROR - shape of input is wrong\n" },
    { "nan", 1, 0, "[rank0]: ValueError: loss is nan at step 3\n" },
    { "nan", 1, 0, "WARNING: loss=nan at step 31, giving up\n" },
    { "nan", 1, 0, TRACE "RuntimeError: non-finite gradient norm at step 7\n" },
    { "interrupted", 130, 0, TRACE "KeyboardInterrupt\n" },
    { "killed", 1, 0,
      TRACE "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.\n" },
    { "segfault", 1, 0,
      TRACE "subprocess.CalledProcessError: Command '['./a']' died with <Signals.SIGSEGV: 11>.\n" },
    { "killed", 137, 0, TRACE "ModuleNotFoundError: No module named 'optional'\nstep 1\nstep 2\n" },
    /* the child's own message counts more than its parent's report about the child */
    { "missing_module", 1, 0,
      TRACE
      "ModuleNotFoundError: No module named 'sklearn'\n"
      "E1121 10:00:00.1 api.py:833] failed (exitcode: 1) local_rank: 0 (pid: 77) of binary\n" TRACE
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
      "=====\ntrain.py FAILED\n-----\n" },
    /* an error that the program handled is no cause */
    { "exception", 1, 0,
      TRACE "ModuleNotFoundError: No module named 'apex'\ngoing on without it\nstep 1\nstep 2\n"
            "step 3\n" TRACE "KeyError: 'label'\n" },
    { "exception", 1, 0,
      "2024-01-01 10:00:00.1: W tensorflow/x.cc:64] Could not load dynamic library "
      "'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such "
      "file or directory\n2024-01-01 10:00:00.2: E tensorflow/cuda.cc:271] failed call to cuInit: "
      "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n" TRACE "KeyError: 'label'\n" },
    { "exit_code", 3, 0,
      "rm: x: No such file or directory\nstep 1\nstep 2\nstep 3\nstep 4\nstep 5\nstep 6\nstep "
      "7\n" },
    /* source text in a traceback is not an error message */
    { "exception", 1, 0,
      "Traceback (most recent call last):\n  File \"/data not found/t.py\", line 3, in f\n"
      "    except ConnectionResetError: raise MemoryError\nKeyError: 'label'\n" },
    { "lost_peer", 1, 0,
      "Traceback (most recent call last):\n  File \"t.py\", line 3\n"
      "    c.recv()\nEOFError\n" },
    { "lost_peer", 1, 0, "worker 0: lost connection to worker 1\n" },
    { "lost_peer", 1, 0, "[1,0]<stderr>:RuntimeError: peer rank 1 closed the socket\n" },
    { "collective_timeout", 1, 0,
      TRACE "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
            "waiting 10000ms for recv operation to complete\n" },
    { "collective_timeout", 1, 0, TRACE "RuntimeError: Barrier timed out after 30 s\n" },
    /* in a chain of exceptions the first one is the root; messages of the shutdown follow it */
    { "lost_peer", 1, 0,
      TRACE "ConnectionResetError: [Errno 104] Connection reset by peer\n\nDuring handling of the "
            "above exception, another exception occurred:\n\n" TRACE
            "RuntimeError: step failed\n" },
    { "exception", 1, 0,
      TRACE "ValueError: no such digit\nException ignored in: <Pool>\n" TRACE
            "BrokenPipeError: [Errno 32] Broken pipe\n" },
    { "missing_module", 1, 0,
      TRACE "ConnectionRefusedError: [Errno 111] Connection refused\n" TRACE
            "ModuleNotFoundError: No module named 'x'\n" },
    { "exception", 1, 0,
      "[W socket.cpp:601] [c10d] The client socket has failed to connect to [::1]:29500 "
      "(Connection "
      "refused).\n" TRACE "KeyError: 'label'\n" },
    { "exception", 1, 0,
      "2024-01-01 10:00:00.1: W tensorflow/core/x.cc:1] UNAVAILABLE: failed to connect\n" TRACE
      "KeyError: 'label'\n" },
    { "lost_peer", 1, 0,
      TRACE "RuntimeError: [pair.cc:598] Connection closed by peer\n" TRACE
            "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pymp-1/listener'\n" },
};

static void test_samples(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        const struct sample *s = &samples[i];
        struct span line;
        const struct cause *k = cause_find(&(struct cause_end){ .reason = END_EXITED,
                                                                .exit_code = s->exit_code,
                                                                .signal = s->signal,
                                                                .tail = s->tail },
                                           &line);
        assert_non_null(k);
        if (!str_eq(k->name, s->cause)) {
            print_error("'%s', not '%s', of:\n%s\n", k->name, s->cause, s->tail);
            wrong++;
        }
        assert_int_equal(k->victim,
                         str_eq(k->name, "lost_peer") || str_eq(k->name, "collective_timeout"));
        assert_true(line.len == 0 || memmem(s->tail, strlen(s->tail), line.p, line.len));
    }
    assert_int_equal(wrong, 0);
}

static void test_reasons(void **state)
{
    static const struct {
        enum end_reason reason;
        int exit_code, signal;
        const char *cause, *detail, *tail;
    } rows[] = {
        { END_OUT_OF_MEMORY, 0, 9, "out_of_memory", "used 2 GB", "ModuleNotFoundError: x\n" },
        { END_TIMED_OUT, 0, 15, "timed_out", NULL, NULL },
        { END_PREEMPTED, 0, 0, "preempted", NULL, NULL },
        { END_NODE_LOST, 0, 0, "node_lost", NULL, NULL },
        { END_NODE_LOST, 0, 0, "node_lost", "no heartbeat for 3 s", NULL },
        { END_NODE_LOST, 0, 0, "keeper_lost", CAUSE_KEEPER_ENDED, NULL },
        { END_DISK_FAILED, 0, 0, "disk_failed", NULL, NULL },
        { END_LAUNCH_FAILED, 127, 0, "command_not_found",
          "cannot run '/opt/py': No such file or directory", NULL },
        { END_LAUNCH_FAILED, 127, 0, "not_executable", "cannot run 'x': Permission denied", NULL },
        { END_LAUNCH_FAILED, 127, 0, "missing_interpreter",
          "cannot run 'x': its interpreter '/y' is not there", NULL },
        { END_LAUNCH_FAILED, 127, 0, "not_executable",
          "cannot run 'x': its program loader is not there", NULL },
        { END_LAUNCH_FAILED, 127, 0, "not_executable", "cannot run 'x': Exec format error", NULL },
        { END_LAUNCH_FAILED, 0, 0, "launch_failed", "its executor did not register", NULL },
        { END_LAUNCH_FAILED, 127, 0, "arguments_too_long",
          "cannot run '/bin/true': Argument list too long", NULL },
        { END_LAUNCH_FAILED, 127, 0, "arguments_too_long",
          "the addresses of all tasks do not fit into the environment: framework 'tensorflow' "
          "needs TF_CONFIG with 140000 bytes, and Linux takes 131072",
          NULL },
        { END_UNKNOWN, 0, 0, "unknown", NULL, NULL },
        { END_UNKNOWN, 0, 0, "executor_lost", "its executor was killed by signal 9", NULL },
        { END_EXITED, 0, 0, NULL, NULL, "ValueError: caught\n" },
        /* stopped by tony: only an error in its last lines counts */
        { END_KILLED_BY_MASTER, 0, 15, NULL, NULL, "" },
        { END_KILLED_BY_MASTER, 0, 15, "exception", NULL, "ValueError: no\n" },
        { END_KILLED_BY_MASTER, 0, 15, NULL, NULL, "ValueError: no\n1\n2\n3\n4\n5\n6\n7\n8\n" },
        { END_KILLED_BY_MASTER, 1, 0, "exception", NULL, "ValueError: no\n" },
        { END_KILLED_BY_MASTER, 1, 0, NULL, NULL, "RuntimeError: got signal 15\n" },
        { END_KILLED_BY_MASTER, 1, 0, NULL, NULL, "KeyboardInterrupt\n" },
        { END_KILLED_BY_MASTER, 3, 0, NULL, NULL, "bye\n" },
        { END_KILLED_BY_MASTER, 143, 0, NULL, NULL, "ValueError: no\n" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct cause *k = cause_find(&(struct cause_end){ .reason = rows[i].reason,
                                                                .exit_code = rows[i].exit_code,
                                                                .signal = rows[i].signal,
                                                                .detail = rows[i].detail,
                                                                .tail = rows[i].tail },
                                           NULL);
        if (!str_eq(k ? k->name : NULL, rows[i].cause))
            fail_msg("row %zu: %s", i, k ? k->name : "nothing");
    }
}

/* A task without peers that lost a connection can only have lost a service outside the job. */
static void test_a_task_without_peers(void **state)
{
    struct cause_end end = { .reason = END_EXITED,
                             .exit_code = 1,
                             .tail = "ConnectionRefusedError: [Errno 111] Connection refused\n" };
    (void)state;
    assert_string_equal(cause_find(&end, NULL)->name, "lost_peer");
    end.alone = true;
    assert_string_equal(cause_find(&end, NULL)->name, "network");
}

static void test_the_remedy_names_the_role(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf text = { 0 };
    const struct cause *k = cause_find(&(struct cause_end){ .reason = END_OUT_OF_MEMORY }, NULL);
    assert_int_equal(cause_remedy(k, "evaluator", &text), 0);
    assert_non_null(strstr(buf_cstr(&text), "tony.evaluator.memory"));
    assert_null(strstr(buf_cstr(&text), "<role>"));
}

/* The reported line lies inside the tail, for any bytes. */
static void test_any_bytes(void **state)
{
    static const char *const tails[] = { "\n\n\n",   "\xff\xfe\n", ":",   "Error",   "Error:",
                                         "nan loss", "loss nan",   "nan", "loss na", "\r\n\r\n" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
        struct span line;
        assert_non_null(cause_find(
            &(struct cause_end){ .reason = END_EXITED, .exit_code = 1, .tail = tails[i] }, &line));
        assert_true(line.len <= strlen(tails[i]));
    }
}

static void test_names(void **state)
{
    static const char *const none[] = { "", "none", "Missing_module", "missing_module " };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        const struct cause *c = cause_named(samples[i].cause);
        assert_non_null(c);
        assert_string_equal(c->name, samples[i].cause);
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        assert_null(cause_named(none[i]));
    assert_null(cause_named(NULL));
    assert_null(cause_named(CAUSE_NO_FAILURE)); /* no cause has that name */
}

static void test_records(void **state)
{
    char line[CAUSE_LINE_MAX + 1], tail[2000] = "ValueError: x";
    struct cause_end end = { .reason = END_EXITED, .exit_code = 1, .tail = tail };
    (void)state;
    assert_string_equal(cause_record(&end, line), "exception");
    assert_string_equal(line, "ValueError: x");
    for (size_t i = strlen(tail); i + 2 < sizeof tail; i += 2)
        memcpy(tail + i, "\xc3\xa9", 3);
    assert_string_equal(cause_record(&end, line), "exception");
    assert_int_equal(strlen(line), CAUSE_LINE_MAX - 1); /* the last character did not fit */
    assert_true(span_utf8(span_of(line), NULL));
    end.tail = "";
    assert_string_equal(cause_record(&end, line), "exit_code");
    assert_string_equal(line, "");
    end.exit_code = 0;
    assert_string_equal(cause_record(&end, line), CAUSE_NO_FAILURE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_a_task_without_peers),
        cmocka_unit_test(test_the_remedy_names_the_role),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
