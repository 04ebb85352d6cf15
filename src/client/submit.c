#include "client/submit.h"

#include <errno.h>
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

int submit_job(struct client *c, struct client_job *j, bool owned, char out_id[APP_ID_MAX],
               struct conn **out_pool, struct err *e)
{
    if (client_open_paths(c, e) < 0)
        return -EXIT_CLUSTER;
    struct conn *pool = NULL;
    if (ship_put(c, j, e) < 0)
        return -ship_exit_code(e);
    AUTO(buf_done) struct buf text = { 0 };
    if (encode(c, j, &text, e) < 0 || link_dial_pool(c, true, &pool, e) < 0)
        return -EXIT_CLUSTER;

    Tony__Submit submit = TONY__SUBMIT__INIT;
    submit.version = TONY__VERSION__PROTOCOL_VERSION;
    submit.conf = (ProtobufCBinaryData){ .data = (uint8_t *)text.p, .len = text.len };
    submit.owned = owned;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_SUBMIT;
    f.submit = &submit;

    if (owned) {
        sigset_t set;
        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGINT);
        (void)sigaddset(&set, SIGTERM);
        (void)sigaddset(&set, SIGHUP);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
    }
    struct answer a = { 0 };
    int rc = link_ask(c, &pool, &f, &a, e);
    if (rc == 0 && !a.application_id)
        rc = err_set(e, EPROTO, "the pool's answer was none to a submission");
    if (rc == 0 && !str_copy(out_id, APP_ID_MAX, a.application_id))
        rc = err_set(e, EPROTO, "the pool's application id is too long");
    int code = rc < 0 ? a.refused ? refusal_code(e) : EXIT_CLUSTER : EXIT_DONE;
    answer_done(&a);
    if (code) {
        conn_close(pool);
        return -code;
    }
    *out_pool = pool;
    return 0;
}
