/* Classifies the images of Fashion-MNIST with the exported MLP, one at a time, without allocating memory.
 *
 *     cc -I build examples/deploy/classify.c build/mlp.o -o build/classify
 *     build/classify build
 */
#include <stdio.h>

#include "mlp.h"

enum { PIXELS = 784, CLASSES = 10 };

static FILE *opened(const char *folder, const char *name) {
    char path[1024];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    return fopen(path, "rb");
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    FILE *images = opened(folder, "images.bin"), *labels = opened(folder, "labels.bin");
    if (images == NULL || labels == NULL) {
        fprintf(stderr, "there is no images.bin or labels.bin in %s\n", folder);
        return 1;
    }

    const char *error;
    mlp_model model;
    if (mlp_init(&model, &error) != MLP_OK) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }

    float x[PIXELS], scores[CLASSES];
    mlp_inputs inputs = {.x = x, .x_shape = {1, PIXELS}};
    mlp_outputs outputs = {.output_0 = scores};
    unsigned char workspace[4096];
    int64_t bytes;
    if (mlp_plan(&inputs, &outputs, &bytes, &error) != MLP_OK || bytes > (int64_t)sizeof workspace) {
        fprintf(stderr, "the workspace has too few bytes\n");
        return 1;
    }

    int count = 0, right = 0;
    unsigned char pixels[PIXELS], label;
    while (fread(pixels, 1, PIXELS, images) == PIXELS && fread(&label, 1, 1, labels) == 1) {
        for (int i = 0; i < PIXELS; i++) x[i] = (float)pixels[i] / 255;
        if (mlp_run(&model, &inputs, &outputs, workspace, sizeof workspace, &error) != MLP_OK) {
            fprintf(stderr, "%s\n", error);
            return 1;
        }
        int best = 0;
        for (int i = 1; i < CLASSES; i++) {
            if (scores[i] > scores[best]) best = i;
        }
        count += 1;
        right += best == label;
    }
    printf("%d of %d images are classified right\n", right, count);
    mlp_free(&model);
    fclose(images);
    fclose(labels);
    return 0;
}
