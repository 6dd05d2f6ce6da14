/* What every kernel sees: its constants, and the head of the step (step.c writes both).  A dispatch has
 * x workgroups over columns and y over rows, or over tiles of rows; y is as many as the step has. */
layout(push_constant) uniform Constants {
    uint icols, ocols;          /* columns of a row of x, of y */
    uint which;                 /* rows are 0: the step's, 1: the wanted ones */
    uint x, y, y1, y2;          /* words into the binding where a value begins */
    uint n1, n2;                /* outputs from which on y1, y2 are written */
    uint count, first, base;    /* outputs of this dispatch; the first one's number; its row in w */
    uint a_row, b_row, b_at;    /* words of a row of w's two planes; where the second begins */
    uint heads, kv_heads, head_dim, rot_dim, window, group, act;
    float eps, scale, softcap;
    uint values, raw;           /* words into a layer's kv where values, raw keys begin */
    uint source;                /* words into the binding that another input begins at */
} p;
layout(std140, set = 0, binding = 0) uniform Head { uvec4 head[2]; };
#define ROWS (p.which == 0u ? head[0].x : head[0].y)
#define FROM_ARGMAX ((head[0].z & 1u) != 0u)
#define ROW_AT(r) (head[1].x + (r) * 4u) /* token, pages, position, position before an eviction */
#define WANTED_AT(r) (head[1].y + (r))
#define STATE_AT(r, h) (head[1].z + ((r) * p.heads + (h)) * 2u)
#define PAGE 16u /* positions */
