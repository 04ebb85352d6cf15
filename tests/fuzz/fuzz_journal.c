/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a journal. The numbers of the records have no gap, and the same records written again give
 * the same text. It is read as a whole file, as a part of one, and through a window. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/util.h"
#include "storage/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(struct span line, uint64_t n)
{
    /* The payload is between the number and the checksum. */
    const char *comma = memchr(line.p, ',', line.len);
    assert(comma && line.len > 16);
    AUTO(buf_done) struct buf payload = { 0 };
    struct journal j = { .fd = -1, .dir_fd = -1, .next_n = n };
    size_t inner = (size_t)(line.p + line.len - 16 - comma);
    buf_addc(&payload, '{');
    if (inner > 0)
        buf_add(&payload, comma + 1, inner - 1);
    buf_addc(&payload, '}');
    /* Written numbers have one form; numbers that are read may have leading zeros. */
    if (journal_add(&j, buf_span(&payload)) == 0)
        assert(j.next_n == n + 1);
    if (line.p[5] != '0' && inner > 1 && j.pending.len > 0)
        assert(memcmp(j.pending.p, line.p, line.len) == 0);
    journal_close(&j);
}

static void read_all(struct journal_reader *r, size_t size)
{
    struct journal_record rec;
    uint64_t n = 0;
    int rc;
    while ((rc = journal_reader_next(r, &rec, NULL)) == 1) {
        assert(rec.kind != JOURNAL_NONE && (n == 0 || rec.n == n + 1));
        n = rec.n;
        check_line(rec.json, n);
    }
    assert((size_t)r->end <= size && r->head_end <= r->end);
    assert(rc < 0 || r->torn || (size_t)r->end == size);
    journal_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct journal_reader r;
    journal_reader_text(&r, span_mem(data, size));
    read_all(&r, size);
    journal_reader_part(&r, span_mem(data, size), 1);
    read_all(&r, size);

    char path[] = "/tmp/tony-fuzz-journal-XXXXXX";
    int fd = mkstemp(path);
    assert(fd != -1 && fs_write_all(fd, (const char *)data, size) == 0);
    close(fd);
    assert(journal_reader_open(&r, path, NULL) == 0);
    unlink(path);
    read_all(&r, size);
    return 0;
}
