/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of Horovod's debug mode is a program of the user. It starts a rendezvous server and
 * writes a file into its working directory. The name of the file begins with the port of the
 * server. The file has the plan: a list of slots, which says which host has which ranks. */
#include "executor/driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "runtime/runtime.h"

enum {
    PLAN_MAX = 4 << 20, /* bytes; a rank needs about 100 */
    RANKS_MAX = 100000,
};

static const char suffix[] = "____HOROVOD_RENDEZVOUS_SERVER____";

static bool port_of(const char *name, uint16_t *out)
{
    int64_t port;
    const char *at = strstr(name, suffix);
    if (!at || !str_eq(at, suffix) ||
        str_i64(span_mem(name, (size_t)(at - name)), 1, UINT16_MAX, "port", &port, NULL) < 0)
        return false;
    *out = (uint16_t)port;
    return true;
}

void driver_forget(const char *dir)
{
    DIR *d = opendir(dir);
    uint16_t port;
    for (struct dirent *x; d && (x = readdir(d));)
        if (port_of(x->d_name, &port))
            (void)unlinkat(dirfd(d), x->d_name, 0); /* if it fails, the old plan is used */
    if (d)
        (void)closedir(d);
}

/* Is the list complete? The driver writes the file under its final name, so a reader may see only a
 * part. */
static bool is_whole(const struct buf *text)
{
    struct span s = span_trim(buf_span(text));
    return s.len > 1 && s.p[0] == '[' && s.p[s.len - 1] == ']';
}

bool driver_read_plan(const char *dir, uint16_t *out_port, char **out_plan)
{
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *x; d && !found && (x = readdir(d));) {
        struct buf text = { .max = PLAN_MAX };
        if (port_of(x->d_name, out_port) && fs_read(dirfd(d), x->d_name, &text, NULL) == 0 &&
            is_whole(&text) && span_utf8(buf_span(&text), NULL)) {
            *out_plan = buf_steal(&text);
            found = *out_plan != NULL;
        }
        buf_done(&text);
    }
    if (d)
        (void)closedir(d);
    return found;
}

/* Accept numbers in quotes, too: the driver of the original TonY writes such numbers. */
static uint32_t number(const json_t *slot, const char *name, bool *bad)
{
    const json_t *v = json_object_get(slot, name);
    int64_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (json_is_string(v) &&
        str_i64(span_of(json_string_value(v)), 0, RANKS_MAX, name, &n, NULL) < 0)
        n = -1;
    *bad |= n < 0 || n > RANKS_MAX;
    return *bad ? 0 : (uint32_t)n;
}

int driver_plan(const char *text, struct rt_slot **out, size_t *out_n, struct err *e)
{
    json_error_t why;
    json_t *list = json_loads(text, JSON_REJECT_DUPLICATES, &why), *slot;
    size_t n = json_array_size(list), i;
    struct rt_slot *slots = calloc(n + 1, sizeof *slots);
    bool bad = !slots || n == 0 || n > RANKS_MAX;
    if (!bad) {
        json_array_foreach(list, i, slot)
        {
            const char *host = json_string_value(json_object_get(slot, "hostname"));
            bad |= !host || !str_copy(slots[i].host, sizeof slots[i].host, host);
            slots[i].rank = number(slot, "rank", &bad);
            slots[i].size = number(slot, "size", &bad);
            slots[i].local_rank = number(slot, "localRank", &bad);
            slots[i].local_size = number(slot, "localSize", &bad);
            slots[i].cross_rank = number(slot, "crossRank", &bad);
            slots[i].cross_size = number(slot, "crossSize", &bad);
        }
    }
    json_decref(list);
    if (bad) {
        free(slots);
        return err_set(e, EINVAL,
                       "the driver's plan is not a list of slots with hostname, rank, size, "
                       "localRank, localSize, crossRank and crossSize");
    }
    *out = slots;
    *out_n = n;
    return 0;
}
