/*
 * Generic: for programs that read our own names. All frameworks get the TONY_ variables; this one
 * adds CLUSTER_SPEC in gang mode, and its tasks find the same JSON in the file $TONY_SPEC_FILE.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    if (!str_eq(in->distributed_mode, "GANG"))
        return 0;
    struct buf text = { 0 };
    int rc = buf_adds(&text, "CLUSTER_SPEC=");
    if (rc == 0)
        rc = runtime_spec_json(in->roles, in->n_roles, NULL, NULL, &text);
    if (rc == 0)
        rc = rt_set_pair(out, &text);
    buf_done(&text);
    return rc < 0 ? err_set(e, ENOMEM, "cannot build CLUSTER_SPEC: %m") : 0;
}

const struct runtime runtime_generic = {
    .name = "generic",
    .env = env,
    .spec_file = true,
    .waits_for_spec = true,
};
