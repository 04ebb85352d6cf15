/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to `tony events`: a part of the journal, from which the client makes the events
 * (history/events.h). A line before it says which part it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/util.h"
#include "codec/json.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"

/* A client that has no part of the segment yet also gets the configuration, without secrets. */
static int add_head(const struct master *m, uint64_t offset, struct buf *out, struct err *e)
{
    AUTO(buf_done) struct buf conf = { 0 };
    int rc = offset ? 0 : job_file_encode_masked(m->file, &conf, e);
    if (rc < 0)
        return rc;
    AUTO(json_freep)
    json_t *head = json_pack("{s:I, s:I, s:s}", "segment", (json_int_t)m->journal.first_n, "offset",
                             (json_int_t)offset, "conf", buf_cstr(&conf));
    AUTO(free_p) char *text = head ? json_dumps(head, JSON_COMPACT) : NULL;
    return text && buf_addf(out, "%s\n", text) == 0
               ? 0
               : err_set(e, ENOMEM, "no memory to send the events of the job");
}

static int add_part(const struct master *m, uint64_t offset, struct buf *out, struct err *e)
{
    AUTO(free_p) char *path = fs_join(m->job_dir, "journal");
    AUTO(close_p) int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t left = (size_t)m->journal.size - (size_t)offset;
    char *to = fd >= 0 ? buf_reserve(out, left) : NULL;
    if (fd == -1 || !to)
        return err_set(e, errno ? errno : ENOMEM, "cannot read the journal: %m");
    while (left > 0) {
        ssize_t n = pread(fd, to, left, (off_t)offset);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, n ? errno : EIO, "cannot read the journal: %m");
        buf_commit(out, (size_t)n);
        offset += (uint64_t)n;
        to += n;
        left -= (size_t)n;
    }
    return 0;
}

int events_answer(const struct master *m, const Tony__ClientAsk *ask, struct buf *out,
                  struct err *e)
{
    bool same = ask->segment == m->journal.first_n && ask->offset <= (uint64_t)m->journal.size;
    uint64_t offset = same ? ask->offset : 0;
    int rc = add_head(m, offset, out, e);
    return rc < 0 ? rc : add_part(m, offset, out, e);
}
