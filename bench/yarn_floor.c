/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest possible application on YARN, with which `tony run` is compared there. One program
 * is the client and, in its container, the master. It requests N containers, starts the same
 * command in each as soon as it is granted, waits for their ends and reports that. It has no
 * journal, no logs, no connections between master and tasks, and no supervision. Its file is staged
 * once and cached by the nodes. It uses nothing of src/.
 *
 *     yarn-floor --rm H:P --scheduler H:P --namenode H:P --webhdfs URL [--user root]
 *                [--queue default] [--memory 64] N COMMAND
 *
 * COMMAND goes through the shells of the NodeManager unchanged: words without quotes, $ or braces.
 */
#include "yarn_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NODES_MAX = 64, OPEN_PAUSE_MS = 20, IDLE_PAUSE_MS = 100, REPORT_PAUSE_MS = 20 };
enum { FINISHED = 6, FAILED = 7, KILLED = 8, SUCCEEDED = 1 };

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static void put_resource(struct buf *b, unsigned field, long memory)
{
    struct buf r = { 0 };
    pb_int(&r, 1, memory), pb_int(&r, 2, 1);
    pb_msg(b, field, &r);
}

static void put_pair(struct buf *b, unsigned field, const char *key, const char *value)
{
    struct buf pair = { 0 };
    pb_str(&pair, 1, key), pb_str(&pair, 2, value);
    pb_msg(b, field, &pair);
}

/* ---- the client ---- */

struct options {
    const char *rm, *scheduler, *namenode, *webhdfs, *user, *queue, *command;
    long memory, n;
};

static void put_self(const char *url_of_create)
{
    struct buf self = { 0 }, answer = { 0 };
    char location[1024];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    for (char chunk[65536];;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got <= 0)
            break;
        buf_put(&self, chunk, (size_t)got);
    }
    close(fd);
    http("PUT", url_of_create, (struct span){ 0 }, &answer, location, sizeof location);
    if (!location[0] || http("PUT", location, (struct span){ self.p, self.n }, &answer, location,
                             sizeof location) != 201)
        die("cannot stage the program: %.*s", (int)answer.n, (const char *)answer.p);
    free(self.p), free(answer.p);
}

static long long json_number(const struct buf *text, const char *name)
{
    const char *at = memmem(text->p, text->n, name, strlen(name));
    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

/* This program's file as a LocalResource. It is staged unless HDFS has it with the same size and
 * time; private, so the nodes cache it. */
static void put_program(struct buf *context, const struct options *o)
{
    char path[128], url[512], location[64];
    struct stat st;
    struct buf answer = { 0 }, resource = { 0 }, where = { 0 }, entry = { 0 };
    if (stat("/proc/self/exe", &st) == -1)
        die("cannot stat this program: %s", strerror(errno));
    snprintf(path, sizeof path, "/user/%s/.yarn-floor/%lld", o->user, (long long)st.st_mtime);
    snprintf(url, sizeof url, "%s%s?user.name=%s&op=GETFILESTATUS", o->webhdfs, path, o->user);
    if (http("GET", url, (struct span){ 0 }, &answer, location, sizeof location) != 200) {
        char create[512];
        snprintf(create, sizeof create, "%s%s?user.name=%s&op=CREATE&permission=755&overwrite=true",
                 o->webhdfs, path, o->user);
        put_self(create);
        if (http("GET", url, (struct span){ 0 }, &answer, location, sizeof location) != 200)
            die("cannot stat %s: %.*s", path, (int)answer.n, (const char *)answer.p);
    }
    buf_put(&answer, "", 1);
    const char *colon = strchr(o->namenode, ':');
    char host[64];
    snprintf(host, sizeof host, "%.*s", (int)(colon - o->namenode), o->namenode);
    pb_str(&where, 1, "hdfs"), pb_str(&where, 2, host), pb_int(&where, 3, atol(colon + 1)),
        pb_str(&where, 4, path);
    pb_msg(&resource, 1, &where);
    pb_int(&resource, 2, json_number(&answer, "\"length\":")),
        pb_int(&resource, 3, json_number(&answer, "\"modificationTime\":"));
    pb_int(&resource, 4, 2), pb_int(&resource, 5, 2); /* FILE, PRIVATE */
    pb_str(&entry, 1, "yarn-floor"), pb_msg(&entry, 2, &resource);
    pb_msg(context, 1, &entry);
    free(answer.p);
}

static int client(const struct options *o)
{
    struct rpc rm;
    struct buf request = { 0 }, context = { 0 }, launch = { 0 }, id = { 0 };
    char number[32];
    rpc_open(&rm, o->rm, "ApplicationClientProtocol", o->user, NULL);
    struct span app = pb_get(rpc_call(&rm, "getNewApplication", &request), 1);
    buf_put(&id, app.p, app.n);

    put_program(&launch, o);
    snprintf(number, sizeof number, "%ld", o->n);
    put_pair(&launch, 4, "FLOOR_SCHEDULER", o->scheduler), put_pair(&launch, 4, "FLOOR_N", number);
    put_pair(&launch, 4, "FLOOR_COMMAND", o->command);
    snprintf(number, sizeof number, "%ld", o->memory);
    put_pair(&launch, 4, "FLOOR_MEMORY", number);
    pb_str(&launch, 5, "./yarn-floor 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr");
    pb_put(&context, 1, id.p, id.n), pb_str(&context, 2, "floor"), pb_str(&context, 3, o->queue);
    pb_msg(&context, 5, &launch), pb_int(&context, 8, 1);
    put_resource(&context, 9, o->memory), pb_str(&context, 10, "FLOOR");
    pb_msg(&request, 1, &context);
    rpc_call(&rm, "submitApplication", &request);

    for (;;) {
        pb_put(&request, 1, id.p, id.n);
        struct span report = pb_get(rpc_call(&rm, "getApplicationReport", &request), 1);
        uint64_t state = pb_get_int(report, 8);
        if (state >= FINISHED) {
            if (state == FINISHED && pb_get_int(report, 13) == SUCCEEDED)
                return 0;
            struct span why = pb_get(report, 10);
            die("the application failed: %.*s", (int)why.n, (const char *)why.p);
        }
        pause_ms(REPORT_PAUSE_MS);
    }
}

/* ---- the master ---- */

struct node {
    struct buf id;    /* NodeId as received */
    struct buf token; /* TokenProto of its NMToken */
    struct rpc rpc;
    bool open;
    struct buf start; /* the StartContainersRequest that is being filled */
};

struct master {
    struct node nodes[NODES_MAX];
    int n_nodes;
    long wanted, started, ended, memory;
    const char *command;
};

static struct node *node_of(struct master *m, struct span id)
{
    for (int i = 0; i < m->n_nodes; i++)
        if (m->nodes[i].id.n == id.n && memcmp(m->nodes[i].id.p, id.p, id.n) == 0)
            return &m->nodes[i];
    if (m->n_nodes == NODES_MAX)
        die("more than %d nodes", NODES_MAX);
    struct node *n = &m->nodes[m->n_nodes++];
    buf_put(&n->id, id.p, id.n);
    return n;
}

static void put_ask(struct buf *request, const char *where, long n, long memory)
{
    struct buf ask = { 0 }, priority = { 0 };
    pb_int(&priority, 1, 1);
    pb_msg(&ask, 1, &priority), pb_str(&ask, 2, where), put_resource(&ask, 3, memory),
        pb_int(&ask, 4, n), pb_int(&ask, 5, 1);
    pb_int(&ask, 8, 0);
    pb_msg(request, 1, &ask);
}

static void granted(struct master *m, struct span container, struct buf *release)
{
    if (m->started == m->wanted) {
        struct span id = pb_get(container, 1);
        pb_put(release, 2, id.p, id.n);
        return;
    }
    struct buf launch = { 0 }, start = { 0 };
    struct span token = pb_get(container, 6);
    pb_str(&launch, 5, m->command), pb_str(&launch, 5, "1><LOG_DIR>/stdout 2><LOG_DIR>/stderr");
    pb_msg(&start, 1, &launch), pb_put(&start, 2, token.p, token.n);
    pb_msg(&node_of(m, pb_get(container, 2))->start, 1, &start);
    m->started++;
}

static void start_batch(struct node *n)
{
    if (!n->open) {
        struct span id = { n->id.p, n->id.n }, host = pb_get(id, 1),
                    token = { n->token.p, n->token.n };
        struct token t = { pb_get(token, 1), pb_get(token, 2) };
        char address[128];
        snprintf(address, sizeof address, "%.*s:%d", (int)host.n, (const char *)host.p,
                 (int)pb_get_int(id, 2));
        rpc_open(&n->rpc, address, "ContainerManagementProtocol", "", &t);
        n->open = true;
    }
    struct span failed = pb_get(rpc_call(&n->rpc, "startContainers", &n->start), 3);
    if (failed.n > 0) {
        struct span why = pb_get(pb_get(failed, 2), 1);
        die("a container does not start: %.*s", (int)why.n, (const char *)why.p);
    }
}

static int64_t take_answer(struct master *m, struct span answer, struct buf *release)
{
    int64_t id = 0;
    uint64_t value;
    struct span in = answer, bytes;
    /* Read the tokens before the containers that need them. */
    for (unsigned f; pb_next(&in, &f, &value, &bytes);) {
        if (f == 2) {
            id = (int64_t)value;
        } else if (f == 9) {
            struct node *n = node_of(m, pb_get(bytes, 1));
            struct span token = pb_get(bytes, 2);
            n->token.n = 0;
            buf_put(&n->token, token.p, token.n);
        }
    }
    in = answer;
    for (unsigned f; pb_next(&in, &f, &value, &bytes);) {
        if (f == 3) {
            granted(m, bytes, release);
        } else if (f == 4) {
            if ((int32_t)pb_get_int(bytes, 4) == 0)
                m->ended++;
            else if ((int32_t)pb_get_int(bytes, 4) !=
                     -100) /* a container that this program has given back */
                die("a container ended with %d", (int)(int32_t)pb_get_int(bytes, 4));
        }
    }
    for (int i = 0; i < m->n_nodes; i++)
        if (m->nodes[i].start.n > 0)
            start_batch(&m->nodes[i]);
    return id;
}

static int master(const char *scheduler)
{
    struct master m = { .command = getenv("FLOOR_COMMAND"),
                        .wanted = atol(getenv("FLOOR_N")),
                        .memory = atol(getenv("FLOOR_MEMORY")) };
    struct token token;
    if (!token_from_file(getenv("HADOOP_TOKEN_FILE_LOCATION"), "YARN_AM_RM_TOKEN", &token))
        die("no token for the ResourceManager");
    struct rpc rm;
    struct buf request = { 0 }, release = { 0 };
    rpc_open(&rm, scheduler, "ApplicationMasterProtocol", "", &token);
    pb_str(&request, 1, ""), pb_int(&request, 2, -1), pb_str(&request, 3, "");
    rpc_call(&rm, "registerApplicationMaster", &request);

    put_ask(&request, "*", m.wanted, m.memory),
        put_ask(&request, "/default-rack", m.wanted, m.memory);
    for (int64_t id = 0; m.ended < m.wanted;) {
        buf_put(&request, release.p, release.n), release.n = 0;
        pb_int(&request, 4, id);
        id = take_answer(&m, rpc_call(&rm, "allocate", &request), &release);
        if (m.ended < m.wanted)
            pause_ms(m.started < m.wanted ? OPEN_PAUSE_MS : IDLE_PAUSE_MS);
    }
    for (;;) {
        pb_str(&request, 1, "done"), pb_int(&request, 3, SUCCEEDED);
        if (pb_get_int(rpc_call(&rm, "finishApplicationMaster", &request), 1))
            return 0;
        pause_ms(OPEN_PAUSE_MS);
    }
}

int main(int argc, char **argv)
{
    struct options o = { .user = "root", .queue = "default", .memory = 64 };
    if (getenv("FLOOR_SCHEDULER"))
        return master(getenv("FLOOR_SCHEDULER"));
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        const char *name = argv[i] + 2, *value = argv[i + 1];
        struct {
            const char *name, **to;
        } known[] = {
            { "rm", &o.rm },           { "scheduler", &o.scheduler }, { "namenode", &o.namenode },
            { "webhdfs", &o.webhdfs }, { "user", &o.user },           { "queue", &o.queue }
        };
        size_t k = 0, n = sizeof known / sizeof known[0];
        for (; k < n && strcmp(name, known[k].name) != 0; k++)
            ;
        if (k < n)
            *known[k].to = value;
        else if (strcmp(name, "memory") == 0)
            o.memory = atol(value);
        else
            die("unknown option '%s'", argv[i]);
    }
    if (i + 2 != argc || !o.rm || !o.scheduler || !o.namenode || !strchr(o.namenode, ':') ||
        !o.webhdfs)
        die("usage: yarn-floor --rm H:P --scheduler H:P --namenode H:P --webhdfs URL [--user U] "
            "[--queue Q] [--memory MIB] N COMMAND");
    o.n = atol(argv[i]), o.command = argv[i + 1];
    return client(&o);
}
