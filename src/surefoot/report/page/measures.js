// Which rates hold, measured and predicted, for the switches as they stand: the rules of surefoot.study.Sensitivity,
// here a second time only because D moves while nobody but the browser is there. A test compares the two.

// One row a method: loss, bound, and what follows from them.
function measure(study, view) {
  const data = view.data === "valid" ? "valid" : "train";
  const start = Number(study.start[data]);
  const slack = slackOf(study, data);
  const losses = study.loss[data === "valid" ? "valid" : view.kind];
  const bias = biasOf(study, view);
  return study.methods.map((method, m) => {
    const noise = study.noise[view.kind][view.index][m];
    const bound = noise.map((value, l) => value + bias[l]);
    const safeNoise = study.noise[view.kind].safe[m];
    const safe = apart(noise, safeNoise) ? safeNoise.map((value, l) => value + bias[l]) : null;
    return { method, bias, noise, bound, safe, safeNoise, mean: losses.mean[m], low: losses.low[m], high: losses.high[m],
      ...sensitivity(study.lrs, known(losses.mean[m]), known(bound), start, slack) };
  });
}

// How far above the best loss still holds. Where the means of all runs are above the start, only the best one does.
function slackOf(study, data) {
  return study.tolerance * Math.max(Number(study.start[data]) - Number(study.lowest[data]), 0);
}

// What has to be added to the bound before it stands over the loss: with D it is on f − f⋆.
function offsetOf(study, view) {
  return view.bias === "distance" && study.optimum.known ? Number(study.lowest.train) : 0;
}

// Whether two rows of numbers differ by more than rounding.
function apart(one, other) {
  return one.some((value, l) => Math.abs(value - other[l]) > 1e-6 * Math.abs(other[l]));
}

const least = (values) => values.reduce((a, b) => (b < a ? b : a), Infinity);
const most = (values) => values.reduce((a, b) => (b > a ? b : a), -Infinity);

// D enters the bound only here.
function biasOf(study, view) {
  return view.bias === "envelope" ? study.envelope : study.biasOfOne.map((one) => one * view.distance * view.distance);
}

function sensitivity(lrs, loss, bound, start, slack) {
  const measured = windowOf(loss, slack);
  const predicted = windowOf(bound, slack);
  let both = 0;
  let either = 0;
  for (let l = 0; l < lrs.length; l++) {
    const inMeasured = l >= measured.low && l <= measured.high;
    const inPredicted = l >= predicted.low && l <= predicted.high;
    both += inMeasured && inPredicted;
    either += inMeasured || inPredicted;
  }
  const best = least(loss);
  const capped = Array.from(loss, (value) => Math.min(value, start));
  const excess = capped.reduce((sum, value) => sum + value, 0) / capped.length - least(capped);
  const bestRate = best < Infinity ? lrs[loss.indexOf(best)] : NaN;
  const boundValue = least(bound);
  const boundRate = boundValue < Infinity ? lrs[bound.indexOf(boundValue)] : NaN;
  return {
    measured: ends(lrs, measured), predicted: ends(lrs, predicted), both, either, overlap: either ? both / either : 0,
    best, bestRate, boundValue, boundRate, excess,
    correlation: rankCorrelation(loss, bound), minimisers: Math.abs(Math.log10(boundRate) - Math.log10(bestRate)),
  };
}

const known = (values) => values.map((value) => (Number.isNaN(value) ? Infinity : value));

// The unbroken range of good rates around the best one, as positions; empty if nothing is finite.
function windowOf(values, slack) {
  const lowest = least(values);
  const best = values.indexOf(lowest);
  const good = (l) => values[l] < Infinity && values[l] <= lowest + slack;
  if (best < 0 || !good(best)) return { low: 0, high: -1 };
  let [low, high] = [best, best];
  while (low > 0 && good(low - 1)) low--;
  while (high < values.length - 1 && good(high + 1)) high++;
  return { low, high };
}

function ends(lrs, { low, high }) {
  if (high < low) return { low: NaN, high: NaN, decades: -Infinity, edges: [false, false] };
  return { low: lrs[low], high: lrs[high], decades: Math.log10(lrs[high]) - Math.log10(lrs[low]), edges: [low === 0, high === lrs.length - 1] };
}

function rankCorrelation(one, other) {
  const [a, b] = [centredRanks(one), centredRanks(other)];
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b)); // NaN where one of them is constant
}

// Equal values share their mean rank.
function centredRanks(values) {
  const order = Array.from(values, (_, i) => i).sort((i, j) => (values[i] < values[j] ? -1 : values[i] > values[j] ? 1 : 0));
  const ranks = new Float64Array(values.length);
  for (let first = 0, next = 0; first < order.length; first = next) {
    while (next < order.length && values[order[next]] === values[order[first]]) next++;
    for (let i = first; i < next; i++) ranks[order[i]] = (first + next + 1) / 2 - (values.length + 1) / 2;
  }
  return Array.from(ranks);
}
