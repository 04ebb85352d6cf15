/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "cgroup/file.h"
#include "cgroup/scope.h"

#define LEAF "pool"

enum { MOVE_ROUNDS = 20 }; /* processes of a container may fork while they are moved */

/* The control group (v2) of this process. */
struct own {
    char *dir, *top; /* its path, and the mount point of the hierarchy */
    char parent[CGROUP_PATH_MAX];
    bool at_top;  /* dir is the mount point: the root of the machine or of a cgroup namespace */
    bool is_root; /* the root of the machine: it may have processes and controllers together */
};

static void own_done(struct own *o)
{
    free(o->dir);
    free(o->top);
}

static bool own_find(const struct cgroup_texts *t, struct own *o)
{
    o->dir = cgroup_find_in(t, "", &o->top, NULL);
    if (!o->dir || !o->top || !str_copy(o->parent, sizeof o->parent, o->dir))
        return false;
    o->at_top = str_eq(o->dir, o->top);
    o->is_root = o->at_top && !group_has_file(o->dir, "cgroup.type");
    char *slash = strrchr(o->parent, '/');
    if (slash && !o->at_top)
        *slash = '\0';
    return group_has_word(o->top, "cgroup.controllers", "memory");
}

/* May this user make groups in the directory, and move processes into it and out of it? */
static bool may_write(const char *dir)
{
    char path[CGROUP_PATH_MAX + 64];
    static const char *const files[] = { "", "/cgroup.procs", "/cgroup.subtree_control" };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        (void)snprintf(path, sizeof path, "%s%s", dir, files[i]);
        if (access(path, W_OK) == -1)
            return false;
    }
    return true;
}

/* Can groups with a memory limit be made there now? */
static bool is_ready(const char *dir)
{
    return may_write(dir) && group_has_word(dir, "cgroup.subtree_control", "memory");
}

/* Has systemd left the group to its processes? systemd marks such groups. For root the access
 * rights do not show it: root may write to each group. */
static bool is_delegated(const char *dir)
{
    static const char *const names[] = { "trusted.delegate", "user.delegate" };
    char value[8];
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (getxattr(dir, names[i], value, sizeof value) == 1 && value[0] == '1')
            return true;
    return false;
}

/* Is this process the only one in the group? */
static bool is_alone(const char *dir)
{
    char text[64], *end;
    ssize_t n = group_get(dir, "cgroup.procs", text, sizeof text);
    return n > 0 && strtol(text, &end, 10) == getpid() && str_eq(end, "\n");
}

/* Is this process below the user's manager? Then it ends with that manager anyway. */
static bool is_below_user_manager(const char *dir)
{
    char name[64];
    (void)snprintf(name, sizeof name, "/user@%u.service", (unsigned)geteuid());
    return strstr(dir, name) != NULL;
}

/* ---- the survey ---- */

static void set_dir(struct place *p, enum place_kind kind, const char *dir)
{
    p->kind = kind;
    if (!str_copy(p->dir, sizeof p->dir, dir)) {
        p->kind = PLACE_NONE;
        p->why = "the path of the control group is too long";
    }
    ssize_t n = group_get(dir, "cgroup.controllers", p->controllers, sizeof p->controllers);
    if (n > 0 && p->controllers[n - 1] == '\n')
        p->controllers[n - 1] = '\0';
}

/* No groups can be made: say why, and what changes that. */
static void explain(struct place *p, const struct own *o)
{
    p->kind = PLACE_NONE;
    if (o->at_top) {
        p->why = "the control groups of this container cannot be written";
        p->remedy = "start the container with a control group of its own that it may write "
                    "(podman: --cgroups=split in a delegated unit; docker: --privileged)";
    } else if (geteuid() == 0) {
        p->why = "systemd has not delegated the control group of this process";
        p->remedy =
            "start the pool under systemd: systemd-run --scope -p Delegate=yes tony pool start";
    } else if (!scope_has_manager(false)) {
        p->why = "no systemd manager of this user runs that could delegate a control group";
        p->remedy =
            "loginctl enable-linger (or root: loginctl enable-linger NAME), then log in again, "
            "by ssh and not by su";
    } else {
        p->why = "the manager of this user ends with the last session, and would end the jobs";
        p->remedy = "loginctl enable-linger; if that is refused, root: loginctl enable-linger NAME";
    }
}

/* Find the first case that applies: decision 0021 has the list. The last one before explain() is a
 * parent group in which somebody has already switched on the controller memory for this user. */
static void survey_v2(struct place *p, const struct own *o)
{
    bool root = geteuid() == 0;
    const char *slash = strrchr(o->dir, '/');
    bool is_leaf = slash && str_eq(slash + 1, LEAF);
    p->container = o->at_top && !o->is_root;
    if (o->is_root ? may_write(o->dir) : is_leaf && is_ready(o->parent))
        set_dir(p, PLACE_READY, o->is_root ? o->dir : o->parent);
    else if (may_write(o->dir) && group_has_word(o->dir, "cgroup.controllers", "memory") &&
             (p->container || (is_alone(o->dir) && (!root || is_delegated(o->dir)))))
        set_dir(p, PLACE_MOVE, o->dir);
    else if (root ? scope_has_manager(true)
                  : scope_has_manager(false) &&
                        (scope_user_lingers() || is_below_user_manager(o->dir)))
        *p = (struct place){ .kind = PLACE_SCOPE, .system = root };
    else if (!o->at_top && is_ready(o->parent))
        set_dir(p, PLACE_READY, o->parent);
    else
        explain(p, o);
}

static bool survey_v1(const struct cgroup_texts *t, struct place *p)
{
    AUTO(free_p) char *dir = cgroup_find_in(t, "memory", NULL, NULL);
    if (!dir)
        return false;
    if (access(dir, W_OK) == 0) {
        set_dir(p, PLACE_V1, dir);
        AUTO(free_p) char *cpu = cgroup_find_in(t, "cpu", NULL, NULL);
        if (cpu && !str_copy(p->cpu, sizeof p->cpu, cpu))
            p->cpu[0] = '\0';
        (void)str_copy(p->controllers, sizeof p->controllers, p->cpu[0] ? "memory cpu" : "memory");
    } else {
        p->kind = PLACE_NONE;
        p->why = "only root can make control groups of version 1";
        p->remedy = "boot with control groups of version 2 (systemd.unified_cgroup_hierarchy=1)";
    }
    return true;
}

static const struct place nothing = {
    .kind = PLACE_NONE,
    .why = "this system has no control groups that limit memory",
    .remedy = "mount /sys/fs/cgroup",
};
static const struct place outside = {
    .kind = PLACE_NONE,
    .why = "the control groups in this container are those of the machine, and not its own",
    .remedy = "start the container without a volume for /sys/fs/cgroup; with --privileged it has "
              "control groups of its own",
};

void place_survey(struct place *out)
{
    AUTO(own_done) struct own own = { 0 };
    AUTO(cgroup_texts_done) struct cgroup_texts t = { 0 };
    const char *wanted = getenv("TONY_CGROUPS");
    *out = (struct place){ .kind = PLACE_OFF };
    if (wanted && str_eq(wanted, "none"))
        return;
    cgroup_texts_read(&t);
    if (own_find(&t, &own))
        survey_v2(out, &own);
    else if (!survey_v1(&t, out))
        *out = cgroup_only_outside(&t) ? outside : nothing;
}

/* ---- moving ---- */

static int move(const char *to, pid_t pid)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%ld", (long)pid);
    return group_put(to, "cgroup.procs", text);
}

/* Move this process from the group `dir` to the group `leaf` below it; all: each process of dir. */
static int empty_into(const char *dir, const char *leaf, bool all)
{
    int rc = move(leaf, getpid());
    for (int round = 0; rc == 0 && all && round < MOVE_ROUNDS; round++) {
        AUTO(buf_done) struct buf text = { 0 };
        AUTO(free_p) char *path = str_printf("%s/cgroup.procs", dir);
        if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0 || text.len == 0)
            break;
        struct span rest = buf_span(&text), line;
        while (span_split(&rest, '\n', &line)) {
            int64_t pid;
            if (str_i64(line, 1, INT32_MAX, "pid", &pid, NULL) == 0)
                (void)move(leaf, (pid_t)pid); /* fails if it has just ended */
        }
    }
    return rc;
}

static int make_leaf(struct place *p, const char *dir, struct err *e)
{
    char leaf[CGROUP_PATH_MAX + 8];
    (void)snprintf(leaf, sizeof leaf, "%s/" LEAF, dir);
    if (mkdir(leaf, 0755) == -1 && errno != EEXIST)
        return err_set(e, errno, "cannot make control group '%s': %m", leaf);
    int rc = empty_into(dir, leaf, p->container);
    if (rc == 0)
        rc = group_put(dir, "cgroup.subtree_control", "+memory");
    if (rc < 0) {
        (void)move(dir, getpid());
        (void)rmdir(leaf); /* fails if other processes of the container stay in it */
        return err_set(e, -rc, "cannot use control group '%s': %m", dir);
    }
    /* may fail: then the groups have no cpu.weight */
    (void)group_put(dir, "cgroup.subtree_control", "+cpu");
    set_dir(p, PLACE_READY, dir);
    return 0;
}

int place_enter(struct place *p, struct err *e)
{
    if (p->kind == PLACE_MOVE) {
        AUTO(free_p) char *dir = str_dup(p->dir);
        return dir ? make_leaf(p, dir, e) : err_set(e, ENOMEM, "cannot use a control group: %m");
    }
    if (p->kind != PLACE_SCOPE)
        return 0;
    int rc = scope_enter(p->system, e);
    if (rc < 0)
        return rc;
    AUTO(free_p) char *dir = cgroup_find("", NULL, e);
    return dir ? make_leaf(p, dir, e) : -ENOENT;
}
