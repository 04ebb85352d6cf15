/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about a job. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/base.h"
#include "slurm/commands.h"

enum {
    SQUEUE_MS = 20000, /* limit of one squeue */
    TRIES = 3,
};

static int not_answered(const struct slurm_answer *a, const char *command, const char *number,
                        struct err *e)
{
    AUTO(free_p) char *words = slurm_words(a);
    if (words && strstr(words, "Invalid job id"))
        return err_set(
            e, ESRCH,
            "Slurm does not know job %s; it forgets jobs some minutes after their end (MinJobAge)",
            number);
    return slurm_failed(a, command, e);
}

/* One job number, all states: without -t all, squeue shows nothing for a job that has ended. */
int slurm_ask(const char *number, struct slurm_state *out, struct err *e)
{
    const char *const argv[] = { "squeue",           "-h", "-t", "all", "-j", number, "-o",
                                 SLURM_STATE_FIELDS, NULL };
    struct slurm_answer a;
    *out = (struct slurm_state){ 0 };
    int rc = slurm_run(argv, NULL, SQUEUE_MS, &a, e);
    if (rc == 0 && a.status == 0)
        slurm_parse_state(buf_span(&a.out), out);
    else if (rc == 0)
        rc = not_answered(&a, "squeue", number, e);
    if (rc == -ESRCH) { /* Slurm forgets jobs that have ended; that is no failure */
        err_clear(e);
        rc = 0;
    }
    slurm_answer_done(&a);
    return rc;
}

int slurm_ask_job(const char *number, int limit_ms, struct slurm_job *out, struct err *e)
{
    const char *const argv[] = { "scontrol", "show", "job", "-o", number, NULL };
    struct slurm_answer a;
    *out = (struct slurm_job){ 0 };
    /* The signal that ends the job also goes to the children of the master. */
    int rc = slurm_run(argv, NULL, limit_ms, &a, e);
    for (int i = 0; i < TRIES && rc == 0 && a.status == 128 + SIGTERM; i++) {
        slurm_answer_done(&a);
        rc = slurm_run(argv, NULL, limit_ms, &a, e);
    }
    if (rc == 0 && a.status != 0)
        rc = not_answered(&a, "scontrol show job", number, e);
    else if (rc == 0 && slurm_parse_job(buf_span(&a.out), out) < 0)
        rc = err_set(e, EBADMSG, "the answer of 'scontrol show job %s' has no state of the job",
                     number);
    slurm_answer_done(&a);
    return rc;
}

int slurm_put_back(const char *number, int limit_ms, struct err *e)
{
    const char *const argv[] = { "scontrol", "requeue", number, NULL };
    struct slurm_answer a;
    int rc = slurm_run(argv, NULL, limit_ms, &a, e);
    if (rc == 0 && a.status != 0) {
        AUTO(free_p) char *words = slurm_words(&a);
        if (slurm_is_trouble(words ? words : ""))
            rc = slurm_failed(&a, "scontrol requeue", e);
        else
            rc = err_set(e, EPERM, "Slurm does not put the job back into its queue: %s",
                         words && *words ? words : "scontrol failed");
    }
    slurm_answer_done(&a);
    return rc;
}

int slurm_cancel_job(const char *number, int limit_ms, struct err *e)
{
    const char *const argv[] = { "scancel", number, NULL };
    struct slurm_answer a;
    int rc = slurm_run(argv, NULL, limit_ms, &a, e);
    if (rc == 0 && a.status != 0) {
        AUTO(free_p) char *words = slurm_words(&a);
        if (!words || !strstr(words, "Invalid job id")) /* it has ended */
            rc = slurm_failed(&a, "scancel", e);
    }
    slurm_answer_done(&a);
    return rc;
}
