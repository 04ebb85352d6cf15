#include "client/submit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/jobconf.h"
#include "client/link.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"

static int encode(struct client *c, struct client_job *j, struct buf *out, struct err *e)
{
    struct passwd *pw = getpwuid(getuid());
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1); /* only for people */
    char nothing[] = "";
    AUTO(free_p) char *cwd = getcwd(NULL, 0);
    struct job_file f = {
        .conf = j->conf,
        .ship = j->items,
        .n_ship = j->n_items,
        .user = pw ? pw->pw_name : nothing,
        .host = host,
        .cwd = cwd ? cwd : nothing,
        .version = (char *)c->version,
        .wall_ms = clock_wall_ms(),
        .pid = getpid(),
    };
    return job_file_encode(&f, out, e);
}

/* What the pool refuses for the job's sake is the user's; all else is the pool's or the machine's.
 */
static int refusal_code(const struct err *e)
{
    return e->num == EINVAL || e->num == ERANGE || e->num == E2BIG || e->num == ENAMETOOLONG
               ? EXIT_MISUSE
               : EXIT_CLUSTER;
}

/* The pool may have taken the job and died before it said so: its directory is the truth. 1: found;
 * 0: not there. */
static int find_accepted(struct client *c, const struct buf *text, char out_id[APP_ID_MAX])
{
    DIR *d = opendir(c->paths.jobs);
    int found = 0;
    for (struct dirent *de; d && !found && (de = readdir(d));) {
        AUTO(buf_done) struct buf there = { 0 };
        AUTO(free_p) char *path = str_printf("%s/%s/job.conf", c->paths.jobs, de->d_name);
        if (de->d_name[0] == '.' || !path || fs_read(AT_FDCWD, path, &there, NULL) < 0)
            continue;
        found =
            span_eq(buf_span(&there), buf_span(text)) && str_copy(out_id, APP_ID_MAX, de->d_name);
    }
    if (d)
        (void)closedir(d);
    return found;
}

/* One try. -ECONNRESET: the connection went before an answer came. */
static int submit_once(struct client *c, const struct buf *text, bool owned, struct answer *a,
                       struct conn **pool, struct err *e)
{
    int rc = link_dial_pool(c, true, pool, e);
    if (rc < 0)
        return rc;
    Tony__Submit submit = TONY__SUBMIT__INIT;
    submit.version = TONY__VERSION__PROTOCOL_VERSION;
    submit.conf = (ProtobufCBinaryData){ .data = (uint8_t *)text->p, .len = text->len };
    submit.owned = owned;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_SUBMIT;
    f.submit = &submit;
    rc = link_ask(c, pool, &f, a, e);
    if (rc == 0 && !a->application_id)
        rc = err_set(e, EPROTO, "the pool's answer was none to a submission");
    return rc;
}

static void hold_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

/* A pool that dies under a submission has either made the job's directory, then the job is taken,
 * or it never will: one thread handles all that a connection brought before it goes. */
static int submit_text(struct client *c, const struct buf *text, bool owned,
                       char out_id[APP_ID_MAX], struct conn **out_pool, struct err *e)
{
    enum { TRIES = 5 };
    for (int i = 0;; i++) {
        struct answer a = { 0 };
        struct conn *pool = NULL;
        int rc = submit_once(c, text, owned, &a, &pool, e);
        bool ok = rc == 0 && str_copy(out_id, APP_ID_MAX, a.application_id);
        bool refused = a.refused;
        answer_done(&a);
        if (ok) {
            *out_pool = pool;
            return 0;
        }
        conn_close(pool);
        if (refused)
            return -refusal_code(e);
        if (!link_broke(rc))
            return -EXIT_CLUSTER;
        if (find_accepted(c, text, out_id))
            return 0;
        if (i + 1 == TRIES)
            return -EXIT_CLUSTER;
    }
}

int submit_job(struct client *c, struct client_job *j, bool owned, char out_id[APP_ID_MAX],
               struct conn **out_pool, struct err *e)
{
    *out_pool = NULL;
    if (client_open_paths(c, e) < 0)
        return -EXIT_CLUSTER;
    if (ship_put(c, j, e) < 0)
        return -ship_exit_code(e);
    AUTO(buf_done) struct buf text = { 0 };
    if (encode(c, j, &text, e) < 0)
        return -EXIT_CLUSTER;
    if (owned)
        hold_signals();
    return submit_text(c, &text, owned, out_id, out_pool, e);
}
