/* Newton's method for proximal points of the cross entropy, with the formulas of _logistic_prox.py; built by
   `surefoot build`, called by _compiled.py. LANES runs of a tile stand side by side: see _lanes.h. */

#include "_lanes.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t runs, blocks, rows, width, steps, halvings; /* width: columns of L */
    double tolerance;                                   /* of ‖∇P‖², relative to `before` */
    const int64_t *tile;                                /* of each run; those of one tile are neighbours */
    const double *L, *labels;                           /* (tiles, rows, width), (tiles, rows) */
    const double *weight, *damped, *before, *start;     /* start: predictions (runs, blocks, rows) */
    double *v, *loss, *norm;                            /* (runs, blocks, width), (runs), (runs); v is also read */
} newton;

typedef struct {
    int loss;
    int64_t blocks, rows, width;
    const double *L, *labels;
    double *narrow; /* L/√rows */
    lanes weight, damped;
    lanes *predictions, *slopes, *reach, *found, *found_slopes; /* (blocks, rows) */
    lanes *v, *gradient, *step;                                 /* (blocks, width) */
    lanes *factor;                                              /* (blocks, width, width) */
    lanes *columns;                                             /* (blocks, width, rows + 1) */
    lanes *small;                                               /* (rows + 1, rows) */
} group;

static lanes evaluate(const group *g, const lanes *predictions, lanes *slopes) {
    lanes sum = {0};
    memcpy(slopes, predictions, (size_t)(g->blocks * g->rows) * sizeof(lanes));
    for (int64_t r = 0; r < g->rows; r++) {
        double *s = (double *)(slopes + r);
        const double share = 1.0 / (double)g->rows;
        if (g->loss == TWO_CLASSES) sum += row_loss(TWO_CLASSES, 1, s, 0, g->labels[r], share);
        else sum += row_loss(CLASSES, g->blocks, s, g->rows * LANES, g->labels[r], share);
    }
    return sum / (double)g->rows;
}

static lanes dot(const lanes *a, const lanes *b, int64_t length) {
    lanes sum = {0};
    for (int64_t i = 0; i < length; i++) sum = multiply_add(a[i], b[i], sum);
    return sum;
}

/* out[j] += Σ_r V[r] L[r·apart + j], four at a time: their sums stay in registers. */
static void add_rows(int64_t count, lanes *out, const lanes *V, const double *L, int64_t apart, int64_t rows) {
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) {
        lanes sum[4] = {out[j], out[j + 1], out[j + 2], out[j + 3]};
        for (int64_t r = 0; r < rows; r++) {
            const lanes here = V[r];
            EACH(k, 4) sum[k] = multiply_add(here, all(L[r * apart + j + k]), sum[k]);
        }
        EACH(k, 4) out[j + k] = sum[k];
    }
    for (; j < count; j++) {
        lanes sum = out[j];
        for (int64_t r = 0; r < rows; r++) sum = multiply_add(V[r], all(L[r * apart + j]), sum);
        out[j] = sum;
    }
}

/* slopes L + c v; returns its squared norm. */
static lanes find_gradient(const group *g) {
    for (int64_t k = 0; k < g->blocks; k++) {
        lanes *out = g->gradient + k * g->width;
        for (int64_t i = 0; i < g->width; i++) out[i] = g->weight * g->v[k * g->width + i];
        add_rows(g->width, out, g->slopes + k * g->rows, g->L, g->width, g->rows);
    }
    return dot(g->gradient, g->gradient, g->blocks * g->width);
}

/* The lower triangle of a matrix by its factor C with CCᵀ = a; on the diagonal stands 1/C. Further rows of a are
   multiplied by C⁻ᵀ. Pivots are at least `least`: what rounding has made of a smaller one says nothing. */
static void factorise(lanes *a, int64_t size, int64_t height, lanes least) {
    for (int64_t j = 0; j < size; j++) {
        const lanes pivot = a[j * size + j], inverse = 1.0 / root(choose((bits)(pivot < least), least, pivot));
        a[j * size + j] = inverse;
        for (int64_t i = j + 1; i < height; i++) a[i * size + j] *= inverse;
        for (int64_t i = j + 1; i < height; i++) {
            const lanes here = -a[i * size + j];
            const int64_t end = i < size - 1 ? i : size - 1;
            for (int64_t t = j + 1; t <= end; t++) a[i * size + t] = multiply_add(here, a[t * size + j], a[i * size + t]);
        }
    }
}

/* b ← C⁻ᵀ b, for the factor of a matrix. */
static void solve_back(const lanes *a, int64_t size, lanes *b) {
    for (int64_t i = size - 1; i >= 0; i--) {
        b[i] *= a[i * size + i];
        for (int64_t j = 0; j < i; j++) b[j] = multiply_add(-a[i * size + j], b[i], b[j]);
    }
}

/* out[i] −= Σ_t a[t·step] b[t·apart + i], likewise. */
static void subtract(int64_t count, lanes *out, const lanes *a, int64_t step, const lanes *b, int64_t apart,
                     int64_t length) {
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        lanes sum[4] = {out[i], out[i + 1], out[i + 2], out[i + 3]};
        for (int64_t t = 0; t < length; t++) {
            const lanes here = -a[t * step];
            EACH(k, 4) sum[k] = multiply_add(here, b[t * apart + i + k], sum[k]);
        }
        EACH(k, 4) out[i + k] = sum[k];
    }
    for (; i < count; i++) {
        lanes sum = out[i];
        for (int64_t t = 0; t < length; t++) sum = multiply_add(-a[t * step], b[t * apart + i], sum);
        out[i] = sum;
    }
}

/* −H⁻¹∇P. With B_k = C_kC_kᵀ, W_k = C_k⁻¹V_k and u_k = C_k⁻¹∇_k it is −C_k⁻ᵀ(u_k + W_k y), (I − Σ WᵀW) y = Σ Wᵀu. */
static void find_step(const group *g) {
    const int64_t blocks = g->blocks, rows = g->rows, width = g->width, wide = rows + 1;
    for (int64_t i = 0; i < wide; i++)
        for (int64_t r = 0; r < rows; r++) g->small[i * rows + r] = all(i == r);
    for (int64_t k = 0; k < blocks; k++) {
        lanes *B = g->factor + k * width * width, *W = g->columns + k * width * wide;
        for (int64_t r = 0; r < rows; r++) {
            lanes chance = g->slopes[k * rows + r] * (double)rows;
            if (blocks == 1) chance = choose((bits)(chance < 0.0), -chance, chance), chance *= 1.0 - chance;
            else if (k == (int64_t)g->labels[r]) chance += 1.0;
            for (int64_t i = 0; i < width; i++) W[i * wide + r] = chance * g->narrow[r * width + i];
        }
        for (int64_t i = 0; i < width; i++) {
            for (int64_t j = 0; j <= i; j++) B[i * width + j] = i == j ? g->damped : all(0.0);
            add_rows(i + 1, B + i * width, W + i * wide, g->narrow, width, rows);
            W[i * wide + rows] = g->gradient[k * width + i];
        }
        factorise(B, width, width, 0x1p-52 * g->damped);
        const int64_t from = blocks == 1 ? rows : 0; /* two classes have no V */
        for (int64_t i = 0; i < width; i++) {
            subtract(wide - from, W + i * wide + from, B + i * width, 1, W + from, wide, i);
            for (int64_t r = from; r < wide; r++) W[i * wide + r] *= B[i * width + i];
        }
        for (int64_t r = 0; r < wide && blocks > 1; r++)
            subtract(r < rows ? r + 1 : rows, g->small + r * rows, W + r, wide, W, wide, width);
    }
    lanes *y = g->small + rows * rows; /* −y, after its two triangular systems */
    if (blocks > 1) {
        factorise(g->small, rows, wide, all(0x1p-52));
        solve_back(g->small, rows, y);
    }
    for (int64_t k = 0; k < blocks; k++) {
        const lanes *W = g->columns + k * width * wide;
        lanes *step = g->step + k * width;
        for (int64_t i = 0; i < width; i++) {
            step[i] = -W[i * wide + rows];
            if (blocks > 1) step[i] += dot(W + i * wide, y, rows);
        }
        solve_back(g->factor + k * width * width, width, step);
    }
    for (int64_t i = 0; i < width && blocks > 1; i++) { /* the loss does not change if all classes move alike */
        lanes mean = {0};
        for (int64_t k = 0; k < blocks; k++) mean += g->step[k * width + i];
        mean /= (double)blocks;
        for (int64_t k = 0; k < blocks; k++) g->step[k * width + i] -= mean;
    }
}

/* Move by the largest of 1, ½, ¼, … steps that lowers P enough; returns it, 0 where rounding leaves no gain. */
static lanes search(group *g, lanes *loss, bits active, int64_t halvings) {
    const int64_t size = g->blocks * g->width, length = g->blocks * g->rows;
    for (int64_t k = 0; k < g->blocks; k++)
        for (int64_t r = 0; r < g->rows; r++) {
            lanes sum = {0};
            for (int64_t i = 0; i < g->width; i++)
                sum = multiply_add(all(g->L[r * g->width + i]), g->step[k * g->width + i], sum);
            g->reach[k * g->rows + r] = sum;
        }
    const lanes cross = dot(g->v, g->step, size), square = dot(g->step, g->step, size), none = {0};
    const lanes value = *loss + 0.5 * g->weight * dot(g->v, g->v, size);
    const lanes slack = 0x1p-49 * choose((bits)(value < 0.0), -value, value); /* of eight units in the last place */
    lanes scale = all(1.0), found;
    for (int64_t turn = 0;; turn++) {
        for (int64_t i = 0; i < length; i++) g->found[i] = multiply_add(scale, g->reach[i], g->predictions[i]);
        found = evaluate(g, g->found, g->found_slopes);
        const lanes change = found - *loss + g->weight * scale * (cross + 0.5 * scale * square);
        const bits bad = ~(bits)(change <= slack - 1e-4 * scale * g->weight * square) & active;
        if (!(bad[0] | bad[1] | bad[2] | bad[3])) break;
        if (turn == halvings) {
            scale = choose(bad, none, scale);
            break;
        }
        scale = choose(bad, 0.5 * scale, scale);
    }
    for (int64_t i = 0; i < size; i++) g->v[i] = multiply_add(scale, g->step[i], g->v[i]);
    lanes *const predictions = g->predictions, *const slopes = g->slopes;
    g->predictions = g->found, g->slopes = g->found_slopes, g->found = predictions, g->found_slopes = slopes;
    *loss = found;
    return scale;
}

static void solve(const newton *n, group *g, int64_t first, int count) {
    const int64_t size = g->blocks * g->width, length = g->blocks * g->rows;
    lanes before, loss;
    bits active;
    EACH(i, LANES) {
        const int64_t run = first + (i < count ? i : 0); /* places that are left over repeat the first run */
        g->weight[i] = n->weight[run], g->damped[i] = n->damped[run], before[i] = n->before[run];
        active[i] = i < count ? ~(uint64_t)0 : 0;
        for (int64_t j = 0; j < length; j++) g->predictions[j][i] = n->start[run * length + j];
        for (int64_t j = 0; j < size; j++) g->v[j][i] = n->v[run * size + j];
    }
    loss = evaluate(g, g->predictions, g->slopes);
    for (int64_t step = 0; step < n->steps; step++) {
        const lanes norm = find_gradient(g);
        for (int i = 0; i < count; i++)
            if (active[i]) {
                n->loss[first + i] = loss[i], n->norm[first + i] = norm[i];
                for (int64_t j = 0; j < size; j++) n->v[(first + i) * size + j] = g->v[j][i];
            }
        active &= (bits)(norm > n->tolerance * before) & (bits)(norm <= 0x1.fffffffffffffp1023);
        if (!(active[0] | active[1] | active[2] | active[3])) return;
        find_step(g);
        active &= (bits)(search(g, &loss, active, n->halvings) > 0.0);
    }
}

/* The minimisers v of P for some runs, with losses and ‖∇P‖² there; 1 if there is no memory. */
int surefoot_newton(const newton *n) {
    const int64_t length = n->blocks * n->rows, size = n->blocks * n->width, wide = n->rows + 1;
    const int64_t counts[] = {length, length, length, length, length, size, size, size, size * n->width, size * wide,
                              wide * n->rows};
    group g = {.loss = n->blocks == 1 ? TWO_CLASSES : CLASSES, .blocks = n->blocks, .rows = n->rows, .width = n->width};
    lanes **const parts[] = {&g.predictions, &g.slopes, &g.reach, &g.found, &g.found_slopes, &g.v, &g.gradient, &g.step,
                             &g.factor, &g.columns, &g.small};
    size_t total = 0;
    for (int i = 0; i < 11; i++) total += (size_t)counts[i];
    total += (size_t)(n->rows * n->width) / LANES + 1;
    lanes *const room = aligned_alloc(sizeof(lanes), total * sizeof(lanes));
    if (!room) return 1;
    lanes *next = room;
    for (int i = 0; i < 11; i++) *parts[i] = next, next += counts[i];
    g.narrow = (double *)next;
    const double narrow = __builtin_sqrt(1.0 / (double)n->rows);
    for (int64_t first = 0, count; first < n->runs; first += count) {
        const int64_t tile = n->tile[first];
        for (count = 1; count < LANES && first + count < n->runs && n->tile[first + count] == tile;) count++;
        g.L = n->L + tile * n->rows * n->width, g.labels = n->labels + tile * n->rows;
        for (int64_t i = 0; i < n->rows * n->width; i++) g.narrow[i] = narrow * g.L[i];
        solve(n, &g, first, (int)count);
    }
    free(room);
    return 0;
}
