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
#include "job/known_words.h"

enum {
    LINES_AFTER_MAX = 6, /* what is torn down may add some */
    WORKED_ON_MIN = 3,   /* lines of plain output that say that it went on after an error */
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
    [K_IO_ERROR] = { "io_error", "a disk or file system failed while it read or wrote",
                     "the node's disk, or the network file system, needs attention: dmesg, mount; "
                     "let it work elsewhere meanwhile" },
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
    [K_VERSION] = { "version_mismatch",
                    "something that it uses is of another version than it expects",
                    "ship an environment with versions that fit together (venv:, "
                    "--python_venv); pip check names what does not" },
    [K_PORT_IN_USE] = { "port_in_use", "the port that it wanted was taken",
                        "use the port that TONY_ADDRESS names, or port 0; a port written into the "
                        "program meets whoever else uses it on that node" },
    [K_ADDRESS] = { "wrong_address", "the address that it wanted is none of its node's",
                    "listen on 0.0.0.0, or on the host of TONY_ADDRESS" },
    [K_NAN] = { "nan", "a value was no finite number any more (NaN or infinite)",
                "lower the learning rate, clip gradients, and look at the data; "
                "torch.autograd.set_detect_anomaly(True) finds the operation" },
    [K_WRONG_PATH] = { "wrong_path", "a file or directory that it wanted is not there",
                       "ship it (src:, resources:), or name a path that exists on the node where "
                       "the task runs; relative paths start in the working directory" },
    [K_EXISTS] = { "exists", "what it wanted to make is there already",
                   "remove it, or let each run and each task write under a name of its own "
                   "(TONY_APPLICATION_ID, TONY_TASK, TONY_ATTEMPT)" },
    [K_PERMISSION] = { "permission", "it was not permitted to do what it wanted",
                       "look at owner and mode of what the line names; tasks run as the job's "
                       "user, and what is shipped is read-only but for src" },
    [K_CREDENTIALS] = { "credentials",
                        "a service refused it: its credentials are missing, wrong or "
                        "too old",
                        "give it valid ones (env:, or a file that is shipped), and check what they "
                        "are allowed" },
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
    [K_GPU_TYPE] = { "gpu_type", "it was not built for this type of GPU",
                     "use a build whose list of architectures has this GPU's "
                     "(torch.cuda.get_arch_list())" },
    [K_HOST_NAME] = { "host_name", "a host name could not be resolved",
                      "check the name, and the resolver of the node; tony's own addresses are "
                      "numbers" },
    [K_NETWORK] = { "network", "it could not reach something outside of the job",
                    "check the address, and whether the nodes have a way out (proxy); better ship "
                    "what it wants to download" },
    [K_DAMAGED_FILE] = { "damaged_file", "a file that it read is damaged or cut short",
                         "remove or restore the file; write checkpoints under another name and "
                         "rename them when they are complete" },
    [K_MODEL_MISMATCH] = { "model_mismatch", "the checkpoint does not belong to this model",
                           "load one that the same code has written, or begin without: the lines "
                           "below say which parts differ" },
    [K_CPU_TYPE] = { "cpu_type", "it used an instruction that this CPU does not have",
                     "use a build for this type of CPU" },
    [K_LOST_PEER] = { "lost_peer", "it lost a peer, or a peer never came",
                      "look for the task that "
                      "ended first; if all others live, check that the address it dialled can be "
                      "reached from its node",
                      .victim = true },
    [K_COLLECTIVE] = { "collective_timeout", "it waited in vain for the other tasks",
                       "look for the task that is missing, stuck or slower than the others, or "
                       "took another branch; if all take that long, raise the framework's timeout",
                       .victim = true },
    [K_EXCEPTION] = { "exception", "the program ended with an error of its own",
                      "the lines below say where", .general = true },
    [K_SEGFAULT] = { "segfault", "it accessed memory that it does not have (segmentation fault)",
                     "a library in it is faulty or does not fit: try python3 -X faulthandler, and "
                     "other versions of what is compiled" },
    [K_BUS_ERROR] = { "bus_error", "it accessed mapped memory that is not there (bus error)",
                      "a file that it had mapped was cut short, or a disk or /dev/shm was full" },
    [K_BROKEN_HEAP] = { "broken_heap", "it has damaged its own memory",
                        "a library in it is faulty or does not fit: try other versions of what is "
                        "compiled, and valgrind or AddressSanitizer" },
    [K_ABORTED] = { "aborted", "it aborted itself", "the lines below say why, if it said so" },
    [K_ARITHMETIC] = { "arithmetic", "an integer division by zero or an overflow trapped",
                       "python3 -X faulthandler, or a debugger, shows where" },
    [K_KILLED] = { "killed", "someone outside of tony killed it (signal 9)",
                   "an administrator, a script, a limit (ulimit -t), or the kernel because the "
                   "whole "
                   "machine had no memory left: dmesg | grep -i oom tells",
                   .general = true },
    [K_TERMINATED] = { "terminated", "someone outside of tony told it to end (signal 15)",
                       "an administrator, a script, or the program itself sent it",
                       .general = true },
    [K_INTERRUPTED] = { "interrupted", "someone outside of tony interrupted it",
                        "an administrator, a script, or the program itself sent the signal",
                        .general = true },
    [K_RESOURCE_LIMIT] = { "resource_limit", "it went over a limit of processor time or file size",
                           "raise the limit (ulimit -t, ulimit -f) of whoever starts the pool or "
                           "the node manager" },
    [K_SIGNAL] = { "signal", "a signal ended it",
                   "the program itself or someone outside of tony "
                   "sent it",
                   .general = true },
    [K_TIMED_OUT] = { "timed_out", "it ran longer than a task may",
                      "raise tony.task.executor.execution-timeout-ms, or find out what it waits "
                      "for" },
    [K_PREEMPTED] = { "preempted", "the scheduler took its container for someone else",
                      "use a queue with more guaranteed capacity, and save checkpoints" },
    [K_NODE_LOST] = { "node_lost", "its node or its executor is gone, or cannot be reached",
                      "look at the node: is it up, has it memory and disk, can it reach the "
                      "master" },
    [K_EXECUTOR_LOST] = { "executor_lost", "tony's executor was killed, and the task with it",
                          "an administrator, a script, or the kernel because the whole machine had "
                          "no memory left: dmesg | grep -i oom tells; tony.task.restarts.node-lost "
                          "is how often a task begins again after that",
                          .general = true },
    [K_DISK_FAILED] = { "disk_failed", "a disk of the node failed or was full",
                        "the node's disks need attention" },
    [K_LAUNCH_FAILED] = { "launch_failed", "it could not be started",
                          "the sentence above says why" },
    [K_EXIT_CODE] = { "exit_code", "the program chose this exit code", "its log may say why",
                      .vague = true },
    [K_UNKNOWN] = { "unknown", "nobody knows how it ended", "its log may say why", .vague = true },
};

/* "NaN" as a word, in a line that is about a result: loss is nan; not banana, and not a name. */
static bool is_nan(struct span line)
{
    static const char *const about[] = { "loss", "Loss", "grad", "Error", "value", "diverge" };
    bool result = false;

    for (size_t i = 0; i < ARRAY_LEN(about); i++)
        result = result || span_has(line, about[i]);
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
    size_t n = 0, dot = 0;

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (span_starts(line, others[i]))
            return true;
    while (n < line.len &&
           (isalnum((unsigned char)line.p[n]) || line.p[n] == '_' || line.p[n] == '.')) {
        dot = line.p[n] == '.' ? n : dot;
        n++;
    }
    if (!n || (n < line.len && line.p[n] != ':'))
        return false;
    if (dot && dot + 1 < n && isupper((unsigned char)line.p[dot + 1])) /* module.Name: text */
        return true;
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
           span_starts(line, "W1") || span_starts(line, "I0") || span_starts(line, "I1") ||
           span_has(start, ": W ") || span_has(start, ": I ") ||
           (span_has(start, "WARN") && !span_has(start, "NCCL WARN")) ||
           span_has(start, "warning: ") || span_has(start, "INFO") || span_has(start, "DEBUG") ||
           span_has(line, "Warning: ");
}

static const struct known_rule *rule_of(struct span line)
{
    static const struct known_rule nan = { K_NAN, true, "", NULL };
    static const struct known_rule exception = { K_EXCEPTION, true, "", NULL };
    static const struct known_rule peer = { K_LOST_PEER, true, "", NULL };

    for (size_t i = 0; i < known_n_rules; i++)
        if (span_has(line, known_rules[i].text) &&
            (!known_rules[i].also || span_has(line, known_rules[i].also)))
            return &known_rules[i];
    if (span_eqs(line, "EOFError")) /* without a word: the other end of a pipe or socket */
        return &peer;
    return is_nan(line) ? &nan : is_exception(line) ? &exception : NULL;
}

/* "[rank0]: text", "[1,0]<stderr>:text", "(Worker pid=7) text": launchers say whose line it is. */
static struct span without_prefix(struct span line)
{
    const char *end = line.len ? memchr(line.p, *line.p == '(' ? ')' : ']', line.len) : NULL;
    size_t n = end ? (size_t)(end - line.p) + 1 : 0;
    struct span mark = span_mem(line.p, n);

    if (n > 64 || n < 3)
        return line;
    bool whose = *line.p == '[' && (isdigit((unsigned char)line.p[1]) ||
                                    span_starts(mark, "[rank") || span_starts(mark, "[default"));
    if (!whose && !(*line.p == '(' && span_has(mark, "pid=")))
        return line;
    if (line.len - n >= 8 && memcmp(line.p + n, "<stderr>", 8) == 0)
        n += 8;
    if (n < line.len && line.p[n] == ':')
        n++;
    if (n < line.len && line.p[n] == ' ')
        n++;
    return span_mem(line.p + n, line.len - n);
}

/* What is written while a program is torn down, which is no sign of its going on. */
static bool is_noise(struct span line)
{
    static const char *const starts[] = { "[",           "frame #", "terminate called",
                                          "Exception ",  "***",     "---",
                                          "===",         "Aborted", "Traceback",
                                          "Fatal Python" };

    for (size_t i = 0; i < ARRAY_LEN(starts); i++)
        if (span_starts(line, starts[i]))
            return true;
    return !line.len || isspace((unsigned char)*line.p);
}

static bool is_chain(struct span line)
{
    return span_starts(line, "During handling of the above exception") ||
           span_starts(line, "The above exception was the direct cause") ||
           span_starts(line, "Caused by: ");
}

/* A parent's word on its child, which has said more. */
static bool is_of_child(struct span line)
{
    static const char *const words[] = {
        "Child", "ProcessExited", "ProcessRaised", "CalledProcessError", "BrokenProcessPool",
        "orker", "ubprocess"
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (span_has(line, words[i]))
            return true;
    return false;
}

/* A word of its own, and no part of a name, path or setting. */
static bool has_word(struct span line, const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i + len <= line.len; i++) {
        char before = i ? line.p[i - 1] : ' ', after = i + len < line.len ? line.p[i + len] : ' ';
        char next = i + len + 1 < line.len ? line.p[i + len + 1] : ' ';
        bool part = isalnum((unsigned char)before) || strchr("_/.-", before) ||
                    isalnum((unsigned char)after) || strchr("_=/-", after) ||
                    (after == '.' && isalnum((unsigned char)next));
        if (!part && memcmp(line.p + i, word, len) == 0)
            return true;
    }
    return false;
}

static bool is_error(struct span line)
{
    static const char *const words[] = { "error",    "Error",  "ERROR",    "fatal",    "Fatal",
                                         "FATAL",    "failed", "Failed",   "FAILED",   "Cannot",
                                         "CRITICAL", "cannot", "panicked", "Assertion" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (has_word(line, words[i]))
            return true;
    return span_has(line, "not found");
}

struct found {
    enum known_id id;
    bool sure;
    struct span line;
};

/* What was read so far. */
struct reader {
    struct found best, warned, error; /* the last two count where there is nothing else */
    unsigned plain;                   /* lines since best that say that the program went on */
    bool chained;                     /* what follows best has come of it */
    bool source;                      /* the next line is a piece of the program's text */
    bool usage;
};

static void take(struct reader *r, enum known_id id, bool sure, struct span line)
{
    r->best = (struct found){ id, sure, span_trim(line) };
    r->plain = 0;
    r->chained = false;
}

static void read_rule(struct reader *r, const struct known_rule *rule, struct span line)
{
    bool sure = !rule->doubtful, victim = known[rule->id].victim;
    struct found *b = &r->best;

    if (is_warning(line)) {
        r->plain++;
        if (!victim)
            r->warned = (struct found){ rule->id, false, span_trim(line) };
        return;
    }
    bool survived =
        r->plain >= WORKED_ON_MIN && !r->chained && is_exception(line) && !is_of_child(line);
    bool more_exact = b->id == K_EXCEPTION && rule->id != K_EXCEPTION && !victim;
    bool surer = sure && !(b->sure && r->chained);
    if (!b->id || survived || surer || (!b->sure && more_exact))
        take(r, rule->id, sure, line);
}

static void read_line(struct reader *r, struct span line)
{
    bool source = r->source;

    line = without_prefix(line);
    r->source = span_starts(line, "  File \"");
    if (r->source || (source && line.len && isspace((unsigned char)*line.p)))
        return; /* what the program's text says is not what happened */
    if (is_chain(line))
        r->chained = true;
    const struct known_rule *rule = rule_of(line);
    if (rule && rule->id) {
        read_rule(r, rule, line);
        return;
    }
    if (rule || is_noise(line))
        return;
    r->plain++;
    if (span_starts(line, "usage: ") || span_starts(line, "Usage: ") || span_has(line, "--help"))
        r->usage = true;
    if (is_error(line) && !is_warning(line))
        r->error = (struct found){ K_EXCEPTION, false, span_trim(line) };
}

/* code: of the exit; 0 = does not matter. */
static struct found look(const char *text, int code)
{
    struct span rest = span_of(text ? text : ""), line;
    struct reader r = { .plain = 0 };

    while (rest.p && span_split(&rest, '\n', &line))
        read_line(&r, line);
    /* doubtful, and long before the end: it was survived */
    if (r.best.id && !r.best.sure && !known[r.best.id].victim && r.plain > LINES_AFTER_MAX)
        r.best = (struct found){ 0 };
    if (r.best.id)
        return r.best;
    if (r.usage && (code == 2 || code == 64))
        return (struct found){ K_ARGUMENTS, false, r.error.line };
    return r.warned.id ? r.warned : r.error;
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

/* An exit code that the program did not choose: the shell's. */
static enum known_id of_code(int code, enum known_id said)
{
    if (code == 127 && (!said || said == K_WRONG_PATH || said == K_EXCEPTION))
        return K_COMMAND_NOT_FOUND;
    if (code == 126 && (!said || said == K_PERMISSION || said == K_WRONG_PATH))
        return K_NOT_EXECUTABLE;
    return said ? said : K_EXIT_CODE;
}

static enum known_id of_exit(const struct known_end *end, struct found *f)
{
    bool by_shell = !end->signal && end->exit_code > 128 && end->exit_code < 128 + 32;
    int signal = by_shell ? end->exit_code - 128 : end->signal;

    *f = look(end->tail, end->exit_code);
    if (!signal)
        return of_code(end->exit_code, f->id);
    if (signal == SIGABRT && f->id) /* an assertion says what it likes */
        return f->id == K_EXCEPTION && !is_exception(f->line) ? K_ABORTED : f->id;
    /* what the program said before a signal took it need not have to do with that */
    if (signal == SIGBUS && (f->id == K_SHARED_MEMORY || f->id == K_DISK_FULL))
        return f->id;
    enum known_id id = of_signal(signal);
    if (f->id != id)
        f->line = span_mem("", 0);
    return id;
}

static enum known_id of_launch(const struct known_end *end, struct found *f)
{
    *f = look(end->detail, 0);
    if (f->id == K_WRONG_PATH)
        return K_COMMAND_NOT_FOUND;
    if (f->id == K_PERMISSION)
        return K_NOT_EXECUTABLE;
    return f->id && !known[f->id].victim && f->id != K_EXCEPTION ? f->id : K_LAUNCH_FAILED;
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
    *f = look(end->tail, 0);
    if (!f->id || !is_near_end(end->tail, f->line))
        return K_NONE;
    bool stop = span_has(f->line, "Interrupt") || span_has(f->line, "SystemExit") ||
                span_has(f->line, "ignal") || span_has(f->line, "SIGTERM");
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
    case END_UNKNOWN:
        if (end->detail && strstr(end->detail, "executor was killed"))
            return K_EXECUTOR_LOST;
        break;
    case END_NONE:
    case END_COUNT:
        break;
    }
    *f = look(end->tail, 0);
    return f->id ? f->id : K_UNKNOWN;
}

const struct known *known_find(const struct known_end *end, struct span *out_line)
{
    struct found f = { .line = span_mem("", 0) };
    enum known_id id = of_end(end, &f);

    if (known[id].victim && end->alone)
        id = K_NETWORK;
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
