/*
 * Processes below us. The executor and the keeper are subreapers: whatever a task starts stays
 * below its executor, what a dead executor leaves behind comes to the keeper, and what a dead
 * keeper leaves to the pool that started it, so that walking down from ourselves finds all of it.
 */
#ifndef TONY_BASE_PROCTREE_H
#define TONY_BASE_PROCTREE_H

#include <stdint.h>
#include <sys/types.h>

struct pids {
    pid_t *v;
    size_t n, cap;
};

/* Direct children of pid (all its threads'), appended. Processes that come and go meanwhile may be
 * missed: repeat. */
void proctree_children(pid_t pid, struct pids *out);
/* Everything below pid, without pid itself, parents before children, appended. */
void proctree_below(pid_t pid, struct pids *out);
/* Send sig to everything below us; how many there were. With hard, first SIGSTOP to all until no
 * new ones appear: what forks faster than we look cannot get away. */
unsigned proctree_signal(int sig, _Bool hard);
/* Send sig to those below us that have a handler for it; how many there were. */
unsigned proctree_signal_catchers(int sig);
/* Resident memory of all below us; pss: shared pages counted once (slow). */
uint64_t proctree_rss(_Bool pss);
/* Does its environment have entry ("KEY=VALUE")? Waits for an exec that is under way, a second at
 * most: until its end the process has no environment. Without memory: no. */
_Bool proctree_has_variable(pid_t pid, const char *entry);
/* SIGKILL to every process of our user whose environment has TONY_APPLICATION_ID=id, but us; how
 * many there were. */
unsigned proctree_kill_job(const char *application_id);

#endif
