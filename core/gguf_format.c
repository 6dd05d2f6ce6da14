/* gguf_format - see gguf_format.h. */
#include "gguf_format.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t gguf_read_number(const uint8_t *p, uint32_t bytes, int big)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < bytes; i++) n |= (uint64_t)p[big ? bytes - 1 - i : i] << 8 * i;
    return n;
}

uint32_t gguf_read_u32(const uint8_t *p, int big)
{
    return (uint32_t)gguf_read_number(p, 4, big);
}

uint64_t gguf_read_u64(const uint8_t *p, int big)
{
    return gguf_read_number(p, 8, big);
}

/* ---- types ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t bytes; /* 0: not fixed */
} value_types[] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},   [GGUF_ARRAY] = {"array", 0},
    [GGUF_F64] = {"f64", 8},
};

static const gguf_ggml_type ggml_types[] = {
    /* clang-format off */
    [0] = {"F32", 1, 4, FAK_F32},        [1] = {"F16", 1, 2, FAK_F16},
    [2] = {"Q4_0", 32, 18, FAK_Q4_0},    [3] = {"Q4_1", 32, 20, FAK_Q4_1},
    [6] = {"Q5_0", 32, 22, FAK_Q5_0},    [7] = {"Q5_1", 32, 24, FAK_Q5_1},
    [8] = {"Q8_0", 32, 34, FAK_Q8_0},    [9] = {"Q8_1", 32, 36, 0},
    [10] = {"Q2_K", 256, 84, 0},         [11] = {"Q3_K", 256, 110, 0},
    [12] = {"Q4_K", 256, 144, FAK_Q4_K}, [13] = {"Q5_K", 256, 176, FAK_Q5_K},
    [14] = {"Q6_K", 256, 210, FAK_Q6_K}, [15] = {"Q8_K", 256, 292, 0},
    [16] = {"IQ2_XXS", 256, 66, 0},      [17] = {"IQ2_XS", 256, 74, 0},
    [18] = {"IQ3_XXS", 256, 98, 0},      [19] = {"IQ1_S", 256, 50, 0},
    [20] = {"IQ4_NL", 32, 18, 0},        [21] = {"IQ3_S", 256, 110, 0},
    [22] = {"IQ2_S", 256, 82, 0},        [23] = {"IQ4_XS", 256, 136, 0},
    [24] = {"I8", 1, 1, FAK_I8},         [25] = {"I16", 1, 2, 0},
    [26] = {"I32", 1, 4, FAK_I32},       [27] = {"I64", 1, 8, 0},
    [28] = {"F64", 1, 8, 0},             [29] = {"IQ1_M", 256, 56, 0},
    [30] = {"BF16", 1, 2, FAK_BF16},     [34] = {"TQ1_0", 256, 54, 0},
    [35] = {"TQ2_0", 256, 66, 0},        [39] = {"MXFP4", 32, 17, 0},
    /* clang-format on */
};

const gguf_ggml_type *gguf_find_ggml_type(uint32_t id)
{
    if (id >= sizeof ggml_types / sizeof *ggml_types) return NULL;
    return ggml_types[id].name ? &ggml_types[id] : NULL;
}

const char *gguf_ggml_type_name(uint32_t ggml_type)
{
    const gguf_ggml_type *type = gguf_find_ggml_type(ggml_type);
    return type ? type->name : "?";
}

const char *gguf_type_name(uint32_t type)
{
    return type < GGUF_TYPES ? value_types[type].name : "?";
}

uint32_t gguf_type_bytes(uint32_t type)
{
    return type < GGUF_TYPES ? value_types[type].bytes : 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

gguf_string gguf_next_string(const gguf_value *v, const uint8_t **at)
{
    gguf_string s = {(const char *)*at + 8, gguf_read_u64(*at, v->big)};
    *at += 8 + s.bytes;
    return s;
}

int gguf_string_is(gguf_string s, const char *text)
{
    return s.bytes == strlen(text) && !memcmp(s.data, text, (size_t)s.bytes);
}

/* The bits of element i, sign-extended to 64 where the type is signed. */
static uint64_t element_bits(const gguf_value *v, uint64_t i, uint32_t *type)
{
    uint32_t bytes;
    uint64_t bits, sign;
    *type = v->type == GGUF_ARRAY ? v->element : v->type;
    bytes = gguf_type_bytes(*type);
    assert(i < v->count && bytes);
    bits = gguf_read_number(v->data + i * bytes, bytes, v->big);
    sign = GGUF_SIGNED_TYPES >> *type & 1 ? UINT64_C(1) << (8 * bytes - 1) : 0;
    return (bits ^ sign) - sign;
}

double gguf_number(const gguf_value *v, uint64_t i)
{
    uint32_t type;
    uint64_t bits = element_bits(v, i, &type);
    uint32_t bits32 = (uint32_t)bits;
    float f;
    double d;
    memcpy(&f, &bits32, sizeof f);
    memcpy(&d, &bits, sizeof d);
    if (type == GGUF_F32) return (double)f;
    if (type == GGUF_F64) return d;
    return GGUF_SIGNED_TYPES >> type & 1 ? (double)(int64_t)bits : (double)bits;
}

int64_t gguf_integer(const gguf_value *v, uint64_t i)
{
    uint32_t type;
    uint64_t bits = element_bits(v, i, &type);
    double x;
    if (!(GGUF_FLOAT_TYPES >> type & 1)) return (int64_t)bits;
    x = gguf_number(v, i);
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

const char *gguf_show(char *dst, size_t dst_bytes, gguf_string s)
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

static int by_bytes(const void *pa, const void *pb)
{
    const gguf_string *a = *(const gguf_string *const *)pa, *b = *(const gguf_string *const *)pb;
    int order = memcmp(a->data, b->data, (size_t)(a->bytes < b->bytes ? a->bytes : b->bytes));
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

uint32_t gguf_sort_names(const gguf_string **order, uint32_t count)
{
    qsort(order, count, sizeof *order, by_bytes);
    for (uint32_t i = 1; i < count; i++)
        if (!by_bytes(&order[i - 1], &order[i])) return i;
    return 0;
}

const void *gguf_find_name(const gguf_string *const *order, uint32_t count, const char *name)
{
    const gguf_string s = {name, strlen(name)}, *key = &s;
    const gguf_string *const *at = bsearch(&key, order, count, sizeof *order, by_bytes);
    return at ? *at : NULL;
}
