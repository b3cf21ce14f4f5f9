// How numbers and axes read: the same as plots/numbers.py, and a test compares the two.

function short(value, digits = 3) {
  if (Number.isNaN(value) || value === undefined || value === null) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e").map(Number);
  if (mantissa === 0) return "0";
  return exponent >= -3 && exponent < 5 ? String(Number(value.toPrecision(digits))) : `${mantissa}e${exponent}`;
}

function ticks(low, high, log, most) {
  if (!log) return linearTicks(low, high, most);
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const powers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const within = (values) => values.filter((value) => value >= low && value <= high);
  for (const digits of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const inside = within(powers.flatMap((k) => digits.map((digit) => Number(`${digit}e${k}`))));
    if (inside.length <= most) return inside.length > 1 ? inside : linearTicks(low, high, most);
  }
  const stride = Math.ceil(within(powers.map((k) => Number(`1e${k}`))).length / most);
  return within(powers.filter((k) => k % stride === 0).map((k) => Number(`1e${k}`)));
}

function linearTicks(low, high, most) {
  const rough = high / most - low / most;
  if (!(rough > 1e-300 && rough < Infinity)) return [low];
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough * (1 - 1e-9));
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: Math.max(Math.min(last - first, most) + 1, 0) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
