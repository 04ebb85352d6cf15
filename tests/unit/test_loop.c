/* SPDX-License-Identifier: Apache-2.0 */
/* Timers, signals, descriptors and work on threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "loop/loop.h"
#include "loop_deadline.h"

struct order {
    struct loop *l;
    char seen[16];
    size_t n;
    struct loop_timer *t[4];
    int64_t due;
};

static void mark(struct order *o, char c)
{
    assert_in_range(o->n, 0, sizeof o->seen - 2);
    o->seen[o->n++] = c;
}

static void timer_a(void *arg)
{
    struct order *o = arg;
    mark(o, 'a');
    assert_true(clock_mono_ms() >= o->due);
    loop_timer_free(o->t[2]); /* due at the same time: its callback must not run any more */
    loop_timer_free(o->t[0]); /* the running timer itself */
}

static void timer_b(void *arg)
{
    struct order *o = arg;
    mark(o, 'b');
    if (o->n < 4)
        loop_timer_set(o->t[1], clock_mono_ms() + 1);
    else
        loop_stop(o->l);
}

static void timer_never(void *arg)
{
    mark(arg, 'x');
}

static void test_timers(void **state)
{
    (void)state;
    struct order o = { .l = new_loop() };
    o.due = clock_mono_ms() + 5;
    o.t[0] = loop_timer_new(o.l, timer_a, &o);
    o.t[1] = loop_timer_new(o.l, timer_b, &o);
    o.t[2] = loop_timer_new(o.l, timer_never, &o);
    o.t[3] = loop_timer_new(o.l, timer_never, &o);
    loop_timer_set(o.t[3], o.due - 100); /* overdue, but stopped */
    loop_timer_stop(o.t[3]);
    loop_timer_set(o.t[0], o.due + 10000);
    loop_timer_set(o.t[0], o.due); /* replaces the earlier time */
    loop_timer_set(o.t[2], o.due);
    loop_timer_set(o.t[1], o.due + 2);
    assert_int_equal(loop_run(o.l), 0);
    assert_string_equal(o.seen, "abbb");
    loop_free(o.l);
}

struct eager {
    struct loop *l;
    struct loop_timer *t;
    unsigned runs;
    bool read;
};

static void run_eagerly(void *arg)
{
    struct eager *x = arg;
    if (++x->runs < 1000) /* otherwise the loop did nothing else meanwhile */
        loop_timer_set(x->t, clock_mono_ms() - 5);
    else
        loop_stop(x->l);
}

static void read_eagerly(void *arg)
{
    struct eager *x = arg;
    x->read = true;
    loop_stop(x->l);
}

static void test_a_timer_that_is_always_late_starves_nobody(void **state)
{
    (void)state;
    struct eager x = { .l = new_loop() };
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    struct loop_fd *f = loop_fd_new(x.l, fds[0], read_eagerly, &x);
    x.t = loop_timer_new(x.l, run_eagerly, &x);
    loop_timer_set(x.t, clock_mono_ms());
    assert_int_equal(loop_run(x.l), 0);
    assert_true(x.read);
    assert_in_range(x.runs, 1, 2);
    loop_fd_free(f);
    loop_free(x.l);
    close(fds[0]);
    close(fds[1]);
}

static void test_ends_when_nothing_is_left(void **state)
{
    (void)state;
    struct err e = { 0 };
    struct loop *l = loop_new(&e);
    assert_int_equal(loop_run(l), 0);
    loop_free(l);
    loop_free(NULL);
}

static void on_usr1(int signo, void *arg)
{
    struct order *o = arg;
    assert_int_equal(signo, SIGUSR1);
    mark(o, 's');
    loop_stop(o->l);
}

static void raise_usr1(void *arg)
{
    (void)arg;
    (void)kill(getpid(), SIGUSR1);
}

static void test_signal(void **state)
{
    (void)state;
    struct order o = { .l = new_loop() };
    struct loop_signal *s = loop_signal_new(o.l, SIGUSR1, on_usr1, &o);
    assert_non_null(s);
    o.t[0] = loop_timer_new(o.l, raise_usr1, NULL);
    loop_timer_set(o.t[0], clock_mono_ms());
    (void)loop_run(o.l);
    assert_string_equal(o.seen, "s");
    loop_signal_free(s);
    loop_free(o.l);
}

struct pipe_test {
    struct loop *l;
    int fds[2];
    struct loop_fd *w;
    int calls;
};

static void on_pipe(void *arg)
{
    struct pipe_test *p = arg;
    char c;
    ssize_t n = read(p->fds[0], &c, 1);
    p->calls++;
    if (n == 1) {
        (void)close(p->fds[1]); /* the end of the file is an event, too */
    } else {
        assert_int_equal(n, 0);
        loop_fd_free(p->w);
        loop_stop(p->l);
    }
}

static void test_fd(void **state)
{
    (void)state;
    struct pipe_test p = { .l = new_loop() };
    assert_int_equal(pipe2(p.fds, O_CLOEXEC), 0);
    p.w = loop_fd_new(p.l, p.fds[0], on_pipe, &p);
    assert_non_null(p.w);
    assert_int_equal(write(p.fds[1], "x", 1), 1);
    (void)loop_run(p.l);
    assert_int_equal(p.calls, 2);
    loop_free(p.l);
    assert_int_equal(close(p.fds[0]), 0); /* the loop did not close the descriptor */
}

struct job_on_thread {
    struct loop *l;
    pthread_t seen;
    uint64_t sum;
    int *left;
};

static int add_up(void *arg)
{
    struct job_on_thread *j = arg;
    j->seen = pthread_self();
    for (uint64_t i = 0; i <= 1000; i++)
        j->sum += i;
    return j->sum == 500500 ? 7 : -EIO;
}

static void added_up(void *arg, int rc)
{
    struct job_on_thread *j = arg;
    assert_int_equal(rc, 7);
    assert_int_equal(j->sum, 500500);
    assert_false(pthread_equal(j->seen, pthread_self()));
    if (--*j->left == 0)
        loop_stop(j->l);
}

static void test_work(void **state)
{
    (void)state;
    struct loop *l = new_loop();
    struct job_on_thread jobs[50] = { 0 };
    int left = 50;
    for (int i = 0; i < 50; i++) {
        jobs[i] = (struct job_on_thread){ .l = l, .left = &left };
        assert_int_equal(loop_work(l, add_up, added_up, &jobs[i]), 0);
    }
    (void)loop_run(l);
    assert_int_equal(left, 0);
    /* work that no caller waits for still releases its argument */
    left = 1;
    jobs[0] = (struct job_on_thread){ .l = l, .left = &left };
    assert_int_equal(loop_work(l, add_up, added_up, &jobs[0]), 0);
    loop_free(l);
    assert_int_equal(left, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers),
        cmocka_unit_test(test_a_timer_that_is_always_late_starves_nobody),
        cmocka_unit_test(test_ends_when_nothing_is_left),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_fd),
        cmocka_unit_test(test_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
