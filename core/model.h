/* model - hyper-parameters and tensor names of each architecture; every shape checked once.
 * Architectures: "llama" (llama 1-3, SmolLM2, Mistral and alike). */
#ifndef MODEL_H
#define MODEL_H
#include "weights.h"

enum model_role { /* what a weight is for; those from MODEL_ATTN_NORM on come once a layer */
    MODEL_EMBED, MODEL_ROPE, MODEL_OUT_NORM, MODEL_HEAD,
    MODEL_ATTN_NORM, MODEL_Q, MODEL_K, MODEL_V, MODEL_O,
    MODEL_FFN_NORM, MODEL_GATE, MODEL_UP, MODEL_DOWN, MODEL_ROLES
};

typedef struct model { /* zero-initialise */
    char architecture[32], name[64];
    uint32_t width, ffn, heads, kv_heads, head_dim, rot_dim, vocab, layers;
    uint32_t context_max; /* what the file says it was trained for */
    uint32_t context;     /* positions of the rope table */
    float eps;
    double rope_theta;
    int tied;             /* the head is the embedding */
    int blocks;           /* some matrix is of a block format: Q8 activations make sense */
    weights weights;
    uint32_t *index;      /* [MODEL_ATTN_NORM + layers * roles of a layer] into weights */
} model;

/* dtype: enum fak_dtype that all matrices are converted to, 0 = as in the file.  context: positions
 * wanted, 0 = the file's, at most 4096.  *g must outlive *m.  STATUS_BAD_FILE with one sentence naming
 * the key or tensor; STATUS_REFUSED for a context or a dtype that the model cannot have. */
int32_t model_open(model *m, const gguf *g, uint32_t dtype, uint32_t context, fak_error *e);
void model_close(model *m); /* a zero or half-built model is fine */

/* Index in m->weights; layer is ignored for roles outside layers. */
uint32_t model_weight(const model *m, enum model_role role, uint32_t layer);
uint64_t model_weight_bytes(const model *m); /* of all weights as backends see them */
#endif
