/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the cluster `slurm`. */
#include "cluster/slurm/slurm.h"

#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/remote.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"
#include "storage/jobkey.h"

enum { MOVE_MS = 3000, MOVE_PAUSE_MS = 20 };

static int open_slurm(const struct cluster_config *cfg, struct cluster **out, struct err *e)
{
    struct slurm_cluster *s = calloc(1, sizeof *s);
    if (!s || !host_loop(cfg->host, e)) {
        free(s);
        (void)err_set(e, ENOMEM, "no memory to talk to Slurm");
        return -EXIT_CLUSTER;
    }
    s->head = (struct cluster_head){ &cluster_slurm, *cfg };
    /* A client writes the journal of a job that Slurm has ended: that is no message for users. */
    log_setup(STDERR_FILENO, cfg->host->verbose ? LOG_INFO : LOG_ERROR, false);
    if (cfg->conf)
        cfg->host->history_location = conf_get(cfg->conf, "tony.history.location");
    *out = (struct cluster *)(void *)s;
    return 0;
}

static void close_slurm(struct cluster *k)
{
    struct slurm_cluster *s = (struct slurm_cluster *)(void *)k;
    if (!s)
        return;
    vec_done(&s->recent);
    free(s->programs);
    free(s->note);
    slurm_size_done(&s->size);
    free(s);
}

/* ---- jobs that were submitted ---- */

static bool knows(struct cluster_host *h, const char *word)
{
    char id[APP_ID_MAX];
    struct err unread = { 0 };
    int rc = slurm_find_app(h, word, id, &unread);
    /* A copy that cannot be read, or is not believed: find() tells the user why. */
    bool refused = h->history_location && (rc == -EPERM || rc == -EACCES);
    return refused || (rc == 0 && local_is_of_slurm(&h->paths, id));
}

static int find(struct cluster *k, const char *word, char out[APP_ID_MAX], struct err *e)
{
    if (slurm_find_app(slurm_host(k), word, out, e) == 0)
        return 0;
    return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
}

static int key(struct cluster *k, const char *id, struct tls_key *out, struct err *e)
{
    struct cluster_host *h = slurm_host(k);
    struct job_key secret;
    int rc = host_look_paths(h, e);
    AUTO(free_p) char *dir = rc == 0 ? paths_job(&h->paths, id) : NULL;
    if (rc == 0)
        rc = dir ? job_key_open(dir, &secret, e)
                 : err_set(e, ENOMEM, "no memory to read the key of job '%s'", id);
    if (rc == 0)
        job_key_client(&secret, out);
    job_key_wipe(&secret, sizeof secret);
    return rc;
}

/* The head keeper moves the job to the history a moment after the master has sent the verdict. */
static void settle(struct cluster *k, const char *id, bool killed)
{
    struct cluster_host *h = slurm_host(k);
    AUTO(free_p) char *dir = paths_job(&h->paths, id);
    (void)killed;
    for (int64_t until = clock_mono_ms() + MOVE_MS;
         dir && access(dir, F_OK) == 0 && clock_mono_ms() < until;)
        host_pause(h, MOVE_PAUSE_MS);
}

static const char *const keys_also[] = { "tony.yarn.queue",        "tony.application.node-label",
                                         "tony.<role>.node-label", "tony.history.location",
                                         "tony.port-range",        NULL };

const struct cluster_ops cluster_slurm = {
    .name = "slurm",
    .title = "Slurm",
    .remote = true,
    .keys_effect = CE_SLURM,
    .keys_only = "only on Slurm",
    .keys_also = keys_also,
    .queue = &queue_slurm,
    .no_forecast = "on Slurm its scheduler decides; squeue --start shows its estimate",
    .open = open_slurm,
    .close = close_slurm,
    .plan = slurm_plan,
    .stage = slurm_stage,
    .submit = slurm_submit,
    .knows = knows,
    .find = find,
    .report = slurm_report,
    .key = key,
    .history = local_history,
    .place = local_place,
    .status = remote_status,
    .list = slurm_list,
    .watch = slurm_watch,
    .attend = slurm_attend,
    .stop = slurm_stop,
    .unwatch = slurm_unwatch,
    .verdict = local_verdict_or_report,
    .settle = settle,
    .logs = slurm_logs,
    .kept_log = slurm_kept_log,
    .history_list = local_history_list,
    .history_file = local_history_file,
    .doctor = slurm_doctor,
};
