/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks systemd for a scope: a unit whose control group is given to this process (Delegate=yes), so
 * that it may make groups with limits there.
 */
#ifndef TONY_CGROUP_SCOPE_H
#define TONY_CGROUP_SCOPE_H

#include <stdbool.h>

struct err;

/* Is there a manager to ask: that of the system (root), or that of this user? */
bool scope_has_manager(bool system);
/* Does the manager of this user live after the user's last session has ended? */
bool scope_user_lingers(void);
/* Move this process into a new scope of that manager, and wait until it is there. The manager ends
 * the scope when its last process has ended. */
int scope_enter(bool system, struct err *e);

#endif
