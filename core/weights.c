/* weights - see weights.h. */
#include "weights.h"

#include "port.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int32_t weights_add(weights *table, const weight *w, fak_error *e)
{
    if (table->count == table->room) {
        uint32_t room = table->room ? table->room * 2 : 64;
        weight *at = realloc(table->at, room * sizeof *at);
        if (!at) {
            free((void *)(uintptr_t)w->made);
            return status_memory(e, "the table of weights", room * sizeof *at);
        }
        table->at = at;
        table->room = room;
    }
    table->at[table->count++] = *w;
    return FAK_OK;
}

void weights_free(weights *table)
{
    for (uint32_t i = 0; i < table->count; i++) free((void *)(uintptr_t)table->at[i].made);
    free(table->at);
    *table = (weights){0};
}

uint32_t weights_source_row(const weight *w, uint32_t r)
{
    if (!w->rot_dim) return r;
    uint32_t head = r / w->head_dim * w->head_dim, in = r - head, half = w->rot_dim / 2;
    if (in >= w->rot_dim) return r;
    return head + (in < half ? 2 * in : 2 * (in - half) + 1);
}

/* Row r of the tensor, in the file's order of rows and the host's of bytes: where it lies, or at
 * s->row. */
static const uint8_t *tensor_row(const weights_source *s, const weight *w, uint32_t r)
{
    const gguf_tensor *t = w->tensor;
    uint64_t bytes = dtype_row_bytes(t->dtype, w->cols);
    const uint8_t *src = t->data + r * bytes;
    int foreign = dtype_is_foreign(t->dtype, t->big);
    if (dtype_find(t->dtype)->block > 1 && !foreign) return src;
    memcpy(s->row, src, (size_t)bytes); /* the file need not be aligned */
    if (foreign) dtype_swap_row(t->dtype, w->cols, s->row);
    return s->row;
}

/* Are the scales of row r finite numbers?  Reads 2 or 4 bytes a block. */
static int32_t verify_row(const weights_source *s, const weight *w, uint32_t r, const void *row,
                          fak_error *e)
{
    uint16_t bits;
    if (s->table->unverified) return FAK_OK;
    uint32_t block = dtype_bad_block(w->tensor->dtype, w->cols, row, &bits);
    if (block == FAK_NO_INDEX) return FAK_OK;
    return status_set(e, STATUS_BAD_FILE,
                      "tensor %s: a scale of block %" PRIu32 " of row %" PRIu32
                      " is no finite number (bits %04x); --no-verify loads it all the same",
                      w->name, block, r, bits);
}

/* Row r of what is served, in w's own dtype: in the table or the file, or at s->row. */
static int32_t native_row(const weights_source *s, const weight *w, uint32_t r, const void **out,
                          fak_error *e)
{
    if (!w->tensor) {
        *out = w->made + (size_t)r * w->cols;
        return FAK_OK;
    }
    uint32_t from = weights_source_row(w, r);
    const uint8_t *row = tensor_row(s, w, from);
    int32_t rc = verify_row(s, w, from, row, e);
    *out = row;
    if (rc || w->tensor->dtype == w->dtype) return rc;
    dtype_decode_row(w->tensor->dtype, w->cols, row, s->f32);
    dtype_encode_row(w->dtype, w->cols, s->f32, s->row);
    *out = s->row;
    return FAK_OK;
}

static int32_t read_rows(void *self, uint32_t value, uint32_t form, uint32_t first, uint32_t rows,
                         void *dst, uint64_t dst_bytes, fak_error *e)
{
    weights_source *s = self;
    if (value >= s->values || s->index[value] == FAK_NO_INDEX)
        return status_set(e, FAK_E_ARGUMENT, "value %" PRIu32 " is not a weight", value);
    const weight *w = &s->table->at[s->index[value]];
    uint64_t row_bytes = dtype_form_bytes(w->dtype, form, w->cols);
    if (!row_bytes)
        return status_set(e, FAK_E_UNSUPPORTED, "weight \"%s\" is %s, which has no form %" PRIu32,
                          w->name, dtype_name(w->dtype), form);
    if (first > w->rows || rows > w->rows - first || dst_bytes != rows * row_bytes)
        return status_set(e, FAK_E_ARGUMENT,
                          "weight \"%s\": rows %" PRIu32 "+%" PRIu32 " of %" PRIu32 " into %" PRIu64
                          " bytes",
                          w->name, first, rows, w->rows, dst_bytes);
    for (uint32_t r = 0; r < rows; r++) {
        const void *row;
        int32_t rc = native_row(s, w, first + r, &row, e);
        if (rc) return rc;
        dtype_serve_row(w->dtype, form, w->cols, row, (char *)dst + r * row_bytes);
    }
    if (w->tensor && w->tensor->mapped &&
        first + rows == w->rows) /* it has a copy of its own now */
        port_forget(w->tensor->data, w->rows * dtype_row_bytes(w->tensor->dtype, w->cols));
    s->done_bytes += rows * dtype_row_bytes(w->dtype, w->cols);
    if (s->progress && s->progress(s->progress_self, s->done_bytes))
        return status_set(e, FAK_E_CANCELLED, "cancelled while loading \"%s\"", w->name);
    return FAK_OK;
}

uint64_t weights_bytes(const weight *w)
{
    return w->rows * dtype_row_bytes(w->dtype, w->cols);
}

int weights_lendable(const weight *w)
{
    const dtype_info *info = dtype_find(w->dtype);
    uintptr_t align = info->block > 1 ? 1 : info->block_bytes;
    if (!w->tensor) return 1; /* lent from the table */
    return w->tensor->dtype == w->dtype && !w->rot_dim && (uintptr_t)w->tensor->data % align == 0 &&
           !dtype_is_foreign(w->dtype, w->tensor->big);
}

static const void *borrow(void *self, uint32_t value)
{
    weights_source *s = self;
    if (value >= s->values || s->index[value] == FAK_NO_INDEX) return NULL;
    const weight *w = &s->table->at[s->index[value]];
    if (!weights_lendable(w)) return NULL;
    for (uint32_t r = 0; w->tensor && r < w->rows; r++) {
        fak_error e; /* read will find it again, and can say it */
        const uint8_t *row = w->tensor->data + r * dtype_row_bytes(w->dtype, w->cols);
        if (verify_row(s, w, r, row, &e)) return NULL;
    }
    s->done_bytes += weights_bytes(w);
    if (s->progress) s->progress(s->progress_self, s->done_bytes); /* a cancel waits for a read */
    return w->tensor ? (const void *)w->tensor->data : w->made;
}

int32_t weights_source_open(weights_source *s, fak_source *api, fak_error *e)
{
    uint32_t widest = 1;
    for (uint32_t i = 0; i < s->table->count; i++)
        if (s->table->at[i].cols > widest) widest = s->table->at[i].cols;
    s->row = port_alloc((uint64_t)widest * 4);
    s->f32 = port_alloc((uint64_t)widest * 4);
    if (!s->row || !s->f32) {
        weights_source_close(s);
        return status_memory(e, "a row of weights", (uint64_t)widest * 8);
    }
    *api = (fak_source){sizeof *api, FAK_STABLE, s, read_rows, borrow};
    return FAK_OK;
}

void weights_source_close(weights_source *s)
{
    free(s->row);
    free(s->f32);
    s->row = s->f32 = NULL;
}
