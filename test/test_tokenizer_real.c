/* The tokenizer with a real vocabulary: the ids of tokenizer_smollm2.json, on which two other
 * tokenizers agree.  FAK_TEST_MODEL names SmolLM2's GGUF file; without it the test is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "../core/tokenizer.h"

static tokenizer *smollm2;

static int open_model(void **state)
{
    (void)state;
    fak_error e = {0};
    gguf *g = NULL;
    if (gguf_open(&g, getenv("FAK_TEST_MODEL"), &e) == FAK_OK) tokenizer_open(&smollm2, g, &e);
    gguf_close(g);
    if (!smollm2) print_error("%s\n", e.message);
    return smollm2 ? 0 : -1;
}

static int close_model(void **state)
{
    (void)state;
    tokenizer_close(smollm2);
    return 0;
}

static size_t read_hex(const char *hex, char *out)
{
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (char)strtoul(pair, NULL, 16);
    }
    return count;
}

static void assert_decodes(const token_ids *ids, const char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        size_t count;
        const char *token = tokenizer_token(smollm2, ids->id[i], &count);
        assert_non_null(token);
        assert_true(count <= bytes - at);
        assert_memory_equal(token, text + at, count);
        at += count;
    }
    assert_int_equal(at, bytes);
}

static void has_the_ids_of_others(void **state)
{
    (void)state;
    json_t *data = json_load_file(TEST_DATA "/tokenizer_smollm2.json", 0, NULL);
    const json_t *strings = json_object_get(data, "strings");
    assert_true(json_array_size(strings) > 0);
    for (size_t i = 0; i < json_array_size(strings); i++) {
        const json_t *row = json_array_get(strings, i), *expected = json_object_get(row, "ids");
        const char *hex = json_string_value(json_object_get(row, "hex"));
        fak_error e;
        token_ids ids = {0};
        char text[4096];
        assert_non_null(hex);
        assert_true(strlen(hex) / 2 < sizeof text);
        size_t bytes = read_hex(hex, text);
        assert_int_equal(tokenizer_encode(smollm2, text, bytes, &ids, &e), FAK_OK);
        for (size_t j = 0; j < ids.count || j < json_array_size(expected); j++) {
            json_int_t want = json_integer_value(json_array_get(expected, j));
            if (j >= ids.count || j >= json_array_size(expected) || ids.id[j] != want)
                fail_msg("row %zu, %s: id %zu differs", i, hex, j);
        }
        assert_decodes(&ids, text, bytes);
        token_ids_free(&ids);
    }
    json_decref(data);
}

static void knows_the_special_ids(void **state)
{
    (void)state;
    assert_int_equal(tokenizer_size(smollm2), 49152);
    assert_int_equal(tokenizer_bos(smollm2), 1);
    assert_int_equal(tokenizer_eos(smollm2), 2);
    assert_false(tokenizer_adds_bos(smollm2));
    assert_int_equal(tokenizer_find(smollm2, "<|im_start|>", 12), 1);
    for (uint32_t id = 0; id < 49152; id++) {
        assert_int_equal(tokenizer_is_end(smollm2, id), id == 0 || id == 2 || id == 4);
        assert_int_equal(tokenizer_is_special(smollm2, id), id < 17);
    }
}

/* Each token's bytes are found again as that token. */
static void finds_every_token(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < tokenizer_size(smollm2); id++) {
        size_t bytes;
        const char *text = tokenizer_token(smollm2, id, &bytes);
        assert_int_equal(tokenizer_find(smollm2, text, bytes), id);
    }
}

/* Bytes that the vocabulary lacks are left out, the others stay as they are. */
static void leaves_out_only_what_it_lacks(void **state)
{
    (void)state;
    fak_error e;
    token_ids ids = {0};
    char text[3 * 256], kept[3 * 256];
    size_t bytes = 0, missing = 0;
    for (unsigned b = 0; b < 256; b++) {
        if (tokenizer_has_byte(smollm2, (unsigned char)b)) {
            kept[bytes++] = 'x';
            kept[bytes++] = (char)b;
        } else {
            kept[bytes++] = 'x';
            missing++;
        }
        text[2 * b] = 'x';
        text[2 * b + 1] = (char)b;
    }
    assert_int_equal(missing, 21);
    assert_int_equal(tokenizer_encode(smollm2, text, 512, &ids, &e), FAK_OK);
    assert_decodes(&ids, kept, bytes);
    token_ids_free(&ids);
}

int main(void)
{
    const char *path = getenv("FAK_TEST_MODEL");
    if (!path || !*path) {
        printf("skipped: FAK_TEST_MODEL does not name SmolLM2-135M-Instruct.Q4_1.gguf\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_ids_of_others),
        cmocka_unit_test(knows_the_special_ids),
        cmocka_unit_test(finds_every_token),
        cmocka_unit_test(leaves_out_only_what_it_lacks),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
