// The plots of a study. Each takes the page's state and draws itself anew.

const HEADROOM = 10; // times the loss at the start: what lies above is marked at the upper edge
const REACHED = 1e6; // times the loss at the start: so far up the axis follows a bound, and no further
const DEPTH = 1e-10; // times the loss at the start: what lies below is marked at the lower edge
const CROSS = (r) => `M${-r},${-r}L${r},${r}M${-r},${r}L${r},${-r}`;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

const least = (values) => values.reduce((a, b) => (b < a ? b : a), Infinity);
const most = (values) => values.reduce((a, b) => (b > a ? b : a), -Infinity);
const inside = (values, low, high) => values.filter((value) => value > low && value <= high);

// Within what a floating-point number can hold, so that its logarithm exists.
const holdable = (value) => Math.min(Math.max(value, 1e-323), 1.7e308);
const widened = (low, high, factor) => (low < high ? [low / factor, high * factor] : [low / 3, high * 3]).map(holdable);

function rateAxis({ lrs }) {
  const decades = Math.log10(lrs.at(-1)) - Math.log10(lrs[0]);
  return { label: "learning rate α", log: true, domain: widened(lrs[0], lrs.at(-1), 10 ** Math.min(0.03 * decades, 3)) };
}

// The bound over the loss, as drawn: D enters only here, and what bounds f − f⋆ gets f⋆ added.
function boundOf({ study, view }, m, index = view.index) {
  const { noise, biasOfOne, biasFree, lowest } = study.bound;
  const kind = view.loss === "average" ? "average" : "last";
  const offset = view.bias === "distance" ? lowest ?? 0 : 0;
  const bias = view.bias === "distance" ? biasOfOne[m].map((one) => one * view.distance ** 2) : biasFree[m];
  return { offset, bias, noise: noise[kind][index][m], total: noise[kind][index][m].map((value, l) => value + bias[l] + offset) };
}

// What is drawn of the methods that are not hidden; the safe bound only where it differs.
function shown(page) {
  const { losses } = page.study.views[page.view.loss];
  return page.study.methods.map((method, m) => ({ method, m })).filter(({ m }) => !page.hidden.has(m)).map(({ method, m }) => {
    const [bound, safe] = [boundOf(page, m), boundOf(page, m, "safe")];
    const apart = bound.noise.some((value, l) => Math.abs(value - safe.noise[l]) > 1e-6 * Math.abs(safe.noise[l]));
    return { method, m, bound, safe: apart ? safe : null, mean: losses.mean[m], low: losses.low[m], high: losses.high[m] };
  });
}

// What the loss axis is measured by; a start at a minimum, or at no number, has no logarithm.
function yardstick({ study, view }) {
  const { start, losses } = study.views[view.loss];
  return start > 0 && start < Infinity ? start : Math.max(most(losses.mean.flat().filter((value) => value < Infinity)), 1);
}

function drawLoss(page) {
  const { study, view } = page;
  const [start, drawn, host] = [yardstick(page), shown(page), byId("loss")];
  const lowests = drawn.map((row) => least(row.bound.total)).filter((value) => value < Infinity);
  // The axis follows the lowest point of every bound, so that D does not move one out of sight.
  const top = Math.min(Math.max(HEADROOM * start, 3 * most(lowests)), REACHED * start);
  const low = least([start, ...drawn.flatMap((row) => inside([...row.mean, ...row.low, ...row.bound.total], DEPTH * start, start))]);
  const plot = plotOn(host, {
    x: rateAxis(study), y: { log: true, domain: [low / 2, top].map(holdable) }, height: host.clientWidth < 600 ? 300 : 400,
    label: "Loss and bound against the learning rate. Arrow keys walk over the points, Enter picks one.",
  });
  plot.root.tabIndex = 0;
  plot.root.setAttribute("role", "application");
  levelOn(plot, start, "loss at the start");
  if (study.bound.lowest !== null && view.loss !== "valid") levelOn(plot, study.bound.lowest, "f⋆, the infimum");
  for (const row of drawn) bandOn(plot, study.lrs, row.low, row.high, row.method);
  for (const row of drawn) {
    lineOn(plot, study.lrs, row.bound.total, row.method, "bound");
    if (row.safe) lineOn(plot, study.lrs, row.safe.total, row.method, "safe");
  }
  for (const row of drawn) {
    lineOn(plot, study.lrs, row.mean, row.method, "loss");
    drawPoints(page, plot, row, drawn.indexOf(row) - (drawn.length - 1) / 2);
  }
  const off = drawn.filter((row) => !(least(row.bound.total) < plot.yDomain[1]));
  byId("off").hidden = !off.length;
  byId("off").textContent = off.map(({ method, bound }) =>
    `The bound of ${method.label} ${least(bound.total) < Infinity ? `lies above this axis: at least ${short(least(bound.total))}` : "is infinite at every rate"}.`).join(" ");
  page.lossPlot = plot;
  showCursor(page);
}

function drawPoints(page, plot, row, side) {
  const { lrs } = page.study;
  const radius = Math.min(4.2, Math.max(2, plot.width / lrs.length / 4));
  row.mean.forEach((value, l) => {
    const picked = page.placeOf(row.m, l) >= 0;
    if (Number.isNaN(value)) return;
    const [above, below] = [value > plot.yDomain[1], value < plot.yDomain[0]];
    const x = plot.px(lrs[l]) + (above || below ? side * 6 : 0); // points at an edge stand side by side
    const y = above ? plot.top + 5 : below ? plot.bottom - 5 : plot.py(value);
    if (picked) coloured(svg("circle", { cx: x, cy: y, r: 9, class: "picked-ring" }, plot.over), row.method);
    // Diverged: a cross. Off the scale: a triangle that points there.
    const shape = value === Infinity ? CROSS(radius) : above ? MARKS["^"](radius) : below ? MARKS.v(radius) : markOf(row.method, radius);
    const kind = value === Infinity ? " lost" : above || below ? " edge" : "";
    const mark = coloured(svg("path", { d: shape, transform: `translate(${x},${y})`, class: `mark${kind}` }, plot.over), row.method);
    mark.dataset.point = `${row.m},${l}`;
    plot.hits.push({ x, y, m: row.m, l, picked, words: pointWords(page, row, l), act: () => page.pick(row.m, l) });
  });
}

function pointWords({ study }, row, l) {
  const sum = ({ bias, noise, offset, total }) =>
    `bound ${short(total[l])} = ${offset ? `f⋆ ${short(offset)} + ` : ""}bias ${short(bias[l])} + noise ${short(noise[l])}`;
  const spread = row.low[l] < row.high[l] ? ` (${short(row.low[l])} to ${short(row.high[l])})` : "";
  return [`${row.method.label}, α = ${short(study.lrs[l])}`, row.mean[l] < Infinity ? `loss ${short(row.mean[l])}${spread}` : "diverged",
    sum(row.bound), ...(row.safe ? [`safe index: ${sum(row.safe)}`] : [])];
}

// The point that the arrow keys have reached.
function showCursor({ cursor, lossPlot }) {
  if (document.activeElement !== lossPlot.root) return;
  const hit = cursor && lossPlot.hits.find((each) => each.m === cursor.m && each.l === cursor.l);
  lossPlot.point(hit ? [hit] : []);
}

// The picked runs in one of the traces: the line is the mean of some steps, the band holds most of them.
function drawTrace(page, id, name, label, top, level) {
  const { study, picks } = page;
  const { steps, safe } = study.traces;
  const lines = picks.map(({ m, l }) => {
    const [mean, low, high] = name === "delta" && page.view.index === "safe" && safe[m] ? safe[m][l] : study.traces[name][m][l];
    return { m, l, method: study.methods[m], mean, low, high, safe: name === "delta" && page.view.index === "model" && safe[m] ? safe[m][l][0] : null };
  });
  const seen = [...(level ? [level] : []), ...lines.flatMap(({ mean }) => inside(mean, 0, top).map((value) => 2 * value))];
  const lowest = least(lines.flatMap(({ mean }) => inside(mean, 0, top))) / 4; // the shade may reach further down
  const high = seen.length ? most(seen) : 1;
  const plot = plotOn(byId(id), {
    x: { label: "step t", log: false, domain: [0, Math.max(study.steps - 1, 1)] },
    y: { log: true, domain: widened(Math.max(Math.min(lowest, high), high * DEPTH), high, 1) }, label,
  });
  if (level) levelOn(plot, level, `D = ${short(level)}`, "level strong");
  for (const line of lines) bandOn(plot, steps, line.low, line.high, line.method);
  for (const { m, l, method, mean, safe: dotted } of lines) {
    if (dotted) lineOn(plot, steps, dotted, method, "safe");
    lineOn(plot, steps, mean, method, "trace", page.dashOf({ m, l })).dataset.run = `${m},${l}`;
    mean.forEach((value, i) => {
      if (value > 0 && value < plot.yDomain[1]) plot.hits.push({ x: plot.px(steps[i]), y: bounded(plot.py(value)),
        words: [`${method.label}, α = ${short(study.lrs[l])}`, `near step ${Math.round(steps[i])}: ${short(value)}`] });
    });
  }
  if (!picks.length) emptyOn(plot, "no run picked");
}

function drawCurve(page) {
  const { study, picks } = page;
  const { points, grid, curves } = study.universal;
  const clouds = picks.map(({ m, l }) => ({ method: study.methods[m], l, z: points[m][l][0], share: points[m][l][1] }));
  const zs = [0.05, 50, ...inside(clouds.flatMap(({ z }) => z), 1e-4, 1e6)];
  const shares = [0.02, 2, ...inside(clouds.flatMap(({ share }) => share), 1e-5, 1e3)];
  const plot = plotOn(byId("curve"), {
    x: { label: "z = α‖g‖²/F", log: true, domain: widened(least(zs), most(zs), 1.6) },
    y: { log: true, domain: widened(least(shares), most(shares), 1.6) },
    label: "Index over gap against z: the models' curves and steps of the picked runs",
  });
  levelOn(plot, 1, "δ = F");
  for (const { method, m } of shown(page)) if (curves[m]) lineOn(plot, grid, curves[m], method, "curve");
  for (const { method, l, z, share } of clouds) {
    z.forEach((value, i) => {
      if (!(value > 0) || !(share[i] > 0)) return;
      const [x, y] = [bounded(plot.px(value)), bounded(plot.py(share[i]))];
      coloured(svg("path", { d: markOf(method, 3), transform: `translate(${x},${y})`, class: "mark cloud" }, plot.inside), method);
      plot.hits.push({ x, y, words: [`${method.label}, α = ${short(study.lrs[l])}`, `z = ${short(value)}, δ/F = ${short(share[i])}`] });
    });
  }
}

// Two bars per method: where it holds, and where the bound says so.
function drawWindows({ study, view, hidden }) {
  const place = scaleOf(rateAxis(study), 0, 100);
  const { measured, predicted } = study.views[view.loss];
  byId("windows").replaceChildren(...study.methods.flatMap((method, m) => {
    if (hidden.has(m)) return [];
    const bars = [["measured", measured[m]], ["predicted", predicted[m]]].filter(([, [low]]) => low > 0).map(([kind, [low, high]]) => {
      const bar = element("span", { className: `range ${kind}` });
      bar.style.left = `calc(${place(low)}% - 4px)`;
      bar.style.width = `calc(${place(high) - place(low)}% + 8px)`;
      return bar;
    });
    const strip = coloured(element("div", { className: "strip" }, ...bars), method);
    strip.dataset.method = method.name;
    return [element("div", { className: "window" }, element("b", { textContent: method.label }), strip)];
  }));
}
