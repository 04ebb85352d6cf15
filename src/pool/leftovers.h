/*
 * What is left of a job whose keeper died: processes that carry its id in their environment.
 */
#ifndef TONY_POOL_LEFTOVERS_H
#define TONY_POOL_LEFTOVERS_H

/* Kill (SIGKILL) every process of ours with TONY_APPLICATION_ID=<id> in its environment, again and
 * again until none is found or limit_ms has passed. Blocks: for a thread of its own. Number of
 * processes still there, or -errno. */
int leftovers_kill(const char *application_id, int limit_ms);

#endif
