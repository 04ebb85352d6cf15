/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs whose client died before it recorded the number that Slurm had given to them.
 *
 * Such a job may be in Slurm's queue, or sbatch has never sent it. squeue tells which: it shows the
 * path of each batch script, and that is in the directory of the job.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "codec/json.h"

enum {
    SQUEUE_MS = 20000,
    YOUNG_MS = 10000,     /* its client is probably alive */
    GIVEN_UP_MS = 120000, /* sbatch has not run for so long: see SBATCH_MS in submit.c */
};

/* ---- the number ---- */

int slurm_record_number(const char *dir, const char *number, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "slurm.json");
    json_t *doc = slurm_read_json(dir, "slurm.json");
    if (!doc)
        doc = json_object();
    AUTO(free_p) char *text = NULL;
    if (json_object_set_new(doc, "job", json_string(number)) == 0)
        text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    return path && text ? fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, true, e)
                        : err_set(e, ENOMEM, "no memory to record the number of the job");
}

static int ask_scripts(struct slurm_answer *out, struct err *e)
{
    const char *const argv[] = { "squeue", "-h", "--me", "-t", "all", "-o", SLURM_SCRIPT_FIELDS,
                                 NULL };
    int rc = slurm_run(argv, NULL, SQUEUE_MS, out, e);
    return rc == 0 && out->status != 0 ? slurm_failed(out, "squeue", e) : rc;
}

/* number: "" = it is not in the answer. */
static int find_in(const struct slurm_answer *a, const char *dir, char number[static 32],
                   struct err *e)
{
    const char *id = strrchr(dir, '/');
    AUTO(free_p) char *tail = id ? str_printf("/jobs%s/script", id) : NULL;
    number[0] = '\0';
    if (!tail)
        return err_set(e, ENOMEM, "no memory to look for the job");
    struct err unread = { 0 };
    if (slurm_find_script(buf_span(&a->out), tail, number))
        (void)slurm_record_number(dir, number, &unread); /* else it is looked for again */
    return 0;
}

int slurm_find_number(const char *dir, char number[static 32], struct err *e)
{
    struct slurm_answer a;
    int rc = ask_scripts(&a, e);
    if (rc == 0)
        rc = find_in(&a, dir, number, e);
    slurm_answer_done(&a);
    return rc;
}

static bool runs_without_directory(const char *id, char number[static 32])
{
    const char *const argv[] = { "squeue", "-h", "--me", "-o", SLURM_SCRIPT_FIELDS, NULL };
    AUTO(free_p) char *tail = str_printf("/jobs/%s/script", id);
    struct slurm_answer a;
    struct err unread = { 0 };
    bool found = tail && slurm_run(argv, NULL, SQUEUE_MS, &a, &unread) == 0;
    if (!found)
        return false;
    found = a.status == 0 && slurm_find_script(buf_span(&a.out), tail, number);
    slurm_answer_done(&a);
    return found;
}

void slurm_explain_absence(const char *id, struct err *e)
{
    char number[32];
    if (!e || e->num != ENOENT || !runs_without_directory(id, number))
        return;
    err_clear(e);
    (void)err_set(e, ENOENT,
                  "the directory of job '%s' was removed, but job %s of Slurm has not ended", id,
                  number);
    err_hint(e, "scancel %s ends it", number);
}

/* How long the directory has been there; -1: it is not that of a job on Slurm. */
static int64_t age_ms(const char *dir)
{
    AUTO(free_p) char *path = fs_join(dir, "slurm.json");
    struct stat st;
    return path && stat(path, &st) == 0 ? clock_wall_ms() - (int64_t)st.st_mtime * 1000 : -1;
}

bool slurm_is_given_up(const char *dir)
{
    return age_ms(dir) > GIVEN_UP_MS;
}

/* ---- all jobs ---- */

struct adopting {
    struct cluster_host *h;
    bool asked, failed; /* squeue */
    struct slurm_answer answer;
};

static void adopt(struct adopting *a, const char *id)
{
    static const struct slurm_state never = { .state = SLURM_NEVER };
    AUTO(free_p) char *dir = paths_job(&a->h->paths, id);
    char number[32] = "";
    struct err unread = { 0 };
    if (!dir || age_ms(dir) < YOUNG_MS)
        return;
    slurm_number(dir, number);
    if (number[0])
        return;
    if (!a->asked)
        a->failed = ask_scripts(&a->answer, &unread) < 0;
    a->asked = true;
    if (!a->failed && find_in(&a->answer, dir, number, &unread) == 0 && !number[0] &&
        slurm_is_given_up(dir))
        (void)slurm_settle(a->h, id, &never, &unread);
}

void slurm_adopt_all(struct cluster_host *h)
{
    struct adopting a = { .h = h };
    DIR *d = opendir(h->paths.jobs);
    for (struct dirent *x; d && (x = readdir(d));) {
        int64_t ms;
        uint32_t number;
        if (app_id_parse(x->d_name, &ms, &number, NULL) == 0)
            adopt(&a, x->d_name);
    }
    if (d)
        (void)closedir(d);
    if (a.asked)
        slurm_answer_done(&a.answer);
}
