/* SPDX-License-Identifier: Apache-2.0 */
/* The servers through which ranks find each other, without sockets: bytes in, bytes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "rendezvous/kv.h"
#include "rendezvous/pmi.h"
#include "rendezvous/service.h"
#include "torture.h"

/* ---- Horovod's store ---- */

/* One request, `piece` bytes at a time; returns the last result of kv_feed(). */
static int ask(struct kv *kv, const char *bytes, size_t n, size_t piece, struct buf *out)
{
    struct kv_request r = { 0 };
    int rc = 0;
    buf_clear(out);
    for (size_t at = 0; at < n && rc == 0; at += piece)
        rc = kv_feed(kv, &r, span_mem(bytes + at, MIN(piece, n - at)), out);
    kv_request_done(&r);
    return rc;
}

static const char ok[] = "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/* As recorded from Horovod 0.28: only these two headers, binary bodies. */
static void a_store(void **state)
{
    static const char put[] =
        "PUT /global/0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\n"
        "\0\xff\r\n";
    static const char get[] =
        "GET /global/0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n";
    static const char gone[] =
        "DELETE /global/0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n";
    static const char found[] =
        "HTTP/1.0 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n\0\xff\r\n";
    struct kv kv;
    struct buf out = { 0 };
    (void)state;
    kv_init(&kv, 1 << 20);
    for (size_t piece = 1; piece < 200; piece += 33) {
        assert_int_equal(ask(&kv, get, sizeof get - 1, piece, &out), 1);
        assert_true(span_starts(buf_span(&out), "HTTP/1.0 404 "));
        assert_int_equal(ask(&kv, put, sizeof put - 1, piece, &out), 1);
        assert_string_equal(buf_cstr(&out), ok);
        assert_int_equal(ask(&kv, get, sizeof get - 1, piece, &out), 1);
        assert_true(span_eq(buf_span(&out), span_mem(found, sizeof found - 1)));
        /* A second put replaces the value. */
        assert_int_equal(ask(&kv, put, sizeof put - 1, piece, &out), 1);
        assert_int_equal(kv.map.n, 1);
        assert_int_equal(ask(&kv, gone, sizeof gone - 1, piece, &out), 1);
        assert_string_equal(buf_cstr(&out), ok);
        assert_int_equal(kv.bytes, 0);
    }
    buf_done(&out);
    kv_done(&kv);
}

static void an_empty_value_is_found(void **state)
{
    static const char put[] = "PUT /s/k HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    static const char get[] = "GET /s/k HTTP/1.1\r\n\r\n";
    struct kv kv;
    struct buf out = { 0 };
    (void)state;
    kv_init(&kv, 1 << 20);
    assert_int_equal(ask(&kv, put, sizeof put - 1, 7, &out), 1);
    assert_int_equal(ask(&kv, get, sizeof get - 1, 7, &out), 1);
    assert_string_equal(buf_cstr(&out), ok);
    buf_done(&out);
    kv_done(&kv);
}

static void bad_requests(void **state)
{
    static const struct {
        const char *request, *answer;
    } rows[] = {
        { "GET / HTTP/1.1\r\n\r\n", "HTTP/1.0 400 " },
        { "GET /k\r\n\r\n", "HTTP/1.0 400 " },
        { "GET k HTTP/1.1\r\n\r\n", "HTTP/1.0 400 " },
        { "hello\r\n\r\n", "HTTP/1.0 400 " },
        { "POST /k HTTP/1.1\r\n\r\n", "HTTP/1.0 405 " },
        { "PUT /k HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.0 413 " },
        { "PUT /k HTTP/1.1\r\nContent-Length: 4194305\r\n\r\n", "HTTP/1.0 413 " },
        { "PUT /k HTTP/1.1\r\nContent-Length: many\r\n\r\n", "HTTP/1.0 413 " },
    };
    struct kv kv;
    struct buf out = { 0 };
    (void)state;
    kv_init(&kv, 1000);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(ask(&kv, rows[i].request, strlen(rows[i].request), 1000, &out), 1);
        if (!span_starts(buf_span(&out), rows[i].answer))
            fail_msg("%s got %s", rows[i].request, buf_cstr(&out));
    }
    char head[KV_HEAD_MAX + 2];
    memset(head, 'x', sizeof head);
    assert_int_equal(ask(&kv, head, sizeof head, 512, &out), 1);
    assert_true(span_starts(buf_span(&out), "HTTP/1.0 431 "));
    /* the store's limit */
    char put[600];
    int n = snprintf(put, sizeof put, "PUT /a HTTP/1.1\r\nContent-Length: 500\r\n\r\n%500s", "");
    assert_int_equal(ask(&kv, put, (size_t)n, 100, &out), 1);
    assert_string_equal(buf_cstr(&out), ok);
    put[5] = 'b';
    assert_int_equal(ask(&kv, put, (size_t)n, 100, &out), 1);
    assert_true(span_starts(buf_span(&out), "HTTP/1.0 507 "));
    put[5] = 'a'; /* a replacement of the same size fits */
    assert_int_equal(ask(&kv, put, (size_t)n, 100, &out), 1);
    assert_string_equal(buf_cstr(&out), ok);
    buf_done(&out);
    kv_done(&kv);
}

/* ---- PMI-1 ---- */

struct talk {
    unsigned rank;
    const char *says, *hears;
    enum pmi_what what;
};

static void talk(struct pmi *p, struct pmi_rank *ranks, const struct talk *rows, size_t n)
{
    struct buf out = { 0 };
    int code = 0;
    for (size_t i = 0; i < n; i++) {
        buf_clear(&out);
        enum pmi_what what = pmi_feed(p, &ranks[rows[i].rank], span_of(rows[i].says), &out, &code);
        if (what != rows[i].what || strcmp(buf_cstr(&out), rows[i].hears) != 0)
            fail_msg("row %zu: %s: %d '%s'", i, rows[i].says, (int)what, buf_cstr(&out));
    }
    buf_done(&out);
}

/* As recorded from MPICH 4.0.2. */
static void two_ranks(void **state)
{
    static const char *const hosts[] = { "10.0.0.1", "10.0.0.2" };
    static const struct talk rows[] = {
        { 0, "cmd=initack pmiid=0\n",
          "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=0\ncmd=set debug=0\n", PMI_MORE },
        { 0, "cmd=init pmi_version=1 pmi_subversion=1\n",
          "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", PMI_MORE },
        { 0, "cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
          PMI_MORE },
        { 0, "cmd=get_appnum\n", "cmd=appnum appnum=0\n", PMI_MORE },
        { 0, "cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_app\n", PMI_MORE },
        { 0, "cmd=get kvsname=kvs_app key=PMI_process_mapping\n",
          "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))\n", PMI_MORE },
        { 1, "cmd=ini", "", PMI_MORE },
        { 1, "tack pmiid=1\ncmd=init pmi_version=1 pmi_subversion=1\n",
          "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n"
          "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
          PMI_MORE },
        { 0, "cmd=put kvsname=kvs_app key=-bcast-1-0 value=a b=c key=d\n",
          "cmd=put_result rc=0 msg=success\n", PMI_MORE },
        { 1, "cmd=get kvsname=kvs_app key=-bcast-1-1\n",
          "cmd=get_result rc=-1 msg=key_-bcast-1-1_not_found value=unknown\n", PMI_MORE },
        { 0, "cmd=barrier_in\n", "", PMI_MORE },
        { 1, "cmd=barrier_in\n", "", PMI_BARRIER },
        { 1, "cmd=get kvsname=kvs_app key=-bcast-1-0\n",
          "cmd=get_result rc=0 msg=success value=a b=c key=d\n", PMI_MORE },
        { 1, "cmd=barrier_in\n", "", PMI_MORE }, /* the next barrier */
        { 0, "cmd=barrier_in\n", "", PMI_BARRIER },
        { 0, "cmd=finalize\n", "cmd=finalize_ack\n", PMI_MORE },
        { 1, "cmd=abort exitcode=42\n", "", PMI_ABORT },
    };
    struct pmi p;
    struct pmi_rank ranks[2];
    (void)state;
    assert_int_equal(pmi_init(&p, "app", 2, hosts), 0);
    for (size_t i = 0; i < 2; i++)
        pmi_rank_init(&ranks[i]);
    talk(&p, ranks, rows, ARRAY_LEN(rows));
    for (size_t i = 0; i < 2; i++)
        pmi_rank_done(&p, &ranks[i]);
    pmi_done(&p);
}

static void codes_of_an_abort(void **state)
{
    static const struct {
        const char *says;
        int code;
    } rows[] = { { "cmd=abort exitcode=42\n", 42 },
                 { "cmd=abort exitcode=-1\n", -1 },
                 { "cmd=abort\n", 1 },
                 { "cmd=abort exitcode=99999999999\n", 1 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct pmi p;
        struct pmi_rank r;
        struct buf out = { 0 };
        int code = 0;
        assert_int_equal(pmi_init(&p, "app", 1, NULL), 0);
        pmi_rank_init(&r);
        assert_int_equal(pmi_feed(&p, &r, span_of("cmd=initack pmiid=0\n"), &out, &code), PMI_MORE);
        assert_int_equal(pmi_feed(&p, &r, span_of(rows[i].says), &out, &code), PMI_ABORT);
        assert_int_equal(code, rows[i].code);
        buf_done(&out);
        pmi_rank_done(&p, &r);
        pmi_done(&p);
    }
}

static void no_pmi(void **state)
{
    static const char *const rows[] = {
        "GET / HTTP/1.1\n",
        "cmd=init pmi_version=1 pmi_subversion=1\n", /* a rank that has not named itself */
        "cmd=initack\n",
        "cmd=initack pmiid=2\n", /* there are only ranks 0 and 1 */
        "cmd=initack pmiid=-1\n",
        "cmd=initack pmiid=0\n", /* rank 0 is taken */
        "cmd=initack pmiid=1\ncmd=initack pmiid=1\n",
        "cmd=initack pmiid=1\ncmd=get_maxes\n", /* a command before init */
        "cmd=initack pmiid=1\ncmd=init\ncmd=spawn\n",
        "cmd=initack pmiid=1\ncmd=init\nmcmd=spawn\n",
        "cmd=initack pmiid=1\ncmd=init\ncmd=barrier_in\ncmd=barrier_in\n",
        "cmd=initack pmiid=1\ncmd=init\ncmd=finalize\ncmd=get_maxes\n",
    };
    (void)state;
    for (size_t i = 0; i <= ARRAY_LEN(rows); i++) {
        struct pmi p;
        struct pmi_rank r[2];
        struct buf out = { 0 };
        int code;
        assert_int_equal(pmi_init(&p, "app", 2, NULL), 0);
        pmi_rank_init(&r[0]);
        pmi_rank_init(&r[1]);
        assert_int_equal(pmi_feed(&p, &r[0], span_of("cmd=initack pmiid=0\n"), &out, &code), 0);
        enum pmi_what what = PMI_MORE;
        char flood[PMI_LINE_MAX];
        memset(flood, 'x', sizeof flood);
        if (i < ARRAY_LEN(rows))
            what = pmi_feed(&p, &r[1], span_of(rows[i]), &out, &code);
        else
            for (int k = 0; k < 3 && what == PMI_MORE; k++) /* a line that does not end */
                what = pmi_feed(&p, &r[1], span_mem(flood, sizeof flood), &out, &code);
        if (what != PMI_BAD)
            fail_msg("row %zu: %d", i, (int)what);
        buf_done(&out);
        pmi_rank_done(&p, &r[1]);
        pmi_rank_done(&p, &r[0]);
        assert_int_equal(p.n_waiting, 0);
        pmi_done(&p);
    }
}

/* If a rank disconnects in a barrier, the others wait again, and its number is free. */
static void a_rank_disconnects_in_a_barrier(void **state)
{
    static const char hello[] = "cmd=initack pmiid=1\ncmd=init\ncmd=barrier_in\n";
    static const char first[] = "cmd=initack pmiid=0\ncmd=init\ncmd=barrier_in\n";
    struct pmi p;
    struct pmi_rank r[2];
    struct buf out = { 0 };
    int code;
    (void)state;
    assert_int_equal(pmi_init(&p, "app", 2, NULL), 0);
    pmi_rank_init(&r[0]);
    pmi_rank_init(&r[1]);
    assert_int_equal(pmi_feed(&p, &r[1], span_of(hello), &out, &code), PMI_MORE);
    pmi_rank_done(&p, &r[1]);
    assert_int_equal(pmi_feed(&p, &r[0], span_of(first), &out, &code), PMI_MORE);
    pmi_rank_init(&r[1]);
    assert_int_equal(pmi_feed(&p, &r[1], span_of(hello), &out, &code), PMI_BARRIER);
    pmi_rank_done(&p, &r[0]);
    pmi_rank_done(&p, &r[1]);
    buf_done(&out);
    pmi_done(&p);
}

static void the_mapping_of_ranks_to_nodes(void **state)
{
    static const struct {
        const char *hosts[8], *mapping;
    } rows[] = {
        { { "a", "a", "a", "a" }, "(vector,(0,1,4))" },
        { { "a", "b", "c" }, "(vector,(0,3,1))" },
        { { "a", "a", "b", "b", "c" }, "(vector,(0,2,2),(2,1,1))" },
        { { "a", "b", "a" }, "(vector,(0,2,1),(0,1,1))" },
        { { "a", "b", "b", "a", "a", "c" }, "(vector,(0,1,1),(1,1,2),(0,1,2),(2,1,1))" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct pmi p;
        uint32_t n = 0;
        while (rows[i].hosts[n])
            n++;
        assert_int_equal(pmi_init(&p, "app", n, rows[i].hosts), 0);
        assert_string_equal(p.mapping, rows[i].mapping);
        pmi_done(&p);
    }
}

static int everything(void *unused)
{
    static const char put[] = "PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx";
    static const char hello[] =
        "cmd=initack pmiid=0\ncmd=init\ncmd=put key=k value=v\ncmd=get key=k\n";
    struct kv kv;
    struct kv_request q = { 0 };
    struct pmi p = { 0 };
    struct pmi_rank r;
    struct buf out = { 0 };
    int code;
    (void)unused;
    kv_init(&kv, 1000);
    int rc = kv_feed(&kv, &q, span_mem(put, sizeof put - 1), &out);
    kv_request_done(&q);
    kv_done(&kv);
    buf_done(&out);
    if (rc < 0)
        return rc;
    rc = pmi_init(&p, "app", 1, NULL);
    if (rc < 0)
        return rc;
    pmi_rank_init(&r);
    enum pmi_what what = pmi_feed(&p, &r, span_of(hello), &out, &code);
    rc = what == PMI_BAD || !strstr(buf_cstr(&out), "value=v") ? -ENOMEM : 0;
    pmi_rank_done(&p, &r);
    pmi_done(&p);
    buf_done(&out);
    return rc;
}

static void without_memory(void **state)
{
    (void)state;
    assert_true(torture(everything, NULL) > 5);
}

/* ---- on the network ---- */

struct heard {
    uint32_t rank;
    int code;
    unsigned aborts, refused;
    const char *want; /* a part of the expected refusal */
};

static void on_abort(uint32_t rank, int code, void *arg)
{
    struct heard *h = arg;
    h->rank = rank;
    h->code = code;
    h->aborts++;
}

static void on_refused(const struct err *why, void *arg)
{
    struct heard *h = arg;
    assert_non_null(strstr(why->msg, "PMI"));
    h->refused++;
}

static struct service *serve(const char *name, struct heard *h)
{
    struct service *s;
    struct err e = { 0 };
    struct service_config cfg = { .host = "127.0.0.1",
                                  .max_bytes = 1 << 20,
                                  .on_refused = on_refused,
                                  .on_abort = on_abort,
                                  .arg = h };
    assert_int_equal(service_open(name, &cfg, &s, &e), 0);
    return s;
}

static int dial(const struct service *s)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(service_port(s)) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Runs the service until fd can be read; returns the text, "" at the end. */
static const char *hear(struct service *s, int fd)
{
    static char text[4096];
    for (;;) {
        struct pollfd p[] = { { .fd = service_fd(s), .events = POLLIN },
                              { .fd = fd, .events = POLLIN } };
        assert_true(poll(p, 2, 60000) > 0);
        if (p[1].revents) {
            ssize_t n = recv(fd, text, sizeof text - 1, 0);
            text[n > 0 ? n : 0] = '\0';
            return text;
        }
        service_turn(s);
    }
}

static void mpi_on_the_network(void **state)
{
    static const char *const hosts[] = { "10.0.0.1", "10.0.0.1" };
    static const struct service_job job = { "app", 2, hosts };
    struct heard h = { 0 };
    struct err e = { 0 };
    struct service *s = serve("pmi", &h);
    (void)state;
    int early = dial(s), silent = dial(s), stranger = dial(s), babbler = dial(s);
    say(early, "cmd=initack pmiid=1\ncmd=init\n"); /* the connection waits in the kernel */
    assert_int_equal(service_begin(s, &job, &e), 0);
    assert_non_null(strstr(hear(s, early), "cmd=set size=2\n"));
    say(stranger, "GET / HTTP/1.1\r\n\r\n");
    assert_string_equal(hear(s, stranger), "");
    assert_int_equal(h.refused, 1);
    for (int i = 0; i < 40; i++) { /* without the end of the line */
        char text[513];
        memset(text, 'x', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        if (send(babbler, text, sizeof text - 1, MSG_NOSIGNAL) < 0)
            break;
    }
    assert_string_equal(hear(s, babbler), "");
    service_tick(s, clock_mono_ms());
    service_tick(s, clock_mono_ms() + 3600 * 1000); /* a rank that has named itself may stay */
    assert_string_equal(hear(s, silent), "");
    say(early, "cmd=get kvsname=kvs_app key=PMI_process_mapping\n");
    assert_non_null(strstr(hear(s, early), "value=(vector,(0,1,2))"));
    say(early, "cmd=abort exitcode=42\n");
    while (!h.aborts) {
        struct pollfd p = { .fd = service_fd(s), .events = POLLIN };
        assert_true(poll(&p, 1, 60000) > 0);
        service_turn(s);
    }
    assert_int_equal(h.rank, 1);
    assert_int_equal(h.code, 42);
    service_close(s);
    int fds[] = { early, silent, stranger, babbler };
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
}

/* More clients than one round serves; one of them disconnects before its answer. */
static void horovod_on_the_network(void **state)
{
    enum { N = 200 };
    static const struct service_job job = { "app", N, NULL };
    int fds[N];
    struct heard h = { 0 };
    struct err e = { 0 };
    struct service *s = serve("horovod", &h);
    (void)state;
    assert_int_equal(service_begin(s, &job, &e), 0);
    for (int i = 0; i < N; i++) {
        char text[80];
        fds[i] = dial(s);
        snprintf(text, sizeof text, "PUT /s/%d HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", i);
        say(fds[i], text);
    }
    close(fds[0]);
    for (int i = 1; i < N; i++) {
        assert_string_equal(hear(s, fds[i]), ok);
        assert_string_equal(hear(s, fds[i]), ""); /* each connection serves one request */
        close(fds[i]);
    }
    service_close(s);
    service_close(NULL);
}

/* ---- limits, and other users ---- */

static void count_refused(const struct err *why, void *arg)
{
    struct heard *h = arg;
    assert_non_null(strstr(why->msg, h->want));
    h->refused++;
}

/* Start a service that serves only peers of this user. here: it checks only peers on this machine,
 * as on a node of a cluster; otherwise all peers must be on this machine. */
static struct service *serve_strictly(const char *name, bool here, const char *want,
                                      struct heard *h)
{
    static const struct service_job job = { "app", 4, NULL };
    struct service *s;
    struct err e = { 0 };
    struct service_config cfg = { .host = "127.0.0.1",
                                  .max_bytes = 1 << 20,
                                  .own_peers = !here,
                                  .own_here = here,
                                  .on_refused = count_refused,
                                  .arg = h };
    *h = (struct heard){ .want = want };
    assert_int_equal(service_open(name, &cfg, &s, &e), 0);
    assert_int_equal(service_begin(s, &job, &e), 0);
    return s;
}

/* Send a part of a large body, and wait until the server has read it or has closed the connection.
 */
static bool send_part(struct service *s, int fd)
{
    enum { PART = 400 << 10 };
    static char text[PART];
    int n =
        snprintf(text, sizeof text, "PUT /s/large HTTP/1.1\r\nContent-Length: %d\r\n\r\n", PART);
    memset(text + n, 'x', sizeof text - (size_t)n);
    for (size_t at = 0; at < sizeof text;) {
        ssize_t sent =
            send(fd, text + at, MIN(sizeof text - at, (size_t)16384), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == -1 && errno != EAGAIN)
            return false;
        at += sent > 0 ? (size_t)sent : 0;
        struct pollfd p = { .fd = service_fd(s), .events = POLLIN };
        while (poll(&p, 1, 5) > 0)
            service_turn(s);
    }
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
}

/* Requests that are not complete count to the limit of the server, which serves others after that.
 */
static void unfinished_requests_are_limited(void **state)
{
    struct heard h;
    struct service *s = serve_strictly("horovod", false, "would need more than 1 MiB", &h);
    int fds[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        fds[i] = dial(s);
    for (int i = 0; i < 3 && !h.refused; i++)
        (void)send_part(s, fds[i]);
    assert_int_equal(h.refused, 1);
    say(fds[3], "PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
    assert_string_equal(hear(s, fds[3]), ok);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    service_close(s);
}

/* Each server closes the connection of another user before it reads a byte. */
static void other_users_are_refused(void **state)
{
    enum { NOBODY = 65534 };
    static const struct {
        const char *server, *first, *answer;
    } rows[] = {
        { "horovod", "PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", ok },
        { "pmi", "cmd=initack pmiid=0\n", "cmd=initack rc=0\n" },
        { "tcpstore", "\x00\x01\x00\x00\x00\x00\x00\x00\x00k\x01\x00\x00\x00\x00\x00\x00\x00v",
          NULL },
    };
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can act as another user */
    for (size_t n = 0; n < 2 * ARRAY_LEN(rows); n++) {
        size_t i = n / 2;
        struct heard h;
        struct service *s = serve_strictly(rows[i].server, n % 2, "a process of user 65534", &h);
        int go[2];
        assert_int_equal(pipe(go), 0);
        pid_t pid = fork();
        if (pid == 0) { /* connects as the other user, and stays until the server has closed */
            char byte;
            if (setuid(NOBODY) == -1)
                _exit(1);
            int fd = dial(s);
            (void)send(fd, rows[i].first, strlen(rows[i].first), MSG_NOSIGNAL);
            (void)!write(go[1], "1", 1);
            _exit(recv(fd, &byte, 1, 0) > 0);
        }
        char byte;
        assert_int_equal(read(go[0], &byte, 1), 1);
        while (!h.refused) {
            struct pollfd p = { .fd = service_fd(s), .events = POLLIN };
            assert_true(poll(&p, 1, 60000) > 0);
            service_turn(s);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        int own = dial(s);
        if (rows[i].answer) {
            say(own, rows[i].first);
            assert_true(span_starts(span_of(hear(s, own)), rows[i].answer));
        }
        assert_int_equal(h.refused, 1);
        close(own);
        close(go[0]);
        close(go[1]);
        service_close(s);
    }
}

static void servers_by_name(void **state)
{
    (void)state;
    assert_non_null(service_find("horovod"));
    assert_non_null(service_find("pmi"));
    assert_non_null(service_find("tcpstore"));
    assert_null(service_find("nobody"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store),
        cmocka_unit_test(an_empty_value_is_found),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(codes_of_an_abort),
        cmocka_unit_test(no_pmi),
        cmocka_unit_test(a_rank_disconnects_in_a_barrier),
        cmocka_unit_test(the_mapping_of_ranks_to_nodes),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(servers_by_name),
        cmocka_unit_test(unfinished_requests_are_limited),
        cmocka_unit_test(other_users_are_refused),
        cmocka_unit_test(mpi_on_the_network),
        cmocka_unit_test(horovod_on_the_network),
    };
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
