/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli), the checksum of the journal's lines. If the processor has an instruction
 * for it (SSE 4.2), that is used, else a table.
 */
#ifndef TONY_STORAGE_CRC32C_H
#define TONY_STORAGE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of len bytes. That of "123456789" is 0xe3069283. */
uint32_t crc32c(const void *p, size_t len);
/* The same, always with the table; for the test. */
uint32_t crc32c_table(const void *p, size_t len);

#endif
