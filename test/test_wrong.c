/* Backends that are each wrong in one way (mock/wrong.h): those that a host in one process can meet are
 * refused, told or borne as the table says; those that it cannot are shown to do what they are for. */
#include "engine.h"

#include "../core/golden.h"
#include "mock/wrong.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const wrong_row rows[] = {WRONG_TABLE(WRONG_ROW)};

static const char *file_of(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/fak-backend-%s.so", TEST_WRONG, name);
    return path;
}

/* ---- the table ---- */

static void test_table_and_folder(void **state)
{
    (void)state;
    uint32_t files = 0;
    char name[SEARCH_NAME_MAX + 1];
    assert_int_equal(sizeof rows / sizeof *rows, WRONG_ROWS);
    for (size_t i = 0; i < WRONG_ROWS; i++) {
        if (access(file_of(rows[i].name), R_OK)) fail_msg("%s: no such file", rows[i].name);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(rows[i].name, rows[j].name);
    }
    DIR *dir = opendir(TEST_WRONG);
    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));) files += !search_name_of(d->d_name, name);
    closedir(dir);
    assert_int_equal(files, WRONG_ROWS);
}

/* ---- refused ---- */

static void assert_told(const wrong_row *row, const fak_error *e)
{
    if (!strstr(e->message, row->part) || !e->message[0])
        fail_msg("%s: \"%s\" lacks \"%s\"", row->name, e->message, row->part);
}

static void test_refused(void **state)
{
    static const plugin_host host;
    uint32_t refused[STAGE_OPCHECK + 1] = {0};
    (void)state;
    for (size_t i = 0; i < WRONG_ROWS; i++) {
        const wrong_row *row = &rows[i];
        plugins all;
        device d;
        fak_error e = {0};
        if (row->alone || row->stage == STAGE_FINE || row->stage > STAGE_OPEN) continue;
        if (!strcmp(row->name, "note-class")) continue; /* the probe compares them */
        if (plugins_open(&all, &(plugin_search){.only_file = file_of(row->name)}, &host, &e))
            fail_msg("%s", e.message);
        int32_t s = plugin_load(&all, &all.at[0], &e);
        if (!s && row->stage < STAGE_OPEN) fail_msg("%s was loaded", row->name);
        if (!s) s = device_open(&d, &all.at[0], 0, NULL, 0, &e);
        if (!s) fail_msg("%s was opened", row->name);
        assert_int_equal(s, STATUS_REFUSED);
        assert_told(row, &e);
        refused[row->stage]++;
        plugins_close(&all);
    }
    assert_true(refused[STAGE_LIBRARY] >= 3);
    assert_true(refused[STAGE_HANDSHAKE] >= 20);
    assert_true(refused[STAGE_OPEN] >= 17);
}

/* ---- borne ---- */

enum { N = 12, V_MAX = ENGINE_VOCAB };
static float want[(2 * N + 2) * V_MAX], got[(2 * N + 2) * V_MAX];

/* A prefill, one more and a clone that goes on. */
static int32_t sample_of(engine *g, float *out, fak_error *e)
{
    uint32_t token[N];
    engine_tokens(g, 1, token, N);
    for (uint32_t i = 0; i < 3; i++) {
        fak_span span = {i / 2, 0, i ? 1 : N - 1, i ? N - 1 : 0};
        step_spec spec = engine_spec(&span, token + span.first, FAK_WANT_LOGITS);
        const fak_backend *api = &g->backend.dev.api;
        int32_t s = i == 2 ? api->kv_clone(g->program.handle[SIDE_DEVICE], 1, 0, N - 1, e) : FAK_OK;
        if (!s) s = engine_step(g, &spec, out, e);
        if (s) return s;
        out += (size_t)span.rows * g->V;
    }
    return FAK_OK;
}

static void reference(const char *file, uint32_t act)
{
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(act, FAK_F32);
    engine_open(&g, file, "cpu-ref", NULL, &limits, 0);
    assert_int_equal(sample_of(&g, want, &e), FAK_OK);
    engine_close(&g);
}

static uint32_t count_of(const engine *g)
{
    const uint32_t *count = g->backend.dev.api.get_ext(NULL, "fak-test.counted/1");
    assert_non_null(count);
    return *count;
}

static void test_borne(void **state)
{
    uint32_t n = 0;
    (void)state;
    reference("tiny-q8_0.gguf", FAK_ACT_Q8);
    for (size_t i = 0; i < WRONG_ROWS; i++) {
        engine g;
        fak_error e = {0};
        int opcheck = rows[i].stage == STAGE_OPCHECK && !rows[i].alone;
        fak_limits limits = engine_limits(FAK_ACT_Q8, FAK_F32);
        if (rows[i].stage != STAGE_FINE && !opcheck) continue;
        if (!strncmp(rows[i].name, "fault-", 6)) continue; /* those are not run */
        if (!strcmp(rows[i].name, "f32-only")) continue;   /* this is of Q8 */
        engine_open(&g, "tiny-q8_0.gguf", file_of(rows[i].name), NULL, &limits, 0);
        memset(got, 0, sizeof got);
        if (sample_of(&g, got, &e)) fail_msg("%s: %s", rows[i].name, e.message);
        if (memcmp(want, got, (N + 1) * (size_t)g.V * sizeof *got))
            print_error("%s:\n", rows[i].name);
        assert_rows(got, want, (N + 1) * (size_t)g.V);
        if (!strcmp(rows[i].name, "clash"))
            assert_int_equal(count_of(&g), 0); /* ours were called */
        engine_close(&g);
        n++;
    }
    assert_true(n >= 8);
}

/* A thread that has used the plugin ends after it was closed: the code is still there. */
static pthread_barrier_t barrier;

static void *use_and_outlive(void *self)
{
    fak_error e;
    int32_t s = sample_of(self, got, &e);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return s ? self : NULL;
}

static void test_thread_outlives_plugin(void **state)
{
    (void)state;
    engine g;
    pthread_t thread;
    void *failed;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_open(&g, "tiny-f32.gguf", file_of("tls-destructor"), NULL, &limits, 0);
    const uint32_t *count = g.backend.dev.api.get_ext(NULL, "fak-test.counted/1");
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, use_and_outlive, &g), 0);
    pthread_barrier_wait(&barrier);
    engine_close(&g);
    assert_int_equal(*count, 0);
    pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(*count, 1); /* its destructor ran, in code that was closed */
    pthread_barrier_destroy(&barrier);
}

/* ---- wrong bits ---- */

static int has_nan(const float *x, size_t n)
{
    size_t i = 0;
    while (i < n && !isnan(x[i])) i++;
    return i < n;
}

static int differs(const char *name, const char *options, int *nan)
{
    engine g;
    fak_error e = {0};
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    memset(got, 0, sizeof got);
    engine_open(&g, "tiny-f32.gguf", file_of(name), options, &limits, 0);
    assert_int_equal(g.backend.dev.facts.klass, FAK_REFERENCE); /* so it claims */
    if (sample_of(&g, got, &e)) fail_msg("%s: %s", name, e.message);
    size_t n = (N + 1) * (size_t)g.V;
    engine_close(&g);
    *nan = has_nan(got, n);
    return memcmp(got, want, n * sizeof *got) != 0;
}

static void test_wrong_bits(void **state)
{
    static const uint32_t op[] = {FAK_OP_EMBED, FAK_OP_RMSNORM,   FAK_OP_MATMUL,
                                  FAK_OP_ROPE,  FAK_OP_ATTENTION, FAK_OP_GLU,
                                  FAK_OP_ADD,   FAK_OP_TAKE_ROWS};
    int nan;
    (void)state;
    reference("tiny-f32.gguf", FAK_ACT_F32);
    assert_true(differs("class-liar", NULL, &nan));
    assert_false(nan);
    for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
        char option[32];
        snprintf(option, sizeof option, "op=%" PRIu32, op[i]);
        int lost = op[i] == FAK_OP_ROPE; /* the last bit of one query does not reach the logits */
        if (differs("wrong-bit", option, &nan) == lost || nan) fail_msg("wrong-bit %s", option);
        if (!differs("nan-writer", option, &nan) || !nan) fail_msg("nan-writer %s", option);
    }
    assert_false(differs("wrong-bit", "op=0", &nan)); /* else as the reference */
    assert_false(differs("nan-writer", "op=0", &nan));
}

/* The proof of a Reference claim finds one wrong bit and one NaN in any op, and names the op. */
static void test_golden_finds(void **state)
{
    static const uint32_t op[] = {
        FAK_OP_EMBED, FAK_OP_RMSNORM, FAK_OP_MATMUL,    FAK_OP_ROPE,   FAK_OP_ATTENTION,
        FAK_OP_GLU,   FAK_OP_ADD,     FAK_OP_TAKE_ROWS, FAK_OP_ARGMAX, 0};
    (void)state;
    for (uint32_t i = 0; i < 2 * sizeof op / sizeof *op; i++) {
        backend_pair b;
        fak_error e = {0};
        char option[32], part[32];
        const char *name = i % 2 ? "nan-writer" : "wrong-bit";
        snprintf(option, sizeof option, "op=%" PRIu32, op[i / 2]);
        snprintf(part, sizeof part, "(%s", ops_name(op[i / 2]));
        backend_open(&b, file_of(name), option);
        int32_t s = golden_compare(&b.dev, &b.host, &e);
        if ((s != FAK_OK) != (op[i / 2] != 0)) fail_msg("%s %s: %s", name, option, e.message);
        if (s && !strstr(e.message, part)) fail_msg("%s %s: %s", name, option, e.message);
        backend_close(&b);
    }
}

static void test_rows_beyond(void **state)
{
    (void)state;
    engine g;
    fak_error e;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    reference("tiny-f32.gguf", FAK_ACT_F32);
    engine_open(&g, "tiny-f32.gguf", file_of("rows-beyond"), NULL, &limits, 0);
    memset(got, 0, sizeof got);
    assert_int_equal(sample_of(&g, got, &e), FAK_OK);
    size_t n = (N + 1) * (size_t)g.V;
    assert_rows(got, want, n);
    for (size_t i = 0; i < g.V * sizeof *got; i++)
        assert_int_equal(((unsigned char *)(got + n))[i], 0x77);
    assert_int_equal(((unsigned char *)(got + n + g.V))[0], 0);
    engine_close(&g);
}

/* ---- errors while it runs ---- */

/* Prepares, loads and runs; what failed is told in *e. */
static int32_t run_all(const char *name, const char *options, fak_error *e)
{
    engine g;
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    engine_begin(&g, "tiny-f32.gguf", file_of(name), options);
    *e = (fak_error){0};
    int32_t s = engine_try(&g, &limits, 0, e);
    if (!s) s = sample_of(&g, got, e);
    engine_close(&g);
    return s;
}

static void test_errors_while_running(void **state)
{
    fak_error e;
    (void)state;
    assert_int_equal(run_all("late-unsupported", NULL, &e), FAK_E_UNSUPPORTED);
    assert_message(&e, "cannot after all");
    assert_int_equal(run_all("silent", "at=prepare", &e), FAK_E_MEMORY);
    assert_message(&e, "no sentence");
    assert_int_equal(e.code, FAK_E_MEMORY);
    assert_int_equal(run_all("silent", "at=nowhere", &e), FAK_OK);
    for (int silent = 0; silent < 2; silent++) {
        const char *name = silent ? "capacity-silent" : "capacity-liar";
        if (run_all(name, NULL, &e) == FAK_OK) fail_msg("%s was prepared", name);
        assert_message(&e, "CapacityProbe");
    }
}

/* The status is passed on with a sentence of ours, and nothing leaks. */
static void test_silent_errors(void **state)
{
    static const struct {
        const char *option;
        int32_t status;
    } at[] = {{"at=load", FAK_E_MEMORY},
              {"at=begin", FAK_E_KV_FULL},
              {"at=op", FAK_E_STEP},
              {"at=read", FAK_E_STEP},
              {"at=wait", FAK_E_STEP}};
    engine g;
    fak_error e;
    uint32_t from, to, token[2] = {1, 2};
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        assert_int_equal(run_all("silent", at[i].option, &e), at[i].status);
        assert_int_equal(e.code, at[i].status);
        assert_message(&e, "no sentence");
    }
    engine_open(&g, "tiny-f32.gguf", file_of("silent"), "at=clone", &limits, 0);
    assert_int_equal(kv_take(&g.kv, &from, &e), FAK_OK);
    engine_feed(&g, from, 0, token, 2, FAK_WANT_NONE, NULL);
    kv_extend(&g.kv, from, 2);
    assert_int_equal(kv_clone(&g.kv, from, 1, &to, &e), FAK_E_KV_FULL);
    assert_message(&e, "no sentence");
    engine_close(&g);
}

/* ---- those that need a process of their own ---- */

enum { REFUSED = 70, DONE = 77, FLUSHED = 78, ALIVE_S = 2 };

static int flushes(void)
{
    volatile float small = 0x1p-126f, half = 0.5f;
    return small * half == 0.0f;
}

/* In the child: no assertion of cmocka's; the parent looks at how it ends. */
static void use(const char *name, const tiny *t, int out)
{
    static const plugin_host host;
    static char block[1 << 14];
    static const int reset[] = {SIGSEGV, SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGALRM};
    plugins all;
    plugin *p;
    device d = {0}, h = {0};
    program run = {0};
    exec x = {0};
    fak_error e;
    const uint32_t token = 1, row = 0;
    fak_span span = {0, 0, 1, 0};
    step_spec spec = {FAK_WANT_LOGITS, 0, 1, 1, 1, &token, &row, &span};
    fak_limits limits = engine_limits(FAK_ACT_F32, FAK_F32);
    for (size_t i = 0; i < sizeof reset / sizeof *reset; i++) signal(reset[i], SIG_DFL);
    alarm(ALIVE_S);
    dup2(out, STDOUT_FILENO);
    if (plugins_open(&all, &(plugin_search){.only_file = file_of(name)}, &host, &e)) _exit(REFUSED);
    p = &all.at[0];
    plugin *ref = plugins_linked_in(&all, "cpu-ref");
    if (plugin_load(&all, p, &e) || plugin_load(&all, ref, &e) ||
        device_open(&d, p, 0, NULL, 0, &e) || device_open(&h, ref, 0, NULL, 0, &e))
        _exit(flushes() ? FLUSHED : REFUSED); /* who goes on with another computes as before */
    if (program_prepare(&run, &d, &h, &t->model, &limits, 0, &e) ||
        program_load(&run, NULL, NULL, &e) || exec_open(&x, &run, &e) ||
        exec_step(&x, step_write(block, &spec), got, &e))
        _exit(!strcmp(name, "ftz-op") || !flushes() ? REFUSED : FLUSHED); /* its op has run */
    exec_close(&x);
    program_close(&run);
    device_close(&d);
    _exit(flushes() ? FLUSHED : DONE);
}

/* How a child ends that uses the backend, and whether it has printed. */
static int fate(const char *name, const tiny *t, char *printed, size_t room)
{
    int status, out[2];
    size_t n = 0;
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) use(name, t, out[1]);
    close(out[1]);
    for (ssize_t got_now = 1; got_now > 0 && n + 1 < room; n += (size_t)got_now)
        if ((got_now = read(out[0], printed + n, room - 1 - n)) < 0) got_now = 0;
    printed[n] = 0;
    close(out[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_alone(void **state)
{
    static const struct {
        const char *name;
        int signal, exit;
        const char *prints;
    } row[] = {
        {"minor-0", 0, DONE, ""}, /* nothing happens to one that is well */
        {"ctor-sigill", SIGILL, 0, ""},
        {"ctor-sigsegv", SIGSEGV, 0, ""},
        {"ctor-exit-0", 0, 0, ""},
        {"ctor-exit-3", 0, 3, ""},
        {"ctor-hang", SIGALRM, 0, ""},
        {"entry-sigsegv", SIGSEGV, 0, ""},
        {"entry-exit-0", 0, 0, ""},
        {"entry-hang", SIGALRM, 0, ""},
        {"open-sigsegv", SIGSEGV, 0, ""},
        {"open-slow", SIGALRM, 0, ""},
        {"op-sigsegv", SIGSEGV, 0, ""},
        {"op-abort", SIGABRT, 0, ""},
        {"op-hang", SIGALRM, 0, ""},
        {"close-sigsegv", SIGSEGV, 0, ""},
        {"stdout-ctor", 0, DONE, "a word on stdout in a constructor"},
        {"stdout-open", 0, DONE, "a word on stdout in open"},
        {"stdout-op", 0, DONE, "a word on stdout in an op"},
#if defined __x86_64__ || defined __aarch64__
        {"ftz-ctor", 0, REFUSED, ""},
        {"ftz-count", 0, REFUSED, ""},
        {"ftz-info", 0, REFUSED, ""},
        {"ftz-open", 0, REFUSED, ""},
        {"ftz-prepare", 0, REFUSED, ""},
        {"ftz-load", 0, REFUSED, ""},
        {"ftz-op", 0, REFUSED, ""},
#endif
    };
    tiny t;
    char printed[4096];
    uint32_t alone = 0;
    (void)state;
    tiny_open(&t, "tiny-f32.gguf");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int status = fate(row[i].name, &t, printed, sizeof printed);
        int died = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (died != row[i].signal || (!died && WEXITSTATUS(status) != row[i].exit))
            fail_msg("%s: wait status %#x", row[i].name, (unsigned)status);
        if (row[i].prints[0] ? !strstr(printed, row[i].prints) : printed[0] != 0)
            fail_msg("%s prints \"%s\"", row[i].name, printed);
    }
    for (size_t i = 0; i < WRONG_ROWS; i++) alone += rows[i].alone != 0;
#if defined __x86_64__ || defined __aarch64__
    assert_int_equal(alone + 1, sizeof row / sizeof *row);
#endif
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_and_folder),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_borne),
        cmocka_unit_test(test_thread_outlives_plugin),
        cmocka_unit_test(test_wrong_bits),
        cmocka_unit_test(test_golden_finds),
        cmocka_unit_test(test_rows_beyond),
        cmocka_unit_test(test_errors_while_running),
        cmocka_unit_test(test_silent_errors),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
