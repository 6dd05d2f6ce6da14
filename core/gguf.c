/* gguf - see gguf.h.  The parts of a container become one list of tensors. */
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

#include "gguf_file.h"
#include "port.h"

struct gguf {
    gguf_file *part; /* [parts]; the first has the keys */
    uint32_t parts, tensor_count;
    const gguf_tensor **tensor;     /* in the order of the files */
    const gguf_string **name_order; /* sorted; each points at the first member of a gguf_tensor */
    char path[];
};

/* ---- parts ----------------------------------------------------------------------------------- */

enum { SUFFIX_BYTES = 20 /* of "-00002-of-00003.gguf" */, PARTS_MAX = UINT16_MAX };

static const char no_name[] = "";

#define NO_NAME ((gguf_string){no_name, 0})

/* What ends the name of part `no`, counted from 0. */
static const char *suffix(char dst[32], uint32_t no, uint32_t count)
{
    snprintf(dst, 32, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", no + 1, count);
    return dst;
}

/* Part `no` of `count` as the file says, both 0 when it is no part. */
static int32_t read_split(const gguf_file *f, uint32_t *no, uint32_t *count, fak_error *e)
{
    *no = *count = 0;
    int32_t rc = gguf_file_get_u32(f, "split.count", count, e);
    if (rc < 0) return rc;
    if (*count > PARTS_MAX)
        return gguf_file_fault(f, e, "key", (gguf_string){"split.count", 11},
                               "is %" PRIu32 "; at most %d are allowed", *count, PARTS_MAX);
    rc = gguf_file_get_u32(f, "split.no", no, e);
    if (rc < 0) return rc;
    if (rc == 1 && *count > 1)
        return gguf_file_fault(f, e, NULL, NO_NAME, "one of %" PRIu32 " parts, without split.no",
                               *count);
    if (*count > 1 && *no >= *count)
        return gguf_file_fault(f, e, "key", (gguf_string){"split.no", 8},
                               "is %" PRIu32 ", but split.count is %" PRIu32, *no, *count);
    return 0;
}

/* Room for one part more.  The table grows with what is found, not with what is claimed. */
static gguf_file *add_part(gguf *g, fak_error *e)
{
    gguf_file *wider = realloc(g->part, (g->parts + 1) * sizeof *wider);
    if (!wider) {
        status_memory(e, "the parts of a GGUF file", (g->parts + 1) * sizeof *wider);
        return NULL;
    }
    g->part = wider;
    wider[g->parts] = (gguf_file){0};
    return &wider[g->parts++];
}

/* Part `no`, whose path differs from the first one's in its suffix. */
static int32_t open_part(gguf *g, uint32_t no, uint32_t count, fak_error *e)
{
    char end[32], first[GGUF_SHOWN];
    size_t path_bytes = strlen(g->path) + 1;
    char *path = malloc(path_bytes);
    gguf_file *f = path ? add_part(g, e) : NULL;
    uint32_t its_no, its_count;
    int32_t rc;
    if (!path) return status_memory(e, "a path", path_bytes);
    if (!f) {
        free(path);
        return FAK_E_MEMORY;
    }
    memcpy(path, g->path, path_bytes);
    memcpy(path + path_bytes - 1 - SUFFIX_BYTES, suffix(end, no, count), SUFFIX_BYTES);
    memcpy(first, g->part[0].shown, sizeof first);
    if (gguf_file_map(f, path)) {
        rc = status_set(e, STATUS_BAD_FILE,
                        "%s: part %" PRIu32 " of %" PRIu32 " is missing: %s: %s", first, no + 1,
                        count, f->shown, strerror(errno));
    } else {
        rc = gguf_file_read(f, e);
        if (!rc) rc = read_split(f, &its_no, &its_count, e);
        if (!rc && !its_count)
            rc = gguf_file_fault(f, e, NULL, NO_NAME,
                                 "has no split.count; %s needs part %" PRIu32 " of %" PRIu32, first,
                                 no + 1, count);
        else if (!rc && (its_count != count || its_no != no))
            rc = gguf_file_fault(f, e, NULL, NO_NAME,
                                 "says that it is part %" PRIu32 " of %" PRIu32
                                 "; %s needs part %" PRIu32 " of %" PRIu32,
                                 its_no + 1, its_count, first, no + 1, count);
    }
    free(path);
    return rc;
}

/* The parts that the first one speaks of. */
static int32_t open_parts(gguf *g, int in_memory, fak_error *e)
{
    const gguf_file *f = &g->part[0];
    uint32_t no, count;
    char end[32];
    int32_t rc = read_split(f, &no, &count, e);
    if (rc || count < 2) return rc;
    size_t bytes = strlen(g->path), base = bytes < SUFFIX_BYTES ? 0 : bytes - SUFFIX_BYTES;
    if (in_memory)
        return gguf_file_fault(f, e, NULL, NO_NAME,
                               "part %" PRIu32 " of %" PRIu32 ", and nothing is beside it", no + 1,
                               count);
    int named = !strcmp(g->path + base, suffix(end, no, count));
    if (no > 0 && named) {
        gguf_string first = {strrchr(g->path, '/'), 0};
        first.data = first.data ? first.data + 1 : g->path;
        first.bytes = (uint64_t)(g->path + base - first.data);
        char shown[128];
        return gguf_file_fault(f, e, NULL, NO_NAME,
                               "part %" PRIu32 " of %" PRIu32 ": open %s%s instead", no + 1, count,
                               gguf_show(shown, sizeof shown, first), suffix(end, 0, count));
    }
    if (no > 0 || !named)
        return gguf_file_fault(f, e, NULL, NO_NAME,
                               "part %" PRIu32 " of %" PRIu32
                               ": open the part whose name ends in %s",
                               no + 1, count, suffix(end, 0, count));
    for (uint32_t i = 1; i < count && !rc; i++) rc = open_part(g, i, count, e);
    return rc;
}

static const gguf_file *part_of(const gguf *g, const gguf_tensor *t)
{
    uint32_t i = 0;
    while (t < g->part[i].tensor || t >= g->part[i].tensor + g->part[i].tensor_count) i++;
    return &g->part[i];
}

static int32_t twice(const gguf *g, const gguf_string *a, const gguf_string *b, fak_error *e)
{
    const gguf_file *first = part_of(g, (const void *)a), *second = part_of(g, (const void *)b);
    const uint8_t *low = (const uint8_t *)a->data, *high = (const uint8_t *)b->data;
    if (first == second) {
        uint64_t at = (uint64_t)(low - first->map.data), other = (uint64_t)(high - first->map.data);
        return gguf_file_fault(first, e, "tensor", *a,
                               "is there twice, at bytes %" PRIu64 " and %" PRIu64,
                               at < other ? at : other, at < other ? other : at);
    }
    return gguf_file_fault(first < second ? first : second, e, "tensor", *a,
                           "is there twice, here and in %s",
                           (first < second ? second : first)->shown);
}

/* One list of the tensors of all parts. */
static int32_t join_tensors(gguf *g, fak_error *e)
{
    uint64_t n = 0, at = 0;
    uint32_t claimed = 0, again;
    for (uint32_t i = 0; i < g->parts; i++) n += g->part[i].tensor_count;
    if (n > UINT32_MAX)
        return gguf_file_fault(&g->part[0], e, NULL, NO_NAME,
                               "%" PRIu64 " tensors; at most %" PRIu32 " are supported", n,
                               UINT32_MAX);
    int32_t rc = gguf_file_get_u32(&g->part[0], "split.tensors.count", &claimed, e);
    if (rc < 0) return rc;
    if (g->parts > 1 && rc == 0 && claimed != n)
        return gguf_file_fault(&g->part[0], e, "key", (gguf_string){"split.tensors.count", 19},
                               "is %" PRIu32 ", but the %" PRIu32 " parts have %" PRIu64, claimed,
                               g->parts, n);
    g->tensor = port_alloc((n + 1) * sizeof *g->tensor);
    g->name_order = port_alloc((n + 1) * sizeof *g->name_order);
    if (!g->tensor || !g->name_order)
        return status_memory(e, "the tensor list", n * 2 * sizeof *g->tensor);
    for (uint32_t i = 0; i < g->parts; i++)
        for (uint32_t k = 0; k < g->part[i].tensor_count; k++, at++) {
            g->tensor[at] = &g->part[i].tensor[k];
            g->name_order[at] = &g->tensor[at]->name;
        }
    g->tensor_count = (uint32_t)n;
    again = gguf_sort_names(g->name_order, g->tensor_count);
    return again ? twice(g, g->name_order[again - 1], g->name_order[again], e) : 0;
}

/* ---- the interface --------------------------------------------------------------------------- */

/* The file at path, or data[bytes] of that name. */
static int32_t open_all(gguf **out, const char *path, const void *data, uint64_t bytes,
                        fak_error *e)
{
    size_t path_bytes = strlen(path) + 1;
    gguf *g = calloc(1, sizeof *g + path_bytes);
    gguf_file *first = g ? add_part(g, e) : NULL;
    int32_t rc;
    *out = NULL;
    if (!first) {
        free(g);
        return status_memory(e, "a GGUF file", sizeof *g + path_bytes);
    }
    memcpy(g->path, path, path_bytes);
    if (data) {
        gguf_file_use(first, data, bytes, path);
    } else if (gguf_file_map(first, path)) {
        const char *why = strerror(errno);
        char shown[160]; /* the whole path, unlike other sentences: it may be what is wrong */
        gguf_show(shown, sizeof shown, (gguf_string){path, path_bytes - 1});
        rc = status_set(e, STATUS_BAD_FILE, "%s: cannot open: %s", shown, why);
        goto out;
    }
    rc = gguf_file_read(first, e);
    if (!rc) rc = open_parts(g, data != NULL, e);
    if (!rc) rc = join_tensors(g, e);
out:
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}

int32_t gguf_open(gguf **out, const char *path, fak_error *e)
{
    return open_all(out, path, NULL, 0, e);
}

int32_t gguf_open_memory(gguf **out, const void *data, uint64_t bytes, const char *name,
                         fak_error *e)
{
    return open_all(out, name, data ? data : "", bytes, e);
}

void gguf_close(gguf *g)
{
    if (!g) return;
    for (uint32_t i = 0; i < g->parts; i++) gguf_file_close(&g->part[i]);
    free(g->part);
    free(g->tensor);
    free(g->name_order);
    free(g);
}

const char *gguf_path(const gguf *g)
{
    return g->path;
}

const char *gguf_shown(const gguf *g)
{
    return g->part[0].shown;
}

uint32_t gguf_version(const gguf *g)
{
    return g->part[0].version;
}

int gguf_is_big(const gguf *g)
{
    return g->part[0].big;
}

uint32_t gguf_part_count(const gguf *g)
{
    return g->parts;
}

uint64_t gguf_file_bytes(const gguf *g)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->parts; i++) bytes += g->part[i].map.bytes;
    return bytes;
}

uint32_t gguf_value_count(const gguf *g)
{
    return g->part[0].value_count;
}

const gguf_value *gguf_value_at(const gguf *g, uint32_t i)
{
    assert(i < g->part[0].value_count);
    return &g->part[0].value[i];
}

uint32_t gguf_tensor_count(const gguf *g)
{
    return g->tensor_count;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, uint32_t i)
{
    assert(i < g->tensor_count);
    return g->tensor[i];
}

const gguf_value *gguf_find(const gguf *g, const char *key)
{
    return gguf_find_name(g->part[0].key_order, g->part[0].value_count, key);
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name)
{
    return gguf_find_name(g->name_order, g->tensor_count, name);
}

int32_t gguf_fault(const gguf *g, fak_error *e, const char *what, ...)
{
    char text[sizeof e->message];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    return gguf_file_fault(&g->part[0], e, NULL, NO_NAME, "%s", text);
}

/* ---- typed getters --------------------------------------------------------------------------- */

int32_t gguf_get_u32(const gguf *g, const char *key, uint32_t *out, fak_error *e)
{
    return gguf_file_get_u32(&g->part[0], key, out, e);
}

int32_t gguf_get_f32(const gguf *g, const char *key, float *out, fak_error *e)
{
    int32_t rc;
    const gguf_value *v = gguf_file_get(&g->part[0], key, GGUF_FLOAT_TYPES, "a float", &rc, e);
    double x;
    if (!v) return rc;
    x = gguf_number(v, 0);
    if (isfinite(x) && fabs(x) > (double)FLT_MAX)
        return gguf_file_fault(&g->part[0], e, "key", v->key, "is %g; at most %g fits", x,
                               (double)FLT_MAX);
    *out = (float)x;
    return 0;
}

int32_t gguf_get_bool(const gguf *g, const char *key, int *out, fak_error *e)
{
    int32_t rc;
    const gguf_value *v = gguf_file_get(&g->part[0], key, 1u << GGUF_BOOL, "a bool", &rc, e);
    if (v) *out = v->data[0];
    return rc;
}

int32_t gguf_get_string(const gguf *g, const char *key, gguf_string *out, fak_error *e)
{
    int32_t rc;
    const gguf_value *v = gguf_file_get(&g->part[0], key, 1u << GGUF_STRING, "a string", &rc, e);
    const uint8_t *at = v ? v->data : NULL;
    if (v) *out = gguf_next_string(v, &at);
    return rc;
}

int32_t gguf_get_array(const gguf *g, const char *key, uint32_t element, const gguf_value **out,
                       fak_error *e)
{
    int32_t rc;
    const gguf_value *v = gguf_find(g, key);
    uint32_t types = !v || v->element == element ? 1u << GGUF_ARRAY : 0;
    char needed[32];
    snprintf(needed, sizeof needed, "array of %s", gguf_type_name(element));
    v = gguf_file_get(&g->part[0], key, types, needed, &rc, e);
    if (v) *out = v;
    return rc;
}
