/* Arithmetic on one number of several runs at once, and the losses of rows, for _tiles.c and _newton.c.

   A vector of the processor holds the same number of LANES runs. Each run has a place of its own in it and never sees
   the others. Sums have one order, and every product or sum is rounded once, where it is written (-ffp-contract=off): a
   run's numbers are the same beside any other runs, for any number of tiles or threads, and on any machine. */

#include <stdint.h>

enum { LANES = 4 };
enum { SQUARES, TWO_CLASSES, CLASSES };

#define INLINE static inline __attribute__((always_inline))
#define EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++) /* unrolled: sums stay in registers */
typedef double lanes __attribute__((vector_size(32)));
typedef uint64_t bits __attribute__((vector_size(32)));
typedef double loose __attribute__((vector_size(32), aligned(8), may_alias));

INLINE lanes get(const double *place) { return *(const loose *)place; }
INLINE void put(double *place, lanes value) { *(loose *)place = value; }
INLINE lanes all(double value) { return (lanes){value, value, value, value}; }
INLINE lanes choose(bits where, lanes a, lanes b) { return (lanes)(((bits)a & where) | ((bits)b & ~where)); }

/* ab + c, rounded once. */
INLINE lanes multiply_add(lanes a, lanes b, lanes c) {
    EACH(i, LANES) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}

INLINE lanes root(lanes a) {
    EACH(i, LANES) a[i] = __builtin_sqrt(a[i]);
    return a;
}

/* e^x for x ≤ 0: 2^n e^r with |r| ≤ log(2)/2, whose Taylor series has fourteen terms. */
INLINE lanes exponential(lanes x) {
    static const double term[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                  1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    const lanes shift = all(0x1.8p52), least = all(-746.0); /* a number plus shift is rounded to a whole one */
    x = choose((bits)(x < least), least, x);
    const lanes n = multiply_add(x, all(0x1.71547652b82fep0), shift) - shift;
    const lanes r = multiply_add(n, all(-0x1.abc9e3b39803fp-56), multiply_add(n, all(-0x1.62e42fefa39efp-1), x));
    lanes sum = all(1.0 / 6227020800);
    for (int i = 0; i < 13; i++) sum = multiply_add(sum, r, all(term[i]));
    const lanes half = multiply_add(n, all(0.5), shift), rest = n - (half - shift) + shift; /* 2^n may be no number */
    const bits zero = (bits)shift - 1023;
    return sum * (lanes)(((bits)half - zero) << 52) * (lanes)(((bits)rest - zero) << 52);
}

/* log(1 + u) for u ≥ 0, with all digits of a small one: y = 1 + u is 2^e m, log m = 2 artanh((m − 1)/(m + 1)). */
INLINE lanes logarithm(lanes u) {
    const lanes y = 1.0 + u, lost = (u - (y - 1.0)) / y;
    const bits e = ((bits)y - 0x3fe6a09e667f3bcd) >> 52;
    const lanes m = (lanes)((bits)y - (e << 52)), s = (m - 1.0) / (m + 1.0), z = s * s;
    lanes sum = all(1.0 / 23);
    for (int i = 21; i > 0; i -= 2) sum = multiply_add(sum, z, all(1.0 / i));
    const lanes exponent = (lanes)(e | (bits)all(0x1p52)) - 0x1p52;
    return multiply_add(exponent, all(0x1.62e42fefa39efp-1), multiply_add(s + s, sum, lost));
}

/* The loss of a row for LANES runs. Its predictions, one a block, become the slopes of the loss times `share`. The
   probabilities of wrong classes are never the difference of others: small losses and slopes keep all their digits. */
INLINE lanes row_loss(int loss, int64_t blocks, double *s, int64_t apart, double target, double share) {
    if (loss == SQUARES) {
        const lanes gap = get(s) - target;
        put(s, gap * share);
        return 0.5 * gap * gap;
    }
    if (loss == TWO_CLASSES) {
        const double sign = 2.0 * target - 1.0;
        const lanes margin = get(s) * sign, none = {0};
        const bits is_right = (bits)(margin > 0.0);
        const lanes small = exponential(choose(is_right, -margin, margin));
        put(s, choose(is_right, small, all(1.0)) / (1.0 + small) * (-sign * share));
        return choose(is_right, none, -margin) + logarithm(small);
    }
    const int64_t label = (int64_t)target;
    const lanes right = get(s + label * apart);
    lanes top = get(s), own = {0}, wrong = {0};
    for (int64_t k = 1; k < blocks; k++) {
        const lanes other = get(s + k * apart);
        top = choose((bits)(other > top), other, top);
    }
    for (int64_t k = 0; k < blocks; k++) {
        const lanes chance = exponential(get(s + k * apart) - top);
        put(s + k * apart, chance);
        if (k == label) own = chance;
        else wrong += chance;
    }
    const lanes scale = share / (own + wrong); /* own is 1 exactly if the right class is on top */
    for (int64_t k = 0; k < blocks; k++) put(s + k * apart, get(s + k * apart) * scale);
    put(s + label * apart, -wrong * scale);
    return (top - right) + logarithm((own - 1.0) + wrong);
}
