// The plots of a study. Each takes the page's state and draws itself anew.

const HEADROOM = 10; // times the loss at the start: what lies above is marked at the upper edge
const REACHED = 1e6; // times the loss at the start: so far up the axis follows a bound, and no further
const MARKED = 400; // marks of a line: of more rates only some have one
const DEPTH = 1e-10; // times the loss at the start: what lies below is marked at the lower edge
const CROSS = (r) => `M${-r},${-r}L${r},${r}M${-r},${r}L${r},${-r}`;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

const widened = (low, high, factor) => (low < high ? [low / factor, high * factor] : [low / 3, high * 3]).map(number);

// Within what a floating-point number can hold, so that its logarithm exists.
const number = (value) => Math.min(Math.max(value, 1e-323), 1.7e308);

function rateAxis(study) {
  const { lrs } = study;
  const decades = Math.log10(lrs.at(-1)) - Math.log10(lrs[0]);
  return { label: "learning rate α", log: true, domain: widened(lrs[0], lrs.at(-1), 10 ** Math.min(0.03 * decades, 3)) };
}

// What the loss axis is measured by; a start at a minimum, or at no number, has no logarithm.
function yardstick({ study, view, rows }) {
  const start = Number(study.start[view.data]);
  if (start > 0 && start < Infinity) return start;
  return Math.max(most(rows.flatMap((row) => [...row.mean]).filter((value) => value < Infinity)), 1);
}

function drawLoss(page) {
  const { study, view } = page;
  const start = yardstick(page);
  const offset = offsetOf(study, view);
  const raised = (values) => (offset ? values.map((value) => value + offset) : values);
  const drawn = shown(page);
  const top = topOf(drawn, view, start, offset);
  let low = start;
  for (const row of drawn) {
    for (const values of view.bound ? [row.mean, row.low, raised(row.bound)] : [row.mean, row.low]) {
      for (const value of values) if (value > DEPTH * start && value < low) low = value;
    }
  }
  const host = document.getElementById("loss");
  const plot = plotOn(host, {
    x: rateAxis(study), y: { log: true, domain: [low / 2, top].map(number) },
    label: "Loss and bound against the learning rate. Arrow keys walk over the points, Enter picks one.",
    height: host.clientWidth < 600 ? 300 : 400,
  });
  Object.assign(plot.root, { tabIndex: 0 });
  plot.root.setAttribute("role", "application");
  levelOn(plot, start, "loss at the start");
  if (study.optimum.known && view.data === "train") levelOn(plot, Number(study.lowest.train), "f⋆, the infimum");
  for (const row of drawn) bandOn(plot, study.lrs, row.low, row.high, row.method);
  if (view.bound) {
    for (const row of drawn) {
      lineOn(plot, study.lrs, raised(row.bound), row.method, "bound");
      if (row.safe) lineOn(plot, study.lrs, raised(row.safe), row.method, "safe");
    }
    drawOff(drawn, plot, offset);
  } else document.getElementById("off").hidden = true;
  for (const row of drawn) {
    lineOn(plot, study.lrs, row.mean, row.method, "loss");
    drawPoints(page, plot, row);
  }
  page.lossPlot = plot;
  showCursor(page);
}

// The axis follows the lowest point of every bound that is drawn, so that D never moves one out of sight.
function topOf(rows, view, start, offset) {
  const lowest = view.bound ? rows.map((row) => least(row.bound) + offset).filter((value) => value < Infinity) : [];
  return Math.min(Math.max(HEADROOM * start, 3 * most(lowest)), REACHED * start);
}

// Where the axis does not follow, words do.
function drawOff(rows, plot, offset) {
  const off = rows.filter((row) => !(least(row.bound) + offset < plot.yDomain[1]));
  const host = document.getElementById("off");
  host.hidden = !off.length;
  host.textContent = off.map((row) => {
    const value = least(row.bound) + offset;
    const where = value < Infinity ? `lies above this axis: at least ${short(value)}, at α = ${short(row.boundRate)}` : "is infinite at every rate";
    return `The bound of ${row.method.label} ${where}.`;
  }).join(" ");
}

function drawPoints(page, plot, row) {
  const { study } = page;
  const m = row.index;
  const radius = Math.min(4.2, Math.max(2, plot.width / study.lrs.length / 4));
  const stride = Math.ceil(study.lrs.length / MARKED);
  for (let l = 0; l < study.lrs.length; l++) {
    const value = row.mean[l];
    if (Number.isNaN(value)) continue;
    const picked = page.picks.some((pick) => pick.m === m && pick.l === l);
    if (l % stride && !picked) continue;
    const [above, below] = [value > plot.yDomain[1], value < plot.yDomain[0]];
    // Points at an edge stand side by side.
    const aside = above || below ? (page.listed.indexOf(m) - (page.listed.length - 1) / 2) * 6 : 0;
    const x = plot.px(study.lrs[l]) + aside;
    const y = above ? plot.top + 5 : below ? plot.bottom - 5 : plot.py(value);
    if (picked) coloured(svg("circle", { cx: x, cy: y, r: 9, class: "picked-ring" }, plot.over), row.method);
    // Diverged: a cross. Off the scale: a triangle that points there.
    const shape = value === Infinity ? CROSS(radius) : above ? MARKS["^"](radius) : below ? MARKS.v(radius) : markOf(row.method, radius);
    const kind = value === Infinity ? " lost" : above || below ? " edge" : "";
    const mark = coloured(svg("path", { d: shape, transform: `translate(${x},${y})`, class: `mark${kind}` }, plot.over), row.method);
    mark.dataset.point = `${m},${l}`;
    plot.hits.push({ x, y, m, l, picked, words: pointWords(page, row, l), act: () => page.pick(m, l) });
  }
}

function pointWords(page, row, l) {
  const { study, view } = page;
  const words = [`${row.method.label}, α = ${short(study.lrs[l])}`];
  const spread = row.low[l] < row.high[l] ? ` (${short(row.low[l])} to ${short(row.high[l])})` : "";
  words.push(row.mean[l] < Infinity ? `loss ${short(row.mean[l])}${spread}` : "diverged");
  if (!view.bound) return words;
  const offset = offsetOf(study, view);
  const sum = (noise) => {
    const least = offset ? `f⋆ ${short(offset)} + ` : "";
    return `bound ${short(row.bias[l] + noise + offset)} = ${least}bias ${short(row.bias[l])} + noise ${short(noise)}`;
  };
  words.push(sum(row.noise[l]));
  if (row.safe) words.push(`safe index: ${sum(row.safeNoise[l])}`);
  if (row.method.caveat && view.index === "model") words.push(`No proof: ${row.method.caveat}.`);
  return words;
}

// The point that the arrow keys have reached.
function showCursor(page) {
  const { cursor, lossPlot } = page;
  const focused = document.activeElement === lossPlot.root;
  const hit = cursor && lossPlot.hits.find((each) => each.m === cursor.m && each.l === cursor.l);
  if (focused) lossPlot.point(hit ? [hit] : []);
}

function drawWindows(page) {
  const host = document.getElementById("windows");
  const { study } = page;
  host.replaceChildren(...shown(page).map((row) => {
    const words = element("p", {}, element("b", { textContent: row.method.label }), ` ${windowWords(row)}`);
    const strip = coloured(element("div", { className: "strip" }), row.method);
    const block = element("div", { className: "window" }, words, strip);
    block.dataset.method = row.method.name;
    return block;
  }));
  const x = rateAxis(study);
  shown(page).forEach((row, i) => {
    const strip = host.children[i].lastChild;
    const width = Math.max(strip.clientWidth, 240);
    const px = scaleOf(x, MARGIN.left, width - MARGIN.right);
    const root = svg("svg", { viewBox: `0 0 ${width} 24`, "aria-hidden": "true" }, strip);
    svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: 11.5, y2: 11.5, class: "rule" }, root);
    for (const [kind, y, part] of [["measured", 2, row.measured], ["predicted", 13, row.predicted]]) {
      if (Number.isNaN(part.low)) continue;
      const [left, right] = [px(part.low) - 4, px(part.high) + 4];
      svg("rect", { x: left, y, width: right - left, height: 8, rx: 3, class: `bar ${kind}` }, root);
    }
  });
}

// The lines of the picked runs in one of the traces.
function tracesOf(page, name) {
  const { study, picks } = page;
  const { traces } = study;
  return picks.filter((pick) => study.place[pick.m] >= 0).flatMap((pick) => {
    const kept = study.place[pick.m];
    const place = name === "delta" ? (traces.safe?.methods.indexOf(kept) ?? -1) : -1;
    const safe = place >= 0 && page.view.index === "safe";
    const beside = place >= 0 && !safe ? [{ pick, line: "safe", ...lineAt(traces.safe, place, pick.l, 0) }] : [];
    return [...beside, ...traces.lines.map((line, k) => ({
      pick, line, ...lineAt(safe ? traces.safe : traces[name], safe ? place : kept, pick.l, k),
    }))];
  }).filter(({ line }) => page.line === "all" || line === page.line);
}

function lineAt(source, m, l, k) {
  return { steps: source.steps.length && source.steps[0].length ? source.steps[m][l][k] : source.steps, values: fromDecades(source.values[m][l][k]) };
}

function drawTrace(page, id, name, label, { top, level, levelText }) {
  const { study } = page;
  const lines = tracesOf(page, name);
  const seen = lines.flatMap(({ values }) => Array.from(values).filter((value) => value > 0 && value <= top));
  if (level) seen.push(level);
  const high = seen.length ? most(seen) : 1;
  const low = Math.max(seen.length ? least(seen) : 0.1, high * (level ? 1e-5 : DEPTH));
  const plot = plotOn(document.getElementById(id), {
    x: { label: "step t", log: false, domain: [0, Math.max(study.steps - 1, 1)] },
    y: { log: true, domain: widened(low, high, 1.6) }, label,
  });
  if (level) levelOn(plot, level, levelText, "level strong");
  for (const { pick, line, steps, values } of lines) {
    const method = study.methods[pick.m];
    const bold = line === "mean" || lines.length === page.picks.length;
    const kind = line === "safe" ? "trace safe" : bold ? "trace" : "trace thin";
    const drawn = lineOn(plot, steps, values, method, kind, line === "safe" ? "" : page.dashOf(pick));
    drawn.dataset.run = `${pick.m},${pick.l},${line}`;
    for (let i = 0; bold && i < values.length; i++) {
      if (!(values[i] > 0 && values[i] < plot.yDomain[1])) continue;
      plot.hits.push({ x: plot.px(steps[i]), y: bounded(plot.py(values[i])),
        words: [`${method.label}, α = ${short(study.lrs[pick.l])}`, `step ${steps[i]}: ${short(values[i])}`] });
    }
  }
  if (!page.picks.length) emptyOn(plot, "no run picked");
  else if (!lines.length && page.line === "all") emptyOn(plot, "no traces were kept of these methods");
}

function drawDelta(page) {
  const label = "Stability index of the picked runs over the steps";
  drawTrace(page, "delta", "delta", label, { top: 1e3 * yardstick(page) });
}

function drawTravel(page) {
  const { distance } = page.view;
  const label = "Distance of the picked runs from the start over the steps";
  const level = page.view.bias === "distance" ? { level: distance, levelText: `D = ${short(distance)}` } : {};
  drawTrace(page, "travel", "distance", label, { top: 30 * distance, ...level });
}

function drawSizes(page) {
  const { study } = page;
  const { low, median, high } = study.sizes;
  const drawn = shown(page).filter(({ index }) => study.place[index] >= 0);
  const seen = drawn.flatMap(({ index }) => [...low[study.place[index]], ...high[study.place[index]]]).filter((value) => value > 0 && value < Infinity);
  seen.push(study.lrs[0]);
  const plot = plotOn(document.getElementById("size"), {
    x: rateAxis(study), y: { log: true, domain: widened(least(seen), most(seen), 1.6) },
    label: "Median step size of every method against the learning rate",
  });
  svg("path", { d: `M${plot.px(study.lrs[0])},${plot.py(study.lrs[0])}L${plot.px(study.lrs.at(-1))},${plot.py(study.lrs.at(-1))}`, class: "level" }, plot.inside);
  for (const row of drawn) {
    const m = study.place[row.index];
    bandOn(plot, study.lrs, low[m], high[m], row.method);
    lineOn(plot, study.lrs, median[m], row.method, "trace");
    for (let l = 0; l < study.lrs.length; l += Math.ceil(study.lrs.length / MARKED)) {
      if (!(median[m][l] > 0)) continue;
      const [x, y] = [plot.px(study.lrs[l]), bounded(plot.py(median[m][l]))];
      coloured(svg("path", { d: markOf(row.method, 3), transform: `translate(${x},${y})`, class: "mark" }, plot.inside), row.method);
      const picked = page.picks.some((pick) => pick.m === row.index && pick.l === l);
      plot.hits.push({ x, y, picked, act: () => page.pick(row.index, l), words: [`${row.method.label}, α = ${short(study.lrs[l])}`,
        `median step ${short(median[m][l])}`, `90 %: ${short(low[m][l])} to ${short(high[m][l])}`] });
    }
  }
}

function drawCurve(page) {
  const { study, picks } = page;
  const { z, share, grid, curves } = study.universal;
  const clouds = picks.filter((pick) => study.place[pick.m] >= 0).map((pick) => {
    const m = study.place[pick.m];
    return { pick, z: fromDecades(z[m][pick.l]), share: fromDecades(share[m][pick.l]) };
  });
  const within = (values, low, high) => values.filter((value) => value > 0 && value < Infinity).map((value) => Math.min(Math.max(value, low), high));
  const zs = [0.05, 50, ...clouds.flatMap((cloud) => [...within(cloud.z, 1e-4, 1e6)])];
  const shares = [0.02, 2, ...clouds.flatMap((cloud) => [...within(cloud.share, 1e-5, 1e3)])];
  const plot = plotOn(document.getElementById("curve"), {
    x: { label: "z = α‖g‖²/F", log: true, domain: widened(Math.min(...zs), Math.max(...zs), 1.6) },
    y: { log: true, domain: widened(Math.min(...shares), Math.max(...shares), 1.6) },
    label: "Index over excess loss against z: the models' curves and steps of the picked runs",
  });
  levelOn(plot, 1, "δ = F");
  const axis = fromDecades(grid);
  for (const row of shown(page)) {
    const curve = curves[study.place[row.index]];
    if (curve) lineOn(plot, axis, fromDecades(curve), row.method, "curve");
  }
  for (const { pick, z: xs, share: ys } of clouds) {
    const method = study.methods[pick.m];
    for (let i = 0; i < xs.length; i++) {
      if (!(xs[i] > 0) || !(ys[i] > 0)) continue;
      const [x, y] = [plot.px(xs[i]), plot.py(ys[i])];
      coloured(svg("path", { d: markOf(method, 3), transform: `translate(${bounded(x)},${bounded(y)})`, class: "mark cloud" }, plot.inside), method);
      plot.hits.push({ x, y, words: [`${method.label}, α = ${short(study.lrs[pick.l])}`, `z = ${short(xs[i])}, δ/F = ${short(ys[i])}`] });
    }
  }
}

const shown = (page) => page.listed.filter((m) => !page.hidden.has(m)).map((m) => page.rows[m]);
