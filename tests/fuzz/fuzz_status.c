/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a file status.json, or a file `summary`. Another user may have written it, in a history
 * that both share. A status that was accepted, written and read back is equal.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "history/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(json_t *doc)
{
    AUTO(buf_done) struct buf text = { 0 };
    char *status = json_dumps(doc, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *again = NULL;
    if (!status || history_status_text(span_of(status), &text) < 0 ||
        history_status_parse(buf_span(&text), &again, NULL) < 0 || !json_equal(doc, again))
        abort();
    free(status);
    json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_mem(data, size);
    json_t *doc = NULL;
    struct err e = { 0 };
    struct history_rows rows = { 0 };
    struct history_row row = { 0 };
    int rc = history_status_parse(text, &doc, &e);
    if (rc == 0)
        check_again(doc);
    else if (e.num != -rc || !e.msg[0])
        abort();
    json_decref(doc);
    if (history_row_parse(text, &row) == 0 && vec_push(&rows, row) < 0)
        abort();
    history_rows_done(&rows);
    return 0;
}
