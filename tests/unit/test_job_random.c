/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core in a random world (job_sim.h). If a run fails, the test repeats shorter and shorter
 * parts of it, and writes the shortest trace that still fails to a file. TONY_SEED=n runs one seed.
 * TONY_EVENTS=n runs n events instead of 250,000. TONY_FIRST_SEED=n starts with seed n.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "drive.h"
#include "job_sim.h"

enum { LEASE_MS = 20000, LONG_LEASE_MS = 60000 };

static uint64_t current_seed; /* for failure messages */
static const char *current_job;
static uint32_t current_lease;
static bool failing = true;
static unsigned n_ends[JOB_STATE_COUNT], n_restarts, n_again, n_generations, n_measured;

static const char *const jobs[] = {
    "worker*4",
    "chief*1 worker*3 ps*2/untracked tb*1/sidecar",
    "worker*3 gang=0 reg=20000",
    "prep*2 train*3<prep eval*1/stop<prep",
    "worker*4 fail=1 alloc=5000 missed=3 app=60000",
    "chief*1 worker*2 limit=worker/3000/chief/ignored grace=500",
    "a*1 b*1<a c*2<a,b gang=0 away=3000",
    "single=1",
    "worker*4/on lost=2 launch=2 pre=2",
    "worker*4/on/scope-job/max5 lost=2 launch=2 pre=3 missed=3",
    "chief*1 worker*3/on/scope-role/delay3000 ps*2/untracked/scope-job tb*1/sidecar/always lost=1 "
    "pre=2",
    "worker*3/spares2 lost=3 launch=1 pre=1 missed=3",
    "worker*3/on/scope-job/spares1/max8 lost=3 pre=2 retries=1",
    "prep*2/on train*3/on/scope-job<prep retries=2 lost=1",
    "worker*3/on/scope-job gang=0 lost=2 pre=2 reg=20000 launch=3",
    "chief*1/on/scope-job/win20000/max2 worker*2/retry0-2 limit=worker/3000/chief/ignored lost=1",
    "ps*2/untracked worker*3<ps:ready eval*1/sidecar<worker:started lost=2",
    "ps*2/untracked worker*3/on/scope-job/stops-ps<ps:ready lost=2 retries=1 missed=3",
    "ps*2/on/scope-role worker*2/on/scope-task<ps:ready tb*1/sidecar<ps:started lost=2 gang=0",
    "prep*2/on ps*1/stops-prep<prep:succeeded worker*3/stops-ps<ps:ready,prep:started lost=1",
    "a*2/stop b*2/sidecar/on<a:started c*1<b:ready d*1<b:succeeded limit=d/3000/a/ignored lost=1",
    "worker*2/restart/cap5 ps*1/untracked/restart lost=2 pre=2",
    "worker*3/live/on/scope-task ps*1/untracked/live gang=0 lost=3 launch=2",
    "worker*2/restart/on/scope-job/max9/spares1 gang=1 lost=3 retries=1 missed=3",
    "chief*1/fixed worker*2/live ps*2/untracked/restart tb*1/sidecar lost=2",
    "worker*6/on/scope-task/max9 nodefail=2 nodewin=5000 pre=4 lost=4 launch=4",
    /* a lost task is not replaced, but restarts with the gang */
    "worker*4/on/scope-job/max9 missed=3",
    "worker*2/spares3 lost=6 missed=3",
};

/* ---- the shortest trace that still fails ---- */

static void feed_line(struct sim *m, const char *line)
{
    struct job_event ev;
    struct job_actions acts = { 0 };
    void *holder;
    int64_t t;

    if (str_eq(line, "crash")) {
        struct drive d = { .spec = m->spec, .journal = m->journal };
        struct job *again = drive_replay(&d, m->journal.n);
        sim_same_job(m->job, again);
        job_free(m->job);
        m->job = again;
        return;
    }
    if (drive_record(line, &ev, &t, &holder) < 0)
        return; /* deliberately invalid events */
    int rc = job_feed(m->job, &ev, t, &acts, NULL);
    if (rc == 0)
        drive_write(&m->journal, m->job, &ev);
    sim_check(m);
    vec_done(&acts);
    job_event_release(holder);
}

/* Runs in a child, because a broken core may do anything. Only checks of the core count: a failed
 * check of the world does not fail here. */
static bool fails(const bool *keep)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        struct sim m = { .spec = drive_spec(current_job) };
        m.spec->master_away_ms = current_lease;
        m.job = job_new(m.spec, NULL);
        for (size_t i = 0; i < sim_trace.n; i++)
            if (keep[i])
                feed_line(&m, sim_trace.v[i]);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status != 0;
}

static void shrink(bool *keep, bool *old)
{
    unsigned tries = 3000;

    for (size_t chunk = sim_trace.n / 2; chunk > 0 && tries; chunk /= 2) {
        for (size_t at = 0; at < sim_trace.n && tries; at += chunk, tries--) {
            size_t n = MIN(chunk, sim_trace.n - at);
            memcpy(old, keep + at, n);
            memset(keep + at, false, n);
            if (!fails(keep))
                memcpy(keep + at, old, n);
        }
    }
}

static void keep_trace(void)
{
    const char *dir = getenv("TMPDIR");
    AUTO(free_p)
    char *path = str_printf("%s/job-random-%llu.trace", dir ? dir : "/tmp",
                            (unsigned long long)current_seed);
    AUTO(free_p) bool *keep = malloc(sim_trace.n + 1), *old = malloc(sim_trace.n + 1);
    size_t n = 0;

    if (!path || !keep || !old)
        return;
    memset(keep, true, sim_trace.n + 1);
    bool again = fails(keep);
    if (again)
        shrink(keep, old);
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    (void)fprintf(f, "# job: %s\n", current_job);
    for (size_t i = 0; i < sim_trace.n; i++)
        n += keep[i] && fprintf(f, "%s\n", sim_trace.v[i]) > 0;
    (void)fclose(f);
    print_message("# seed %llu: %zu of %zu events%s in %s\n", (unsigned long long)current_seed, n,
                  sim_trace.n, again ? " fail as well," : " (the core alone does not fail),", path);
}

static int say_seed(void **state)
{
    (void)state;
    print_message("# last seed %llu: %u succeeded, %u failed, %u killed, %u new masters, "
                  "%u asks taken back by gangs; %u restarts, %u generations, %u spares used, "
                  "%u notices, %u resizes, %u lost executors that lived, %u attempts beside an "
                  "orphan, %u stalls, %u records lost; %u checkpoints reported, %u late, %u whole, "
                  "%u attempts resumed\n",
                  (unsigned long long)current_seed, n_ends[JOB_SUCCEEDED], n_ends[JOB_FAILED],
                  n_ends[JOB_KILLED], n_restarts, sim_given_back, n_again, n_generations, sim_taken,
                  sim_notices, sim_resizes, sim_lost, sim_orphans, sim_stalls, sim_cut, sim_saves,
                  sim_late_saves, sim_whole, sim_resumed);
    if (failing)
        keep_trace();
    strv_done(&sim_trace);
    return 0;
}

/* How the scheduler of a run grants containers. */
struct supply {
    const struct fake_rule *rules;
    bool scant; /* a gang may give back what it has before it is complete */
};

static struct supply choose_supply(struct sim *m)
{
    static const struct fake_rule rules[] = {
        { .slot = 2, .grant_ms = 700, .complete_ms = -1 },
        { .slot = FAKE_ANY, .complete_ms = -1, .gpus = "0,1" },
    };
    static const struct fake_rule sometimes_refused[] = {
        { .slot = 1, .grant_ms = 100, .refuse = "no such node", .complete_ms = -1 },
        { .slot = FAKE_ANY, .complete_ms = -1 },
    };
    /* as long as an incomplete gang keeps its containers, or longer */
    static const struct fake_rule scarce[] = {
        { .slot = 2, .grant_ms = GANG_HOLD_MS + GANG_HOLD_JITTER_MS / 2, .complete_ms = -1 },
        { .slot = FAKE_ANY, .complete_ms = -1 },
    };
    bool refusing = !sim_chance(m, 12), scant = !sim_chance(m, 6);
    return (struct supply){ refusing ? sometimes_refused : scant ? scarce : rules, scant };
}

static void begin_job(struct sim *m, const struct supply *supply)
{
    char application[40];
    uint32_t kind = sim_chance(m, ARRAY_LEN(jobs));

    current_job = jobs[kind];
    strv_done(&sim_trace);
    m->spec = drive_spec(jobs[kind]);
    m->spec->master_away_ms = current_lease = sim_chance(m, 2) ? LEASE_MS : LONG_LEASE_MS;
    m->spec->checkpoint_grace_ms = sim_chance(m, 2) ? 0 : 60000;
    if (strstr(jobs[kind], "nodefail") || sim_chance(m, 4))
        m->n_nodes = ARRAY_LEN(m->nodes);
    for (uint32_t i = 0; i < m->n_nodes; i++)
        (void)snprintf(m->nodes[i], sizeof m->nodes[i], "n%u", i);
    m->job = job_new(m->spec, NULL);
    m->gives_back = sim_chance(m, 2);
    m->saves.saving = (enum saving)sim_chance(m, SAVING_COUNT);
    (void)snprintf(application, sizeof application, "application_1_%04u", sim_chance(m, 10000));
    sim_cluster(m, supply->rules, 2);
    (void)sim_feed(m, &(struct job_event){ .type = EV_SUBMITTED,
                                           .submitted = { .application_id = application,
                                                          .owned = sim_chance(m, 2) } });
    sim_flush(m); /* a job is accepted when its first record is stored */
    sim_open(m);
}

static void step_executors(struct sim *m)
{
    for (size_t i = 0; i < m->executors.n && !m->finished; i++)
        sim_executor_step(m, i);
}

/* Each kind of trouble happens now with its own probability. */
static void make_trouble(struct sim *m)
{
    if (!sim_chance(m, 10))
        sim_nonsense(m);
    if (!sim_chance(m, 40))
        sim_client(m);
    if (!sim_chance(m, 80))
        sim_resize(m);
    if (m->n_nodes && !sim_chance(m, 60))
        sim_lose_node(m);
    if (m->n_nodes && !sim_chance(m, 100))
        sim_lose_rack_with_master(m);
    if (!sim_chance(m, 60))
        sim_crash_master(m);
    if (!sim_chance(m, 20))
        saves_late_report(m);
    if (!sim_chance(m, 150))
        sim_stall(m);
}

/* Stop the job. It must end, and its end must be final. */
static void end_job(struct sim *m)
{
    m->settling = true;
    (void)sim_feed(m, &(struct job_event){ .type = EV_STOP, .stop = { .who = "the test" } });
    for (unsigned step = 0; step < 2000 && !m->finished; step++) {
        step_executors(m);
        sim_pass(m, 100);
    }
    if (!m->finished)
        fail_msg("the job does not end: %s", job_state_name(job_state(m->job)));
    sim_crash_master(m); /* the end is final, also for the next master */
    for (int i = 0; i < 20; i++)
        sim_nonsense(m);
    assert_non_null(fake_cluster_finished(m->cluster));
}

static void run_seed(uint64_t seed, unsigned *n_feeds)
{
    struct sim m = { .rng = seed * 0x9e3779b97f4a7c15u + 1, .now = 1 };
    current_seed = seed;
    const struct supply supply = choose_supply(&m);

    begin_job(&m, &supply);
    for (unsigned step = 0; step < 400 && !m.finished; step++) {
        step_executors(&m);
        sim_pass(&m, supply.scant        ? sim_chance(&m, 8000)
                     : sim_chance(&m, 4) ? sim_chance(&m, 50)
                                         : sim_chance(&m, 2000));
        make_trouble(&m);
    }
    end_job(&m);
    *n_feeds += m.n_feeds;
    n_measured += m.job->costs.n;
    n_again += m.job->restarts.n;
    n_generations += m.job->generation;
    n_ends[m.verdict.state]++;
    n_restarts += m.n_restarts;
    sim_done(&m);
}

static void test_random(void **state)
{
    const char *one = getenv("TONY_SEED"), *more = getenv("TONY_EVENTS");
    const char *from = getenv("TONY_FIRST_SEED");
    unsigned n_feeds = 0;
    int64_t seed = 0, events = 250000, first = 1;

    (void)state;
    if (more)
        assert_int_equal(str_i64(span_of(more), 1, UINT32_MAX, "TONY_EVENTS", &events, NULL), 0);
    if (one && str_i64(span_of(one), 0, INT64_MAX / 2, "seed", &seed, NULL) == 0) {
        run_seed((uint64_t)seed, &n_feeds);
        failing = false;
        return;
    }
    if (from)
        assert_int_equal(str_i64(span_of(from), 1, INT64_MAX / 2, "TONY_FIRST_SEED", &first, NULL),
                         0);
    for (uint64_t s = (uint64_t)first; n_feeds < events; s++) {
        run_seed(s, &n_feeds);
    }
    assert_true(n_measured > n_feeds / 2000); /* else the model would not test src/job/costs.c */
    failing = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_random, say_seed) };
    return cmocka_run_group_tests_name("job_random", tests, NULL, NULL);
}
