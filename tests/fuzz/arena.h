/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is put back. What inputs need around them is made once, in an arena; each input finds it as it was,
 * by a copy of a few ten thousand bytes, where making it anew takes longer than all that the input does. And to take
 * and free a block is some steps here, where AddressSanitizer notes who did it and looks after a quarantine.
 *
 * While the arena is open malloc() and its kin are its own (--wrap, CMakeLists.txt). AddressSanitizer watches it as it
 * watches its own memory: between two blocks lies poison, what is freed is poisoned and not used again for the
 * same input. It does not know who made a block: WEFT_FUZZ_MALLOC=1 leaves all to malloc(), to read a finding.
 */
#ifndef WEFT_TESTS_ARENA_H
#define WEFT_TESTS_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* From now on memory comes from it; false: it was not wanted, and the other calls do nothing. */
bool arena_open(void);
/* Each input is to find what there is now. */
void arena_keep(void);
/* The next input: all is as it was when it was kept, or nothing is there. */
void arena_restore(void);
/* Blocks that were not freed. */
size_t arena_live(void);

#endif
