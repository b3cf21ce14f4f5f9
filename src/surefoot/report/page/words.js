// The page in words: summary, captions, tables, settings. Every text enters as text.

const edge = ([low, high]) => (low || high ? " (the grid ends there)" : "");

// x_T and ε_lb as they are written by hand.
function typeset(text) {
  return text.split(/(\p{L}_\w+)/u).map((part, i) => {
    if (i % 2 === 0) return part;
    const [letter, index] = part.split("_");
    return element("span", {}, element("i", { textContent: letter }), element("sub", { textContent: index }));
  });
}

function rangeWords(part) {
  if (Number.isNaN(part.low)) return "nowhere";
  if (part.low === part.high) return `at ${short(part.low)} alone`;
  return `${short(part.low)} to ${short(part.high)}`;
}

function windowWords(row) {
  const { measured, predicted, both, either } = row;
  const width = (part) => (part.decades > 0 ? ` (${decadesText(part.decades)} decades)` : "");
  const agreement = !either ? "there is nothing to compare"
    : both === either ? "they agree at every rate"
    : both === 0 ? "they do not meet"
    : `they share ${both} of ${counted(either, "rate")}`;
  return `holds ${rangeWords(measured)}${width(measured)}, predicted ${rangeWords(predicted)}${width(predicted)}: ${agreement}.`;
}

function drawSummary(page) {
  const { study, rows, view } = page;
  const host = document.getElementById("summary");
  const statuses = statusCounts(study);
  const total = Object.values(statuses).reduce((sum, count) => sum + count, 0);
  const order = [...rows].sort((a, b) => b.measured.decades - a.measured.decades || b.method.limited - a.method.limited || a.best - b.best);
  const holding = order.filter((row) => !Number.isNaN(row.measured.low));
  const lines = [];
  if (!holding.length) {
    lines.push(["lead", statuses.diverged === total
      ? `All ${total} runs diverged: no rate of any method holds. The smallest rate was ${short(study.lrs[0])}; try smaller ones.`
      : "No rate of any method has a finite mean loss."]);
  } else {
    const holds = groupsOf(holding).map((group, i) => {
      const names = listed(group.map((row) => row.method.label));
      const verb = i ? "" : group.length > 1 ? " hold" : " holds";
      return `${names}${verb} ${overWords(group[0].measured.decades, !i)}`;
    });
    const failing = order.filter((row) => Number.isNaN(row.measured.low)).map((row) => row.method.label);
    const predictions = holding.map((row) => predictedWords(row.predicted.decades));
    const nowhere = failing.length ? ` ${listed(failing)} held nowhere.` : "";
    lines.push(["lead", `${holds.join(", ")}; the bound predicted ${listed(predictions)}.${nowhere}`]);
    lines.push(["", adviceWords(study, view, holding)]);
  }
  lines.push(["soft", sureWords(study, statuses, total)]);
  host.replaceChildren(...lines.map(([className, textContent]) => element("p", { className, textContent })));
}

// Methods whose windows are equally wide, to the digit shown.
function groupsOf(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(decadesText(row.measured.decades), [...(groups.get(decadesText(row.measured.decades)) ?? []), row]);
  return [...groups.values()];
}

const overWords = (decades, first) => (decades > 0 ? `over ${decadesText(decades)}${first ? " decades" : ""}` : "at one rate only");

const predictedWords = (decades) => (decades > 0 ? decadesText(decades) : decades === 0 ? "one rate" : "none");

function adviceWords(study, view, holding) {
  const start = Number(study.start[view.data]);
  const slack = study.tolerance * (start - Number(study.lowest[view.data]));
  const lowest = holding.reduce((a, b) => (b.best < a.best ? b : a));
  const good = holding.filter((row) => row.best <= lowest.best + slack); // the widest window first
  const range = ({ measured }) => (measured.low === measured.high
    ? `only α = ${short(measured.low)} holds`
    : `any rate from ${short(measured.low)} to ${short(measured.high)} holds${edge(measured.edges)}`);
  const best = (row) => `${short(row.best)} at α = ${short(row.bestRate)}`;
  const what = `${view.data === "valid" ? "validation" : "training"} loss (${best(lowest)})`;
  const words = good[0] === lowest
    ? [`What to use: ${lowest.method.label}. It has the lowest ${what}, and ${range(lowest)}.`]
    : [`What to use: ${good[0].method.label} forgives most: ${range(good[0])}, and its lowest loss is ${best(good[0])}.`,
        `${lowest.method.label} has the lowest ${what}.`];
  const formula = good.find((row) => !row.method.exact);
  if (good[0].method.exact && formula) {
    words.push(`${good[0].method.label} needs the problem's prox; without it take ${formula.method.label}: ${range(formula)}.`);
  }
  if (!good[0].method.limited) words.push("Its step has no limit of its own: do not go beyond the rates that were tried.");
  return words.join(" ");
}

function sureWords(study, statuses, total) {
  const { lrs } = study;
  const words = [`How sure: means over ${counted(study.seeds, "data order")}, ${counted(lrs.length, "rate")}, ${study.steps} steps.`];
  if (lrs.length > 1) words.push(`The grid has ${((lrs.length - 1) / Math.log10(lrs.at(-1) / lrs[0])).toFixed(1)} rates a decade, and a window's ends are known to one rate of it.`);
  if (statuses.diverged) words.push(`${statuses.diverged} of ${total} runs diverged.`);
  if (statuses.missing) words.push(`${statuses.missing} of ${total} runs are missing: the study is not finished.`);
  if (statuses.stopped) words.push(`${statuses.stopped} of ${total} runs were stopped early.`);
  words.push(study.sampling === "iid"
    ? "Batches were drawn independently, as the theorems ask."
    : "Batches were reshuffled each epoch, as in the paper; the theorems ask for independent ones, so the bound is a guide here and no guarantee.");
  return words.join(" ");
}

function statusCounts(study) {
  const { words, values } = study.runs.find((column) => column.name === "status");
  const counts = Object.fromEntries(words.map((word) => [word, 0]));
  for (const code of values) counts[words[code]]++;
  return counts;
}

function drawCaptions(page) {
  const { study, view } = page;
  const what = view.data === "valid" ? "Validation loss after the last step"
    : view.kind === "last" ? "Training loss at x_T, the point that the bound speaks of" : "Training loss at the averaged iterate";
  const origin = view.distance === study.distance ? ` (${study.distanceOrigin})` : "";
  const bias = view.bias === "envelope"
    ? "the Moreau envelope of the loss at the start, which needs no D, and the bound is on f itself"
    : `D²/(2S₁) with D = ${short(view.distance)}${origin}, and the bound is on f − f⋆`;
  const index = view.index === "safe" ? "the safe index, proved for every convex loss" : "the models' own index, as in the paper";
  const words = [`${what}: mean (solid) and range over the seeds (shade).`];
  if (view.bound) words.push(`Dashed: the bound for the ${view.kind} iterate from ${index}; its bias is ${bias}.`);
  if (view.bound && view.data === "valid") words.push("The bound is on the training loss.");
  words.push("Triangles at an edge lie beyond it.");
  if (study.every > 1) words.push(`Indices were kept at every ${study.every}th step: the bound is an estimate.`);
  if (!study.envelope) words.push(`No envelope: ${study.envelopeMissing}.`);
  document.getElementById("loss-caption").replaceChildren(...typeset(words.join(" ")));
  document.getElementById("thin").textContent = study.traces.seeds ? "single seeds" : "smallest and largest over the seeds";
}

const COLUMNS = [
  ["method", (row) => row.method.label, "algorithm", (row) => row.method.name],
  ["best rate", (row) => short(row.bestRate), "best_rate", (row) => exact(row.bestRate)],
  ["loss there", (row) => short(row.best), "best_loss", (row) => exact(row.best)],
  ["holds", (row) => rangeWords(row.measured), "low", (row) => exact(row.measured.low)],
  [null, null, "high", (row) => exact(row.measured.high)],
  ["decades", (row) => decadesText(row.measured.decades), "decades", (row) => exact(row.measured.decades)],
  ["bound's best rate", (row) => short(row.boundRate), "bound_rate", (row) => exact(row.boundRate)],
  [null, null, "bound_value", (row) => exact(row.boundValue)],
  ["predicted", (row) => rangeWords(row.predicted), "bound_low", (row) => exact(row.predicted.low)],
  [null, null, "bound_high", (row) => exact(row.predicted.high)],
  ["decades", (row) => decadesText(row.predicted.decades), "bound_decades", (row) => exact(row.predicted.decades)],
  ["overlap", (row) => `${row.both} of ${row.either}`, "overlap", (row) => exact(row.overlap)],
  ["rank agreement", (row) => (Number.isNaN(row.correlation) ? "–" : row.correlation.toFixed(2)), "rank_correlation", (row) => exact(row.correlation)],
  [null, null, "minimiser_distance", (row) => exact(row.apart)],
  ["sensitivity", (row) => short(row.excess), "expected_excess", (row) => exact(row.excess)],
  ["diverged", (row) => `${row.diverged} of ${row.runs}`, "diverged", (row) => exact(row.diverged, true)],
];

function drawTable(page) {
  const columns = COLUMNS.filter(([title]) => title);
  const head = element("tr", {}, ...columns.map(([title]) => element("th", { textContent: title, scope: "col" })));
  const body = page.rows.map((row) => element("tr", {}, ...columns.map(([title, text]) =>
    title === "method"
      ? element("th", { scope: "row" }, coloured(element("span", { className: "dot" }), row.method), text(row))
      : element("td", { textContent: text(row) }))));
  document.getElementById("methods").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  document.getElementById("table-caption").textContent =
    `A rate holds if the mean loss ends at most ${short(100 * page.study.tolerance)} % of f(x₁) − f⋆ above the method's best, without a gap to the best rate. ` +
    "Rank agreement: Spearman's correlation of bound and loss over the rates. Sensitivity: mean over the rates of what is lost to the best one, with the loss at the start as the worst.";
}

const methodsCsv = (page) => csv([COLUMNS.map(([, , name]) => name), ...page.rows.map((row) => COLUMNS.map(([, , , value]) => value(row)))]);

function runsCsv({ runs }) {
  const rows = Array.from(runs[0].values, (_, i) =>
    runs.map((column) => (column.words ? column.words[column.values[i]] : exact(column.values[i], column.whole))));
  return csv([runs.map((column) => column.name), ...rows]);
}

function drawDiverged(page) {
  const { study } = page;
  const host = document.getElementById("diverged");
  if (!study.diverged.length) {
    host.replaceChildren(element("p", { className: "caption", textContent: "No run diverged." }));
    return;
  }
  const rows = study.diverged.map((entry) => [
    study.methods[entry.method].label, short(study.lrs[entry.rate]), `${entry.runs} of ${study.seeds}`,
    entry.first === entry.last ? String(entry.first) : `${entry.first} to ${entry.last}`, reasonWords(Number(entry.before)),
  ]);
  const table = tableOf(["method", "rate", "runs", "step", "reason"], rows);
  const wrap = element("div", { className: "scroll" }, table);
  host.replaceChildren(element("details", { open: rows.length <= 8 },
    element("summary", { textContent: `Diverged runs: ${study.diverged.reduce((sum, entry) => sum + entry.runs, 0)}` }), wrap));
}

function reasonWords(before) {
  if (!Number.isFinite(before)) return "not finite from the first step on";
  if (before > 1e100) return `overflow: the batch loss had grown to ${short(before)}`;
  return `a number was not finite after a batch loss of ${short(before)}`;
}

function tableOf(titles, rows) {
  return element("table", {},
    element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { textContent: title, scope: "col" })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((textContent) => element("td", { textContent }))))));
}

function drawNumbers(page) {
  const details = document.getElementById("numbers");
  if (!details.open) return;
  const rows = shown(page).flatMap((row) => Array.from(page.study.lrs, (lr, l) => [row.method.label,
    ...[lr, row.mean[l], row.low[l], row.high[l], row.bias[l], row.noise[l], row.bound[l]].map((value) => short(value, 4))]));
  details.lastElementChild.replaceChildren(tableOf(["method", "rate", "mean loss", "lowest", "highest", "bias", "noise", "bound"], rows));
}

function drawConstants({ study }) {
  const host = document.getElementById("constants");
  const items = study.constants.map((entry) => {
    const error = Number(entry.standard_error);
    const size = (value) => short(Math.abs(value) < 1e-12 ? 0 : value);
    const plus = error > 1e-12 ? ` ± ${short(error, 1)}` : "";
    return element("p", {},
      element("b", { textContent: `σ² = ${size(Number(entry.interpolation_constant))}${plus}` }), ", ",
      element("b", {}, ...typeset(`ε_lb = ${size(Number(entry.lower_bound_error))}${plus}`)),
      ` for the lower bound C = ${short(entry.lower_bound)}, over ${counted(entry.batches, "batch").replace("batchs", "batches")} of ${entry.batch_size} rows.`);
  });
  if (!items.length) items.push(element("p", {}, ...typeset(`σ² and ε_lb: ${study.constantsMissing}.`)));
  const meaning = "σ² is what no single point can take from all batches at once (0: every batch can be fitted together); ε_lb is how far C lies below the batches' infima. At any rate, E[δ] of SPS is at most E[f − f⋆] + σ² + ε_lb: where both are 0, it falls with the loss.";
  const minimum = study.optimum.known ? `The infimum of the training loss is ${short(Number(study.lowest.train))}` : "The infimum of the training loss is not known; the lowest loss seen stands in for it";
  const far = study.optimum.distance ? `, at a distance of ${short(study.optimum.distance)} from the start` : "";
  host.replaceChildren(...items, element("p", { className: "caption" }, ...typeset(meaning)),
    element("p", { className: "caption", textContent: `${minimum}${far} (${study.optimum.reason}).` }));
}

function drawSettings({ study }) {
  document.getElementById("settings").replaceChildren(
    ...study.settings.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));
}
