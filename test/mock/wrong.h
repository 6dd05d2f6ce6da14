/* wrong - backends that are each wrong in one way, and where that must be caught.  One row a file
 * fak-backend-NAME.so in the folder TEST_WRONG: those named fault-... are builds of handshake.c,
 * those of stage UNFIT of unfit.c, the others of wrong.c.  test/wrong.py and test/test_opcheck.py
 * read this table too.
 *
 * WRONG(symbol, name, stage, alone, part, what): `alone`: needs a child process, for it takes the
 * process with it, or its time, or its float mode; part: of the sentence that tells it, in opcheck
 * with the check before it ("manners, locale: not what it was ..."). */
#ifndef WRONG_H
#define WRONG_H

enum wrong_stage {      /* the first that must catch it */
    STAGE_FINE,         /* nothing to catch: it loads, opens and computes */
    STAGE_NOTE,         /* by reading the file */
    STAGE_LIBRARY,      /* dlopen */
    STAGE_HANDSHAKE,    /* plugin_load: the entry and its table */
    STAGE_OPEN,         /* device_open: devices, facts, caps */
    STAGE_GOLDEN,       /* the golden bits of a Reference claim */
    STAGE_RUN,          /* prepare, load or a step answers an error; the host tells it */
    STAGE_OPCHECK,      /* opcheck; nothing that a user sees must come of it */
    STAGE_UNFIT         /* opcheck; what comes of it at other times, nobody knows */
};

/* clang-format off */
#define WRONG_TABLE(WRONG)                                                                         \
    /* crashes and waits */                                                                        \
    WRONG(ctor_sigill, "ctor-sigill", STAGE_LIBRARY, 1, "SIGILL", "SIGILL in a constructor")       \
    WRONG(ctor_sigsegv, "ctor-sigsegv", STAGE_LIBRARY, 1, "SIGSEGV", "SIGSEGV in a constructor")   \
    WRONG(ctor_exit_0, "ctor-exit-0", STAGE_LIBRARY, 1, "ended the process with status 0",         \
          "exit(0) in a constructor")                                                              \
    WRONG(ctor_exit_3, "ctor-exit-3", STAGE_LIBRARY, 1, "ended the process with status 3",         \
          "exit(3) in a constructor")                                                              \
    WRONG(ctor_hang, "ctor-hang", STAGE_LIBRARY, 1, "did not answer within",                       \
          "never leaves its constructor")                                                          \
    WRONG(entry_sigsegv, "entry-sigsegv", STAGE_HANDSHAKE, 1, "SIGSEGV", "SIGSEGV in the entry")   \
    WRONG(entry_exit_0, "entry-exit-0", STAGE_HANDSHAKE, 1, "ended the process with status 0",     \
          "exit(0) in the entry")                                                                  \
    WRONG(entry_hang, "entry-hang", STAGE_HANDSHAKE, 1, "did not answer within",                   \
          "never leaves the entry")                                                                \
    WRONG(open_sigsegv, "open-sigsegv", STAGE_OPEN, 1, "SIGSEGV", "SIGSEGV in open")               \
    WRONG(open_slow, "open-slow", STAGE_OPEN, 1, "did not answer within", "sleeps 30 s in open")   \
    WRONG(op_sigsegv, "op-sigsegv", STAGE_GOLDEN, 1, "SIGSEGV", "SIGSEGV in MATMUL")               \
    WRONG(op_abort, "op-abort", STAGE_GOLDEN, 1, "SIGABRT", "abort() in MATMUL")                   \
    WRONG(op_hang, "op-hang", STAGE_GOLDEN, 1, "did not answer within", "never leaves MATMUL")     \
    WRONG(close_sigsegv, "close-sigsegv", STAGE_GOLDEN, 1, "SIGSEGV", "SIGSEGV in close")          \
    /* files that the loader refuses */                                                            \
    WRONG(missing_library, "missing-library", STAGE_LIBRARY, 0, "libwrong-gone.so.7",              \
          "needs a library that is not there")                                                     \
    WRONG(big_tls, "big-tls", STAGE_LIBRARY, 0, "static TLS",                                      \
          "64 KiB of initial-exec thread-local storage")                                           \
    WRONG(fault_undefined, "fault-undefined", STAGE_LIBRARY, 0, "handshake_undefined",             \
          "calls a function that nobody defines")                                                  \
    /* what the file claims */                                                                     \
    WRONG(next_major, "next-major", STAGE_NOTE, 0, "built for ABI 2.0",                            \
          "note and entry are of major 2")                                                         \
    WRONG(note_name, "note-name", STAGE_NOTE, 0, "another", "its note says another name")          \
    WRONG(note_cpu, "note-cpu", STAGE_NOTE, 0, "x86-64-v9",                                        \
          "its note asks for a CPU of the future")                                                 \
    WRONG(note_class, "note-class", STAGE_OPEN, 0, "class",                                        \
          "its note says Reference, its device Approx")                                            \
    WRONG(fault_no_entry, "fault-no-entry", STAGE_HANDSHAKE, 0, "no symbol fak_backend_entry_v1",  \
          "exports another symbol")                                                                \
    /* growth: all of them are fine */                                                             \
    WRONG(minor_0, "minor-0", STAGE_FINE, 0, "", "of minor 0, as this host")                       \
    WRONG(minor_99, "minor-99", STAGE_FINE, 0, "",                                                 \
          "of minor 99: tables and elements of arrays have grown")                                 \
    WRONG(huge_sizes, "huge-sizes", STAGE_FINE, 0, "", "struct_size says 2^31 in table and facts") \
    WRONG(any_id, "any-id", STAGE_FINE, 0, "", "the id of its device is not UTF-8")                \
    WRONG(fault_good, "fault-good", STAGE_FINE, 0, "", "the honest build of handshake.c; not run") \
    WRONG(f32_only, "f32-only", STAGE_FINE, 0, "",                                                 \
          "a card of class Reference without Q8: never picked, for the text would be another")     \
    WRONG(short_facts, "short-facts", STAGE_OPEN, 0, "described in 16 bytes",                      \
          "facts that end before the op table")                                                    \
    /* manners that the host can bear */                                                           \
    WRONG(clash, "clash", STAGE_FINE, 0, "", "exports functions named as the host's")              \
    WRONG(tls_destructor, "tls-destructor", STAGE_OPCHECK, 0, "thread exit: code of it",           \
          "a destructor of its own runs at the exit of each thread that called it")                \
    WRONG(at_exit, "at-exit", STAGE_OPCHECK, 0, "exit handlers: code of it",                       \
          "registers an exit handler in open")                                                     \
    WRONG(stdout_ctor, "stdout-ctor", STAGE_LIBRARY, 1, "prints to standard output",               \
          "prints to stdout in a constructor")                                                     \
    WRONG(stdout_open, "stdout-open", STAGE_OPEN, 1, "prints to standard output",                  \
          "prints to stdout in open")                                                              \
    WRONG(stdout_op, "stdout-op", STAGE_GOLDEN, 1, "prints to standard output",                    \
          "prints to stdout in MATMUL")                                                            \
    WRONG(ftz_ctor, "ftz-ctor", STAGE_LIBRARY, 1, "float", "flush-to-zero in a constructor")       \
    WRONG(ftz_count, "ftz-count", STAGE_OPEN, 1, "float", "flush-to-zero in device_count")         \
    WRONG(ftz_info, "ftz-info", STAGE_OPEN, 1, "float", "flush-to-zero in device_info")            \
    WRONG(ftz_open, "ftz-open", STAGE_OPEN, 1, "float", "flush-to-zero in open")                   \
    WRONG(ftz_prepare, "ftz-prepare", STAGE_GOLDEN, 1, "mode in prepare",                          \
          "flush-to-zero in prepare")                                                              \
    WRONG(ftz_load, "ftz-load", STAGE_GOLDEN, 1, "mode in load", "flush-to-zero in load")          \
    WRONG(ftz_op, "ftz-op", STAGE_GOLDEN, 1, "float", "flush-to-zero in MATMUL")                   \
    /* claims */                                                                                   \
    WRONG(class_liar, "class-liar", STAGE_GOLDEN, 0, "claims class reference, but op",             \
          "says Reference, and its GLU is the C library's, in another order")                      \
    WRONG(wrong_bit, "wrong-bit", STAGE_GOLDEN, 0, "claims class reference, but op",               \
          "the last bit of one element of op ID is wrong; option op=ID (3, MATMUL)")               \
    WRONG(nan_writer, "nan-writer", STAGE_GOLDEN, 0, "NaN",                                        \
          "one element of op ID is a NaN; option op=ID (3, MATMUL)")                               \
    WRONG(ffn_silent, "ffn-silent", STAGE_OPEN, 0, "FusedFFN", "offers FFN without the cap")       \
    WRONG(memory_silent, "memory-silent", STAGE_FINE, 0, "",                                       \
          "neither a host view nor the cap DeviceMemory")                                          \
    WRONG(capacity_liar, "capacity-liar", STAGE_RUN, 0, "CapacityProbe",                           \
          "the cap CapacityProbe, and a dry run that is not EXACT")                                \
    WRONG(capacity_silent, "capacity-silent", STAGE_RUN, 0, "CapacityProbe",                       \
          "a dry run that is EXACT without the cap")                                               \
    WRONG(sync_async, "sync-async", STAGE_OPCHECK, 0, "blocked",                                   \
          "the cap Async, and every op blocks until it is done")                                   \
    WRONG(lying_capacity, "lying-capacity", STAGE_OPCHECK, 0, "prepare took",                      \
          "EXACT, and takes twice the scratch that it reports")                                    \
    WRONG(step_allocates, "step-allocates", STAGE_OPCHECK, 0, "took device memory",                \
          "allocates device memory in each op")                                                    \
    /* errors while it runs */                                                                     \
    WRONG(silent, "silent", STAGE_RUN, 0, "no sentence",                                           \
          "an error without a sentence; option at=prepare|load|begin|op|read|write|wait|clone")    \
    WRONG(late_unsupported, "late-unsupported", STAGE_RUN, 0, "cannot after all",                  \
          "answers UNSUPPORTED for an op that it took")                                            \
    WRONG(rows_beyond, "rows-beyond", STAGE_OPCHECK, 0, "outside the",                             \
          "read writes one row too many")                                                          \
    /* what only opcheck finds: builds of unfit.c */                                               \
    WRONG(fat_argmax, "fat-argmax", STAGE_UNFIT, 0, "moved",                                       \
          "counts a row of logits for each id that is read")                                       \
    WRONG(stale_src, "stale-src", STAGE_UNFIT, 0, "where the reference gives",                     \
          "write keeps the pointer of src and copies when an op runs")                             \
    WRONG(keeps_step, "keeps-step", STAGE_UNFIT, 0, "where the reference gives",                   \
          "begin keeps the pointer of the step")                                                   \
    WRONG(keeps_plan, "keeps-plan", STAGE_UNFIT, 0, "where the reference gives",                   \
          "prepare keeps the pointer of the plan")                                                 \
    WRONG(borrow_stale, "borrow-stale", STAGE_UNFIT, 0, "where the reference gives",               \
          "uses borrowed bytes after load, although not STABLE")                                   \
    WRONG(leaks_memory, "leaks-memory", STAGE_UNFIT, 0, "host memory grows by",                    \
          "release forgets memory of prepare")                                                     \
    WRONG(leaks_thread, "leaks-thread", STAGE_UNFIT, 0, "threads: ",                               \
          "a thread that close does not join")                                                     \
    WRONG(leaks_file, "leaks-file", STAGE_UNFIT, 0, "open files grows by",                         \
          "a file that close does not close")                                                      \
    WRONG(sets_locale, "sets-locale", STAGE_UNFIT, 0, "locale: not what it was",                   \
          "setlocale in open")                                                                     \
    WRONG(sets_env, "sets-env", STAGE_UNFIT, 0, "environment variables: not what it was",          \
          "setenv in open")                                                                        \
    WRONG(sets_folder, "sets-folder", STAGE_UNFIT, 0, "working directory: not what it was",        \
          "chdir in open")                                                                         \
    WRONG(sets_signal, "sets-signal", STAGE_UNFIT, 0, "signal handlers: not what it was",          \
          "signal in open")                                                                        \
    WRONG(sets_umask, "sets-umask", STAGE_UNFIT, 0, "file mode mask: not what it was",             \
          "umask in open")                                                                         \
    WRONG(leaves_child, "leaves-child", STAGE_UNFIT, 0, "child processes: ", "fork in open")       \
    WRONG(stderr_op, "stderr-op", STAGE_UNFIT, 0, "prints to standard error",                      \
          "prints to stderr in MATMUL")                                                            \
    WRONG(ignores_flags, "ignores-flags", STAGE_UNFIT, 0, "flag of prepare: it is ignored",        \
          "prepare ignores flags that it does not know")                                           \
    WRONG(takes_unknown, "takes-unknown", STAGE_UNFIT, 0, "an unknown dtype: it is ignored",       \
          "takes weights of dtypes that it does not know")                                         \
    WRONG(silent_malloc, "silent-malloc", STAGE_UNFIT, 0, "fails once: allocation",                \
          "an error without a sentence when malloc fails")                                         \
    WRONG(crash_malloc, "crash-malloc", STAGE_UNFIT, 0, "fails once, number",                      \
          "crashes when malloc fails")                                                             \
    WRONG(loses_memory, "loses-memory", STAGE_UNFIT, 0, "bytes of host memory are lost",           \
          "forgets what it has when malloc fails")                                                 \
    WRONG(drops_error, "drops-error", STAGE_UNFIT, 0, "fails and nothing is told",                 \
          "load succeeds although the row source fails")                                           \
    WRONG(dry_differs, "dry-differs", STAGE_UNFIT, 0, "its dry run reports",                       \
          "half the scratch in a dry run")                                                         \
    WRONG(upload_liar, "upload-liar", STAGE_UNFIT, 0, "that it keeps in its own form",             \
          "keeps Q8_0, as F32")                                                                    \
    WRONG(not_invariant, "not-invariant", STAGE_UNFIT, 0, "it offers batch invariance",            \
          "the last bit depends on how many rows a step has")                                      \
    WRONG(not_deterministic, "not-deterministic", STAGE_UNFIT, 0, "it offers determinism",         \
          "the last bit is another in every second step")                                          \
    WRONG(clone_shares, "clone-shares", STAGE_UNFIT, 0, "clone, f32: ", "a clone is an alias")     \
    WRONG(evict_off, "evict-off", STAGE_UNFIT, 0, "evict, f32: ",                                  \
          "survivors of an eviction are not rotated")                                              \
    WRONG(last_position, "last-position", STAGE_UNFIT, 0, "where the reference gives",             \
          "kv of the last position of a step is lost")                                             \
    WRONG(nan_leak, "nan-leak", STAGE_UNFIT, 0, "is nan where the reference gives",                \
          "NaNs beyond the end of a sequence reach it")                                            \
    WRONG(leaves_ffn, "leaves-ffn", STAGE_UNFIT, 0, "leaves every case of it to the host",         \
          "lists FFN and never takes it")                                                          \
    WRONG(takes_option, "takes-option", STAGE_UNFIT, 0, "an option that it does not have",         \
          "opens with any option")                                                                 \
    WRONG(idle_fault, "idle-fault", STAGE_UNFIT, 0, "makes nothing fail",                          \
          "its option fail-submit does nothing")                                                   \
    WRONG(lost_again, "lost-again", STAGE_UNFIT, 0, "a lost device computes again",                \
          "is lost for one step only")                                                             \
    WRONG(no_id, "no-id", STAGE_UNFIT, 0, "has no id", "its device has no id")                     \
    /* what its table says: builds of handshake.c */                                               \
    WRONG(fault_entry_refuses, "fault-entry-refuses", STAGE_HANDSHAKE, 0, "no dot products",       \
          "the entry refuses")                                                                     \
    WRONG(fault_entry_silent, "fault-entry-silent", STAGE_HANDSHAKE, 0, "it refused to load",      \
          "the entry refuses without a sentence")                                                  \
    WRONG(fault_no_table, "fault-no-table", STAGE_HANDSHAKE, 0, "0 bytes", "no table")             \
    WRONG(fault_short_table, "fault-short-table", STAGE_HANDSHAKE, 0, "64 bytes", "a short table") \
    WRONG(fault_needs_newer_host, "fault-needs-newer-host", STAGE_HANDSHAKE, 0, "needs ABI 1.3",   \
          "asks for a later host")                                                                 \
    WRONG(fault_wrong_name, "fault-wrong-name", STAGE_HANDSHAKE, 0, "calls itself another",        \
          "another name inside")                                                                   \
    WRONG(fault_null_name, "fault-null-name", STAGE_HANDSHAKE, 0, "no name", "no name")            \
    WRONG(fault_null_version, "fault-null-version", STAGE_HANDSHAKE, 0, "version", "no version")   \
    WRONG(fault_null_vendor, "fault-null-vendor", STAGE_HANDSHAKE, 0, "vendor", "no vendor")       \
    WRONG(fault_null_info, "fault-null-info", STAGE_HANDSHAKE, 0, "device_info", "NULL slot")      \
    WRONG(fault_null_open, "fault-null-open", STAGE_HANDSHAKE, 0, "no open", "NULL slot")          \
    WRONG(fault_null_prepare, "fault-null-prepare", STAGE_HANDSHAKE, 0, "prepare", "NULL slot")    \
    WRONG(fault_null_release, "fault-null-release", STAGE_HANDSHAKE, 0, "release", "NULL slot")    \
    WRONG(fault_null_load, "fault-null-load", STAGE_HANDSHAKE, 0, "no load", "NULL slot")          \
    WRONG(fault_null_begin, "fault-null-begin", STAGE_HANDSHAKE, 0, "begin", "NULL slot")          \
    WRONG(fault_null_read, "fault-null-read", STAGE_HANDSHAKE, 0, "read", "NULL slot")             \
    WRONG(fault_null_write, "fault-null-write", STAGE_HANDSHAKE, 0, "write", "NULL slot")          \
    WRONG(fault_op_stride, "fault-op-stride", STAGE_HANDSHAKE, 0, "op table", "a small stride")    \
    WRONG(fault_option_table, "fault-option-table", STAGE_HANDSHAKE, 0, "option table", "NULL")    \
    WRONG(fault_no_ops, "fault-no-ops", STAGE_HANDSHAKE, 0, "neither ops nor run", "no ops")       \
    WRONG(fault_graph_liar, "fault-graph-liar", STAGE_HANDSHAKE, 0, "GraphCompile", "no run")      \
    WRONG(fault_graph_silent, "fault-graph-silent", STAGE_HANDSHAKE, 0, "GraphCompile", "no cap")  \
    WRONG(fault_async_liar, "fault-async-liar", STAGE_HANDSHAKE, 0, "Async", "no wait")            \
    WRONG(fault_async_silent, "fault-async-silent", STAGE_HANDSHAKE, 0, "Async", "no cap")         \
    WRONG(fault_no_device, "fault-no-device", STAGE_OPEN, 0, "no such card", "no device")          \
    WRONG(fault_no_device_silent, "fault-no-device-silent", STAGE_OPEN, 0, "does not say why",     \
          "no device, no sentence")                                                                \
    WRONG(fault_info_silent, "fault-info-silent", STAGE_OPEN, 0, "does not say",                   \
          "device_info fails without a sentence")                                                  \
    WRONG(fault_unknown_kind, "fault-unknown-kind", STAGE_OPEN, 0, "kind 99", "an unknown kind")   \
    WRONG(fault_open_fails, "fault-open-fails", STAGE_OPEN, 0, "the card is full", "open fails")   \
    WRONG(fault_open_silent, "fault-open-silent", STAGE_OPEN, 0, "does not open",                  \
          "open fails without a sentence")                                                         \
    WRONG(fault_no_facts, "fault-no-facts", STAGE_OPEN, 0, "without its facts", "no facts")        \
    WRONG(fault_unknown_class, "fault-unknown-class", STAGE_OPEN, 0, "class", "class 7")           \
    WRONG(fault_unknown_caps, "fault-unknown-caps", STAGE_OPEN, 0, "unknown caps", "caps")         \
    WRONG(fault_unknown_numerics, "fault-unknown-numerics", STAGE_OPEN, 0, "numerics", "numerics") \
    WRONG(fault_more_than_backend, "fault-more-than-backend", STAGE_OPEN, 0, "more than",          \
          "a device that widens its backend")                                                      \
    WRONG(fault_no_act, "fault-no-act", STAGE_OPEN, 0, "no activation mode", "no act mode")        \
    WRONG(fault_device_stride, "fault-device-stride", STAGE_OPEN, 0, "op table", "small stride")   \
    WRONG(fault_bounds, "fault-bounds", STAGE_OPEN, 0, "bounds", "NULL bounds")                    \
    WRONG(fault_unlisted_op, "fault-unlisted-op", STAGE_OPEN, 0, "does not list", "unlisted op")   \
    WRONG(fault_later_revision, "fault-later-revision", STAGE_OPEN, 0, "does not list",            \
          "revision")                                                                              \
    WRONG(fault_null_call, "fault-null-call", STAGE_OPEN, 0, "no function", "an op without call")  \
    WRONG(fault_caps_attn, "fault-caps-attn", STAGE_OPEN, 0, "FusedAttn", "cap without ATTENTION") \
    WRONG(fault_attn_silent, "fault-attn-silent", STAGE_OPEN, 0, "FusedAttn", "no cap")            \
    WRONG(fault_caps_ffn, "fault-caps-ffn", STAGE_OPEN, 0, "FusedFFN", "cap without FFN")          \
    WRONG(fault_host_view, "fault-host-view", STAGE_OPEN, 0, "DeviceMemory", "cap and view")       \
    WRONG(fault_collective, "fault-collective", STAGE_OPEN, 0, "collectives", "a reserved cap")
/* clang-format on */

#define WRONG_ID(symbol, name, stage, alone, part, what) WRONG_##symbol,
enum wrong_id { WRONG_TABLE(WRONG_ID) WRONG_ROWS };

typedef struct wrong_row {
    const char *name;
    enum wrong_stage stage;
    int alone;
    const char *part, *what;
} wrong_row;
#define WRONG_ROW(symbol, name, stage, alone, part, what) {name, stage, alone, part, what},
#endif
