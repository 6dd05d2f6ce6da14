/* A layer's kv, in words: keys, from `values` on values, from `raw` on raw keys; a page of 16 positions
 * is kv_heads*head_dim columns a position.  F16 and BF16 lie two to a word. */
layout(constant_id = 0) const uint KV_DTYPE = 1;
layout(constant_id = 3) const bool SPLIT = false; /* other pages lie in other pieces */
#define COLS (p.kv_heads * p.head_dim)
/* The place of a position in a piece, which has `count` pages from `first` on. */
#define PAGE_OF(pages, position) (st[(pages) + (position) / PAGE] - p.first)
#define PLACE(pages, position) (PAGE_OF(pages, position) * PAGE + (position) % PAGE)
#define ELSEWHERE(pages, position) (SPLIT && PAGE_OF(pages, position) >= p.count)
float kv_at(uint from, uint i)
{
    if (KV_DTYPE == 1u) return uintBitsToFloat(kv[from + i]);
    uint w = kv[from + (i >> 1)];
    if (KV_DTYPE == 2u) {
        vec2 h = unpackHalf2x16(w);
        return (i & 1u) != 0u ? h.y : h.x;
    }
    return uintBitsToFloat((i & 1u) != 0u ? w & 0xffff0000u : w << 16);
}
