/* session - a model on a device, and the loop that turns ids into more ids.  One thread at a time. */
#ifndef SESSION_H
#define SESSION_H
#include "exec.h"
#include "kv.h"
#include "sample.h"
#include "tokenizer.h"

typedef struct session_options {
    uint32_t context, slots;  /* positions of a sequence; sequences.  0 = the model's; 1 */
    /* Most rows, and rows with answers, of a step.  0 = 128, or fewer where only that fits; 1 */
    uint32_t rows, wanted;
    uint32_t kv_dtype;        /* 0 = F32 */
    uint32_t act;             /* enum fak_numerics ACT_*, 0 = what fits (program_default_act) */
    uint32_t flags;           /* enum fak_prepare_flags */
    /* NULL, or told what is needed before any of it is taken (capacity.h) */
    void (*on_capacity)(void *self, const program *p);
} session_options;

typedef struct session {      /* zero-initialise */
    const model *m;
    program program;
    exec exec;
    kv kv;
    void *step;               /* a block for the largest step */
    uint32_t *row;            /* [rows] 0, 1, 2 ... */
    fak_span *span;           /* [slots] of the step that is written */
    int (*stop)(void *self);  /* NULL, or asked between the steps of one feed; not 0: cancelled */
    void *stop_self;
} session;

/* The limits that a program gets for these options. */
fak_limits session_limits(const model *m, const device *dev, const session_options *options);

/* Prepares, refuses what does not fit (capacity.h), loads (progress may be NULL) and opens; *m, *dev and *host must outlive the session. */
int32_t session_open(session *s, const model *m, device *dev, device *host,
                     const session_options *options, weights_progress *progress, void *self,
                     fak_error *e);
void session_close(session *s); /* a zero or half-open session is fine */

/* Appends ids to the sequence in slot, in as many steps as they take.  want (enum fak_want) and out:
 * the answer for the last id, or for every id with `all`: [count, V] F32 or [count] uint32_t.
 * FAK_E_KV_FULL before any work when they do not fit. */
int32_t session_feed(session *s, uint32_t slot, const uint32_t *id, uint32_t count, uint32_t want,
                     int all, void *out, fak_error *e);

/* Rows of a step that the device takes and likes: session_feed cuts at them. */
uint32_t session_step_rows(const session *s);

/* Appends one id each to the sequences in `count` different slots, in one step where the device takes so
 * many spans, else in as few as it and the session's `wanted` allow.  out: the answers in order,
 * [count, V] F32 or [count] uint32_t.  FAK_E_KV_FULL before any work. */
int32_t session_step_batch(session *s, const uint32_t *slot, const uint32_t *id, uint32_t count,
                           uint32_t want, void *out, fak_error *e);

enum session_finish { FINISH_EOS, FINISH_LENGTH, FINISH_CONTEXT, FINISH_STOPPED };
const char *session_finish_name(enum session_finish finish); /* "eos", "length", ... */

typedef struct generation {
    const uint32_t *prompt;
    uint32_t prompt_count, max_new; /* at least 1 each */
    const tokenizer *tokenizer;     /* says which ids end; NULL: none do */
    sampler *sampler;               /* NULL: greedy */
    uint32_t logprobs;              /* 0: none; 1: of each id; 1 + n: of the n most likely too */
    int (*on_token)(void *self, uint32_t id); /* may be NULL; not 0: stop.  Not called for the end */
    void *self;
    /* results */
    token_ids ids;                  /* all that was generated, the end included; the caller frees */
    sampler_logprob *logprob;       /* [ids.count][logprobs], see sampler_logprobs; the caller frees */
    size_t logprob_room;
    enum session_finish finish;
    double prefill_s, decode_s;     /* seconds: prompt to first id; the rest */
} generation;

/* Generates in the given slot, whose length must be 0. */
int32_t session_generate(session *s, uint32_t slot, generation *g, fak_error *e);
#endif
