/* Losses, gradients and moves of tiles of runs on linear predictors; built by `surefoot build`, called by _compiled.py.

   The runs of a tile stand innermost in memory, each number of all of them side by side: see _lanes.h. */

#include "_lanes.h"

#include <string.h>

enum { WIDTH = 16, PARTS = WIDTH / LANES, PIECE = 32 };

typedef struct {
    int64_t loss, tiles, blocks, features, rows; /* rows of a batch */
    double ridge;
    const double *A, *y, *start;
    double *points, *total, *gradients; /* (tiles, blocks, features, WIDTH) */
    double *told;                       /* loss, ‖g‖², size, δ, ‖x − x_1‖²: (5, tiles, WIDTH) */
    double *batch, *predictions;        /* room: (rows, features), (blocks, rows, WIDTH) */
} sweep;

/* Three sums Σ_j a[i·row + j·column] x[j] at a time fill the registers; four are two and two, since one alone waits. */
INLINE int together(int64_t left) { return left >= 3 && left != 4 ? 3 : left >= 2 ? 2 : 1; }

INLINE void sums(int count, lanes (*sum)[PARTS], const double *a, int64_t row, int64_t column, int64_t length,
                 const double *x) {
    EACH(i, count)
        EACH(q, PARTS) sum[i][q] = all(0.0);
    for (int64_t j = 0; j < length; j++, a += column, x += WIDTH)
        EACH(q, PARTS) {
            const lanes here = get(x + q * LANES);
            EACH(i, count) sum[i][q] = multiply_add(all(a[i * row]), here, sum[i][q]);
        }
}

/* Predictions of some rows by one block of a tile's points. */
INLINE void predict_some(int count, const double *A, int64_t features, const double *x, double *out) {
    lanes sum[3][PARTS];
    sums(count, sum, A, features, 1, features, x);
    EACH(i, count)
        EACH(q, PARTS) put(out + i * WIDTH + q * LANES, sum[i][q]);
}

static void predict(const double *A, int64_t rows, int64_t features, const double *x, double *out) {
    for (int64_t r = 0, count; r < rows; r += count) {
        count = together(rows - r);
        const double *a = A + r * features;
        double *o = out + r * WIDTH;
        if (count == 3) predict_some(3, a, features, x, o);
        else if (count == 2) predict_some(2, a, features, x, o);
        else predict_some(1, a, features, x, o);
    }
}

/* The gradients of some features, Aᵀ slopes + ridge·x; adds up their squares. */
INLINE void gradient_some(int count, const double *A, int64_t rows, int64_t features, const double *slopes,
                          double ridge, const double *x, double *out, lanes *squares) {
    lanes sum[3][PARTS];
    sums(count, sum, A, 1, features, rows, slopes);
    EACH(i, count)
        EACH(q, PARTS) {
            lanes g = sum[i][q];
            if (ridge) g = multiply_add(all(ridge), get(x + i * WIDTH + q * LANES), g);
            put(out + i * WIDTH + q * LANES, g);
            squares[q] = multiply_add(g, g, squares[q]);
        }
}

static void gradient(const double *A, int64_t rows, int64_t features, const double *slopes, double ridge,
                     const double *x, double *out, lanes *squares) {
    for (int64_t f = 0, count; f < features; f += count) {
        count = together(features - f);
        const double *here = x + f * WIDTH;
        double *o = out + f * WIDTH;
        if (count == 3) gradient_some(3, A + f, rows, features, slopes, ridge, here, o, squares);
        else if (count == 2) gradient_some(2, A + f, rows, features, slopes, ridge, here, o, squares);
        else gradient_some(1, A + f, rows, features, slopes, ridge, here, o, squares);
    }
}

/* Adds the losses of some rows to `sum`, and turns the predictions (blocks, rows, WIDTH) into slopes. */
INLINE void add_losses(int loss, int64_t blocks, int64_t rows, double *s, const double *y, const int64_t *which,
                       double share, lanes *sum) {
    for (int64_t r = 0; r < rows; r++)
        EACH(q, PARTS)
            sum[q] += row_loss(loss, blocks, s + r * WIDTH + q * LANES, rows * WIDTH, y[which ? which[r] : r], share);
}

static void losses_of(int64_t loss, int64_t blocks, int64_t rows, double *s, const double *y, const int64_t *which,
                      double share, lanes *sum) {
    if (loss == SQUARES) add_losses(SQUARES, 1, rows, s, y, which, share, sum);
    else if (loss == TWO_CLASSES) add_losses(TWO_CLASSES, 1, rows, s, y, which, share, sum);
    else add_losses(CLASSES, blocks, rows, s, y, which, share, sum);
}

/* The means of summed losses, with the penalty ridge/2 ‖x‖². */
static void put_means(const lanes *sum, int64_t rows, double ridge, const double *x, int64_t dimension, double *out) {
    lanes squares[PARTS] = {{0}};
    if (ridge)
        for (int64_t f = 0; f < dimension; f++)
            EACH(q, PARTS) {
                const lanes here = get(x + f * WIDTH + q * LANES);
                squares[q] = multiply_add(here, here, squares[q]);
            }
    EACH(q, PARTS) put(out + q * LANES, sum[q] / (double)rows + 0.5 * ridge * squares[q]);
}

/* Losses, gradients and their squared norms on a batch each: `which` are the rows of each tile. */
void surefoot_measure(const sweep *s, const int64_t *which) {
    const int64_t size = s->features * WIDTH, each = s->rows * WIDTH;
    for (int64_t tile = 0; tile < s->tiles; tile++, which += s->rows) {
        const double *x = s->points + tile * s->blocks * size;
        double *out = s->gradients + tile * s->blocks * size, *told = s->told + tile * WIDTH;
        lanes loss[PARTS] = {{0}}, squares[PARTS] = {{0}};
        for (int64_t r = 0; r < s->rows; r++)
            memcpy(s->batch + r * s->features, s->A + which[r] * s->features, (size_t)s->features * sizeof(double));
        for (int64_t k = 0; k < s->blocks; k++)
            predict(s->batch, s->rows, s->features, x + k * size, s->predictions + k * each);
        losses_of(s->loss, s->blocks, s->rows, s->predictions, s->y, which, 1.0 / (double)s->rows, loss);
        for (int64_t k = 0; k < s->blocks; k++)
            gradient(s->batch, s->rows, s->features, s->predictions + k * each, s->ridge, x + k * size, out + k * size,
                     squares);
        put_means(loss, s->rows, s->ridge, x, s->blocks * s->features, told);
        EACH(q, PARTS) put(told + s->tiles * WIDTH + q * LANES, squares[q]);
    }
}

/* total += factor·x, x −= size·g, and ‖x − x_1‖² before the move. */
void surefoot_move(const sweep *s, double factor) {
    const int64_t dimension = s->blocks * s->features, field = s->tiles * WIDTH;
    for (int64_t tile = 0; tile < s->tiles; tile++)
        for (int half = 0; half < 2; half++) { /* half of a tile's numbers stay in registers */
            lanes size[PARTS / 2], distance[PARTS / 2];
            double *told = s->told + tile * WIDTH + half * WIDTH / 2;
            EACH(q, PARTS / 2) size[q] = -get(told + 2 * field + q * LANES), distance[q] = all(0.0);
            for (int64_t f = 0; f < dimension; f++)
                EACH(q, PARTS / 2) {
                    const int64_t i = (tile * dimension + f) * WIDTH + half * WIDTH / 2 + q * LANES;
                    const lanes x = get(s->points + i), gap = x - s->start[f];
                    distance[q] = multiply_add(gap, gap, distance[q]);
                    put(s->total + i, multiply_add(all(factor), x, get(s->total + i)));
                    put(s->points + i, multiply_add(size[q], get(s->gradients + i), x));
                }
            EACH(q, PARTS / 2) put(told + 4 * field + q * LANES, distance[q]);
        }
}

/* The losses over all rows of A, (tiles, WIDTH); the rest of `s` is as above, with room for PIECE rows. */
void surefoot_losses(const sweep *s, double *out) {
    const int64_t size = s->features * WIDTH;
    for (int64_t tile = 0; tile < s->tiles; tile++) {
        const double *x = s->points + tile * s->blocks * size;
        lanes loss[PARTS] = {{0}};
        for (int64_t begin = 0; begin < s->rows; begin += PIECE) {
            const int64_t rows = s->rows - begin < PIECE ? s->rows - begin : PIECE;
            for (int64_t k = 0; k < s->blocks; k++)
                predict(s->A + begin * s->features, rows, s->features, x + k * size, s->predictions + k * rows * WIDTH);
            losses_of(s->loss, s->blocks, rows, s->predictions, s->y + begin, NULL, 1.0, loss);
        }
        put_means(loss, s->rows, s->ridge, x, s->blocks * s->features, out + tile * WIDTH);
    }
}
