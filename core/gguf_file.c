/* gguf_file - see gguf_file.h.
 * One pass over keys and tensors, then the tensors are laid against the data section.  What a
 * caller can reach afterwards has been checked, so the getters do not check bounds again. */
#include "gguf_file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 4 + 4 + 8 + 8,         /* magic, version, tensors, keys */
    VALUE_BYTES_MIN = 8 + 1 + 4 + 1,      /* key, type, value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 4 + 8, /* name, dimensions (none), type, offset */
    NAME_BYTES_MAX = 65535,               /* the format's own limit for keys */
    DIMS_MAX = 4,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 20,
    SHOWN_NAME = 48 /* of names in sentences, with the end mark */
};

#define ELEMENTS_MAX (INT64_MAX / 8) /* so that bytes fit: no type has more than 8 an element */

typedef struct reader { /* where we are, for reading and for sentences */
    const gguf_file *f;
    fak_error *e;
    uint64_t at;      /* offset in the file, <= its bytes */
    const char *kind; /* "key", "tensor", or NULL in the header */
    uint64_t index;
    gguf_string name; /* data NULL while it is not known */
} reader;

/* ---- sentences ------------------------------------------------------------------------------- */

static int32_t fault(const gguf_file *f, fak_error *e, const char *kind, gguf_string name,
                     const char *what, va_list args)
{
    char text[sizeof e->message], shown[SHOWN_NAME], where[SHOWN_NAME + 32] = "";
    vsnprintf(text, sizeof text, what, args);
    if (kind)
        snprintf(where, sizeof where, "%s \"%s\" ", kind, gguf_show(shown, sizeof shown, name));
    return status_set(e, STATUS_BAD_FILE, "%s: %s%s", f->shown, where, text);
}

int32_t gguf_file_fault(const gguf_file *f, fak_error *e, const char *kind, gguf_string name,
                        const char *what, ...)
{
    va_list args;
    va_start(args, what);
    fault(f, e, kind, name, what, args);
    va_end(args);
    return STATUS_BAD_FILE;
}

/* Records "m.gguf: tensor "x" <what>"; the number in place of a name that has not been read. */
static STATUS_PRINTF(2, 3) int32_t bad(const reader *r, const char *what, ...)
{
    char text[sizeof r->e->message];
    va_list args;
    va_start(args, what);
    if (r->name.data || !r->kind) {
        fault(r->f, r->e, r->kind, r->name, what, args);
    } else {
        vsnprintf(text, sizeof text, what, args);
        status_set(r->e, STATUS_BAD_FILE, "%s: %s %" PRIu64 " %s", r->f->shown, r->kind, r->index,
                   text);
    }
    va_end(args);
    return STATUS_BAD_FILE;
}

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t left(const reader *r)
{
    return r->f->map.bytes - r->at;
}

/* The next bytes; NULL with the sentence recorded when the file has fewer. */
static const uint8_t *take(reader *r, uint64_t bytes)
{
    if (bytes > left(r)) {
        bad(r, "is cut short: %" PRIu64 " bytes at byte %" PRIu64 " of %" PRIu64, bytes, r->at,
            r->f->map.bytes);
        return NULL;
    }
    r->at += bytes;
    return r->f->map.data + r->at - bytes;
}

static int32_t read_u32(reader *r, uint32_t *out)
{
    const uint8_t *at = take(r, 4);
    if (at) *out = gguf_read_u32(at, r->f->big);
    return at ? 0 : STATUS_BAD_FILE;
}

static int32_t read_u64(reader *r, uint64_t *out)
{
    const uint8_t *at = take(r, 8);
    if (at) *out = gguf_read_u64(at, r->f->big);
    return at ? 0 : STATUS_BAD_FILE;
}

static int32_t read_string(reader *r, gguf_string *out)
{
    int32_t rc = read_u64(r, &out->bytes);
    if (rc) return rc;
    out->data = (const char *)take(r, out->bytes);
    return out->data ? 0 : STATUS_BAD_FILE;
}

/* Starts a key or tensor: from here on sentences show its name. */
static int32_t read_name(reader *r, const char *kind, uint32_t index, gguf_string *out)
{
    int32_t rc;
    r->kind = kind;
    r->index = index;
    r->name = (gguf_string){0};
    rc = read_string(r, out);
    if (rc) return rc;
    if (!out->bytes || out->bytes > NAME_BYTES_MAX)
        return bad(r, "has a name of %" PRIu64 " bytes; 1 to %d are allowed", out->bytes,
                   NAME_BYTES_MAX);
    r->name = *out;
    return 0;
}

/* Steps over count values of a type that is no array. */
static int32_t skip_values(reader *r, uint32_t type, uint64_t count)
{
    const uint8_t *p = r->f->map.data + r->at;
    uint32_t bytes = gguf_type_bytes(type);
    gguf_string s;
    int32_t rc = 0;
    if (count > left(r) / (bytes ? bytes : 8)) /* the least that a string has */
        return bad(r, "is cut short: %" PRIu64 " of type %s at byte %" PRIu64 " of %" PRIu64, count,
                   gguf_type_name(type), r->at, r->f->map.bytes);
    if (type == GGUF_STRING)
        for (uint64_t i = 0; i < count && !rc; i++) rc = read_string(r, &s);
    if (type == GGUF_BOOL)
        for (uint64_t i = 0; i < count; i++)
            if (p[i] > 1) return bad(r, "has a bool of %d, not 0 or 1", p[i]);
    r->at += count * bytes;
    return rc;
}

static int32_t read_value(reader *r, uint32_t index, gguf_value *v)
{
    uint32_t type;
    int32_t rc = read_name(r, "key", index, &v->key);
    if (!rc) rc = read_u32(r, &v->type);
    if (rc) return rc;
    type = v->type;
    v->count = 1;
    v->big = r->f->big;
    if (type == GGUF_ARRAY) {
        rc = read_u32(r, &type);
        if (!rc) rc = read_u64(r, &v->count);
        if (rc) return rc;
        if (type == GGUF_ARRAY) return bad(r, "is an array of arrays, which is not supported");
        v->element = type;
    }
    if (type >= GGUF_TYPES)
        return bad(r, "has the unknown type %" PRIu32 "; 0 to %d are known", type, GGUF_TYPES - 1);
    v->data = r->f->map.data + r->at;
    return skip_values(r, type, v->count);
}

static int32_t read_tensor(reader *r, uint32_t index, gguf_tensor *t)
{
    uint64_t offset, elements = 1;
    int32_t rc = read_name(r, "tensor", index, &t->name);
    t->big = r->f->big;
    if (!rc) rc = read_u32(r, &t->dims);
    if (rc) return rc;
    if (t->dims > DIMS_MAX)
        return bad(r, "has %" PRIu32 " dimensions; at most %d are allowed", t->dims, DIMS_MAX);
    for (uint32_t i = 0; i < DIMS_MAX; i++) {
        t->dim[i] = 1;
        if (i < t->dims && (rc = read_u64(r, &t->dim[i]))) return rc;
        if (!t->dim[i]) return bad(r, "has 0 as dimension %" PRIu32 " of %" PRIu32, i + 1, t->dims);
        if (t->dim[i] > ELEMENTS_MAX / elements)
            return bad(r, "has too many elements: %" PRIu64 " times %" PRIu64, elements, t->dim[i]);
        elements *= t->dim[i];
    }
    rc = read_u32(r, &t->ggml_type);
    if (!rc) rc = read_u64(r, &offset); /* used once the data section is known: tensor_offset */
    return rc;
}

/* ---- the parts of a file --------------------------------------------------------------------- */

static int by_data(const void *pa, const void *pb) /* of tensors */
{
    const gguf_tensor *a = *(const void *const *)pa, *b = *(const void *const *)pb;
    if (a->data == b->data) return (a > b) - (a < b);
    return a->data > b->data ? 1 : -1;
}

static uint64_t place_of(const gguf_file *f, const gguf_string *name)
{
    return (uint64_t)((const uint8_t *)name->data - f->map.data);
}

static int32_t read_header(gguf_file *f, reader *r)
{
    const uint8_t *p = f->map.data;
    uint64_t bytes = f->map.bytes, tensors, values;
    if (bytes < HEADER_BYTES)
        return bad(r, "too short for a GGUF file: %" PRIu64 " bytes, the header alone has %d",
                   bytes, HEADER_BYTES);
    if (memcmp(p, "GGUF", 4))
        return bad(r, "not a GGUF file: it starts with %02x %02x %02x %02x, not 47 47 55 46", p[0],
                   p[1], p[2], p[3]);
    f->version = gguf_read_u32(p + 4, 0);
    f->big = f->version && !(f->version & 0xffff); /* versions are small: it tells the order */
    if (f->big) f->version = gguf_read_u32(p + 4, 1);
    if (f->version < 2 || f->version > 3)
        return bad(r, "GGUF version %" PRIu32 "%s is not supported; 2 and 3 are", f->version,
                   f->big ? " (big-endian)" : "");
    tensors = gguf_read_u64(p + 8, f->big);
    values = gguf_read_u64(p + 16, f->big);
    r->at = HEADER_BYTES;
    if (values > left(r) / VALUE_BYTES_MIN || values > UINT32_MAX)
        return bad(r, "%" PRIu64 " keys cannot be in %" PRIu64 " bytes", values, bytes);
    if (tensors > left(r) / TENSOR_BYTES_MIN || tensors > UINT32_MAX)
        return bad(r, "%" PRIu64 " tensors cannot be in %" PRIu64 " bytes", tensors, bytes);
    f->value_count = (uint32_t)values;
    f->tensor_count = (uint32_t)tensors;
    return 0;
}

static int32_t check_keys(const gguf_file *f, reader *r)
{
    uint32_t twice = gguf_sort_names(f->key_order, f->value_count);
    if (!twice) return 0;
    uint64_t a = place_of(f, f->key_order[twice - 1]), b = place_of(f, f->key_order[twice]);
    r->name = *f->key_order[twice];
    return bad(r, "is there twice, at bytes %" PRIu64 " and %" PRIu64, a < b ? a : b,
               a < b ? b : a);
}

static int32_t read_values(gguf_file *f, reader *r)
{
    uint32_t n = f->value_count;
    int32_t rc = 0;
    f->value = calloc((size_t)n + 1, sizeof *f->value);
    f->key_order = calloc((size_t)n + 1, sizeof *f->key_order);
    if (!f->value || !f->key_order)
        return status_memory(r->e, "the metadata", n * (uint64_t)sizeof *f->value);
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = read_value(r, i, &f->value[i]);
        f->key_order[i] = &f->value[i].key;
    }
    return rc ? rc : check_keys(f, r);
}

/* In the data section.  read_tensor has checked that it is there: name, dims, dim[], type, it. */
static uint64_t tensor_offset(const gguf_tensor *t)
{
    const uint8_t *name_end = (const uint8_t *)t->name.data + t->name.bytes;
    return gguf_read_u64(name_end + 4 + 8 * (size_t)t->dims + 4, t->big);
}

/* Finds a tensor's dtype, bytes and data; the data section starts at byte data_at of the file. */
static int32_t place_tensor(reader *r, uint64_t data_at, uint64_t alignment, gguf_tensor *t)
{
    const gguf_ggml_type *type = gguf_find_ggml_type(t->ggml_type);
    uint64_t file_bytes = r->f->map.bytes, offset = tensor_offset(t);
    uint64_t room = file_bytes > data_at ? file_bytes - data_at : 0;
    r->name = t->name;
    if (type) {
        uint64_t rows = t->dim[1] * t->dim[2] * t->dim[3];
        if (t->dim[0] % type->block)
            return bad(r, "has rows of %" PRIu64 ", no multiple of the block of %" PRIu32 " of %s",
                       t->dim[0], type->block, type->name);
        t->dtype = type->dtype;
        t->bytes = t->dim[0] / type->block * type->block_bytes * rows;
    }
    if (offset % alignment)
        return bad(r, "is at offset %" PRIu64 ", no multiple of the alignment %" PRIu64, offset,
                   alignment);
    if (offset >= room) /* data of unknown length counts as one byte */
        return bad(r, "is at offset %" PRIu64 " of %" PRIu64 " bytes of data", offset, room);
    if (t->bytes > room - offset)
        return bad(r, "ends at byte %" PRIu64 " of %" PRIu64, data_at + offset + t->bytes,
                   file_bytes);
    t->data = r->f->map.data + data_at + offset;
    t->mapped = r->f->mapped;
    return 0;
}

static int32_t check_overlaps(reader *r, const gguf_tensor **order, uint32_t count)
{
    qsort(order, count, sizeof *order, by_data);
    for (uint32_t i = 1; i < count; i++) {
        const gguf_tensor *a = order[i - 1], *b = order[i];
        uint64_t start = (uint64_t)(b->data - r->f->map.data);
        uint64_t distance = (uint64_t)(b->data - a->data);
        char name[SHOWN_NAME];
        if (distance >= (a->bytes ? a->bytes : 1)) continue;
        r->name = b->name;
        return bad(r, "starts at byte %" PRIu64 ", inside tensor \"%s\" that ends at byte %" PRIu64,
                   start, gguf_show(name, sizeof name, a->name), start - distance + a->bytes);
    }
    return 0;
}

static int32_t read_alignment(reader *r, uint64_t *out)
{
    int32_t rc;
    const gguf_value *v =
        gguf_file_get(r->f, "general.alignment", 1u << GGUF_U32, "u32", &rc, r->e);
    *out = ALIGNMENT_DEFAULT;
    if (!v) return rc < 0 ? rc : 0;
    *out = (uint64_t)gguf_integer(v, 0);
    if (!*out || *out & (*out - 1) || *out > ALIGNMENT_MAX)
        return gguf_file_fault(r->f, r->e, "key", v->key,
                               "is %" PRIu64 "; a power of two up to %d is needed", *out,
                               ALIGNMENT_MAX);
    return 0;
}

static int32_t place_tensors(gguf_file *f, reader *r, uint64_t data_at, uint64_t alignment)
{
    uint32_t n = f->tensor_count;
    int32_t rc = 0;
    const gguf_tensor **order = calloc((size_t)n + 1, sizeof *order);
    if (!order) return status_memory(r->e, "the order of tensors", n * (uint64_t)sizeof *order);
    r->kind = "tensor";
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = place_tensor(r, data_at, alignment, &f->tensor[i]);
        order[i] = &f->tensor[i];
    }
    if (!rc) rc = check_overlaps(r, order, n);
    free(order);
    return rc;
}

static int32_t read_tensors(gguf_file *f, reader *r)
{
    uint32_t n = f->tensor_count;
    uint64_t alignment = 1;
    int32_t rc = 0;
    f->tensor = calloc((size_t)n + 1, sizeof *f->tensor);
    if (!f->tensor) return status_memory(r->e, "the tensor list", n * (uint64_t)sizeof *f->tensor);
    for (uint32_t i = 0; i < n && !rc; i++) rc = read_tensor(r, i, &f->tensor[i]);
    if (!rc) rc = read_alignment(r, &alignment);
    if (!rc) rc = place_tensors(f, r, (r->at + alignment - 1) / alignment * alignment, alignment);
    return rc;
}

/* ---- the interface --------------------------------------------------------------------------- */

static void keep_name(gguf_file *f, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash && slash[1]) path = slash + 1;
    gguf_show(f->shown, sizeof f->shown, (gguf_string){path, strlen(path)});
}

int gguf_file_map(gguf_file *f, const char *path)
{
    *f = (gguf_file){.mapped = 1};
    keep_name(f, path);
    return port_map_file(&f->map, path);
}

void gguf_file_use(gguf_file *f, const void *data, uint64_t bytes, const char *name)
{
    *f = (gguf_file){.map = {data, bytes}};
    keep_name(f, name);
}

int32_t gguf_file_read(gguf_file *f, fak_error *e)
{
    reader r = {.f = f, .e = e};
    int32_t rc = read_header(f, &r);
    if (!rc) rc = read_values(f, &r);
    if (!rc) rc = read_tensors(f, &r);
    return rc;
}

void gguf_file_close(gguf_file *f)
{
    free(f->key_order);
    free(f->tensor);
    free(f->value);
    if (f->mapped) port_unmap(&f->map);
    *f = (gguf_file){0};
}

const gguf_value *gguf_file_get(const gguf_file *f, const char *key, uint32_t types,
                                const char *needed, int32_t *rc, fak_error *e)
{
    const gguf_value *v = gguf_find_name(f->key_order, f->value_count, key);
    int array = v && v->type == GGUF_ARRAY;
    *rc = !v;
    if (!v || types >> v->type & 1) return v;
    *rc = gguf_file_fault(f, e, "key", v->key, "has type %s%s; %s is needed",
                          array ? "array of " : "", gguf_type_name(array ? v->element : v->type),
                          needed);
    return NULL;
}

int32_t gguf_file_get_u32(const gguf_file *f, const char *key, uint32_t *out, fak_error *e)
{
    int32_t rc;
    const gguf_value *v = gguf_file_get(f, key, GGUF_INTEGER_TYPES, "an integer", &rc, e);
    if (!v) return rc;
    int64_t n = gguf_integer(v, 0);
    if (n < 0 && v->type == GGUF_U64)
        return gguf_file_fault(f, e, "key", v->key, "is %" PRIu64 "; 0 to %" PRIu32 " fit",
                               (uint64_t)n, UINT32_MAX);
    if (n < 0 || n > UINT32_MAX)
        return gguf_file_fault(f, e, "key", v->key, "is %" PRId64 "; 0 to %" PRIu32 " fit", n,
                               UINT32_MAX);
    *out = (uint32_t)n;
    return 0;
}
