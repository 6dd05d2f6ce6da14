/* test_probe - how a child ended becomes a sentence.  The children are shell scripts here; real plugins are
 * tried in test/wrong.py. */
#include "../core/port.h"
#include "../core/probe.h"
#include "../core/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], script[80];

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/fak-test-probe-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(script, sizeof script, "%s/child", folder);
    return 0;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static int unproven;

static void expect(const char *body, double seconds, const char *sentence)
{
    fak_error e = {0};
    FILE *out = fopen(script, "w");
    assert_non_null(out);
    fprintf(out, "#!/bin/sh\n%s\n", body);
    fclose(out);
    assert_int_equal(chmod(script, 0700), 0);
    int32_t s = probe_run(script, "/some/file.so", seconds, unproven, &e);
    if (!sentence) {
        if (s) fail_msg("refused: %s", e.message);
        return;
    }
    assert_int_equal(s, STATUS_REFUSED);
    assert_string_equal(e.message, sentence);
}

static void test_answers(void **state)
{
    (void)state;
    expect("echo clean", 10, NULL);
    expect("echo stage loading; echo noise; echo clean", 10, NULL);
    expect("test \"$*\" = 'probe-backend /some/file.so' && echo clean", 10, NULL);
    unproven = 1;
    expect("test \"$*\" = 'probe-backend /some/file.so --unproven' && echo clean", 10, NULL);
    unproven = 0;
    expect("echo stage loading; echo 'refused the card is full'", 10, "the card is full");
    expect("echo clean; echo 'refused after all'", 10, "after all");
}

static void test_ends(void **state)
{
    (void)state;
    expect("exit 0", 10, "it ended the process with status 0 while starting");
    expect("echo stage loading; exit 3", 10, "it ended the process with status 3 while loading");
    expect("echo stage loading; kill -SEGV $$", 10, "it crashed (SIGSEGV) while loading");
    expect("echo stage loading; echo stage opening device 0; kill -ILL $$", 10,
           "it crashed (SIGILL) while opening device 0");
    expect("echo clean; exit 1", 10, "it ended the process with status 1 while starting");
    expect("echo clean; kill -ABRT $$", 10, "it crashed (SIGABRT) while starting");
}

static void test_hangs(void **state)
{
    double start = port_seconds();
    (void)state;
    expect("echo stage loading; exec sleep 60", 1.5,
           "it did not answer within 1.5 s while loading");
    expect("echo clean; exec >&-; exec sleep 60", 1.5,
           "it did not answer within 1.5 s while starting");
    assert_true(port_seconds() - start < 20);
}

/* A child of the child that keeps the pipe open is killed too. */
static void test_grandchild(void **state)
{
    char alive[192];
    (void)state;
    snprintf(alive, sizeof alive, "sleep 60 & echo $! > %s/pid; echo clean", folder);
    expect(alive, 1.5, "it did not answer within 1.5 s while starting");
    snprintf(
        alive, sizeof alive,
        "sleep 0.2; s=$(cut -d' ' -f3 /proc/$(cat %s/pid)/stat 2>/dev/null); test \"${s:-Z}\" = Z",
        folder); /* gone, or nobody has asked for its end yet */
    assert_int_equal(system(alive), 0);
}

static void test_much_output(void **state)
{
    (void)state;
    expect("head -c 300000 /dev/zero; echo; echo clean", 10,
           "it ended the process with status 0 while starting"); /* what matters was cut off */
}

static void test_cannot_start(void **state)
{
    fak_error e = {0};
    (void)state;
    assert_int_equal(probe_run("/nonexistent/fakrun", "x", 5, 0, &e), STATUS_REFUSED);
    assert_string_equal(e.message, "it could not be tried: No such file or directory");
    snprintf(script, sizeof script, "%s/child", folder);
    FILE *out = fopen(script, "w");
    assert_non_null(out);
    fputs("this is no program\n", out);
    fclose(out);
    assert_int_equal(chmod(script, 0700), 0);
    assert_int_equal(probe_run(script, "x", 5, 0, &e),
                     FAK_E_UNSUPPORTED); /* as under an emulator */
    assert_string_equal(e.message, "it could not be tried: Exec format error");
}

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void test_verdicts(void **state)
{
    char file[96], cache[96], command[512];
    (void)state;
    snprintf(file, sizeof file, "%s/fak-backend-x.so", folder);
    snprintf(cache, sizeof cache, "%s/a/b/cache", folder);
    write_file(file, "one");
    assert_false(verdict_is_clean(cache, file, ""));
    verdict_keep(cache, file, "");
    assert_true(verdict_is_clean(cache, file, ""));
    assert_false(verdict_is_clean(NULL, file, ""));
    assert_false(verdict_is_clean(cache, file, "threads=2"));
    write_file(file, "other"); /* another size and time: another file */
    assert_false(verdict_is_clean(cache, file, ""));
    verdict_keep(cache, file, "");
    assert_true(verdict_is_clean(cache, file, ""));
    snprintf(command, sizeof command, "cp -p '%s' '%s.copy' && mv '%s.copy' '%s'", file, file, file,
             file);
    assert_int_equal(system(command), 0); /* the same bytes and time, another inode */
    assert_false(verdict_is_clean(cache, file, ""));
    verdict_keep(cache, file, "");
    snprintf(command, sizeof command, "for f in '%s'/fak/artefacts/*; do echo x > $f; done", cache);
    assert_int_equal(system(command), 0); /* damage is no verdict */
    assert_false(verdict_is_clean(cache, file, ""));
    unlink(file);
    assert_false(verdict_is_clean(cache, file, ""));
    verdict_keep(cache, file, "");           /* gone: nothing happens */
    verdict_keep("/proc/nowhere", file, ""); /* cannot be written: nothing happens */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),     cmocka_unit_test(test_ends),
        cmocka_unit_test(test_hangs),       cmocka_unit_test(test_grandchild),
        cmocka_unit_test(test_much_output), cmocka_unit_test(test_cannot_start),
        cmocka_unit_test(test_verdicts),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
