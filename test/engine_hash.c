/* engine_hash MODELS_DIR [MODEL.gguf TOKENIZER.json]: prints what a whole run gives, as lines that
 * are the same on every machine: of each tiny model and act mode the FNV-1a hash of the bits of all
 * logits of a fixed list of ids, and 8 greedy ids; of the tokenizer a hash of the ids of fixed
 * strings.  With MODEL, SmolLM2's: the ids of every string of TOKENIZER.json, which must be as they
 * stand there, and 8 greedy ids after 5.  Exit status 1 and a sentence when something fails. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "../core/session.h"

enum { IDS = 24, NEW = 8, PATH_BYTES = 1024 };

static void must(int32_t s, const fak_error *e)
{
    if (!s) return;
    fflush(stdout);
    fprintf(stderr, "engine_hash: %s\n", e->message);
    exit(1);
}

/* ---- hashes: FNV-1a of 32-bit words, lowest byte first on every host ---- */

static const uint64_t begin = UINT64_C(0xcbf29ce484222325);

static void hash_word(uint64_t *h, uint32_t u)
{
    for (int i = 0; i < 4; i++) *h = (*h ^ (uint8_t)(u >> 8 * i)) * UINT64_C(0x100000001b3);
}

static void hash_floats(uint64_t *h, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], 4);
        hash_word(h, u);
    }
}

/* ---- the engine ---- */

typedef struct engine {
    plugins all;
    device device, host;
    gguf *file;
    tokenizer *tokenizer;
    model model;
} engine;

static void engine_open(engine *g, const char *path)
{
    fak_error e = {0};
    *g = (engine){0};
    must(plugins_open(&g->all, &(plugin_search){0}, &(plugin_host){0}, &e), &e);
    plugin *ref = plugins_linked_in(&g->all, "cpu-ref");
    must(plugin_load(&g->all, ref, &e), &e);
    must(device_open(&g->device, ref, 0, NULL, 0, &e), &e);
    must(device_open(&g->host, ref, 0, NULL, 0, &e), &e);
    must(gguf_open(&g->file, path, &e), &e);
    must(tokenizer_open(&g->tokenizer, g->file, &e), &e);
    must(model_open(&g->model, g->file, 0, 64, &e), &e);
}

static void engine_close(engine *g)
{
    model_close(&g->model);
    tokenizer_close(g->tokenizer);
    gguf_close(g->file);
    device_close(&g->host);
    device_close(&g->device);
    plugins_close(&g->all);
}

static void say_greedy(engine *g, const session_options *o, const uint32_t *prompt, uint32_t count)
{
    session s;
    fak_error e = {0};
    uint32_t slot;
    generation made = {.prompt = prompt, .prompt_count = count, .max_new = NEW};
    must(session_open(&s, &g->model, &g->device, &g->host, o, NULL, NULL, &e), &e);
    must(kv_take(&s.kv, &slot, &e), &e);
    must(session_generate(&s, slot, &made, &e), &e);
    for (size_t i = 0; i < made.ids.count; i++) printf("%s%" PRIu32, i ? "," : "", made.ids.id[i]);
    printf("\n");
    token_ids_free(&made.ids);
    session_close(&s);
}

/* All logits of IDS ids, fed 7 at a time, then the greedy ids after the first 5. */
static void say_tiny(engine *g, const char *name, uint32_t act)
{
    session s;
    session_options o = {.rows = 7, .wanted = 7, .act = act};
    fak_error e = {0};
    uint32_t id[IDS], slot, vocab = g->model.vocab;
    uint64_t h = begin;
    const char *mode = act == FAK_ACT_Q8 ? "q8" : "f32";
    float *logits = malloc(sizeof *logits * IDS * vocab);
    if (!logits) must(status_memory(&e, "the logits", 0), &e);
    for (uint32_t i = 0; i < IDS; i++) id[i] = (i * i * 31 + 7 * i + 5) % vocab;
    must(session_open(&s, &g->model, &g->device, &g->host, &o, NULL, NULL, &e), &e);
    must(kv_take(&s.kv, &slot, &e), &e);
    must(session_feed(&s, slot, id, IDS, FAK_WANT_LOGITS, 1, logits, &e), &e);
    session_close(&s);
    hash_floats(&h, logits, (size_t)IDS * vocab);
    free(logits);
    printf("logits %s act=%s %016" PRIx64 "\n", name, mode, h);
    printf("greedy %s act=%s ", name, mode);
    say_greedy(g, &o, id, 5);
}

/* ---- the tokenizer ---- */

static void hash_ids(uint64_t *h, const tokenizer *t, const char *text, size_t bytes)
{
    token_ids ids = {0};
    fak_error e = {0};
    must(tokenizer_encode(t, text, bytes, &ids, &e), &e);
    hash_word(h, (uint32_t)ids.count);
    for (size_t i = 0; i < ids.count; i++) hash_word(h, ids.id[i]);
    token_ids_free(&ids);
}

static void say_tokenizer(const tokenizer *t)
{
    static const char *const text[] = {
        "",
        " ",
        "Hello the world",
        "that was  for\tyou\n\n and\r\n",
        "it's I'LL we've 12345 3.14",
        "na\xc3\xafve caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac",
        "\xf0\x9f\x98\x80\xef\xbc\x91",
        "<|im_start|>user\nHello<|im_end|>\n<|endoftext|>",
        "\xff\xfe cut \xe6\x97 \xc3",
    };
    char bytes[512];
    uint64_t h = begin;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        hash_ids(&h, t, text[i], strlen(text[i]));
    for (uint32_t turn = 0, x = 1; turn < 64; turn++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            x = x * 1664525u + 1013904223u;
            bytes[i] = (char)(turn % 2 ? " aehiotw\n"[(x >> 24) % 9] : (char)(x >> 24));
        }
        hash_ids(&h, t, bytes, sizeof bytes);
    }
    printf("tokenizer tiny %016" PRIx64 "\n", h);
}

/* Bytes of hex digits. */
static size_t read_hex(const char *hex, char *text, size_t room)
{
    size_t n = 0;
    for (unsigned byte; n < room && sscanf(hex + 2 * n, "%2x", &byte) == 1; n++)
        text[n] = (char)byte;
    return n;
}

/* The strings of the file: as many as there are, and how many have other ids than there. */
static void say_strings(const tokenizer *t, const char *path)
{
    char text[4096];
    fak_error e = {0};
    uint64_t h = begin;
    size_t wrong = 0;
    json_t *data = json_load_file(path, 0, NULL), *strings = json_object_get(data, "strings");
    if (!json_array_size(strings))
        must(status_set(&e, STATUS_BAD_FILE, "%s: no strings", path), &e);
    for (size_t i = 0; i < json_array_size(strings); i++) {
        const json_t *row = json_array_get(strings, i), *expected = json_object_get(row, "ids");
        token_ids ids = {0};
        size_t bytes = read_hex(json_string_value(json_object_get(row, "hex")), text, sizeof text);
        must(tokenizer_encode(t, text, bytes, &ids, &e), &e);
        int differs = ids.count != json_array_size(expected);
        for (size_t j = 0; !differs && j < ids.count; j++)
            differs = json_integer_value(json_array_get(expected, j)) != ids.id[j];
        wrong += (size_t)differs;
        token_ids_free(&ids);
        hash_ids(&h, t, text, bytes);
    }
    printf("tokenizer smollm2 %016" PRIx64 "\n", h);
    if (wrong)
        status_set(&e, STATUS_BAD_FILE, "%zu of %zu strings have other ids than in %s", wrong,
                   json_array_size(strings), path);
    json_decref(data);
    must(wrong != 0, &e);
}

/* ---- in order ---- */

int main(int argc, char **argv)
{
    static const char *const names[] = {"f32",    "f16",  "bf16", "q8_0", "q4_0", "q4_1",
                                        "untied", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"};
    static const uint32_t acts[] = {FAK_ACT_F32, FAK_ACT_Q8};
    char path[PATH_BYTES];
    engine g;
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: engine_hash MODELS_DIR [MODEL.gguf TOKENIZER.json]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/tiny-%s.gguf", argv[1], names[i]);
        engine_open(&g, path);
        for (int a = 0; a < 2; a++) say_tiny(&g, names[i], acts[a]);
        if (i == 0) say_tokenizer(g.tokenizer);
        engine_close(&g);
    }
    if (argc < 4) return 0;
    engine_open(&g, argv[2]);
    say_strings(g.tokenizer, argv[3]);
    static const uint32_t prompt[] = {504, 3575, 282, 4649, 314}; /* The capital of France is */
    printf("greedy smollm2 ");
    say_greedy(&g, &(session_options){.context = 16}, prompt, 5);
    engine_close(&g);
    return 0;
}
