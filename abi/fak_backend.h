/* fak_backend.h - the contract between fak and a compute backend.  ABI 1.0-draft.
 *
 * The host writes a forward pass as a plan: ops over numbered values.  A backend sees the plan
 * (prepare), takes ops, pulls the weights it wants (load), and from then on gets only small steps.
 * A tensor never crosses: a value is a number here; its storage, layout and precision are the
 * backend's.
 *
 *   fak_backend_entry_v1 > open > prepare > load > { begin > ops or run > read > wait }*
 *                        > release > close > shutdown
 *
 * Threads  [load] on the thread that loads plugins, nothing else running.  [any] any thread, any
 *          time.  [device] one thread at a time for a device and its programs, no affinity.
 * Owners   Whoever allocates frees.  A pointer is borrowed for the call unless its comment says
 *          otherwise.
 * Errors   An int32_t status, and *err filled whenever it is negative.  err is never NULL.
 * Growth   The side that owns a struct's memory sets struct_size.  A backend's tables are its own
 *          and constant.  Never copy or assign a struct of the other side whole: fak_take reads
 *          one, fak_put fills one, fak_get reads an element of an array (its stride is its size).
 *          Minors append fields; zero or absent means "as before"; unknown flags, dtypes and kinds
 *          are refused, never ignored.
 *
 * Shapes and ids are checked by the host before a call; limits are never exceeded.  What each op
 * computes to the bit, the life cycle in full and the growth rules: README.md beside this file.
 */
#ifndef FAK_BACKEND_H
#define FAK_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAK_ABI_MAJOR 1u /* also in the entry's name: another major has another symbol */
#define FAK_ABI_MINOR 0u

typedef struct fak_device fak_device;   /* an open device, the backend's */
typedef struct fak_program fak_program; /* a prepared plan on a device, the backend's */

/* ---- status ---------------------------------------------------------------------------------- */

enum fak_status { /* carried as int32_t, never renumbered */
    FAK_OK = 0,
    FAK_PENDING = 1, /* wait: not done when the time was over */
    /* answered at once; nothing was enqueued and nothing has changed */
    FAK_E_ARGUMENT = -1,
    FAK_E_UNSUPPORTED = -2,
    FAK_E_MEMORY = -3,  /* host or device; the message says which, needed and available */
    FAK_E_KV_FULL = -4, /* begin, kv_clone, kv_write: index is the span or slot without room */
    FAK_E_CANCELLED = -5,
    /* from execution: told by wait, and by later calls on the program, with the first cause */
    FAK_E_STEP = -6,    /* kv below each span's first is intact; cleared by the begin after the wait
                           that told it; steps begun in between are skipped */
    FAK_E_KV_LOST = -7, /* kv of all slots is gone, the program is good: prefill again */
    FAK_E_PROGRAM = -8, /* only release works on this program */
    FAK_E_LOST = -9     /* only release and close work on this device */
};

#define FAK_NO_INDEX 0xffffffffu
#define FAK_FOREVER 0xffffffffu

typedef struct fak_error { /* 256 bytes for ever; the caller's */
    int32_t code, native;  /* enum fak_status; the driver's own number, 0 = none */
    uint32_t index;        /* the op, value, span or option at fault, or FAK_NO_INDEX */
    char message[244];     /* one sentence, UTF-8, zero-terminated */
} fak_error;

/* ---- crossing: the only ways to touch a struct of the other side ------------------------------- */

static inline void fak_copy_(void *dst, size_t dst_bytes, const void *src, size_t src_bytes)
{
    for (size_t i = 0; i < dst_bytes; i++)
        ((unsigned char *)dst)[i] =
            i < src_bytes ? ((const unsigned char *)src)[i] : (unsigned char)0;
}

/* *dst (bytes long, mine) = *src (theirs); what they did not know of reads as zero. */
static inline void fak_take(void *dst, size_t bytes, const void *src)
{
    fak_copy_(dst, bytes, src, *(const uint32_t *)src);
    *(uint32_t *)dst = (uint32_t)bytes;
}

/* *dst (theirs, struct_size set by them) = *src (bytes long, mine); their struct_size stays. */
static inline void fak_put(void *dst, const void *src, size_t bytes)
{
    uint32_t room = *(uint32_t *)dst;
    fak_copy_(dst, room, src, bytes);
    *(uint32_t *)dst = room;
}

/* *dst (bytes long, mine) = element i of their array. */
static inline void fak_get(void *dst, size_t bytes, const void *array, uint32_t stride, uint32_t i)
{
    fak_copy_(dst, bytes, (const unsigned char *)array + (size_t)i * stride, stride);
}

/* Plans and steps are blocks: one piece of memory, `bytes` long, without pointers.  Copy, hash,
 * store or send a block as it is.  An array in a block is found by its offset. */
typedef struct fak_array { uint32_t offset, count, stride; } fak_array; /* never grows */

#define FAK_AT(block, array) ((const void *)((const char *)(block) + (block)->array.offset))
#define FAK_GET(dst, block, array, i) /* *dst = element i of block->array */                       \
    fak_get(dst, sizeof *(dst), FAK_AT(block, array), (block)->array.stride, i)

/* ---- the plan: values -------------------------------------------------------------------------- */

enum fak_dtype { /* all below 32, so that a mask is one word: 1u << dtype */
    FAK_F32 = 1, FAK_F16 = 2, FAK_BF16 = 3, FAK_F8E4M3 = 4, FAK_F8E5M2 = 5,
    FAK_I8 = 6, FAK_I4 = 7, FAK_I32 = 8, /* I4: two to a byte, low nibble first */
    /* block formats: little-endian byte layouts on every host; plain dtypes are host order */
    FAK_Q8_0 = 16, FAK_Q4_0 = 17, FAK_Q4_1 = 18, FAK_Q5_0 = 19, FAK_Q5_1 = 20,
    FAK_Q4_K = 21, FAK_Q5_K = 22, FAK_Q6_K = 23
};

enum fak_value_kind {
    FAK_UNUSED = 0, /* value 0, and values inside a fused op */
    FAK_WEIGHT = 1, /* served by the row source: [out, in], a row for each output */
    FAK_CONST = 2,  /* served likewise, F32, made by the host: rope tables */
    FAK_ACT = 3,    /* F32, written by one op, dead at the next begin */
    FAK_OUT = 4     /* an ACT that the host reads: logits F32, or ids I32 [wanted, 1].  Its storage
                       outlives the ops of its step; ARGMAX's until the next step has begun */
};

enum fak_layout { FAK_ROW_MAJOR = 0 }; /* the only one in 1.0; others are reserved for weights */

#define FAK_STEP_ROWS 0xfffffffeu   /* rows: as many as the step has */
#define FAK_WANTED_ROWS 0xfffffffdu /* rows: as many as the step wants */

typedef struct fak_value { /* its id is its index; id 0 is FAK_UNUSED and means "absent" */
    uint32_t kind, dtype, layout;
    uint32_t rows, cols;
    /* quantisation that the dtype does not say by itself; all zero for block formats and floats */
    uint32_t quant_axis, quant_group;      /* group 0 = the whole axis */
    uint32_t quant_bits, quant_signed;
    uint32_t quant_zero, quant_scale_dtype; /* zero points: 0 none, FAK_I32 or FAK_F32 */
    float quant_act_scale;                  /* static activation scale, 0 = dynamic */
} fak_value;

/* ---- the plan: ops ------------------------------------------------------------------------------
 * T rows of the step, W wanted rows, D model width, H heads, K kv heads, d head_dim, I/O in/out.
 * Parameters that an op reads are named in brackets; all others are zero.  To the bit: README.md. */

enum fak_op_id {
    FAK_OP_NONE = 0,
    FAK_OP_EMBED = 1,      /* y[T,D] = w[token[t]]; NaNs for a token >= rows     w        -> y */
    FAK_OP_RMSNORM = 2,    /* y = x / rms(x) * w, by groups  [group, eps]        x w      -> y */
    FAK_OP_MATMUL = 3,     /* y[T,O] = x[T,I] w[O,I]^T                           x w      -> y */
    FAK_OP_ADD_BIAS = 4,   /* y = x + b[1,O]                                     x b      -> y */
    FAK_OP_ROPE = 5,       /* y[T,H*d] = x rotated [heads, head_dim, rot_dim]    x tab    -> y
                              tab[context, rot_dim]: cos of the first half, then sin */
    FAK_OP_KV_APPEND = 6,  /* kv[layer] += rotated k, v  [layer, kv_heads,
                              head_dim, rot_dim]                                 k v tab       */
    FAK_OP_ATTENTION = 7,  /* y[T,H*d] = softmax(q K^T scale) V over kv[layer]
                              [layer, heads, kv_heads, head_dim, window, scale,
                              softcap]                                           q        -> y */
    FAK_OP_GLU = 8,        /* y = act(g) * u  [act]                              g u      -> y */
    FAK_OP_ADD = 9,        /* y = a + b                                          a b      -> y */
    FAK_OP_SCALE = 10,     /* y = x * scale  [scale]                             x        -> y */
    FAK_OP_SOFTCAP = 11,   /* y = softcap * tanh(x / softcap)  [softcap]         x        -> y */
    FAK_OP_TAKE_ROWS = 12, /* y[W,D] = x[wanted[w]]                              x        -> y */
    FAK_OP_ARGMAX = 13,    /* y[W,1] = first maximum; 0xffffffff where a NaN is  x        -> y */
    /* fused, optional: literally the ops named, in order; parameters are the union of theirs */
    FAK_OP_NORM_MATMUL = 64,     /* RMSNORM, then MATMUL by 1-3 weights  x n w1 [w2 w3] -> y1 [y2 y3] */
    FAK_OP_NORM_MATMUL_GLU = 65, /* NORM_MATMUL by two, GLU              x n wg wu    -> y */
    FAK_OP_GLU_MATMUL_ADD = 66,  /* GLU, MATMUL, ADD                     g u w r      -> y */
    FAK_OP_MATMUL_ADD = 67,      /* MATMUL, ADD                          x w r        -> y */
    FAK_OP_FFN = 68,             /* NORM_MATMUL_GLU, MATMUL_ADD of x     x n wg wu wd -> y */
    FAK_OP_ROPE_APPEND = 69,     /* ROPE of q, KV_APPEND                 q k v tab    -> q' */
    FAK_OP_MATMUL_ARGMAX = 70,   /* MATMUL, ARGMAX                       x w          -> y */
    /* collective, reserved: enqueue only, sums in rank order where Reference is claimed */
    FAK_OP_ALLREDUCE_SUM = 128, FAK_OP_ALLGATHER = 129, FAK_OP_REDUCE_SCATTER = 130,
    FAK_OP_ALL_TO_ALL = 131
};

enum fak_act { FAK_SILU = 0, FAK_GELU_TANH = 1 };

typedef struct fak_op {
    uint32_t id;       /* enum fak_op_id */
    uint32_t revision; /* the lowest that understands every non-zero field of the op and its values */
    uint32_t layer;    /* 0xffffffff outside layers; names the kv of KV_APPEND and ATTENTION */
    uint32_t in[8], out[3];             /* value ids in the order above, 0 = absent */
    uint32_t heads, kv_heads, head_dim; /* heads of q; heads of k and v; columns of a head */
    uint32_t rot_dim;                   /* leading columns of a head that rotate, even */
    uint32_t window;                    /* keys t with p - window < t <= p are seen; 0 = all t <= p */
    uint32_t group;                     /* columns normed together, w[1,group]; 0 = the whole row */
    uint32_t act;                       /* enum fak_act */
    float eps, scale, softcap;          /* softcap 0 = none */
} fak_op;

/* The matrices of an op: inputs [*first, *first + the answer). */
static inline uint32_t fak_matrices(const fak_op *op, uint32_t *first)
{
    *first = 2;
    switch (op->id) {
    case FAK_OP_NORM_MATMUL: return 1u + (op->in[3] != 0) + (op->in[4] != 0);
    case FAK_OP_NORM_MATMUL_GLU: return 2;
    case FAK_OP_FFN: return 3;
    case FAK_OP_GLU_MATMUL_ADD: return 1;
    case FAK_OP_MATMUL:
    case FAK_OP_MATMUL_ADD:
    case FAK_OP_MATMUL_ARGMAX: *first = 1; return 1;
    default: *first = 0; return op->id == FAK_OP_EMBED;
    }
}

/* k, v and tab of an op that appends to kv; 0, and zeros: it does not. */
static inline int fak_appends(const fak_op *op, uint32_t operand[3])
{
    uint32_t first = op->id == FAK_OP_ROPE_APPEND;
    int appends = first || op->id == FAK_OP_KV_APPEND;
    for (uint32_t i = 0; i < 3; i++) operand[i] = appends ? op->in[first + i] : 0;
    return appends;
}

/* Ops [first, first + ops*times) are `times` turns that are alike.  In turn t an input is the same
 * id as in turn 0; or a weight's id of turn 0 + t*stride; or an output of the same turn; or, from
 * turn 1 on, one fixed output of turn t-1.  layer rises by a constant; of the outputs only the last
 * turn's are read outside.  A compiler may loop over stacked weights. */
typedef struct fak_repeat { uint32_t first, ops, times, stride; } fak_repeat;

enum fak_want { FAK_WANT_NONE = 0, FAK_WANT_LOGITS = 1, FAK_WANT_ARGMAX = 2 };

/* Ops [first, first + ops) run after the body when step.want == want; out is the value to read. */
typedef struct fak_tail { uint32_t want, first, ops, out; } fak_tail;

typedef struct fak_plan { /* a block */
    uint32_t struct_size, bytes;
    fak_array values, ops, repeats, tails;
    uint32_t body_ops; /* ops [0, body_ops) always run */
    uint32_t layers;   /* kv layers: op.layer is below it */
} fak_plan;

/* ---- the step --------------------------------------------------------------------------------- */

/* Rows [row, row + rows) of the step are positions [first, first + rows) of the sequence in slot. */
typedef struct fak_span { uint32_t slot, row, rows, first; } fak_span;

enum fak_step_flags {
    FAK_TOKENS_FROM_ARGMAX = 1 /* row i takes the last step's ARGMAX i, which had as many rows; only
                                  where ARGMAX and EMBED are on one device */
};

typedef struct fak_step { /* a block of at most limits.step_bytes */
    uint32_t struct_size, bytes;
    uint32_t rows, want, flags, reserved; /* enum fak_want; enum fak_step_flags */
    fak_array token;  /* uint32_t [rows]; count 0 with FAK_TOKENS_FROM_ARGMAX */
    fak_array wanted; /* uint32_t rows, rising */
    fak_array span;   /* fak_span: they tile the rows in order; a slot at most once */
} fak_step;

/* ---- prepare and load --------------------------------------------------------------------------- */

enum fak_numerics { /* device: mask of what it offers.  limits: exactly one ACT_, others as wanted */
    FAK_ACT_F32 = 1, FAK_ACT_Q8 = 2, FAK_ACT_F16 = 4, /* activations of a MATMUL by block weights */
    FAK_BATCH_INVARIANT = 256, /* a row's bits do not depend on what else is in the step */
    FAK_DETERMINISTIC = 512    /* equal calls, equal bits */
};

typedef struct fak_limits { /* prepare reserves for these; no step exceeds them */
    uint32_t struct_size, numerics;
    uint32_t rows, wanted, spans;          /* of one step */
    uint32_t slots, context;               /* kv slots; positions of one */
    uint32_t kv_tokens, kv_dtype;          /* positions of all slots together; F32, F16 or BF16 */
    uint32_t step_bytes, steps;            /* of one step block; steps begun and not yet waited for */
    uint32_t reserved;
    uint64_t weight_bytes;                 /* weights resident at once, 0 = all of them */
} fak_limits;

enum fak_prepare_flags {
    FAK_DRY_RUN = 1,    /* verdicts and report only; nothing is allocated; *out is NULL */
    FAK_KEEP_ALL = 2,   /* every value stays readable and writable; ops are run one at a time */
    FAK_EVICTABLE = 4,  /* keep raw keys too: kv_evict will be called */
    FAK_COMPILE_ALL = 8 /* compile now, not at load or at a shape's first step */
};

enum fak_verdict { FAK_HOST = 0, FAK_TAKEN = 1 }; /* in: not offered, offered.  out: the answer */

enum fak_report_flags {
    FAK_EXACT = 1,     /* bytes are what the backend asks of its driver, not estimates */
    FAK_LOAD_WHOLE = 2, /* all weights come in one load call */
    FAK_BORROWS = 4    /* weights that can be lent are used where they lie: weight_bytes counts them */
};

enum fak_shapes { /* the step shapes it takes; the host splits steps to fit; 0 = FAK_ANY_SPANS */
    FAK_ONE_SPAN = 1, FAK_ROW_SPANS = 2, /* spans of one row each */
    FAK_ANY_SPANS = 4
};

typedef struct fak_report { /* the host's; prepare puts.  Bytes are device memory unless named */
    uint32_t struct_size, flags; /* enum fak_report_flags */
    uint64_t weight_bytes, load_peak_bytes;
    uint64_t kv_token_bytes, kv_bytes; /* one position in all layers; all kv for these limits */
    uint64_t scratch_bytes;            /* activations, tables, command buffers */
    uint64_t driver_bytes;             /* an estimate of what the driver adds: rounding, code */
    uint64_t host_bytes;               /* host memory: rings, borrowed weights aside */
    uint32_t kv_page;                  /* positions that are reserved together, 0 = 1 */
    uint32_t best_rows;                /* rows of a step that it likes best, 0 = as many as can be */
    uint32_t fit_rows, fit_wanted, fit_kv_tokens; /* after FAK_E_MEMORY: limits that would fit */
    uint32_t shapes;                              /* enum fak_shapes */
    uint32_t row_buckets[8], wanted_buckets[8];   /* padded up to one of these; 0 ends */
} fak_report;

enum fak_form { /* how the row source serves rows; all rows of a call dense, one after another */
    FAK_NATIVE = 0, /* the value's dtype, its own bytes */
    FAK_AS_F32 = 1, /* decoded exactly */
    FAK_CODES = 2,  /* int8_t a weight     } a block format without loss: */
    FAK_SCALES = 3, /* float a group of 32 } w = scale*code + zero (Q6_K: a group of 16) */
    FAK_ZEROS = 4   /* float a group       } */
};
enum fak_source_flags { FAK_STABLE = 1 }; /* borrowed bytes stay until the program is released */

typedef struct fak_source { /* the host's row source; valid during load, on the calling thread */
    uint32_t struct_size, flags;
    void *self;
    /* Rows [first, first + rows) of a value, any rows in any order, again if wanted.  dst_bytes must
     * be what they take.  UNSUPPORTED for a form that the dtype does not have. */
    int32_t (*read)(void *self, uint32_t value, uint32_t form, uint32_t first, uint32_t rows,
                    void *dst, uint64_t dst_bytes, fak_error *err);
    /* NATIVE bytes of all rows, for the call, or until release when FAK_STABLE; NULL = use read. */
    const void *(*borrow)(void *self, uint32_t value);
} fak_source;

/* ---- what a backend is -------------------------------------------------------------------------- */

enum fak_class { FAK_APPROX = 0, FAK_REFERENCE = 1 }; /* Reference: bit-identical, proven at open */

enum fak_caps { /* each is proven by what is there; one without the other is refused */
    FAK_CAP_FUSED_ATTN = 1,     /* the table has ATTENTION */
    FAK_CAP_FUSED_FFN = 2,      /* the table has FFN */
    FAK_CAP_GRAPH_COMPILE = 4,  /* run */
    FAK_CAP_ASYNC = 8,          /* wait; ops return before they are done */
    FAK_CAP_DEVICE_MEMORY = 16, /* its own memory: no host view */
    FAK_CAP_CAPACITY_PROBE = 32, /* FAK_EXACT in the report of a dry run */
    FAK_CAP_COLLECTIVE = 64      /* 0 in 1.0 */
};

/* Enqueues op number `op` of the program's plan.  A range of zero rows is not called. */
typedef int32_t fak_op_fn(fak_program *, uint32_t op, fak_error *err); /* [device] */

typedef struct fak_op_entry { /* an op that it knows, up to that revision */
    uint32_t id, revision;
    fak_op_fn *call; /* may be NULL where there is run */
} fak_op_entry;

typedef struct fak_bound { /* what an Approx device promises, for a pair of dtypes (0 = any) */
    uint32_t weight_dtype, kv_dtype;
    float cosine, norm_ratio, rel_l2, max_abs; /* of logits: at least; 1 +- ; at most; at most */
} fak_bound;

typedef struct fak_opened { /* an open device: may only narrow the backend.  Lives until close */
    uint32_t struct_size, klass, caps, numerics; /* enum fak_class, fak_caps, fak_numerics */
    uint32_t upload_dtypes; /* mask: weights that are kept in their own form */
    uint32_t ops, op_stride, bounds, bound_stride, reserved;
    const fak_op_entry *op; /* with no ops but run: every core op is offered to prepare */
    const fak_bound *bound;
} fak_opened;

enum fak_device_kind {
    FAK_CPU = 1, FAK_DISCRETE = 2, FAK_INTEGRATED = 3, FAK_NPU = 4, FAK_DATAFLOW = 5,
    FAK_SOFTWARE = 6, /* a device imitated on the CPU: never picked automatically */
    FAK_REMOTE = 7
};

typedef struct fak_device_info { /* the host's; device_info puts */
    uint32_t struct_size, kind;
    uint64_t memory_total, memory_free, allocation_max; /* bytes, 0 = unknown */
    char id[64];   /* "uuid:..." or "pci:..."; equal ids are one device */
    char name[64]; /* for people */
    char tier[64]; /* "sm_90", "avx512-vnni", ... */
} fak_device_info;

typedef struct fak_option { const char *name, *values, *initial, *help; } fak_option;
                           /* values: "a|b|c", "0..16" or "text" */
typedef struct fak_setting { const char *name, *value; } fak_setting; /* never grows */

enum fak_log_level { FAK_LOG_ERROR = 1, FAK_LOG_WARN = 2, FAK_LOG_INFO = 3, FAK_LOG_DEBUG = 4 };

typedef struct fak_host { /* the host's services; live until shutdown returns */
    uint32_t struct_size, abi_minor, backend_minor_min, reserved;
    void *self;
    void (*log)(void *self, uint32_t level, const char *sentence); /* [any] */
    /* [device] or [load] Long work reports; FAK_E_CANCELLED asks for an early end with that status. */
    int32_t (*progress)(void *self, const char *what, uint64_t done, uint64_t of);
    /* A store of compiled artefacts.  Bytes of the entry, 0 = none; copies at most dst_bytes. */
    uint64_t (*cache_get)(void *self, const char *key, void *dst, uint64_t dst_bytes); /* [any] */
    void (*cache_put)(void *self, const char *key, const void *src, uint64_t bytes);   /* [any] */
    const void *(*get_ext)(void *self, const char *name);                              /* [any] */
} fak_host;

typedef struct fak_backend { /* the backend's own constant table; lives until shutdown */
    uint32_t struct_size, abi_minor, host_minor_min; /* loads where host.abi_minor >= the last */
    uint32_t caps, numerics, upload_dtypes;          /* the most that any of its devices offers */
    uint32_t options, option_stride, ops, op_stride;
    const char *name, *version, *vendor; /* name: [a-z0-9-]+, as in fak-backend-NAME.so */
    const fak_option *option;
    const fak_op_entry *op; /* the most that any of its devices offers */

    /* [load] Devices that can be seen with these settings; 0 sets err->message to one sentence that
     * says why ("absent: ...").  NULL: one device. */
    uint32_t (*device_count)(const fak_setting *, uint32_t settings, fak_error *err);
    /* [load] Always there.  memory_free is 0 where reading it needs a context. */
    int32_t (*device_info)(uint32_t index, const fak_setting *, uint32_t settings,
                           fak_device_info *, fak_error *err);
    /* [load] ARGUMENT with err->index for a setting that is unknown or out of range. */
    int32_t (*open)(uint32_t index, const fak_setting *, uint32_t settings, fak_device **,
                    const fak_opened **, fak_error *err);
    void (*close)(fak_device *); /* [load] joins its threads; NULL device is fine; may be NULL */
    void (*shutdown)(void);      /* [load] the last call; the code stays mapped; may be NULL */

    /* [device] Verdicts are final without FAK_DRY_RUN: no later call but load (see README.md)
     * allocates device memory or answers UNSUPPORTED for a taken op.  KV_APPEND and ATTENTION of a
     * layer are taken together.  A hole's inputs are readable and its outputs writable between the
     * neighbouring ranges.  weights_of: a program of the same model whose loaded weights are
     * shared and that is released after this one, or NULL.  The report is filled on MEMORY too. */
    int32_t (*prepare)(fak_device *, const fak_plan *, const fak_limits *, fak_program *weights_of,
                       uint32_t flags, uint32_t *verdict, fak_report *, fak_program **out,
                       fak_error *err);
    void (*release)(fak_program *); /* [device] waits, then frees all of it; NULL is fine */
    /* [device] Pulls the weights and constants of taken ops.  After a failure load again (all of
     * them, or what is missing) or release.  UNSUPPORTED, index = op: compiling had been put off and
     * the op cannot be; prepare comes again without it.  unload may be NULL. */
    int32_t (*load)(fak_program *, const uint32_t *value, uint32_t values, const fak_source *,
                    fak_error *err);
    int32_t (*unload)(fak_program *, const uint32_t *value, uint32_t values, fak_error *err);

    /* [device] Submits what came before, copies the step, reserves kv for every span or fails. */
    int32_t (*begin)(fak_program *, const fak_step *, fak_error *err);
    /* [device] Enqueues a maximal range of taken ops inside the body or one tail; may be NULL. */
    int32_t (*run)(fak_program *, uint32_t first, uint32_t ops, fak_error *err);
    /* [device] Dense rows as F32 (I32 for ARGMAX).  dst is lent until the ticket is done; ticket 0
     * is done already; tickets of a program are done in order. */
    int32_t (*read)(fak_program *, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                    uint64_t *ticket, fak_error *err);
    /* [device] The output of a hole; src is copied before the call returns. */
    int32_t (*write)(fak_program *, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                     fak_error *err);
    /* [any] timeout 0 polls.  NULL where every ticket is 0. */
    int32_t (*wait)(fak_program *, uint64_t ticket, uint32_t timeout_ms, fak_error *err);

    /* [device] kv; all may be NULL.  The host owns lengths: a step reads [0, first) of its slots and
     * writes from first on.  clone (to != from) shares the first len positions, copy on write.  trim
     * gives room beyond len back.  evict drops [first, first + len) and rotates the survivors once,
     * from raw keys, to their new positions (FAK_EVICTABLE).  read and write: F32
     * [len, kv_heads*head_dim] of one layer, keys rotated; write leaves no raw keys, so it is not
     * called on FAK_EVICTABLE programs. */
    int32_t (*kv_clone)(fak_program *, uint32_t to, uint32_t from, uint32_t len, fak_error *err);
    int32_t (*kv_trim)(fak_program *, uint32_t slot, uint32_t len, fak_error *err);
    int32_t (*kv_evict)(fak_program *, uint32_t slot, uint32_t first, uint32_t len, fak_error *err);
    int32_t (*kv_read)(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                       void *k, void *v, uint64_t *ticket, fak_error *err);
    int32_t (*kv_write)(fak_program *, uint32_t slot, uint32_t layer, uint32_t first, uint32_t len,
                        const void *k, const void *v, fak_error *err);

    /* [any] "vendor.thing/1" of the device, or of the backend when the device is NULL; or NULL.  The
     * function itself may be NULL. */
    const void *(*get_ext)(fak_device *, const char *name);
} fak_backend;

/* ---- extensions that the host knows --------------------------------------------------------------- */

typedef struct fak_host_view { /* "fak.host_view/1": host-memory backends */
    uint32_t struct_size, reserved;
    const void *(*view)(fak_program *, uint32_t value); /* after wait, until begin; or NULL */
} fak_host_view;

typedef struct fak_stats { /* the host's; counts since open */
    uint32_t struct_size, reserved;
    uint64_t submits, dispatches;   /* to the driver; kernels in them */
    uint64_t bytes_up, bytes_down;  /* rows asked for; padding aside */
    uint64_t allocations, host_waits; /* of device memory; times a call blocked */
} fak_stats;

typedef struct fak_stats_ext { /* "fak.stats/1" */
    uint32_t struct_size, reserved;
    void (*get)(fak_device *, fak_stats *); /* puts */
} fak_stats_ext;

/* ---- the entry ------------------------------------------------------------------------------------ */

/* [load] The one exported symbol.  Opens no driver and starts no thread. */
typedef int32_t fak_entry_fn(const fak_host *, const fak_backend **out, fak_error *err);

#if defined _WIN32
#define FAK_EXPORT __declspec(dllexport)
#else
#define FAK_EXPORT __attribute__((visibility("default")))
#endif

#ifdef FAK_STATIC_NAME /* linked in: -DFAK_STATIC_NAME=x makes it fak_backend_entry_v1_x */
#define FAK_CAT2_(a, b) a##b
#define FAK_CAT_(a, b) FAK_CAT2_(a, b)
#define FAK_ENTRY FAK_CAT_(fak_backend_entry_v1_, FAK_STATIC_NAME)
#else
#define FAK_ENTRY fak_backend_entry_v1
#endif
FAK_EXPORT fak_entry_fn FAK_ENTRY;

/* FAK_NOTE(name, class, cpu): what the file claims, readable without loading it.  ELF only. */
typedef struct fak_note {
    uint32_t name_bytes, desc_bytes, type; /* an ELF note: owner "fak", type 1 */
    char owner[4];
    uint32_t major, minor, klass, reserved; /* klass: enum fak_class of the default options */
    char backend[32], cpu[32];              /* cpu: "x86-64-v3", ...; "" = any of this machine */
} fak_note;
#if defined __ELF__ && !defined __wasm__ && !defined FAK_STATIC_NAME
#define FAK_NOTE(name, klass, cpu)                                                                 \
    __attribute__((used, section(".note.fak.abi"), aligned(4))) static const fak_note fak_note_ = { \
        4, (uint32_t)(sizeof(fak_note) - 16), 1, "fak", FAK_ABI_MAJOR, FAK_ABI_MINOR, klass, 0,    \
        name, cpu}
#else
#define FAK_NOTE(name, klass, cpu) typedef int fak_note_unused_
#endif

/* ---- frozen: last member, its offset, size of the whole ------------------------------------------- */

#ifdef __cplusplus
#define FAK_FREEZE(T, member, offset, size)                                                        \
    static_assert(offsetof(T, member) == (offset) && sizeof(T) == (size), #T)
#else
#define FAK_FREEZE(T, member, offset, size)                                                        \
    _Static_assert(offsetof(T, member) == (offset) && sizeof(T) == (size), #T)
#endif
#define FAK_PTR(n) ((n) * sizeof(void *))
FAK_FREEZE(fak_error, message, 12, 256);
FAK_FREEZE(fak_array, stride, 8, 12);
FAK_FREEZE(fak_value, quant_act_scale, 44, 48);
FAK_FREEZE(fak_op, softcap, 92, 96);
FAK_FREEZE(fak_repeat, stride, 12, 16);
FAK_FREEZE(fak_tail, out, 12, 16);
FAK_FREEZE(fak_plan, layers, 60, 64);
FAK_FREEZE(fak_span, first, 12, 16);
FAK_FREEZE(fak_step, span, 48, 60);
FAK_FREEZE(fak_limits, weight_bytes, 48, 56);
FAK_FREEZE(fak_report, wanted_buckets, 120, 152);
FAK_FREEZE(fak_source, borrow, 8 + FAK_PTR(2), 8 + FAK_PTR(3));
FAK_FREEZE(fak_op_entry, call, 8, 8 + FAK_PTR(1));
FAK_FREEZE(fak_bound, max_abs, 20, 24);
FAK_FREEZE(fak_opened, bound, 40 + FAK_PTR(1), 40 + FAK_PTR(2));
FAK_FREEZE(fak_device_info, tier, 160, 224);
FAK_FREEZE(fak_option, help, FAK_PTR(3), FAK_PTR(4));
FAK_FREEZE(fak_setting, value, FAK_PTR(1), FAK_PTR(2));
FAK_FREEZE(fak_host, get_ext, 16 + FAK_PTR(5), 16 + FAK_PTR(6));
FAK_FREEZE(fak_backend, get_ext, 40 + FAK_PTR(24), 40 + FAK_PTR(25));
FAK_FREEZE(fak_host_view, view, 8, 8 + FAK_PTR(1));
FAK_FREEZE(fak_stats, host_waits, 48, 56);
FAK_FREEZE(fak_stats_ext, get, 8, 8 + FAK_PTR(1));
FAK_FREEZE(fak_note, cpu, 64, 96);

#ifdef __cplusplus
}
#endif
#endif
