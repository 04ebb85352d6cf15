/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The web page of a running job. It is read-only and has no scripts. Everybody who can reach the
 * port can read it, so it shows no secrets, no environment variables and no output of tasks. Links
 * to pages of the master are relative, because most readers come through the ResourceManager's
 * proxy.
 */
#include <errno.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/http.h"
#include "master/master_int.h"

enum { TASKS_SHOWN_MAX = 5000 };

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"refresh\" content=\"10\">\n<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;"
    "color:#222;background:#fff}\n"
    "h1{font-size:1.5em;margin:0}h2{font-size:1.1em;margin:1.6em 0 .4em}\n"
    ".id{color:#666;font-family:ui-monospace,monospace;font-size:.9em}\n"
    "table{border-collapse:collapse;width:100%}\n"
    "th,td{text-align:left;padding:.3em .8em .3em 0;border-bottom:1px solid #ddd;"
    "vertical-align:top}\nth{color:#666;font-weight:600}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".state{display:inline-block;padding:0 .6em;border-radius:.3em;background:#e8eef7}\n"
    ".good{background:#dff3e3}.bad{background:#fbe0e0}\n"
    ".wide{overflow-x:auto}a{color:#1a56b0}footer{margin:2em 0;color:#666}\n"
    "@media(prefers-color-scheme:dark){body{background:#181a1d;color:#ddd}"
    "th,td{border-color:#3a3d42}th,.id,footer{color:#9a9fa6}a{color:#8ab4f8}"
    ".state{background:#2c3a52}.good{background:#1f4228}.bad{background:#5a2626}}\n"
    "</style>\n";

static void add_text(struct buf *b, const char *s)
{
    (void)http_add_html(b, span_of(s ? s : "")); /* a failure sets b->failed */
}

/* The CSS class for a state, with a space in front. */
static const char *css_class(const char *word)
{
    if (str_eq(word, "SUCCEEDED"))
        return " good";
    return str_eq(word, "FAILED") || str_eq(word, "LOST") || str_eq(word, "KILLED") ? " bad" : "";
}

static void add_state(struct buf *b, const char *word)
{
    (void)buf_addf(b, "<span class=\"state%s\">%s</span>", css_class(word), word);
}

static void add_link(struct buf *b, const char *url, const char *name)
{
    (void)buf_adds(b, "<a href=\"");
    add_text(b, url);
    (void)buf_adds(b, "\">");
    add_text(b, name);
    (void)buf_adds(b, "</a>");
}

static void add_cell(struct buf *b, const char *s)
{
    (void)buf_adds(b, "<td>");
    add_text(b, s);
    (void)buf_adds(b, "</td>");
}

static void add_number(struct buf *b, uint64_t n)
{
    (void)buf_addf(b, "<td class=\"n\">%llu</td>", (unsigned long long)n);
}

/* ---- the job ---- */

static void add_job(const struct master *m, struct buf *b)
{
    struct job_verdict v;
    job_verdict(m->job, &v);
    const char *name = m->spec->name && *m->spec->name ? m->spec->name : m->application_id;
    char took[40];
    (void)buf_adds(b, "<title>");
    add_text(b, name);
    (void)buf_adds(b, "</title></head><body>\n<h1>");
    add_text(b, name);
    (void)buf_addf(b, "</h1>\n<p class=\"id\">%s</p>\n<p>", m->application_id);
    add_state(b, job_state_name(job_state(m->job)));
    (void)buf_addf(b, " &nbsp; for %s</p>\n", str_duration(master_now(m), took, sizeof took));
    if (v.message && *v.message) {
        (void)buf_adds(b, "<p>");
        add_text(b, v.message);
        (void)buf_adds(b, "</p>\n");
    }
    if (m->blocked_why) {
        (void)buf_adds(b, "<p>");
        add_text(b, m->blocked_why);
        (void)buf_adds(b,
                       "; until the master can write it again, it starts and stops nothing</p>\n");
    }
    if (job_restarts(m->job))
        (void)buf_addf(b, "<p>%u restarts; generation %u</p>\n", job_restarts(m->job),
                       job_generation(m->job));
}

/* ---- roles ---- */

struct role_sum {
    uint32_t n, waiting, placed, running, succeeded, failed, finished;
};

static void count_task(struct role_sum *r, const struct slot_view *v)
{
    r->n++;
    r->succeeded += v->result == RES_SUCCEEDED;
    r->failed += v->result == RES_FAILED || v->result == RES_LOST;
    r->finished += v->result == RES_FINISHED;
    if (v->result != RES_NONE)
        return;
    r->waiting += v->state == SLOT_HELD || v->state == SLOT_ASKED;
    r->placed += v->state == SLOT_PLACED || v->state == SLOT_REGISTERED;
    r->running += v->state >= SLOT_RUNNING;
}

static void add_role(struct buf *b, const char *name, const struct role_sum *r)
{
    (void)buf_adds(b, "<tr>");
    add_cell(b, name);
    add_number(b, r->n);
    add_number(b, r->waiting);
    add_number(b, r->placed);
    add_number(b, r->running);
    add_number(b, r->succeeded);
    add_number(b, r->failed);
    add_number(b, r->finished);
    (void)buf_adds(b, "</tr>\n");
}

static void add_roles(const struct master *m, struct buf *b)
{
    (void)buf_adds(b, "<h2>Roles</h2>\n<div class=\"wide\"><table><tr><th>role</th>"
                      "<th class=\"n\">tasks</th><th class=\"n\">waiting</th>"
                      "<th class=\"n\">placed</th><th class=\"n\">running</th>"
                      "<th class=\"n\">succeeded</th><th class=\"n\">failed</th>"
                      "<th class=\"n\">stopped</th></tr>\n");
    for (uint32_t r = 0; r < job_n_roles(m->job); r++) {
        struct role_sum sum = { 0 };
        struct slot_view v = { 0 };
        for (uint32_t i = 0; i < job_role_tasks(m->job, r); i++) {
            job_slot(m->job, job_task(m->job, r, i), &v);
            count_task(&sum, &v);
        }
        if (v.role) /* a role without tasks is not shown */
            add_role(b, v.role, &sum);
    }
    (void)buf_adds(b, "</table></div>\n");
}

/* ---- tasks ---- */

static const char *result_name(enum slot_result r)
{
    static const char *const names[] = { [RES_SUCCEEDED] = "SUCCEEDED",
                                         [RES_FAILED] = "FAILED",
                                         [RES_FINISHED] = "FINISHED",
                                         [RES_LOST] = "LOST" };
    return r > RES_NONE && (size_t)r < ARRAY_LEN(names) ? names[r] : NULL;
}

static void add_end(struct buf *b, const struct slot_view *v)
{
    (void)buf_adds(b, "<td>");
    if (v->result != RES_NONE) {
        if (v->signal)
            (void)buf_addf(b, "signal %d", v->signal);
        else if (v->reason == END_EXITED && v->attempt > 0)
            (void)buf_addf(b, "exit code %d", v->exit_code);
        else
            add_text(b, end_reason_name(v->reason));
        if (v->detail) {
            (void)buf_adds(b, "<br>");
            add_text(b, v->detail);
        }
    }
    (void)buf_adds(b, "</td>");
}

static void add_logs(const struct master *m, struct buf *b, uint32_t slot)
{
    const char *url = locations_log_url(m, slot);
    char suffix[16];
    (void)buf_adds(b, "<td>");
    if (url) {
        static const char *const streams[] = { "stdout", "stderr" };
        locations_log_suffix(m, slot, suffix, sizeof suffix);
        for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
            AUTO(free_p) char *to = str_printf("%s/%s%s?start=-65536", url, streams[i], suffix);
            add_link(b, to ? to : url, streams[i]);
            (void)buf_addc(b, ' ');
        }
        add_link(b, url, "all");
    }
    (void)buf_adds(b, "</td>");
}

static void add_task(const struct master *m, struct buf *b, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    const char *result = result_name(v.result), *node = locations_node(m, slot);
    (void)buf_addf(b, "<tr><td>%s:%u%s</td><td>", v.role, v.index, v.chief ? " (chief)" : "");
    add_state(b, result ? result : slot_state_name(v.state));
    (void)buf_addf(b, "%s</td>", v.suspect ? " silent" : "");
    add_cell(b, node);
    add_cell(b, v.address);
    add_number(b, v.attempt);
    add_end(b, &v);
    add_logs(m, b, slot);
    (void)buf_adds(b, "</tr>\n");
}

static void add_tasks(const struct master *m, struct buf *b)
{
    uint32_t n = job_n_tasks(m->job), shown = MIN(n, (uint32_t)TASKS_SHOWN_MAX);
    (void)buf_adds(b, "<h2>Tasks</h2>\n<div class=\"wide\"><table><tr><th>task</th><th>state</th>"
                      "<th>node</th><th>address</th><th class=\"n\">attempt</th><th>end</th>"
                      "<th>logs</th></tr>\n");
    uint32_t left = shown;
    for (uint32_t r = 0; r < job_n_roles(m->job); r++)
        for (uint32_t i = 0; i < job_role_tasks(m->job, r) && left > 0; i++, left--)
            add_task(m, b, job_task(m->job, r, i));
    (void)buf_adds(b, "</table></div>\n");
    if (shown < n)
        (void)buf_addf(b, "<p>... and %u more</p>\n", n - shown);
}

static void add_links(const struct master *m, struct buf *b)
{
    (void)buf_adds(b, "<footer>");
    add_link(b, "status.json", "as JSON");
    if (m->remote && m->remote->log_url) {
        (void)buf_adds(b, " &nbsp; ");
        add_link(b, m->remote->log_url, "the master's log");
    }
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        bool http = v.tensorboard &&
                    (str_starts(v.tensorboard, "http://") || str_starts(v.tensorboard, "https://"));
        if (!http)
            continue;
        (void)buf_adds(b, " &nbsp; ");
        add_link(b, v.tensorboard, "TensorBoard");
        break;
    }
    (void)buf_adds(b, "</footer>\n</body></html>\n");
}

int page_html(const struct master *m, struct buf *out)
{
    (void)buf_adds(out, head);
    add_job(m, out);
    add_roles(m, out);
    add_tasks(m, out);
    add_links(m, out);
    return out->failed ? -ENOMEM : 0;
}
