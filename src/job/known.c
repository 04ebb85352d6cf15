/*
 * How programs say that they die. The texts are those of the programs themselves, as they appear on
 * stderr, so they are matched as they are written there.
 *
 * A line can be sure (its program does not go on after it), doubtful (also printed by what is torn
 * down, or only a warning), or a victim's (a peer is gone). A sure one decides wherever it stands.
 * Among the others the earliest does: the first exception of a chain is its root, and what is
 * printed while everything falls apart comes after it.
 */
#include "job/known.h"

#include <ctype.h>
#include <signal.h>
#include <strings.h>

#include "base/util.h"

enum { LINES_AFTER_MAX = 6 }; /* what is torn down may add some */

enum known_id {
    K_NONE = 0,
    K_OUT_OF_MEMORY,
    K_GPU_MEMORY,
    K_SHARED_MEMORY,
    K_DISK_FULL,
    K_MISSING_MODULE,
    K_MISSING_LIBRARY,
    K_PORT_IN_USE,
    K_NAN,
    K_WRONG_PATH,
    K_PERMISSION,
    K_COMMAND_NOT_FOUND,
    K_NOT_EXECUTABLE,
    K_OPEN_FILES,
    K_THREADS,
    K_ARGUMENTS,
    K_SYNTAX,
    K_NO_GPU,
    K_GPU_FAULT,
    K_HOST_NAME,
    K_NETWORK,
    K_DAMAGED_FILE,
    K_CPU_TYPE,
    K_LOST_PEER,
    K_EXCEPTION,
    K_SEGFAULT,
    K_BUS_ERROR,
    K_ABORTED,
    K_ARITHMETIC,
    K_KILLED,
    K_TERMINATED,
    K_INTERRUPTED,
    K_RESOURCE_LIMIT,
    K_SIGNAL,
    K_TIMED_OUT,
    K_PREEMPTED,
    K_NODE_LOST,
    K_DISK_FAILED,
    K_LAUNCH_FAILED,
    K_EXIT_CODE,
    K_UNKNOWN,
};

static const struct known known[] = {
    [K_OUT_OF_MEMORY] = { "out_of_memory", "it needed more memory than it may use",
                          "raise tony.<role>.memory, or make batches smaller and use fewer "
                          "data-loading processes" },
    [K_GPU_MEMORY] = { "gpu_out_of_memory", "the memory of its GPU was full",
                       "make batches or the model smaller, accumulate gradients, or use GPUs with "
                       "more memory; nvidia-smi shows who else uses the device" },
    [K_SHARED_MEMORY] = { "shared_memory", "there was no room in shared memory (/dev/shm)",
                          "use fewer data-loading processes (num_workers), or enlarge /dev/shm on "
                          "the node (of a Docker container: --shm-size)" },
    [K_DISK_FULL] = { "disk_full", "a disk or a quota was full",
                      "make room (df -h shows where it is missing), or let it write elsewhere" },
    [K_MISSING_MODULE] = { "missing_module",
                           "a Python module that it needs is missing, or is of "
                           "another version than it expects",
                           "ship an environment that has it (venv:, --python_venv), or name the "
                           "Python that has it in the command" },
    [K_MISSING_LIBRARY] = { "missing_library",
                            "a shared library that it needs is missing or does "
                            "not fit",
                            "install the library on the node, or ship it and name its directory in "
                            "LD_LIBRARY_PATH (env:)" },
    [K_PORT_IN_USE] = { "port_in_use", "the port that it wanted was taken",
                        "use the port that TONY_ADDRESS names, or port 0; a port written into the "
                        "program meets whoever else uses it on that node" },
    [K_NAN] = { "nan", "a value was not a number any more (NaN)",
                "lower the learning rate, clip gradients, and look at the data; "
                "torch.autograd.set_detect_anomaly(True) finds the operation" },
    [K_WRONG_PATH] = { "wrong_path", "a file or directory that it wanted is not there",
                       "ship it (src:, resources:), or name a path that exists on the node where "
                       "the task runs; relative paths start in the working directory" },
    [K_PERMISSION] = { "permission", "it was not permitted to do what it wanted",
                       "look at owner and mode of what the line names; tasks run as the job's "
                       "user, and what is shipped is read-only but for src" },
    [K_COMMAND_NOT_FOUND] = { "command_not_found", "the command is not there",
                              "check its spelling and PATH on the node; a program of your own must "
                              "be shipped (src:) and is called ./NAME" },
    [K_NOT_EXECUTABLE] = { "not_executable", "the command is there but cannot be executed",
                           "chmod +x it, check its first line (#!) and that it was built for this "
                           "machine, or name its interpreter: python3 FILE" },
    [K_OPEN_FILES] = { "open_files", "it had too many files open",
                       "raise the limit (ulimit -n) of whoever starts the pool or the node "
                       "manager, "
                       "or use fewer data-loading processes" },
    [K_THREADS] = { "too_many_processes", "it could not start another process or thread",
                    "set OMP_NUM_THREADS and use fewer data-loading processes, or raise the limit "
                    "of processes (ulimit -u, pids of the control group)" },
    [K_ARGUMENTS] = { "wrong_arguments", "the program does not understand its arguments",
                      "compare the command of the role with what the program's --help says" },
    [K_SYNTAX] = { "syntax_error", "the program has a syntax error",
                   "correct the line; if it runs elsewhere, compare the versions of the "
                   "interpreter" },
    [K_NO_GPU] = { "no_gpu", "it found no GPU that it can use",
                   "ask for one (tony.<role>.gpus), and check the driver with nvidia-smi and tony "
                   "doctor" },
    [K_GPU_FAULT] = { "gpu_fault", "an operation on its GPU failed",
                      "run it with CUDA_LAUNCH_BLOCKING=1 to see which; if it is always the same "
                      "device, look for Xid errors in dmesg" },
    [K_HOST_NAME] = { "host_name", "a host name could not be resolved",
                      "check the name, and the resolver of the node; tony's own addresses are "
                      "numbers" },
    [K_NETWORK] = { "network", "it could not reach something outside of the job",
                    "check the address, and whether the nodes have a way out (proxy); better ship "
                    "what it wants to download" },
    [K_DAMAGED_FILE] = { "damaged_file", "a file that it read is damaged or cut short",
                         "remove or restore the file; write checkpoints under another name and "
                         "rename them when they are complete" },
    [K_CPU_TYPE] = { "cpu_type", "it used an instruction that this CPU does not have",
                     "use a build for this type of CPU" },
    [K_LOST_PEER] = { "lost_peer", "it lost a peer, or a peer never came",
                      "look for the task that "
                      "ended first; if all others live, check that the address it dialled can be "
                      "reached from its node",
                      .victim = true },
    [K_EXCEPTION] = { "exception", "the program ended with an error of its own",
                      "the lines below say where" },
    [K_SEGFAULT] = { "segfault", "it accessed memory that it does not have (segmentation fault)",
                     "a library in it is faulty or does not fit: try python3 -X faulthandler, and "
                     "other versions of what is compiled" },
    [K_BUS_ERROR] = { "bus_error", "it accessed mapped memory that is not there (bus error)",
                      "a file that it had mapped was cut short, or a disk or /dev/shm was full" },
    [K_ABORTED] = { "aborted", "it aborted itself", "the lines below say why, if it said so" },
    [K_ARITHMETIC] = { "arithmetic", "an integer division by zero or an overflow trapped",
                       "python3 -X faulthandler, or a debugger, shows where" },
    [K_KILLED] = { "killed", "someone outside of tony killed it (signal 9)",
                   "an administrator, a script, or the kernel because the whole machine had no "
                   "memory left: dmesg | grep -i oom tells" },
    [K_TERMINATED] = { "terminated", "someone outside of tony told it to end (signal 15)",
                       "an administrator, a script, or the program itself sent it" },
    [K_INTERRUPTED] = { "interrupted", "someone outside of tony interrupted it",
                        "an administrator, a script, or the program itself sent the signal" },
    [K_RESOURCE_LIMIT] = { "resource_limit", "it went over a limit of processor time or file size",
                           "raise the limit (ulimit -t, ulimit -f) of whoever starts the pool or "
                           "the node manager" },
    [K_SIGNAL] = { "signal", "a signal ended it",
                   "the program itself or someone outside of tony "
                   "sent it" },
    [K_TIMED_OUT] = { "timed_out", "it ran longer than a task may",
                      "raise tony.task.executor.execution-timeout-ms, or find out what it waits "
                      "for" },
    [K_PREEMPTED] = { "preempted", "the scheduler took its container for someone else",
                      "use a queue with more guaranteed capacity, and save checkpoints" },
    [K_NODE_LOST] = { "node_lost", "its node or its executor is gone, or cannot be reached",
                      "look at the node: is it up, has it memory and disk, can it reach the "
                      "master" },
    [K_DISK_FAILED] = { "disk_failed", "a disk of the node failed or was full",
                        "the node's disks need attention" },
    [K_LAUNCH_FAILED] = { "launch_failed", "it could not be started",
                          "the sentence above says why" },
    [K_EXIT_CODE] = { "exit_code", "the program chose this exit code", "its log may say why",
                      .vague = true },
    [K_UNKNOWN] = { "unknown", "nobody knows how it ended", "its log may say why", .vague = true },
};

/* A line that holds `text`, and `also` where one is given. */
struct rule {
    enum known_id id;
    bool doubtful;
    const char *text, *also;
};

static const struct rule rules[] = {
    /* memory: the more exact first */
    { K_GPU_MEMORY, false, "CUDA out of memory", NULL },
    { K_GPU_MEMORY, false, "CUDA error: out of memory", NULL },
    { K_GPU_MEMORY, false, "CUDA_ERROR_OUT_OF_MEMORY", NULL },
    { K_GPU_MEMORY, false, "CUBLAS_STATUS_ALLOC_FAILED", NULL },
    { K_GPU_MEMORY, false, "OutOfMemoryError", "cuda" },
    { K_GPU_MEMORY, false, "OOM when allocating tensor", "GPU" },
    { K_GPU_MEMORY, false, "RESOURCE_EXHAUSTED: Out of memory", NULL },
    { K_SHARED_MEMORY, false, "insufficient shared memory", NULL },
    { K_SHARED_MEMORY, false, "unable to open shared memory object", NULL },
    { K_SHARED_MEMORY, false, "No space left on device", "/dev/shm" },
    { K_SHARED_MEMORY, false, "No space left on device", "shm" },
    { K_SHARED_MEMORY, false, "unable to allocate shared memory", NULL },
    { K_OUT_OF_MEMORY, false, "MemoryError", NULL },
    { K_OUT_OF_MEMORY, false, "std::bad_alloc", NULL },
    { K_OUT_OF_MEMORY, false, "DefaultCPUAllocator", NULL },
    { K_OUT_OF_MEMORY, false, "OOM when allocating tensor", NULL },
    { K_OUT_OF_MEMORY, false, "java.lang.OutOfMemoryError", NULL },
    { K_OUT_OF_MEMORY, false, "Cannot allocate memory", NULL },
    { K_OUT_OF_MEMORY, false, "JavaScript heap out of memory", NULL },
    { K_DISK_FULL, false, "No space left on device", NULL },
    { K_DISK_FULL, false, "Disk quota exceeded", NULL },
    { K_DISK_FULL, false, "[Errno 28]", NULL },
    { K_DISK_FULL, false, "database or disk is full", NULL },
    /* what is missing */
    { K_MISSING_LIBRARY, false, "error while loading shared libraries", NULL },
    { K_MISSING_LIBRARY, false, "cannot open shared object file", NULL },
    { K_MISSING_LIBRARY, false, "undefined symbol", NULL },
    { K_MISSING_LIBRARY, false, "version `", "not found" },
    { K_MISSING_MODULE, false, "ModuleNotFoundError", NULL },
    { K_MISSING_MODULE, false, "No module named", NULL },
    { K_MISSING_MODULE, false, "ImportError", NULL },
    { K_MISSING_MODULE, false, "compiled using NumPy 1.x cannot be run", NULL },
    { K_MISSING_MODULE, false, "module compiled against API version", NULL },
    { K_SYNTAX, false, "SyntaxError: ", NULL },
    { K_SYNTAX, false, "IndentationError: ", NULL },
    { K_SYNTAX, false, "TabError: ", NULL },
    { K_SYNTAX, false, "syntax error near unexpected token", NULL },
    { K_SYNTAX, false, "unexpected EOF while looking for", NULL },
    { K_ARGUMENTS, false, "error: unrecognized arguments", NULL },
    { K_ARGUMENTS, false, "error: the following arguments are required", NULL },
    { K_ARGUMENTS, false, "error: argument ", NULL },
    { K_ARGUMENTS, false, "error: no such option", NULL },
    { K_ARGUMENTS, false, "Error: No such option", NULL },
    { K_ARGUMENTS, false, "unrecognized option", NULL },
    { K_ARGUMENTS, false, "invalid option --", NULL },
    { K_ARGUMENTS, false, "Unknown command line flag", NULL },
    { K_COMMAND_NOT_FOUND, false, "command not found", NULL },
    { K_COMMAND_NOT_FOUND, false, "env: ", "No such file or directory" },
    { K_NOT_EXECUTABLE, false, "Exec format error", NULL },
    { K_NOT_EXECUTABLE, false, "bad interpreter", NULL },
    { K_NOT_EXECUTABLE, false, "cannot execute", NULL },
    /* the machine */
    { K_PORT_IN_USE, false, "Address already in use", NULL },
    { K_PORT_IN_USE, false, "address already in use", NULL },
    { K_PORT_IN_USE, false, "EADDRINUSE", NULL },
    { K_PORT_IN_USE, false, "Failed to bind to address", NULL },
    { K_PORT_IN_USE, false, "is already in use", "port" },
    { K_PORT_IN_USE, false, "is already in use", "Port" },
    { K_OPEN_FILES, false, "Too many open files", NULL },
    { K_THREADS, false, "can't start new thread", NULL },
    { K_THREADS, false, "pthread_create failed", NULL },
    { K_THREADS, false, "Resource temporarily unavailable", "fork" },
    { K_THREADS, false, "BlockingIOError: [Errno 11]", NULL },
    { K_GPU_FAULT, false, "device-side assert triggered", NULL },
    { K_GPU_FAULT, false, "illegal memory access", NULL },
    { K_GPU_FAULT, false, "uncorrectable ECC error", NULL },
    { K_NO_GPU, false, "No CUDA GPUs are available", NULL },
    { K_NO_GPU, false, "Found no NVIDIA driver", NULL },
    { K_NO_GPU, false, "no CUDA-capable device is detected", NULL },
    { K_NO_GPU, false, "CUDA driver version is insufficient", NULL },
    { K_NO_GPU, false, "invalid device ordinal", NULL },
    { K_NO_GPU, false, "not compiled with CUDA enabled", NULL },
    { K_NO_GPU, false, "torch.cuda.is_available() is False", NULL },
    { K_DAMAGED_FILE, false, "PytorchStreamReader failed", NULL },
    { K_DAMAGED_FILE, false, "UnpicklingError", NULL },
    { K_DAMAGED_FILE, false, "EOFError: Ran out of input", NULL },
    { K_DAMAGED_FILE, false, "BadZipFile", NULL },
    { K_DAMAGED_FILE, false, "BadGzipFile", NULL },
    { K_DAMAGED_FILE, false, "DataLossError", NULL },
    { K_DAMAGED_FILE, false, "unexpected end of file", "gzip" },
    { K_NAN, false, "NanLossDuringTrainingError", NULL },
    { K_NAN, false, "FloatingPointError", NULL },
    { K_NAN, false, "returned nan values", NULL },
    { K_NAN, false, "Input contains NaN", NULL },
    { K_NAN, false, "Tensor had NaN values", NULL },
    { K_NAN, false, "Tensor had Inf and NaN", NULL },
    { K_NETWORK, true, "Network is unreachable", NULL },
    { K_NETWORK, true, "Max retries exceeded with url", NULL },
    { K_NETWORK, true, "urllib.error.", NULL },
    { K_NETWORK, true, "CERTIFICATE_VERIFY_FAILED", NULL },
    /* a peer is gone: gloo, NCCL, TensorFlow, JAX, Horovod, MPI, XGBoost, plain sockets */
    { K_LOST_PEER, true, "onnection reset by peer", NULL },
    { K_LOST_PEER, true, "onnection closed by peer", NULL },
    { K_LOST_PEER, true, "onnection refused", NULL },
    { K_LOST_PEER, true, "onnection timed out", NULL },
    { K_LOST_PEER, true, "onnection aborted", NULL },
    { K_LOST_PEER, true, "ConnectionResetError", NULL },
    { K_LOST_PEER, true, "ConnectionRefusedError", NULL },
    { K_LOST_PEER, true, "ConnectionAbortedError", NULL },
    { K_LOST_PEER, true, "BrokenPipeError", NULL },
    { K_LOST_PEER, true, "Broken pipe", NULL },
    { K_LOST_PEER, true, "Socket closed", NULL },
    { K_LOST_PEER, true, "Socket Timeout", NULL },
    { K_LOST_PEER, true, "client socket has timed out", NULL },
    { K_LOST_PEER, true, "remote process exited", NULL },
    { K_LOST_PEER, true, "remote process has terminated", NULL },
    { K_LOST_PEER, true, "ncclRemoteError", NULL },
    { K_LOST_PEER, true, "NCCL communicator was aborted", NULL },
    { K_LOST_PEER, true, "NCCL operations have failed or timed out", NULL },
    { K_LOST_PEER, true, "Watchdog caught collective operation timeout", NULL },
    { K_LOST_PEER, true, "Timed out initializing process group", NULL },
    { K_LOST_PEER, true, "Timed out waiting", NULL },
    { K_LOST_PEER, true, "timeout", "store" },
    { K_LOST_PEER, true, "Wait timeout", NULL },
    { K_LOST_PEER, true, "UnavailableError", NULL },
    { K_LOST_PEER, true, "UNAVAILABLE", NULL },
    { K_LOST_PEER, true, "failed to connect to all addresses", NULL },
    { K_LOST_PEER, true, "Collective ops is aborted by", NULL },
    { K_LOST_PEER, true, "tasks are unhealthy", NULL },
    { K_LOST_PEER, true, "heartbeat timeout", NULL },
    { K_LOST_PEER, true, "heartbeat has timed out", NULL },
    { K_LOST_PEER, true, "coordination service", NULL },
    { K_LOST_PEER, true, "JAX distributed service", NULL },
    { K_LOST_PEER, true, "DEADLINE_EXCEEDED", NULL },
    { K_LOST_PEER, true, "HorovodInternalError", NULL },
    { K_LOST_PEER, true, "Horovod has been shut down", NULL },
    { K_LOST_PEER, true, "one of the ranks exited", NULL },
    { K_LOST_PEER, true, "Communication error with rank", NULL },
    { K_LOST_PEER, true, "connection failure", "sock" },
    { K_LOST_PEER, true, "rabit", "recv" },
    { K_LOST_PEER, true, "Rabit", "failed" },
    { K_LOST_PEER, true, "No route to host", NULL },
    /* also seen in what is torn down, or as a warning */
    { K_HOST_NAME, true, "Name or service not known", NULL },
    { K_HOST_NAME, true, "Temporary failure in name resolution", NULL },
    { K_HOST_NAME, true, "getaddrinfo failed", NULL },
    { K_WRONG_PATH, true, "FileNotFoundError", NULL },
    { K_WRONG_PATH, true, "NotADirectoryError", NULL },
    { K_WRONG_PATH, true, "IsADirectoryError", NULL },
    { K_WRONG_PATH, true, "No such file or directory", NULL },
    { K_PERMISSION, true, "PermissionError", NULL },
    { K_PERMISSION, true, "Permission denied", NULL },
    { K_PERMISSION, true, "Operation not permitted", NULL },
    { K_PERMISSION, true, "Read-only file system", NULL },
    { K_SEGFAULT, true, "Segmentation fault", NULL },
};

static bool has(struct span line, const char *text)
{
    return memmem(line.p, line.len, text, strlen(text)) != NULL;
}

/* "NaN" as a word, in a line that is about a result: loss is nan; not banana, and not a name. */
static bool is_nan(struct span line)
{
    static const char *const about[] = { "loss", "Loss", "grad", "Error", "value", "diverge" };
    bool result = false;

    for (size_t i = 0; i < ARRAY_LEN(about); i++)
        result = result || has(line, about[i]);
    for (size_t i = 0; result && i + 3 <= line.len; i++) {
        bool before = i == 0 || !isalnum((unsigned char)line.p[i - 1]);
        bool after = i + 3 == line.len || !isalnum((unsigned char)line.p[i + 3]);
        if (before && after && strncasecmp(line.p + i, "nan", 3) == 0)
            return true;
    }
    return false;
}

/* "package.SomeError: text" at the beginning of a line, as Python ends a traceback; and what other
 * languages have for it. */
static bool is_exception(struct span line)
{
    static const char *const others[] = { "terminate called after throwing",
                                          "panic: ",
                                          "Exception in thread ",
                                          "Traceback of ",
                                          "ERROR: LoadError",
                                          "Error in " };
    static const char *const ends[] = { "Error", "Exception", "Failure", "Exit", "Interrupt" };
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (span_starts(line, others[i]))
            return true;
    while (n < line.len &&
           (isalnum((unsigned char)line.p[n]) || line.p[n] == '_' || line.p[n] == '.'))
        n++;
    if (!n || (n < line.len && line.p[n] != ':'))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        size_t len = strlen(ends[i]);
        if (n > len && memcmp(line.p + n - len, ends[i], len) == 0)
            return true;
    }
    return false;
}

/* Who goes on after it says so, as a client that tries again while its server starts. */
static bool is_warning(struct span line)
{
    struct span start = span_mem(line.p, MIN(line.len, (size_t)60));

    return span_starts(line, "[W") || span_starts(line, "[I") || span_starts(line, "W0") ||
           span_starts(line, "I0") || has(start, ": W ") || has(start, ": I ") ||
           has(start, "WARN") || has(start, "Warning") || has(start, "INFO");
}

static const struct rule *rule_of(struct span line)
{
    static const struct rule nan = { K_NAN, true, "", NULL };
    static const struct rule exception = { K_EXCEPTION, true, "", NULL };
    bool warning = is_warning(line);

    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (has(line, rules[i].text) && (!rules[i].also || has(line, rules[i].also)) &&
            !(rules[i].doubtful && warning))
            return &rules[i];
    return is_nan(line) ? &nan : is_exception(line) ? &exception : NULL;
}

struct found {
    enum known_id id;
    bool sure;
    struct span line;
};

static struct found look(const char *text)
{
    struct span rest = span_of(text ? text : ""), line;
    struct found f = { 0 };

    while (rest.p && span_split(&rest, '\n', &line)) {
        const struct rule *r = rule_of(line);
        if (!r)
            continue;
        bool first = !f.id || (f.id == K_EXCEPTION && r->id != K_EXCEPTION && r->id != K_LOST_PEER);
        if (r->doubtful && (f.sure || !first))
            continue;
        f = (struct found){ r->id, !r->doubtful, span_trim(line) };
    }
    return f;
}

static enum known_id of_signal(int signal)
{
    switch (signal) {
    case SIGSEGV:
        return K_SEGFAULT;
    case SIGBUS:
        return K_BUS_ERROR;
    case SIGABRT:
        return K_ABORTED;
    case SIGFPE:
        return K_ARITHMETIC;
    case SIGILL:
        return K_CPU_TYPE;
    case SIGKILL:
        return K_KILLED;
    case SIGTERM:
        return K_TERMINATED;
    case SIGINT:
        return K_INTERRUPTED;
    case SIGXCPU:
    case SIGXFSZ:
        return K_RESOURCE_LIMIT;
    default:
        return K_SIGNAL;
    }
}

/* An exit code that the program did not choose: the shell's, or the kernel's by way of a shell. */
static enum known_id of_code(int code, enum known_id said)
{
    if (code == 127 && (!said || said == K_WRONG_PATH))
        return K_COMMAND_NOT_FOUND;
    if (code == 126 && (!said || said == K_PERMISSION))
        return K_NOT_EXECUTABLE;
    if (said)
        return said;
    return code > 128 && code < 128 + 32 ? of_signal(code - 128) : K_EXIT_CODE;
}

static enum known_id of_exit(const struct known_end *end, struct found *f)
{
    int signal = end->signal;

    *f = look(end->tail);
    if (!signal)
        return of_code(end->exit_code, f->id);
    if (signal == SIGABRT && f->id)
        return f->id;
    /* what the program said before a signal took it need not have to do with that */
    if (signal == SIGBUS && f->id == K_SHARED_MEMORY)
        return f->id;
    f->line = span_mem("", 0);
    return of_signal(signal);
}

static enum known_id of_launch(const struct known_end *end, struct found *f)
{
    *f = look(end->detail);
    if (f->id == K_WRONG_PATH)
        return K_COMMAND_NOT_FOUND;
    if (f->id == K_PERMISSION)
        return K_NOT_EXECUTABLE;
    return f->id && f->id != K_LOST_PEER ? f->id : K_LAUNCH_FAILED;
}

/* Is the line among the last ones? What stands long before the end was survived. */
static bool is_near_end(const char *text, struct span line)
{
    int after = 0;

    for (const char *p = line.p + line.len; *p && p >= text; p++)
        after += *p == '\n' && p[1];
    return after <= LINES_AFTER_MAX;
}

/* What we stopped was failing by itself only if its last words say so, and not of the stop. */
static enum known_id of_stopped(const struct known_end *end, struct found *f)
{
    if ((!end->signal && !end->exit_code) || end->exit_code > 128)
        return K_NONE;
    *f = look(end->tail);
    if (!f->id || !is_near_end(end->tail, f->line))
        return K_NONE;
    bool stop = has(f->line, "Interrupt") || has(f->line, "SystemExit") || has(f->line, "ignal") ||
                has(f->line, "SIGTERM");
    return stop ? K_NONE : f->id;
}

static enum known_id of_end(const struct known_end *end, struct found *f)
{
    switch (end->reason) {
    case END_OUT_OF_MEMORY:
        return K_OUT_OF_MEMORY;
    case END_TIMED_OUT:
        return K_TIMED_OUT;
    case END_PREEMPTED:
        return K_PREEMPTED;
    case END_NODE_LOST:
        return K_NODE_LOST;
    case END_DISK_FAILED:
        return K_DISK_FAILED;
    case END_LAUNCH_FAILED:
        return of_launch(end, f);
    case END_KILLED_BY_MASTER:
        return of_stopped(end, f);
    case END_EXITED:
        return end->exit_code || end->signal ? of_exit(end, f) : K_NONE;
    case END_NONE:
    case END_UNKNOWN:
    case END_COUNT:
        break;
    }
    *f = look(end->tail);
    return f->id ? f->id : K_UNKNOWN;
}

const struct known *known_find(const struct known_end *end, struct span *out_line)
{
    struct found f = { .line = span_mem("", 0) };
    enum known_id id = of_end(end, &f);

    if (out_line)
        *out_line = f.line.p ? f.line : span_mem("", 0);
    return id ? &known[id] : NULL;
}

int known_remedy(const struct known *k, const char *role, struct buf *out)
{
    const char *mark = strstr(k->remedy, "<role>");

    if (!mark)
        return buf_adds(out, k->remedy);
    return buf_addf(out, "%.*s%s%s", (int)(mark - k->remedy), k->remedy, role, mark + 6);
}
