/* spirv - the shaders, as glslc has made them from shaders/ (meson.build). */
#include "vk.h"

/* clang-format off */
static const uint32_t add_code[] =
#include "add.inc"
;
static const uint32_t append_code[] =
#include "append.inc"
;
static const uint32_t argmax_code[] =
#include "argmax.inc"
;
static const uint32_t attend_code[] =
#include "attend.inc"
;
static const uint32_t attend_row_code[] =
#include "attend_row.inc"
;
static const uint32_t best_code[] =
#include "best.inc"
;
static const uint32_t bias_code[] =
#include "bias.inc"
;
static const uint32_t embed_code[] =
#include "embed.inc"
;
static const uint32_t gather_code[] =
#include "gather.inc"
;
static const uint32_t glu_code[] =
#include "glu.inc"
;
static const uint32_t matmul_code[] =
#include "matmul.inc"
;
static const uint32_t matmul_row_code[] =
#include "matmul_row.inc"
;
static const uint32_t norm_code[] =
#include "norm.inc"
;
static const uint32_t norm_row_code[] =
#include "norm_row.inc"
;
static const uint32_t pages_code[] =
#include "pages.inc"
;
static const uint32_t rope_code[] =
#include "rope.inc"
;
static const uint32_t scale_code[] =
#include "scale.inc"
;
static const uint32_t softcap_code[] =
#include "softcap.inc"
;
static const uint32_t take_code[] =
#include "take.inc"
;

#define ROW(id, name) [SHADER_##id] = {name##_code, sizeof name##_code}
const spirv vk_spirv[SHADERS] = {
    ROW(ADD, add),
    ROW(APPEND, append),
    ROW(ARGMAX, argmax),
    ROW(ATTEND, attend),
    ROW(ATTEND_ROW, attend_row),
    ROW(BEST, best),
    ROW(BIAS, bias),
    ROW(EMBED, embed),
    ROW(GATHER, gather),
    ROW(GLU, glu),
    ROW(MATMUL, matmul),
    ROW(MATMUL_ROW, matmul_row),
    ROW(NORM, norm),
    ROW(NORM_ROW, norm_row),
    ROW(PAGES, pages),
    ROW(ROPE, rope),
    ROW(SCALE, scale),
    ROW(SOFTCAP, softcap),
    ROW(TAKE, take),
};
