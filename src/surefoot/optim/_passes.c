/* Passes over float32 arrays, at the speed of memory; built by `surefoot build`, called by native.py.

   A pass moves arrays in place, sums over their elements, or both. Sums have the same bits on every machine and for any
   number of threads: a row has sixteen sums in float, whatever the processor's width, rows are added up in double, a
   chunk at a time; every product or sum is rounded once, where it is written (-ffp-contract=off). A chunk is read as
   several streams side by side: one alone is limited by the processor's prefetching, which ends at every page. */

#include <stdint.h>
#include <string.h>

enum { ROW = 1 << 10, LANES = 8, BLOCK = 2 * LANES, OPERANDS = 4, NUMBERS = 6, MOST_STREAMS = 4 };
enum { SQUARES, ADD, LERP_SQUARES, LERP_ADD, ADAM, AVERAGED_ADAM, ADAM_OF_BATCH };

#define INLINE static inline __attribute__((always_inline))
typedef float lanes __attribute__((vector_size(32)));
typedef float loose __attribute__((vector_size(32), aligned(4), may_alias));

INLINE lanes get(const float *place) { return *(const loose *)place; }
INLINE void put(float *place, lanes value) { *(loose *)place = value; }

/* ab + c, rounded once: torch's a.add_(b, alpha=c) bit for bit. */
INLINE lanes multiply_add(lanes a, lanes b, lanes c) {
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}

INLINE lanes root(lanes a) {
    for (int i = 0; i < LANES; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
}

/* average += weight·(new − average); from the new side if the weight is large, so that a weight of 1 is exact. */
INLINE lanes lerp(lanes average, lanes new, float weight) {
    const lanes zero = {0}, change = new - average;
    return weight < 0.5f ? multiply_add(change, zero + weight, average) : multiply_add(change, zero + (weight - 1), new);
}

/* What a pass does to eight elements of its operands a; returns what it sums. */
INLINE lanes step(int pass, float *const *a, const float *number, int64_t i) {
    const lanes zero = {0};
    lanes x = get(a[0] + i);
    switch (pass) {
    case SQUARES: /* Σ a0² */
        return x * x;
    case ADD: /* a0 += scale·a1 */
        put(a[0] + i, multiply_add(get(a[1] + i), zero + number[0], x));
        return zero;
    case LERP_SQUARES: /* a0 += weight·(a1 − a0), Σ a0² */
        put(a[0] + i, x = lerp(x, get(a[1] + i), number[0]));
        return x * x;
    case LERP_ADD: /* a0 += weight·(a1 − a0), a2 += scale·a0 */
        put(a[0] + i, x = lerp(x, get(a[1] + i), number[0]));
        put(a[2] + i, multiply_add(x, zero + number[1], get(a[2] + i)));
        return zero;
    default: { /* v = a0, g = a1, direction = a2, m = a3 or g: Adam's moments, direction m/D with D = √v·correction + ε, Σ m²/D or Σ g²/D */
        lanes g = get(a[1] + i), m = g;
        put(a[0] + i, x = multiply_add(x, zero + number[0], g * g * number[1]));
        if (pass != ADAM) put(a[3] + i, m = lerp(get(a[3] + i), g, number[4]));
        const lanes metric = root(x) * number[2] + number[3], direction = m / metric;
        put(a[2] + i, direction);
        return pass == ADAM_OF_BATCH ? g * (g / metric) : m * direction;
    }
    }
}

INLINE float total(lanes a) { return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7])); }

INLINE double over(int pass, int streams, int writes, float *const *a, const float *number, int64_t size) {
    double sum = 0;
    const int64_t apart = size / ROW / streams * ROW;
    int64_t i = 0;
    while (i < apart) {
        lanes even[MOST_STREAMS] = {{0}}, odd[MOST_STREAMS] = {{0}};
        for (int64_t end = i + ROW; i < end; i += BLOCK)
            for (int k = 0; k < streams; k++) {
                even[k] += step(pass, a, number, i + k * apart);
                odd[k] += step(pass, a, number, i + k * apart + LANES);
            }
        for (int k = 0; k < streams; k++) sum += total(even[k] + odd[k]);
    }
    i *= streams;
    while (i < size) { /* what is left: row by row, the last one with zeros behind it */
        lanes even = {0}, odd = {0};
        const int64_t end = i + ROW < size ? i + ROW : size;
        for (; i + BLOCK <= end; i += BLOCK) {
            even += step(pass, a, number, i);
            odd += step(pass, a, number, i + LANES);
        }
        if (i < end) {
            const size_t bytes = (size_t)(end - i) * sizeof(float);
            float rest[OPERANDS][BLOCK] = {{0}}, *b[OPERANDS] = {rest[0], rest[1], rest[2], rest[3]};
            for (int k = 0; k < OPERANDS; k++)
                if (a[k]) memcpy(b[k], a[k] + i, bytes);
            even += step(pass, b, number, 0);
            odd += step(pass, b, number, LANES);
            for (int k = 0; k < OPERANDS; k++)
                if (writes >> k & 1) memcpy(a[k] + i, b[k], bytes);
            i = end;
        }
        sum += total(even + odd);
    }
    return sum;
}

/* Take part in a pass over `count` tensors. `table` holds their sizes, then the addresses of their operands, operand by
   operand; `writes` has a bit for each operand that the pass changes. Whoever raises `next` has the chunk of that number,
   and leaves its sum in `sums`. */
void surefoot_pass(int pass, int operands, int writes, int64_t count, const int64_t *table, const double *numbers,
                   double *sums, int64_t *next) {
    float number[NUMBERS];
    for (int k = 0; k < NUMBERS; k++) number[k] = (float)numbers[k];
    int64_t chunk = 0, mine = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    for (int64_t t = 0; t < count; t++)
        for (int64_t start = 0; start < table[t]; start += CHUNK, chunk++) {
            if (chunk != mine) continue;
            const int64_t size = table[t] - start < CHUNK ? table[t] - start : CHUNK;
            float *a[OPERANDS] = {0};
            for (int k = 0; k < operands; k++) a[k] = (float *)(intptr_t)table[count * (k + 1) + t] + start;
#define CASE(pass, streams) case pass: sums[chunk] = over(pass, streams, writes, a, number, size); break;
            switch (pass) { CASE(SQUARES, 4) CASE(ADD, 2) CASE(LERP_SQUARES, 2) CASE(LERP_ADD, 2) CASE(ADAM, 2) CASE(AVERAGED_ADAM, 2) CASE(ADAM_OF_BATCH, 2) }
            mine = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
        }
}
