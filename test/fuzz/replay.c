/* replay - a fuzz program without libFuzzer: runs every file of the folders given, so that what once
 * was found stays found in every build.  usage: replay FOLDER... */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { INPUT_MAX = 1 << 20 };

static void run_file(const char *path, uint8_t *data)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "replay: cannot open %s\n", path);
        exit(1);
    }
    size_t bytes = fread(data, 1, INPUT_MAX, f);
    fclose(f);
    uint8_t *exact = malloc(bytes ? bytes : 1); /* sanitizers see what is read beyond it */
    if (!exact) exit(1);
    for (size_t i = 0; i < bytes; i++) exact[i] = data[i];
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

int main(int argc, char **argv)
{
    int files = 0;
    uint8_t *data = malloc(INPUT_MAX);
    for (int i = 1; data && i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) fprintf(stderr, "replay: cannot open %s\n", argv[i]);
        for (struct dirent *d; folder && (d = readdir(folder));) {
            char path[1024];
            if (d->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], d->d_name);
            run_file(path, data);
            files++;
        }
        if (folder) closedir(folder);
    }
    free(data);
    printf("%d inputs\n", files);
    return !files;
}
