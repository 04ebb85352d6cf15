/* Any bytes as a journal: what is read has right numbers, and written again it is the same text. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "storage/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_mem(data, size), rec;
    size_t pos = 0;
    uint64_t n = 1;
    bool torn;
    struct journal j = { .fd = -1, .dir_fd = -1, .next_n = 1 };
    int rc;
    while ((rc = journal_next(text, &pos, &n, &rec, &torn, NULL)) == 1) {
        /* The payload is what stands between the number and the checksum. */
        const char *comma = memchr(rec.p, ',', rec.len);
        assert(comma && rec.len > 16);
        AUTO(buf_done) struct buf payload = { 0 };
        size_t inner = (size_t)(rec.p + rec.len - 16 - comma);
        buf_addc(&payload, '{');
        if (inner > 0)
            buf_add(&payload, comma + 1, inner - 1);
        buf_addc(&payload, '}');
        /* Numbers have one spelling when we write, and may have zeros in front when we read. */
        if (journal_add(&j, buf_span(&payload)) == 0)
            assert(j.next_n == n);
        else
            j.next_n = n;
        if (rec.p[5] != '0' && inner > 1 && j.pending.len > 0)
            assert(memcmp(j.pending.p, rec.p, rec.len) == 0);
        buf_clear(&j.pending);
    }
    assert(pos <= size && (rc < 0 || torn || pos == size));
    journal_close(&j);
    return 0;
}
