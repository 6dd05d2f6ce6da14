/* check_errors - R4: what fails is told by a status and a sentence, and what is left is usable.  Row
 * sources, allocations, submits and devices are made to fail, one place after another; nothing may leak. */
#include "check.h"
#include "golden.h"
#include "rig.h"
#include "watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, CONTEXT = 32, PLACES = 400, CYCLES = 6 };

/* ---- a life: a program of two ops that is prepared, loaded, run and released ---- */

static int32_t open_rig(check *c, rig *r, fak_error *e)
{
    uint32_t act = check_next_act(c, 0);
    int32_t s = rig_open(r, &c->dev, act, ROWS, 2, CONTEXT, check_seed(c, 40), e);
    if (s) return s;
    uint32_t x = rig_input(r, 64, 0), w = rig_weight(r, FAK_Q8_0, 48, 64, 0, 0.5f);
    rig_op(r, (fak_op){.id = FAK_OP_MATMUL, .in = {x, w}});
    return FAK_OK;
}

/* A life from open on: are the results right? */
static int32_t live(check *c, fak_error *e)
{
    rig r = {0};
    int32_t s = check_open(c, NULL, NULL, e);
    if (!s) s = open_rig(c, &r, e);
    if (!s) s = rig_ready(&r, e);
    if (!s && r.taken) s = rig_rows(&r, ROWS, 0, e);
    rig_close(&r);
    return s;
}

/* A toy model's life: prefill and two greedy steps; *out the ids. */
static int32_t generate(check *c, toy *g, uint32_t *out, fak_error *e)
{
    static const uint32_t prompt[4] = {9, 2, 77, 31};
    session t = {0};
    uint32_t slot;
    int32_t s =
        session_open(&t, &g->m, &c->dev, c->host, &(session_options){.rows = 4}, NULL, NULL, e);
    if (!s) s = kv_take(&t.kv, &slot, e);
    if (!s) s = session_feed(&t, slot, prompt, 4, FAK_WANT_ARGMAX, 0, &out[0], e);
    for (int i = 1; !s && i < 3; i++)
        s = session_feed(&t, slot, &out[i - 1], 1, FAK_WANT_ARGMAX, 0, &out[i], e);
    session_close(&t);
    return s;
}

/* A status that was answered where something was made to fail. */
static int32_t told(int32_t s, const char *what, uint64_t k, fak_error *e)
{
    char why[sizeof e->message];
    int silent = !e->message[0] || strstr(e->message, "and no sentence") ||
                 strstr(e->message, "does not say why");
    if (s < 0 && !silent) return FAK_OK;
    if (!s) return status_set(e, STATUS_GATE, "%s %" PRIu64 " fails and nothing is told", what, k);
    snprintf(why, sizeof why, "%s", e->message);
    return status_set(e, STATUS_GATE, "%s %" PRIu64 ": %s", what, k, why);
}

/* ---- the row source ---- */

/* The k-th read fails: load says so; loaded again, all is well. */
static int32_t fail_source(check *c, int k, int *reached, fak_error *e)
{
    rig r;
    int32_t s = open_rig(c, &r, e);
    r.fail_read = k;
    r.lend = 0;
    if (!s) s = rig_ready(&r, e);
    *reached = r.taken && r.reads >= (uint64_t)k;
    int lent = *reached && !s && !r.read_failed; /* what was not lent was read: nothing failed */
    if (*reached && !lent) {
        s = told(s, "read", (uint64_t)k, e);
        if (!s && r.handle) s = rig_load(&r, e);
    }
    if (!s && r.taken) s = rig_rows(&r, ROWS, 0, e);
    rig_close(&r);
    return s;
}

static void check_source(check *c)
{
    fak_error e;
    int32_t s = FAK_OK;
    int reached = 1;
    check_begin(c, R4, "load", "%s", "the row source fails, then load again");
    for (int k = 1; !s && reached && k < PLACES; k++) {
        s = fail_source(c, k, &reached, &e);
        c->row.cases += (uint32_t)reached;
    }
    if (!s && !c->row.cases)
        check_end(c, CHECK_ABSTAIN, "it takes no weight");
    else
        check_answer(c, s, &e);
}

/* ---- host memory ---- */

/* The k-th fails in a life from open to close. */
static int32_t fail_allocation(check *c, uint64_t k, uint64_t *failed, fak_error *e)
{
    watch_fail(k);
    int32_t s = live(c, e);
    device_close(&c->dev);
    *failed = watch_failed();
    watch_fail(0);
    return s;
}

/* Is memory lost every time that it fails? */
static int32_t loses(check *c, uint64_t k, fak_error *e)
{
    uint64_t failed, n[CYCLES + 1];
    for (int i = 0; i <= CYCLES; i++) {
        fail_allocation(c, k, &failed, e);
        n[i] = watch_heap_bytes();
        if (i > 0 && n[i] <= n[i - 1]) return FAK_OK;
    }
    return status_set(e, STATUS_GATE,
                      "allocation %" PRIu64 ": every time that it fails %" PRIu64
                      " bytes of host memory are lost",
                      k, (n[CYCLES] - n[0]) / CYCLES);
}

static void goes_on_at(const check *c, uint64_t number)
{
    char part[32];
    snprintf(part, sizeof part, "number %" PRIu64, number);
    check_goes_on(c, part);
}

static void check_host_memory(check *c)
{
    fak_error e;
    int32_t s = FAK_OK;
    const void *inside;
    memcpy(&inside, &c->plugin->api.open, sizeof inside);
    check_begin(c, R4, "allocations", "%s", "each of host memory fails once");
    int kinds = c->plugin->path ? watch_allocations(inside) : -1;
    if (kinds <= 0) {
        check_end(c, CHECK_ABSTAIN,
                  !c->plugin->path ? "it is linked in: its calls cannot be told from the host's"
                  : kinds          ? "its calls cannot be watched on this system"
                                   : "it calls no malloc itself");
        return;
    }
    for (uint64_t k = 1, failed = 1; !s && k < PLACES; k++) {
        goes_on_at(c, k);
        s = fail_allocation(c, k, &failed, &e);
        if (!failed) break;
        c->row.cases++;
        s = s ? told(s, "allocation", k, &e) : FAK_OK; /* it may have done without */
        if (!s) s = live(c, &e);
        if (!s) s = loses(c, k, &e);
    }
    watch_allocations_end();
    if (!s && !watch_heap_bytes())
        check_end(c, CHECK_PASS, "whether memory is lost then cannot be seen here");
    else
        check_answer(c, s, &e);
    if (check_open(c, NULL, NULL, &e)) c->stopped = "it does not open again";
}

/* ---- what the backend lets fail itself ---- */

typedef struct fault {
    const char *option, *what;
    int lost; /* the device is gone afterwards */
} fault;

/* Opened so that the k-th fails.  *reached: it did. */
static int32_t fail_device(check *c, const fault *f, toy *g, const uint32_t *right, uint32_t k,
                           int *reached, fak_error *e)
{
    char number[16];
    uint32_t id[3];
    snprintf(number, sizeof number, "%" PRIu32, k);
    *reached = 0;
    int32_t s = check_open(c, f->option, number, e);
    if (s) { /* in open itself: that is told, and the next open is well */
        *reached = 1;
        return told(s, f->what, k, e);
    }
    s = generate(c, g, id, e);
    if (!s) return memcmp(id, right, sizeof id) ? status_set(e, STATUS_GATE, "another id") : FAK_OK;
    *reached = 1;
    int is_lost = s == FAK_E_LOST;
    if ((s = told(s, f->what, k, e))) return s;
    s = generate(c, g, id, e);
    if (f->lost || is_lost)
        return s ? FAK_OK : status_set(e, STATUS_GATE, "a lost device computes again");
    if (!s && memcmp(id, right, sizeof id))
        s = status_set(e, STATUS_GATE, "after %s %" PRIu32 " failed, ids are wrong", f->what, k);
    return s;
}

static void check_fault(check *c, const fault *f)
{
    toy g;
    fak_error e;
    uint32_t right[3];
    int reached = 1;
    check_begin(c, R4, f->what, "%s", "made to fail, one after another");
    if (!check_has_option(c, f->option)) {
        status_set(&e, 0, "it has no option %s, by which it could be made to fail", f->option);
        check_end(c, CHECK_ABSTAIN, e.message);
        return;
    }
    int32_t s = toy_make(&g, &golden_shape, FAK_F32, TOY_SEED, &e);
    if (!s) s = check_open(c, NULL, NULL, &e);
    if (!s) s = generate(c, &g, right, &e);
    for (uint32_t k = 1; !s && reached && k < PLACES; k++) {
        goes_on_at(c, k);
        s = fail_device(c, f, &g, right, k, &reached, &e);
        c->row.cases += (uint32_t)reached;
    }
    toy_free(&g);
    if (!s && !c->row.cases)
        s = status_set(&e, STATUS_GATE, "option %s makes nothing fail", f->option);
    check_answer(c, s, &e);
    if (check_open(c, NULL, NULL, &e)) c->stopped = "it does not open again";
}

/* ---- what it does not know ---- */

/* Unknown flags and dtypes are refused or left to the host, never ignored. */
static int32_t offer(check *c, uint32_t flags, uint32_t dtype, uint32_t bits, int *taken,
                     fak_error *e)
{
    rig r;
    int32_t s = rig_open(&r, &c->dev, check_next_act(c, 0), ROWS, 1, CONTEXT, 1, e);
    if (!s) {
        uint32_t x = rig_input(&r, 64, 0), w = rig_weight(&r, FAK_F32, 8, 64, 0, 1);
        r.flags = flags;
        r.draft.value[w].dtype = dtype;
        r.draft.value[w].quant_bits = bits;
        rig_op(&r, (fak_op){.id = FAK_OP_MATMUL, .in = {x, w}});
        s = rig_dry(&r, e);
    }
    *taken = r.taken;
    rig_close(&r);
    return s;
}

static void check_unknown(check *c)
{
    static const struct {
        const char *what;
        uint32_t flags, dtype, bits;
    } offers[] = {{"an unknown flag of prepare", 1u << 20, FAK_F32, 0},
                  {"a weight of an unknown dtype", 0, 30, 0},
                  {"a weight quantised in an unknown way", 0, FAK_F32, 3}};
    fak_error e = {0};
    for (size_t i = 0; i < sizeof offers / sizeof *offers; i++) {
        int taken = 0;
        check_begin(c, R4, "unknown", "%s", offers[i].what);
        int32_t s = offer(c, offers[i].flags, offers[i].dtype, offers[i].bits, &taken, &e);
        c->row.cases = 1;
        if (!s && taken)
            check_end(c, CHECK_FAIL, "it is ignored: refuse it, or leave the op to the host");
        else if (s == STATUS_GATE)
            check_answer(c, s, &e);
        else
            check_end(c, CHECK_PASS, NULL);
    }
}

/* ---- leaks ---- */

typedef struct use {
    uint64_t heap, address, threads, files;
} use;

static use look(void)
{
    watch_state s = watch_look();
    return (use){watch_heap_bytes(), watch_address_bytes(), s.of[WATCH_THREADS],
                 s.of[WATCH_DESCRIPTORS]};
}

/* Does a count grow in every one of the cycles? */
static int grows(const uint64_t n[CYCLES + 1])
{
    for (int i = 0; i < CYCLES; i++)
        if (n[i + 1] <= n[i]) return 0;
    return 1;
}

static void check_leaks(check *c)
{
    static const char *const name[] = {"host memory", "address space", "threads", "open files"};
    uint64_t n[4][CYCLES + 1];
    fak_error e;
    toy g = {0};
    uint32_t id[3];
    check_begin(c, R4, "leaks", "%s", "a life, again and again");
    if (!watch_look().there) {
        check_end(c, CHECK_ABSTAIN, "cannot be seen on this system");
        return;
    }
    int32_t s = toy_make(&g, &golden_shape, FAK_F32, TOY_SEED, &e);
    for (int i = 0; !s && i <= CYCLES; i++) {
        s = check_open(c, NULL, NULL, &e);
        if (!s) s = generate(c, &g, id, &e);
        device_close(&c->dev);
        c->row.cases++;
        use u = look();
        n[0][i] = u.heap;
        n[1][i] = u.address;
        n[2][i] = u.threads;
        n[3][i] = u.files;
    }
    toy_free(&g);
    for (int i = 0; !s && i < 4; i++)
        if (grows(n[i]))
            s = status_set(&e, STATUS_GATE,
                           "%s grows by %" PRIu64 " with every device that is opened and closed",
                           name[i], (n[i][CYCLES] - n[i][0]) / CYCLES);
    if (!s && !watch_heap_bytes())
        check_end(c, CHECK_PASS, "but for host memory, whose use cannot be seen here");
    else
        check_answer(c, s, &e);
    if (check_open(c, NULL, NULL, &e)) c->stopped = "it does not open again";
}

void check_errors(check *c)
{
    static const fault faults[] = {{"fail-alloc", "device allocation", 0},
                                   {"fail-submit", "submit", 0},
                                   {"lose-device", "loss at submit", 1}};
    check_source(c);
    check_host_memory(c);
    for (size_t i = 0; i < 3 && !c->stopped; i++) check_fault(c, &faults[i]);
    if (!c->stopped) check_unknown(c);
    if (!c->stopped) check_leaks(c);
}
