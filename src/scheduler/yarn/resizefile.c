/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/yarn/resizefile.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/frame.h"
#include "proto/tony.pb-c.h"

int resize_file_encode(const Tony__ResizeJob *r, struct buf *out, struct err *e)
{
    Tony__Frame f = TONY__FRAME__INIT;
    size_t before = out->len;
    f.body_case = TONY__FRAME__BODY_RESIZE_JOB;
    f.resize_job = (Tony__ResizeJob *)(uintptr_t)r;
    int rc = frame_pack(&f, out);
    if (rc == 0 && out->len - before > RESIZE_FILE_MAX)
        rc = -EMSGSIZE;
    return rc < 0 ? err_set(e, -rc, "cannot encode the request for a resize: %m") : 0;
}

int resize_file_decode(struct span text, const char *application_id, Tony__Frame **out,
                       struct err *e)
{
    struct span payload = { 0 };
    AUTO(buf_done) struct buf in = { 0 };
    if (text.len > RESIZE_FILE_MAX)
        return err_set(e, EBADMSG, "it has %zu bytes; the limit is %d", text.len, RESIZE_FILE_MAX);
    if (buf_add(&in, text.p, text.len) < 0)
        return err_set(e, ENOMEM, "no memory to read it");
    int rc = frame_peek(&in, &payload, e);
    if (rc < 0)
        return err_wrap(e, -EBADMSG, "it is not one whole message");
    if (rc == 0 || payload.len + FRAME_HEADER != text.len)
        return err_set(e, EBADMSG, "it is not one whole message");
    AUTO(frame_freep) Tony__Frame *f = frame_unpack(payload, e);
    if (!f)
        return err_wrap(e, -EBADMSG, "it is damaged");
    if (f->body_case != TONY__FRAME__BODY_RESIZE_JOB)
        return err_set(e, EBADMSG, "it has another message than the request for a resize");
    if (!str_eq(f->resize_job->application_id, application_id))
        return err_set(e, EBADMSG, "it is for the job '%.80s'", f->resize_job->application_id);
    *out = TAKE(f);
    return 0;
}

uint32_t resize_file_newest(const char *dir, const struct files_stat *stats, size_t n,
                            int64_t *out_bytes)
{
    uint32_t newest = 0;
    for (size_t i = 0; i < n; i++) {
        const struct files_stat *st = &stats[i];
        int64_t number = 0;
        if (st->is_dir || *st->name == '0' || strspn(st->name, "0123456789") != strlen(st->name) ||
            str_i64(span_of(st->name), 1, RESIZE_NUMBER_MAX, "number", &number, NULL) < 0) {
            if (dir)
                log_event(LOG_WARN, "resize.unknown_file", f_str("dir", dir),
                          f_str("name", st->name));
            continue;
        }
        if ((uint32_t)number <= newest)
            continue;
        newest = (uint32_t)number;
        *out_bytes = st->length;
    }
    return newest;
}
