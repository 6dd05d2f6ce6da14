/* gguf - see gguf.h.
 * One pass over keys and tensors, then the tensors are laid against the data section.  What a
 * caller can reach after gguf_open has been checked, so the getters do not check bounds again. */
#include "gguf.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port.h"

enum {
    HEADER_BYTES = 4 + 4 + 8 + 8,         /* magic, version, tensors, keys */
    VALUE_BYTES_MIN = 8 + 1 + 4 + 1,      /* key, type, value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 4 + 8, /* name, dimensions (none), type, offset */
    NAME_BYTES_MAX = 65535,               /* the format's own limit for keys */
    DIMS_MAX = 4,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 20,
    SHOWN_NAME = 48, /* of names in sentences, with the end mark */
    SHOWN_FILE = 64
};

#define ELEMENTS_MAX (INT64_MAX / 8) /* so that bytes fit: no type has more than 8 an element */

struct gguf {
    port_map map;
    uint32_t version, value_count, tensor_count;
    gguf_value *value;
    gguf_tensor *tensor;
    /* sorted by bytes; each points at the first member of a gguf_value or gguf_tensor */
    const gguf_string **key_order, **name_order;
    char shown[SHOWN_FILE]; /* the file's base name, printable */
    char path[];
};

typedef struct reader { /* where we are, for reading and for sentences */
    const gguf *g;
    fak_error *e;
    uint64_t at;      /* offset in the file, <= its bytes */
    const char *kind; /* "key", "tensor", or NULL in the header */
    uint64_t index;
    gguf_string name; /* data NULL while it is not known */
} reader;

/* ---- sentences ------------------------------------------------------------------------------- */

/* s in printable ASCII, other bytes as \xNN, cut with "..." to fit; returns dst. */
static const char *show(char *dst, size_t dst_bytes, gguf_string s)
{
    size_t n = 0;
    for (uint64_t i = 0; i < s.bytes; i++) {
        uint8_t c = (uint8_t)s.data[i];
        if (n + sizeof "\\xNN" + sizeof "..." > dst_bytes) {
            n += (size_t)snprintf(dst + n, dst_bytes - n, "...");
            break;
        }
        if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
            n += (size_t)snprintf(dst + n, dst_bytes - n, "\\x%02x", c);
        else
            dst[n++] = (char)c;
    }
    dst[n] = 0;
    return dst;
}

static gguf_string string_of(const char *text)
{
    return (gguf_string){text, strlen(text)};
}

/* Records "m.gguf: tensor "x" <what>"; the number in place of a name that has not been read. */
static STATUS_PRINTF(2, 3) int32_t bad(const reader *r, const char *what, ...)
{
    char text[sizeof r->e->message], name[SHOWN_NAME], where[SHOWN_NAME + 32] = "";
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    if (r->name.data)
        snprintf(where, sizeof where, "%s \"%s\" ", r->kind, show(name, sizeof name, r->name));
    else if (r->kind)
        snprintf(where, sizeof where, "%s %" PRIu64 " ", r->kind, r->index);
    return status_set(r->e, STATUS_BAD_FILE, "%s: %s%s", r->g->shown, where, text);
}

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t left(const reader *r)
{
    return r->g->map.bytes - r->at;
}

/* The next bytes; NULL with the sentence recorded when the file has fewer. */
static const uint8_t *take(reader *r, uint64_t bytes)
{
    if (bytes > left(r)) {
        bad(r, "is cut short: %" PRIu64 " bytes at byte %" PRIu64 " of %" PRIu64, bytes, r->at,
            r->g->map.bytes);
        return NULL;
    }
    r->at += bytes;
    return r->g->map.data + r->at - bytes;
}

static int32_t read_u32(reader *r, uint32_t *out)
{
    const uint8_t *at = take(r, 4);
    if (at) *out = gguf_read_u32(at);
    return at ? 0 : STATUS_BAD_FILE;
}

static int32_t read_u64(reader *r, uint64_t *out)
{
    const uint8_t *at = take(r, 8);
    if (at) *out = gguf_read_u64(at);
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
    const uint8_t *p = r->g->map.data + r->at;
    uint32_t bytes = gguf_type_bytes(type);
    gguf_string s;
    int32_t rc = 0;
    if (count > left(r) / (bytes ? bytes : 8)) /* the least that a string has */
        return bad(r, "is cut short: %" PRIu64 " of type %s at byte %" PRIu64 " of %" PRIu64, count,
                   gguf_type_name(type), r->at, r->g->map.bytes);
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
    if (type == GGUF_ARRAY) {
        rc = read_u32(r, &type);
        if (!rc) rc = read_u64(r, &v->count);
        if (rc) return rc;
        if (type == GGUF_ARRAY) return bad(r, "is an array of arrays, which is not supported");
        v->element = type;
    }
    if (type >= GGUF_TYPES)
        return bad(r, "has the unknown type %" PRIu32 "; 0 to %d are known", type, GGUF_TYPES - 1);
    v->data = r->g->map.data + r->at;
    return skip_values(r, type, v->count);
}

static int32_t read_tensor(reader *r, uint32_t index, gguf_tensor *t)
{
    uint64_t offset, elements = 1;
    int32_t rc = read_name(r, "tensor", index, &t->name);
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

static int by_bytes(const void *pa, const void *pb)
{
    const gguf_string *a = *(const gguf_string *const *)pa, *b = *(const gguf_string *const *)pb;
    int order = memcmp(a->data, b->data, (size_t)(a->bytes < b->bytes ? a->bytes : b->bytes));
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int by_data(const void *pa, const void *pb) /* of tensors */
{
    const gguf_tensor *a = *(const void *const *)pa, *b = *(const void *const *)pb;
    if (a->data == b->data) return (a > b) - (a < b);
    return a->data > b->data ? 1 : -1;
}

static int32_t sort_names(reader *r, const gguf_string **order, uint32_t count)
{
    qsort(order, count, sizeof *order, by_bytes);
    for (uint32_t i = 1; i < count; i++) {
        const char *a = order[i - 1]->data, *b = order[i]->data;
        if (by_bytes(&order[i - 1], &order[i])) continue;
        r->name = *order[i];
        return bad(r, "is there twice, at bytes %" PRIu64 " and %" PRIu64,
                   (uint64_t)((const uint8_t *)(a < b ? a : b) - r->g->map.data),
                   (uint64_t)((const uint8_t *)(a < b ? b : a) - r->g->map.data));
    }
    return 0;
}

static int32_t read_header(gguf *g, reader *r)
{
    const uint8_t *p = g->map.data;
    uint64_t bytes = g->map.bytes, tensors, values;
    if (bytes < HEADER_BYTES)
        return bad(r, "too short for a GGUF file: %" PRIu64 " bytes, the header alone has %d",
                   bytes, HEADER_BYTES);
    if (memcmp(p, "GGUF", 4))
        return bad(r, "not a GGUF file: it starts with %02x %02x %02x %02x, not 47 47 55 46", p[0],
                   p[1], p[2], p[3]);
    g->version = gguf_read_u32(p + 4);
    if (g->version && !(g->version & 0xffff))
        return bad(r, "written in the other byte order (version %08" PRIx32 "), not supported",
                   g->version);
    if (g->version < 2 || g->version > 3)
        return bad(r, "GGUF version %" PRIu32 " is not supported; 2 and 3 are", g->version);
    tensors = gguf_read_u64(p + 8);
    values = gguf_read_u64(p + 16);
    r->at = HEADER_BYTES;
    if (values > left(r) / VALUE_BYTES_MIN || values > UINT32_MAX)
        return bad(r, "%" PRIu64 " keys cannot be in %" PRIu64 " bytes", values, bytes);
    if (tensors > left(r) / TENSOR_BYTES_MIN || tensors > UINT32_MAX)
        return bad(r, "%" PRIu64 " tensors cannot be in %" PRIu64 " bytes", tensors, bytes);
    g->value_count = (uint32_t)values;
    g->tensor_count = (uint32_t)tensors;
    return 0;
}

static int32_t read_values(gguf *g, reader *r)
{
    uint32_t n = g->value_count;
    int32_t rc = 0;
    g->value = calloc((size_t)n + 1, sizeof *g->value);
    g->key_order = calloc((size_t)n + 1, sizeof *g->key_order);
    if (!g->value || !g->key_order)
        return status_memory(r->e, "the metadata", n * (uint64_t)sizeof *g->value);
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = read_value(r, i, &g->value[i]);
        g->key_order[i] = &g->value[i].key;
    }
    return rc ? rc : sort_names(r, g->key_order, n);
}

/* In the data section.  read_tensor has checked that it is there: name, dims, dim[], type, it. */
static uint64_t tensor_offset(const gguf_tensor *t)
{
    return gguf_read_u64((const uint8_t *)t->name.data + t->name.bytes + 4 + 8 * (size_t)t->dims +
                         4);
}

/* Finds a tensor's dtype, bytes and data; the data section starts at byte data_at of the file. */
static int32_t place_tensor(reader *r, uint64_t data_at, uint64_t alignment, gguf_tensor *t)
{
    const gguf_ggml_type *type = gguf_find_ggml_type(t->ggml_type);
    uint64_t file_bytes = r->g->map.bytes, offset = tensor_offset(t);
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
    t->data = r->g->map.data + data_at + offset;
    return 0;
}

/* Leaves the order by data. */
static int32_t check_overlaps(reader *r, const gguf_string **order, uint32_t count)
{
    qsort(order, count, sizeof *order, by_data);
    for (uint32_t i = 1; i < count; i++) {
        const gguf_tensor *a = (const void *)order[i - 1], *b = (const void *)order[i];
        uint64_t start = (uint64_t)(b->data - r->g->map.data);
        uint64_t distance = (uint64_t)(b->data - a->data);
        char name[SHOWN_NAME];
        if (distance >= (a->bytes ? a->bytes : 1)) continue;
        r->name = b->name;
        return bad(r, "starts at byte %" PRIu64 ", inside tensor \"%s\" that ends at byte %" PRIu64,
                   start, show(name, sizeof name, a->name), start - distance + a->bytes);
    }
    return 0;
}

/* An entry of one of the types (a mask), with r ready for a sentence about it.  Else NULL, with *rc
 * 1 when it is absent and negative when it has another type. */
static const gguf_value *get(const gguf *g, const char *key, uint32_t types, const char *needed,
                             reader *r, int32_t *rc)
{
    const gguf_value *v = gguf_find(g, key);
    int array = v && v->type == GGUF_ARRAY;
    *rc = !v;
    if (!v) return NULL;
    r->g = g;
    r->kind = "key";
    r->name = v->key;
    if (types >> v->type & 1) return v;
    *rc = bad(r, "has type %s%s; %s is needed", array ? "array of " : "",
              gguf_type_name(array ? v->element : v->type), needed);
    return NULL;
}

static int32_t read_alignment(reader *r, uint64_t *out)
{
    int32_t rc;
    const gguf_value *v = get(r->g, "general.alignment", 1u << GGUF_U32, "u32", r, &rc);
    *out = ALIGNMENT_DEFAULT;
    if (!v) return rc < 0 ? rc : 0;
    *out = gguf_read_u32(v->data);
    if (!*out || *out & (*out - 1) || *out > ALIGNMENT_MAX)
        return bad(r, "is %" PRIu64 "; a power of two up to %d is needed", *out, ALIGNMENT_MAX);
    return 0;
}

static int32_t read_tensors(gguf *g, reader *r)
{
    uint32_t n = g->tensor_count;
    uint64_t alignment = 1, data_at;
    int32_t rc = 0;
    g->tensor = calloc((size_t)n + 1, sizeof *g->tensor);
    g->name_order = calloc((size_t)n + 1, sizeof *g->name_order);
    if (!g->tensor || !g->name_order)
        return status_memory(r->e, "the tensor list", n * (uint64_t)sizeof *g->tensor);
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = read_tensor(r, i, &g->tensor[i]);
        g->name_order[i] = &g->tensor[i].name;
    }
    if (!rc) rc = read_alignment(r, &alignment);
    if (rc) return rc;
    r->kind = "tensor";
    data_at = (r->at + alignment - 1) / alignment * alignment;
    for (uint32_t i = 0; i < n && !rc; i++) rc = place_tensor(r, data_at, alignment, &g->tensor[i]);
    if (!rc) rc = check_overlaps(r, g->name_order, n);
    return rc ? rc : sort_names(r, g->name_order, n);
}

/* ---- the interface --------------------------------------------------------------------------- */

int32_t gguf_open(gguf **out, const char *path, fak_error *e)
{
    size_t path_bytes = strlen(path) + 1;
    gguf *g = calloc(1, sizeof *g + path_bytes);
    const char *slash = strrchr(path, '/');
    reader r = {.g = g, .e = e};
    int32_t rc;
    *out = NULL;
    if (!g) return status_memory(e, "a GGUF file", sizeof *g + path_bytes);
    memcpy(g->path, path, path_bytes);
    show(g->shown, sizeof g->shown, string_of(slash && slash[1] ? slash + 1 : path));
    if (port_map_file(&g->map, path)) {
        const char *why = strerror(errno);
        char shown[160]; /* the whole path, unlike other sentences: it may be what is wrong */
        show(shown, sizeof shown, string_of(path));
        rc = status_set(e, STATUS_BAD_FILE, "%s: cannot open: %s", shown, why);
        goto out;
    }
    rc = read_header(g, &r);
    if (!rc) rc = read_values(g, &r);
    if (!rc) rc = read_tensors(g, &r);
out:
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}

void gguf_close(gguf *g)
{
    if (!g) return;
    free(g->name_order);
    free(g->key_order);
    free(g->tensor);
    free(g->value);
    port_unmap(&g->map);
    free(g);
}

const char *gguf_path(const gguf *g)
{
    return g->path;
}

uint32_t gguf_version(const gguf *g)
{
    return g->version;
}

uint64_t gguf_file_bytes(const gguf *g)
{
    return g->map.bytes;
}

uint32_t gguf_value_count(const gguf *g)
{
    return g->value_count;
}

const gguf_value *gguf_value_at(const gguf *g, uint32_t i)
{
    assert(i < g->value_count);
    return &g->value[i];
}

uint32_t gguf_tensor_count(const gguf *g)
{
    return g->tensor_count;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, uint32_t i)
{
    assert(i < g->tensor_count);
    return &g->tensor[i];
}

static const void *find(const gguf_string **order, uint32_t count, const char *name)
{
    const gguf_string s = string_of(name), *key = &s, **at;
    at = bsearch(&key, order, count, sizeof *order, by_bytes);
    return at ? *at : NULL;
}

const gguf_value *gguf_find(const gguf *g, const char *key)
{
    return find(g->key_order, g->value_count, key);
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name)
{
    return find(g->name_order, g->tensor_count, name);
}

/* ---- typed getters --------------------------------------------------------------------------- */

int32_t gguf_get_u32(const gguf *g, const char *key, uint32_t *out, fak_error *e)
{
    reader r = {.e = e};
    int32_t rc;
    const gguf_value *v = get(g, key, GGUF_INTEGER_TYPES, "an integer", &r, &rc);
    int64_t n;
    if (!v) return rc;
    n = gguf_integer(v, 0);
    if (n < 0 && v->type == GGUF_U64)
        return bad(&r, "is %" PRIu64 "; 0 to %" PRIu32 " fit", (uint64_t)n, UINT32_MAX);
    if (n < 0 || n > UINT32_MAX)
        return bad(&r, "is %" PRId64 "; 0 to %" PRIu32 " fit", n, UINT32_MAX);
    *out = (uint32_t)n;
    return 0;
}

int32_t gguf_get_f32(const gguf *g, const char *key, float *out, fak_error *e)
{
    reader r = {.e = e};
    int32_t rc;
    const gguf_value *v = get(g, key, GGUF_FLOAT_TYPES, "a float", &r, &rc);
    double x;
    if (!v) return rc;
    x = gguf_number(v, 0);
    if (isfinite(x) && fabs(x) > (double)FLT_MAX)
        return bad(&r, "is %g; at most %g fits", x, (double)FLT_MAX);
    *out = (float)x;
    return 0;
}

int32_t gguf_get_bool(const gguf *g, const char *key, int *out, fak_error *e)
{
    reader r = {.e = e};
    int32_t rc;
    const gguf_value *v = get(g, key, 1u << GGUF_BOOL, "a bool", &r, &rc);
    if (v) *out = v->data[0];
    return rc;
}

int32_t gguf_get_string(const gguf *g, const char *key, gguf_string *out, fak_error *e)
{
    reader r = {.e = e};
    int32_t rc;
    const gguf_value *v = get(g, key, 1u << GGUF_STRING, "a string", &r, &rc);
    const uint8_t *at = v ? v->data : NULL;
    if (v) *out = gguf_next_string(&at);
    return rc;
}

int32_t gguf_get_array(const gguf *g, const char *key, uint32_t element, const gguf_value **out,
                       fak_error *e)
{
    reader r = {.e = e};
    int32_t rc;
    const gguf_value *v = gguf_find(g, key);
    uint32_t types = !v || v->element == element ? 1u << GGUF_ARRAY : 0;
    char needed[32];
    snprintf(needed, sizeof needed, "array of %s", gguf_type_name(element));
    v = get(g, key, types, needed, &r, &rc);
    if (v) *out = v;
    return rc;
}
