/* fuzz_tokenizer - any bytes encode with a tiny model's tokenizer, and decode back to themselves but
 * for bytes without a token; text in portions never splits a character. */
#include "../../core/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int holds)
{
    if (!holds) abort();
}

/* The tokenizers of both pre-tokenisers. */
static tokenizer *const *open_tokenizers(void)
{
    static const char *const path[] = {FUZZ_MODELS "/fuzz-smollm.gguf",
                                       FUZZ_MODELS "/fuzz-gpt-2.gguf"};
    static tokenizer *t[2];
    for (int i = 0; i < 2 && !t[i]; i++) {
        gguf *g = NULL;
        fak_error e;
        check(gguf_open(&g, path[i], &e) == FAK_OK && tokenizer_open(&t[i], g, &e) == FAK_OK);
        gguf_close(g);
    }
    return t;
}

/* The bytes of all ids, which are the text without bytes that have no token. */
static void decode(const tokenizer *t, const token_ids *ids, const uint8_t *data, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        size_t n;
        const char *token = tokenizer_token(t, ids->id[i], &n);
        check(ids->id[i] < tokenizer_size(t) && token != NULL);
        for (size_t k = 0; k < n; k++, at++) {
            while (at < bytes && !tokenizer_has_byte(t, data[at])) at++;
            check(at < bytes && data[at] == (uint8_t)token[k]);
        }
    }
    while (at < bytes && !tokenizer_has_byte(t, data[at])) at++;
    check(at == bytes);
}

/* What a stream writes is UTF-8, whatever the portions are. */
static void stream(const uint8_t *data, size_t bytes)
{
    text_stream s = {0};
    char out[3 * (256 + 4)];
    for (size_t at = 0, n; at <= bytes; at += n) {
        size_t part = bytes ? 1u + data[0] % 7u : 1, length, whole = 0;
        n = at == bytes ? 1 : part < bytes - at ? part : bytes - at;
        length = at == bytes ? text_stream_finish(&s, out)
                             : text_stream_push(&s, (const char *)data + at, n, out);
        check(length <= sizeof out);
        while (whole < length) {
            enum text_kind kind;
            whole += text_part(out + whole, length - whole, &kind);
            check(kind == TEXT_WHOLE);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tokenizer *const *t = open_tokenizers();
    char *exact = malloc(bytes ? bytes : 1), shown[TEXT_SHOW_ROOM];
    check(exact != NULL);
    if (bytes) memcpy(exact, data, bytes);
    for (int i = 0; i < 2; i++) {
        token_ids ids = {0}, again = {0};
        fak_error e;
        check(tokenizer_encode(t[i], exact, bytes, &ids, &e) == FAK_OK);
        decode(t[i], &ids, data, bytes);
        check(tokenizer_encode(t[i], exact, bytes, &again, &e) == FAK_OK);
        check(again.count == ids.count &&
              (!ids.count || !memcmp(again.id, ids.id, ids.count * sizeof *ids.id)));
        token_ids_free(&ids);
        token_ids_free(&again);
    }
    stream(data, bytes);
    check(strlen(text_show(shown, exact, bytes)) < sizeof shown);
    free(exact);
    return 0;
}
