/* SPDX-License-Identifier: Apache-2.0 */
/* Claims on GPUs: one holder, whatever other users do in the same directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/gpulock.h"

enum { NOBODY = 65534, CLAIMERS = 8, ROUNDS = 20 };

static char dir[] = "/tmp/tony-claims-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) && chmod(dir, 01777) == 0 ? 0 : -1; /* as /tmp */
}

static int n_files(bool and_remove)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *x; (x = readdir(d));) {
        if (str_eq(x->d_name, ".") || str_eq(x->d_name, ".."))
            continue;
        n++;
        if (and_remove)
            (void)unlinkat(dirfd(d), x->d_name, 0);
    }
    closedir(d);
    return n;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)n_files(true);
    return rmdir(dir);
}

static void one_claims_a_device(void **state)
{
    struct err e = { 0 };
    (void)state;
    char text[120], own[64];
    AUTO(buf_done) struct buf by = { 0 };
    int fd = gpulock_take(dir, 1, &e), copy = dup(fd);
    assert_true(fd >= 0);
    assert_int_equal(prctl(PR_SET_NAME, "odd\033\nname"), 0);
    (void)snprintf(own, sizeof own, "process %d, odd??name", (int)getpid());
    (void)snprintf(text, sizeof text, "GPU 1 is used by another job of this machine (%s)", own);
    assert_int_equal(gpulock_take(dir, 1, &e), -EWOULDBLOCK);
    assert_string_equal(e.msg, text);
    assert_true(gpulock_is_held(dir, 1));
    e = (struct err){ 0 };
    assert_true(gpulock_holder(dir, 1, &e));
    assert_string_equal(e.msg, text);
    assert_true(gpulock_describe(dir, 1, &by));
    assert_string_equal(buf_cstr(&by), own);
    assert_false(gpulock_holder(dir, 0, &e));
    assert_false(gpulock_describe(dir, 0, &by));
    assert_false(gpulock_is_held(dir, 11)); /* its name begins with that of the held device 1 */
    int eleven = gpulock_take(dir, 11, &e);
    assert_true(eleven >= 0);
    gpulock_release(&eleven);
    gpulock_release(&fd); /* although a child may have inherited the descriptor */
    assert_int_equal(fd, -1);
    assert_false(gpulock_is_held(dir, 1));
    close(copy);
    assert_int_equal(n_files(false), 0);
    gpulock_release(&fd);
    assert_true(gpulock_take("/nowhere", 0, &e) < 0);
}

/* A claim ends when its process is killed, but not before the last child that inherited it ends. */
static void the_claim_ends_with_its_processes(void **state)
{
    int up[2], status;
    char byte;
    (void)state;
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = gpulock_take(dir, 0, NULL);
        pid_t child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
        (void)!write(up[1], &child, sizeof child);
        _exit(fd < 0);
    }
    pid_t child = 0;
    assert_int_equal(read(up[0], &child, sizeof child), sizeof child);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(gpulock_is_held(dir, 0));
    assert_int_equal(kill(child, SIGKILL), 0);
    close(up[1]);
    assert_int_equal(read(up[0], &byte, 1), 0); /* its descriptors are closed */
    close(up[0]);
    for (int i = 0; i < 1000 && gpulock_is_held(dir, 0); i++)
        usleep(10000);
    assert_false(gpulock_is_held(dir, 0));
    assert_int_equal(n_files(false), 0);
}

/* Several processes claim the same device again and again. Never two hold it. */
static void many_claim_at_once(void **state)
{
    char held[64];
    (void)state;
    snprintf(held, sizeof held, "%s/held", dir);
    for (int i = 0; i < CLAIMERS; i++) {
        if (fork() != 0)
            continue;
        int bad = 0, done = 0;
        for (int k = 0; k < 200 && done < ROUNDS && !bad; k++) {
            int fd = gpulock_take(dir, 3, NULL);
            if (fd < 0)
                continue;
            int mark =
                open(held, O_WRONLY | O_CREAT | O_EXCL, 0600); /* fails if another holds it */
            bad = mark == -1 || unlink(held) == -1;
            close(mark);
            gpulock_release(&fd);
            done++;
        }
        _exit(bad);
    }
    for (int i = 0, status; i < CLAIMERS; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_false(gpulock_is_held(dir, 3));
}

/* Files of another user, who holds whatever can be held. Only a locked claim of that user counts.
 */
static void strangers(void **state)
{
    struct err e = { 0 };
    int up[2], down[2], status;
    char byte, text[64];
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can act as another user */
    int own = gpulock_take(dir, 6, &e);
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static const char *const names[] = { "tony-gpu-5.lock", "tony-gpu-5", ".tony-gpu-5-x" };
        if (chdir(dir) == -1 || setuid(NOBODY) == -1)
            _exit(1);
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            (void)flock(open(names[i], O_RDWR | O_CREAT, 0666), LOCK_EX);
        (void)!open("tony-gpu-5-free", O_RDWR | O_CREAT, 0666); /* nobody has locked it */
        (void)!symlink("tony-gpu-5.lock", "tony-gpu-5-link");
        (void)!link("tony-gpu-5.lock", "tony-gpu-5-hard");
        (void)mkfifo("tony-gpu-5-fifo", 0666);
        (void)flock(open("tony-gpu-7-x", O_RDWR | O_CREAT, 0666), LOCK_EX);
        /* the claim of the first user can be neither opened nor removed */
        DIR *d = opendir(".");
        for (struct dirent *x; (x = readdir(d));)
            if (str_starts(x->d_name, "tony-gpu-6-") &&
                (open(x->d_name, O_RDONLY) >= 0 || unlink(x->d_name) == 0 ||
                 rename(x->d_name, "mine") == 0))
                _exit(2);
        (void)!write(up[1], "1", 1);
        (void)!read(down[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(read(up[0], &byte, 1), 1);
    assert_true(gpulock_is_held(dir, 6));
    int fd = gpulock_take(dir, 5, &e);
    assert_true(fd >= 0);
    gpulock_release(&fd);
    assert_int_equal(gpulock_take(dir, 7, &e), -EWOULDBLOCK);
    snprintf(text, sizeof text, "user %d, process %d", NOBODY, (int)pid);
    assert_non_null(strstr(e.msg, text));
    assert_int_equal(write(down[1], "1", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(gpulock_is_held(dir, 7));
    gpulock_release(&own);
    (void)n_files(true);
}

static void claims_stay_young(void **state)
{
    struct err e = { 0 };
    struct stat st;
    (void)state;
    int fd = gpulock_take(dir, 2, &e);
    const struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    assert_int_equal(futimens(fd, old), 0);
    gpulock_refresh(dir);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_mtime > 1000);
    assert_true(gpulock_is_held(dir, 2));
    gpulock_release(&fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_claims_a_device), cmocka_unit_test(the_claim_ends_with_its_processes),
        cmocka_unit_test(many_claim_at_once),  cmocka_unit_test(strangers),
        cmocka_unit_test(claims_stay_young),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
