/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tony-gpu: prints the NVIDIA GPUs of this machine, one JSON line for each. With --watch MS it
 * prints their metrics instead, every MS milliseconds, one line for each GPU, until the reader or
 * the parent process has ended. --gpus 0,2 limits this to the GPUs with these indices. It is a
 * separate program, because a static one cannot load NVIDIA's library.
 *
 *   {"index":0,"uuid":"GPU-..","name":"NVIDIA H100","memory_mib":81559}
 *   {"index":0,"time_ms":1700000000000,"gpu_percent":97,"memory_percent":41,"used_mib":33000,"used_percent":40.46,"bar1_percent":0.02,"power_mw":310000,"temperature_c":61}
 *
 * TONY_NVML names another library, for tests. Exit codes: 0; 1 no library or driver; 2 misuse.
 * Figures that a GPU does not report are left out.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

#define USAGE "usage: tony-gpu [--watch MS [--gpus 0,2]]"

/* The functions of NVIDIA's library that this program uses. They have not changed since its first
 * version; memory() exists since driver 510. */
struct device;
struct memory_v1 {
    /* used: including the memory that the driver reserves for itself */
    unsigned long long total, free, used;
};
struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct utilization {
    unsigned gpu, memory;
};
struct bar1 {
    unsigned long long total, free, used;
};

enum {
    NAME_MAX_LEN = 96,
    SENSOR_CORE = 0,
    WATCH_MIN_MS = 10,
    WATCH_MAX_MS = 3600000,
    DEVICES_MAX = 1024,
    MEMORY_VERSION = sizeof(struct memory) | 2 << 24
};

static struct {
    int (*init)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned index, struct device **out);
    int (*name)(struct device *d, char *out, unsigned n);
    int (*uuid)(struct device *d, char *out, unsigned n);
    int (*memory_v1)(struct device *d, struct memory_v1 *out);
    int (*memory)(struct device *d, struct memory *out);
    int (*bar1)(struct device *d, struct bar1 *out);
    int (*utilization)(struct device *d, struct utilization *out);
    int (*power)(struct device *d, unsigned *out_mw);
    int (*temperature)(struct device *d, int sensor, unsigned *out_c);
} nvml;

static bool find(void *lib, void *function, const char *name)
{
    void *p = dlsym(lib, name);
    /* POSIX's way: C has no cast from an object pointer to a function pointer. */
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

static int load(struct err *e)
{
    const char *name = getenv("TONY_NVML");
    void *lib = dlopen(name && name[0] ? name : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return err_set(e, ENODEV, "no NVIDIA driver here: %s", dlerror());
    if (!find(lib, &nvml.init, "nvmlInit_v2") || !find(lib, &nvml.count, "nvmlDeviceGetCount_v2") ||
        !find(lib, &nvml.handle, "nvmlDeviceGetHandleByIndex_v2"))
        return err_set(e, ENODEV, "the NVIDIA library lacks a function that tony needs");
    /* If a function is missing, its figure is not printed. */
    (void)find(lib, &nvml.name, "nvmlDeviceGetName");
    (void)find(lib, &nvml.uuid, "nvmlDeviceGetUUID");
    (void)find(lib, &nvml.memory_v1, "nvmlDeviceGetMemoryInfo");
    (void)find(lib, &nvml.memory, "nvmlDeviceGetMemoryInfo_v2");
    (void)find(lib, &nvml.bar1, "nvmlDeviceGetBAR1MemoryInfo");
    (void)find(lib, &nvml.utilization, "nvmlDeviceGetUtilizationRates");
    (void)find(lib, &nvml.power, "nvmlDeviceGetPowerUsage");
    (void)find(lib, &nvml.temperature, "nvmlDeviceGetTemperature");
    int rc = nvml.init();
    return rc ? err_set(e, ENODEV, "the NVIDIA driver does not answer (code %d)", rc) : 0;
}

/* The memory as nvidia-smi shows it. Older drivers count the memory that they reserve for
 * themselves as used. */
static bool memory_of(struct device *d, struct memory *out)
{
    struct memory_v1 old;
    *out = (struct memory){ .version = MEMORY_VERSION };
    if (nvml.memory && nvml.memory(d, out) == 0)
        return true;
    if (!nvml.memory_v1 || nvml.memory_v1(d, &old) != 0)
        return false;
    *out = (struct memory){ .total = old.total, .free = old.free, .used = old.used };
    return true;
}

static void add_text(struct buf *out, const char *key, const char *text)
{
    buf_addf(out, ",\"%s\":\"", key);
    for (; *text; text++)
        buf_addc(out, (unsigned char)*text < 0x20 || *text == '"' || *text == '\\' ? '?' : *text);
    buf_addc(out, '"');
}

static void add_device(struct buf *out, unsigned index, struct device *d)
{
    char text[NAME_MAX_LEN] = "";
    struct memory m;
    buf_addf(out, "{\"index\":%u", index);
    if (nvml.uuid && nvml.uuid(d, text, sizeof text) == 0)
        add_text(out, "uuid", text);
    if (nvml.name && nvml.name(d, text, sizeof text) == 0)
        add_text(out, "name", text);
    if (memory_of(d, &m))
        buf_addf(out, ",\"memory_mib\":%llu", m.total >> 20);
    buf_adds(out, "}\n");
}

static void add_metrics(struct buf *out, unsigned index, struct device *d)
{
    struct memory m;
    struct bar1 b;
    struct utilization u;
    unsigned v;
    buf_addf(out, "{\"index\":%u,\"time_ms\":%lld", index, (long long)clock_wall_ms());
    if (nvml.utilization && nvml.utilization(d, &u) == 0)
        buf_addf(out, ",\"gpu_percent\":%u,\"memory_percent\":%u", u.gpu, u.memory);
    if (memory_of(d, &m))
        buf_addf(out, ",\"used_mib\":%llu,\"used_percent\":%.2f", m.used >> 20,
                 m.total ? 100.0 * (double)m.used / (double)m.total : 0);
    if (nvml.bar1 && nvml.bar1(d, &b) == 0 && b.total)
        buf_addf(out, ",\"bar1_percent\":%.2f", 100.0 * (double)b.used / (double)b.total);
    if (nvml.power && nvml.power(d, &v) == 0)
        buf_addf(out, ",\"power_mw\":%u", v);
    if (nvml.temperature && nvml.temperature(d, SENSOR_CORE, &v) == 0)
        buf_addf(out, ",\"temperature_c\":%u", v);
    buf_adds(out, "}\n");
}

/* Is this device in the list "0,2"? "" has all devices. */
static bool is_wanted(const char *list, unsigned index)
{
    struct span rest = span_of(list), one;
    int64_t n;
    bool any = false;
    while (list[0] && span_split(&rest, ',', &one))
        any |= str_i64(one, 0, DEVICES_MAX, "GPU", &n, NULL) == 0 && n == index;
    return any || !list[0];
}

/* Print one line for each device in the list, all with one write(). */
static int round_of(void (*add)(struct buf *out, unsigned index, struct device *d),
                    const char *list, struct err *e)
{
    AUTO(buf_done) struct buf out = { 0 };
    unsigned n = 0;
    int rc = nvml.count(&n);
    if (rc)
        return err_set(e, ENODEV,
                       "the NVIDIA driver does not say how many GPUs there are (code %d)", rc);
    for (unsigned i = 0; i < n && i < DEVICES_MAX; i++) {
        struct device *d;
        if (is_wanted(list, i) && nvml.handle(i, &d) == 0) /* leave out a GPU that has failed */
            add(&out, i, d);
    }
    if (out.failed)
        return err_set(e, ENOMEM, "cannot list GPUs: %m");
    rc = fs_write_all(STDOUT_FILENO, out.p, out.len);
    return rc < 0 ? err_set(e, -rc, "cannot write: %m") : 0;
}

static int watch(int64_t every_ms, const char *list, struct err *e)
{
    /* The reader has closed the pipe: write() then fails with EPIPE, which is a normal end. */
    (void)signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (;;) {
        int rc = round_of(add_metrics, list, e);
        if (rc < 0)
            return rc == -EPIPE ? 0 : rc;
        nanosleep(
            &(struct timespec){ .tv_sec = every_ms / 1000, .tv_nsec = every_ms % 1000 * 1000000 },
            NULL);
    }
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    int64_t every_ms = 0;
    bool watching =
        (argc == 3 || (argc == 5 && str_eq(argv[3], "--gpus"))) && str_eq(argv[1], "--watch");
    if (argc == 2 && str_eq(argv[1], "--help")) {
        puts(USAGE "\n\nPrints the NVIDIA GPUs of this machine, or their metrics, as JSON lines.");
        return 0;
    }
    if (argc == 2 && str_eq(argv[1], "--version")) {
        puts("tony-gpu " TONY_VERSION);
        return 0;
    }
    if ((argc != 1 && !watching) ||
        (watching &&
         str_i64(span_of(argv[2]), WATCH_MIN_MS, WATCH_MAX_MS, "--watch", &every_ms, &e) < 0)) {
        fprintf(stderr, "tony-gpu: %s\n", e.num ? e.msg : USAGE);
        return 2;
    }
    int rc = load(&e);
    if (rc == 0)
        rc =
            watching ? watch(every_ms, argc == 5 ? argv[4] : "", &e) : round_of(add_device, "", &e);
    if (rc < 0)
        fprintf(stderr, "tony-gpu: %s\n", e.msg);
    return rc < 0 ? 1 : 0;
}
