// The plots of a study. Each takes the page's state and draws itself anew.

const HEADROOM = 10; // times the loss at the start: what lies above is marked at the upper edge
const DEPTH = 1e-10; // times the loss at the start: what lies below is marked at the lower edge
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

const widened = (low, high, factor) => (low < high ? [low / factor, high * factor] : [low / 3, high * 3]);

function rateAxis(study) {
  const { lrs } = study;
  return { label: "learning rate α", log: true, domain: widened(lrs[0], lrs.at(-1), (lrs.at(-1) / lrs[0]) ** 0.03) };
}

// What the loss axis is measured by; a start at a minimum, or at no number, has no logarithm.
function yardstick({ study, view, rows }) {
  const start = Number(study.start[view.data]);
  if (start > 0 && start < Infinity) return start;
  return Math.max(...rows.flatMap((row) => [...row.mean]).filter((value) => value < Infinity), 1);
}

function drawLoss(page) {
  const { study, view } = page;
  const start = yardstick(page);
  const seen = [start];
  for (const row of shown(page)) {
    for (const values of view.bound ? [row.mean, row.low, row.bound] : [row.mean, row.low]) {
      seen.push(...values.filter((value) => value > DEPTH * start && value < HEADROOM * start));
    }
  }
  const host = document.getElementById("loss");
  const plot = plotOn(host, {
    x: rateAxis(study), y: { log: true, domain: [Math.min(...seen) / 2, HEADROOM * start] },
    label: "Loss and bound against the learning rate. Arrow keys walk over the points, Enter picks one.", height: 400,
  });
  Object.assign(plot.root, { tabIndex: 0 });
  plot.root.setAttribute("role", "application");
  levelOn(plot, start, "loss at the start");
  if (study.optimum.known && view.data === "train") levelOn(plot, Number(study.lowest.train), "f⋆, the infimum");
  for (const row of shown(page)) bandOn(plot, study.lrs, row.low, row.high, row.method);
  if (view.bound) for (const row of shown(page)) lineOn(plot, study.lrs, row.bound, row.method, "bound");
  for (const row of shown(page)) {
    lineOn(plot, study.lrs, row.mean, row.method, "loss");
    drawPoints(page, plot, row);
  }
  page.lossPlot = plot;
  showCursor(page);
}

function drawPoints(page, plot, row) {
  const { study } = page;
  const m = row.index;
  const radius = Math.min(4.2, Math.max(2, plot.width / study.lrs.length / 4));
  for (let l = 0; l < study.lrs.length; l++) {
    const value = row.mean[l];
    if (Number.isNaN(value)) continue;
    const [above, below] = [value > plot.yDomain[1], value < plot.yDomain[0]];
    // Points at an edge stand side by side.
    const aside = above || below ? (m - (study.methods.length - 1) / 2) * 6 : 0;
    const x = plot.px(study.lrs[l]) + aside;
    const y = above ? plot.top + 5 : below ? plot.bottom - 5 : plot.py(value);
    const picked = page.picks.some((pick) => pick.m === m && pick.l === l);
    if (picked) coloured(svg("circle", { cx: x, cy: y, r: 9, class: "picked-ring" }, plot.over), row.method);
    const shape = above ? MARKS[2](radius) : below ? MARKS[4](radius) : markOf(m, radius);
    const mark = coloured(svg("path", { d: shape, transform: `translate(${x},${y})`, class: `mark${above || below ? " edge" : ""}` }, plot.over), row.method);
    mark.dataset.point = `${m},${l}`;
    plot.hits.push({ x, y, m, l, picked, words: pointWords(page, row, l), act: () => page.pick(m, l) });
  }
}

function pointWords(page, row, l) {
  const { study, view } = page;
  const words = [`${row.method.label}, α = ${short(study.lrs[l])}`];
  const spread = row.low[l] < row.high[l] ? ` (${short(row.low[l])} to ${short(row.high[l])})` : "";
  words.push(row.mean[l] < Infinity ? `loss ${short(row.mean[l])}${spread}` : "diverged");
  if (view.bound) words.push(`bound ${short(row.bound[l])} = ${short(row.bias[l])} + ${short(row.noise[l])}`);
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
  return picks.flatMap((pick) => {
    const place = name === "delta" && page.view.index === "safe" ? (traces.safe?.methods.indexOf(pick.m) ?? -1) : -1;
    const [source, m] = place >= 0 ? [traces.safe, place] : [traces[name], pick.m];
    return traces.lines.map((line, k) => ({
      pick, line,
      steps: source.steps.length && source.steps[0].length ? source.steps[m][pick.l][k] : source.steps,
      values: fromDecades(source.values[m][pick.l][k]),
    }));
  }).filter(({ line }) => page.line === "all" || line === page.line);
}

function drawTrace(page, id, name, label, { top, level, levelText }) {
  const { study } = page;
  const lines = tracesOf(page, name);
  const seen = lines.flatMap(({ values }) => Array.from(values).filter((value) => value > 0 && value <= top));
  if (level) seen.push(level);
  const high = seen.length ? Math.max(...seen) : 1;
  const low = Math.max(seen.length ? Math.min(...seen) : 0.1, high * (level ? 1e-5 : DEPTH));
  const plot = plotOn(document.getElementById(id), {
    x: { label: "step t", log: false, domain: [0, Math.max(study.steps - 1, 1)] },
    y: { log: true, domain: widened(low, high, 1.6) }, label,
  });
  if (level) levelOn(plot, level, levelText, "level strong");
  for (const { pick, line, steps, values } of lines) {
    const method = study.methods[pick.m];
    const bold = line === "mean" || lines.length === page.picks.length;
    const drawn = lineOn(plot, steps, values, method, bold ? "trace" : "trace thin", page.dashOf(pick));
    drawn.dataset.run = `${pick.m},${pick.l},${line}`;
    for (let i = 0; bold && i < values.length; i++) {
      if (!(values[i] > 0 && values[i] < plot.yDomain[1])) continue;
      plot.hits.push({ x: plot.px(steps[i]), y: bounded(plot.py(values[i])),
        words: [`${method.label}, α = ${short(study.lrs[pick.l])}`, `step ${steps[i]}: ${short(values[i])}`] });
    }
  }
  if (!page.picks.length) emptyOn(plot, "no run picked");
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
  const seen = shown(page).flatMap(({ index }) => [...low[index], ...high[index]]).filter((value) => value > 0);
  seen.push(study.lrs[0]);
  const plot = plotOn(document.getElementById("size"), {
    x: rateAxis(study), y: { log: true, domain: widened(Math.min(...seen), Math.max(...seen), 1.6) },
    label: "Median step size of every method against the learning rate",
  });
  svg("path", { d: `M${plot.px(study.lrs[0])},${plot.py(study.lrs[0])}L${plot.px(study.lrs.at(-1))},${plot.py(study.lrs.at(-1))}`, class: "level" }, plot.inside);
  for (const row of shown(page)) {
    const m = row.index;
    bandOn(plot, study.lrs, low[m], high[m], row.method);
    lineOn(plot, study.lrs, median[m], row.method, "trace");
    for (let l = 0; l < study.lrs.length; l++) {
      if (!(median[m][l] > 0)) continue;
      const [x, y] = [plot.px(study.lrs[l]), plot.py(median[m][l])];
      coloured(svg("path", { d: markOf(m, 3), transform: `translate(${x},${y})`, class: "mark" }, plot.inside), row.method);
      const picked = page.picks.some((pick) => pick.m === m && pick.l === l);
      plot.hits.push({ x, y, picked, act: () => page.pick(m, l), words: [`${row.method.label}, α = ${short(study.lrs[l])}`,
        `median step ${short(median[m][l])}`, `90 %: ${short(low[m][l])} to ${short(high[m][l])}`] });
    }
  }
}

function drawCurve(page) {
  const { study, picks } = page;
  const { z, share, grid, curves } = study.universal;
  const clouds = picks.map((pick) => ({ pick, z: fromDecades(z[pick.m][pick.l]), share: fromDecades(share[pick.m][pick.l]) }));
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
    if (curves[row.index]) lineOn(plot, axis, fromDecades(curves[row.index]), row.method, "curve");
  }
  for (const { pick, z: xs, share: ys } of clouds) {
    const method = study.methods[pick.m];
    for (let i = 0; i < xs.length; i++) {
      if (!(xs[i] > 0) || !(ys[i] > 0)) continue;
      const [x, y] = [plot.px(xs[i]), plot.py(ys[i])];
      coloured(svg("path", { d: markOf(pick.m, 3), transform: `translate(${bounded(x)},${bounded(y)})`, class: "mark cloud" }, plot.inside), method);
      plot.hits.push({ x, y, words: [`${method.label}, α = ${short(study.lrs[pick.l])}`, `z = ${short(xs[i])}, δ/F = ${short(ys[i])}`] });
    }
  }
}

const shown = (page) => page.rows.filter((row) => !page.hidden.has(row.index));
