/* SPDX-License-Identifier: Apache-2.0 */
/* What `tony doctor` finds out about docker and podman: it runs `docker info`. */
#include <jansson.h>
#include <string.h>

#include "base/base.h"
#include "client/show/machine.h"

static void say(struct engine_found *f, enum engine_kind kind, const char *hint, const char *fmt,
                ...) __attribute__((format(printf, 4, 5)));
static void say(struct engine_found *f, enum engine_kind kind, const char *hint, const char *fmt,
                ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(f->why, sizeof f->why, fmt, ap);
    va_end(ap);
    f->kind = kind;
    f->hint = hint;
}

/* The last line that is not empty: programs end with their error. */
static struct span last_line(struct span text)
{
    struct span line, last = { 0 };
    while (text.len && span_split(&text, '\n', &line))
        if (span_trim(line).len)
            last = span_trim(line);
    return last;
}

static void say_silent(struct engine_found *f, struct span words)
{
    say(f, ENGINE_SILENT,
        "start its service (as root: systemctl start docker), or ask the administrator to add you "
        "to the group docker; or install podman, which needs no service",
        "the service of docker ('%s') does not answer: %.*s", f->path, (int)words.len, words.p);
}

static bool is_rootless(const json_t *info)
{
    size_t i;
    json_t *option;
    json_array_foreach(json_object_get(info, "SecurityOptions"), i, option)
    {
        const char *text = json_string_value(option);
        if (text && (str_eq(text, "name=rootless") || str_starts(text, "name=rootless,")))
            return true;
    }
    return false;
}

/* Judge what `docker info` has printed. If the service does not answer, some versions of docker
 * exit with 0 and report that in "ServerErrors", others print no JSON. */
static void judge(struct engine_found *f, struct span text, bool failed)
{
    const char *start = text.len ? memchr(text.p, '{', text.len) : NULL;
    json_t *info =
        start ? json_loadb(start, text.len - (size_t)(start - text.p), JSON_DISABLE_EOF_CHECK, NULL)
              : NULL;
    const char *error = json_string_value(json_array_get(json_object_get(info, "ServerErrors"), 0));
    if (is_rootless(info))
        say(f, ENGINE_ROOTLESS,
            "install podman, which tony takes if it is there; or use the docker service of the "
            "system: unset DOCKER_HOST, and 'docker context use default'",
            "docker ('%s') runs in its rootless mode, and tony cannot run tasks there: they would "
            "not be in the network of this machine, and would reach neither tony nor each other",
            f->path);
    else if (error)
        say_silent(f, span_of(error));
    else if (failed)
        say_silent(f, last_line(text));
    json_decref(info);
}

static void ask_docker(struct engine_found *f)
{
    enum { LIMIT_MS = 20000, TEXT_MAX = 1 << 20 };
    const char *const argv[] = { f->path, "info", "--format", "{{json .}}", NULL };
    AUTO(buf_done) struct buf text = { .max = TEXT_MAX };
    struct err e = { 0 };
    int status = 0;
    if (machine_run(argv, true, LIMIT_MS, &text, &status, &e) < 0)
        say_silent(f, span_of(e.msg));
    else
        judge(f, buf_span(&text), status != 0);
}

void engine_look(struct engine_found *out)
{
    *out = (struct engine_found){ .kind = ENGINE_READY, .path = machine_which("podman") };
    if (out->path)
        return;
    out->path = machine_which("docker");
    if (out->path)
        ask_docker(out);
    else
        say(out, ENGINE_MISSING, "install podman",
            "there is neither podman nor docker on the PATH to run images");
}

void engine_found_done(struct engine_found *f)
{
    free(f->path);
    *f = (struct engine_found){ 0 };
}
