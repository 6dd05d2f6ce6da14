/* check - what conformance is made of: checks, each with a verdict and a reason, told one by one. */
#ifndef CHECK_H
#define CHECK_H
#include "gate.h"

enum check_verdict { CHECK_PASS, CHECK_FAIL, CHECK_ABSTAIN, CHECK_VERDICTS };
extern const char *const check_verdict_name[CHECK_VERDICTS]; /* "PASS", ... */

enum check_rung { R0, R1, R2, R3, R4, R5, R6, CHECK_RUNGS };
extern const char *const check_rung_about[CHECK_RUNGS];
extern const char *const check_manner[]; /* what is looked at when all is over; NULL ends */

typedef struct check_row {
    enum check_rung rung;
    char what[48], detail[80]; /* "matmul", "q8_0, Q8 activations" */
    enum check_verdict verdict;
    char reason[244];          /* of FAIL and ABSTAIN: one sentence; of PASS: what was seen, or "" */
    uint32_t cases;            /* that the verdict is about */
    int measured;              /* figures say something */
    gate_figures figures;
    double value;              /* R6: in `unit`; else 0 */
    char unit[16];
} check_row;

typedef struct check {
    /* given */
    plugins *all;              /* the backend is loaded by R0 */
    plugin *plugin;
    uint32_t index;            /* of the device */
    const fak_setting *set;
    uint32_t sets;
    device *host;              /* the reference */
    const char *model_path;    /* R5; or NULL */
    uint64_t seed;             /* not 0 */
    uint32_t only;             /* mask of rungs beside R0; 0 = all */
    void (*on_stage)(void *self, const char *what); /* before each piece of work: what it is */
    void (*on_row)(void *self, const check_row *row);
    void (*on_open)(void *self, const device *d);   /* once, when R0 has opened it */
    void *self;
    /* the device, while it is open */
    device dev;
    check_row row;             /* in the making */
    uint32_t count[CHECK_RUNGS][CHECK_VERDICTS];
    uint8_t taken[EXEC_IDS];   /* ops of which some case passed in check_ops, and of which one failed */
    uint8_t failed[EXEC_IDS];
    const char *stopped;       /* why no more can be asked of the device; NULL: it can */
} check;

/* Begins a check, and says so. */
void check_begin(check *c, enum check_rung rung, const char *what, const char *detail, ...)
    STATUS_PRINTF(4, 5);
/* Ends it; the sentence may be NULL for PASS.  c->row.cases and the figures are as they were set. */
void check_end(check *c, enum check_verdict verdict, const char *sentence);
/* PASS for FAK_OK, else FAIL with e's sentence. */
void check_answer(check *c, int32_t s, const fak_error *e);
/* What a case adds to the check in the making. */
void check_add(check *c, const gate_figures *f);
/* Says that the check in the making goes on with a part, which has a time limit of its own. */
void check_goes_on(const check *c, const char *part);
uint64_t check_seed(const check *c, uint64_t of); /* of a part of the work; never 0 */
/* The act modes that the device offers, one after another from 0: 0 ends. */
uint32_t check_next_act(const check *c, uint32_t after);
const char *check_act_name(uint32_t act);

/* Opens c->dev anew with one more setting (name NULL: none). */
int32_t check_open(check *c, const char *name, const char *value, fak_error *e);
int check_has_option(const check *c, const char *name);

/* ---- the rungs, each in its own file; c->dev is open for all but the first and the last ---- */

void check_load(check *c);    /* R0 */
void check_ops(check *c);     /* R1: every op by every dtype; R2: fused ops */
void check_caps(check *c);    /* R2 */
void check_tiny(check *c);    /* R3 */
void check_errors(check *c);  /* R4 */
void check_real(check *c);    /* R5 */
void check_speed(check *c);   /* R6 */
void check_manners(check *c); /* R0, when all is over: closes the device, shuts the backend down */
#endif
