/* fuzz_plan - any text is read as a plan or refused with a sentence; what is read prints, and the
 * printed text reads back to the same block. */
#include "../../core/plan_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int holds)
{
    if (!holds) abort();
}

static void read_again(const plan *p)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    plan again;
    fak_error e = {0};
    check(out != NULL);
    plan_print(p->block, out, 0, NULL, NULL);
    check(fclose(out) == 0);
    check(plan_read(&again, text, bytes, &e) == FAK_OK);
    check(again.block->bytes == p->block->bytes);
    check(!memcmp(again.block, p->block, p->block->bytes));
    check(plan_hash(again.block) == plan_hash(p->block));
    plan_free(&again);
    free(text);
}

static void print_folded(const plan *p)
{
    FILE *out = fopen("/dev/null", "w");
    check(out != NULL);
    plan_print(p->block, out, PLAN_FOLD, NULL, NULL);
    fclose(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    plan p;
    fak_error e = {0};
    int32_t s = plan_read(&p, (const char *)data, bytes, &e);
    check(s == FAK_OK || (s == e.code && e.message[0]));
    if (s != FAK_OK) return 0;
    read_again(&p);
    print_folded(&p);
    plan_free(&p);
    return 0;
}
