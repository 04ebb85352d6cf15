/*
 * CRC-32C (Castagnoli), the checksum of the journal's lines. In hardware where the processor has
 * it, else by table.
 */
#ifndef TONY_STORAGE_CRC32C_H
#define TONY_STORAGE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of the bytes alone: crc32c("123456789") is 0xe3069283. */
uint32_t crc32c(const void *p, size_t len);
/* The same by table only, for the test. */
uint32_t crc32c_table(const void *p, size_t len);

#endif
