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

// One line a method: where it holds, how low it comes, what the bound predicts. Its name hides and shows it.
function drawHeadline(page) {
  const { study } = page;
  const order = [...page.listed].sort((a, b) => byWindow(page.rows[a], page.rows[b]));
  renew(byId("headline"), order.map((m) => {
    const row = page.rows[m];
    const chip = element("button", { type: "button", className: "chip" }, markIcon(row.method), element("span", { textContent: row.method.label }));
    chip.setAttribute("aria-pressed", String(!page.hidden.has(m)));
    chip.onclick = () => page.toggle(m);
    const [first, more] = headlineWords(row, page.view);
    const line = element("li", {}, chip, element("span", { className: "first", textContent: first }), element("span", { className: "more", textContent: more }));
    line.dataset.method = row.method.name;
    return line;
  }));
  const statuses = statusCounts(study);
  const total = Object.values(statuses).reduce((sum, count) => sum + count, 0);
  const lines = [];
  if (statuses.diverged === total) lines.push(`All ${total} runs diverged: no rate of any method holds. The smallest rate was ${short(study.lrs[0])}; try smaller ones.`);
  if (statuses.missing) lines.push(`${statuses.missing} of ${total} runs are missing: the study is not finished.`);
  if (statuses.stopped) lines.push(`${statuses.stopped} of ${total} runs were stopped early.`);
  if (study.methods.length > page.listed.length) {
    lines.push(`${page.listed.length} of ${study.methods.length.toLocaleString("en")} methods are drawn, at first those with the widest windows; the table below draws others.`);
  }
  byId("state").hidden = !lines.length;
  byId("state").textContent = lines.join(" ");
}

function headlineWords({ measured, predicted, best, bestRate }, view) {
  if (Number.isNaN(measured.low)) return ["holds nowhere", ""];
  const width = measured.decades > 0 ? ` (${decadesText(measured.decades)} decades)` : "";
  const what = view.data === "valid" ? "validation loss" : "loss";
  return [`holds ${rangeWords(measured)}${width}`, `lowest ${what} ${short(best)} at ${short(bestRate)}; the bound predicts ${rangeWords(predicted).replace(/^at /, "")}`];
}

// The widest window first; of equals the step with a limit, then the lower loss.
const byWindow = (a, b) => b.measured.decades - a.measured.decades || b.method.limited - a.method.limited || a.best - b.best;

function drawAdvice(page) {
  const { study, view, rows } = page;
  const statuses = statusCounts(study);
  const total = Object.values(statuses).reduce((sum, count) => sum + count, 0);
  const holding = rows.filter((row) => !Number.isNaN(row.measured.low)).sort(byWindow);
  const lines = [["", holding.length ? adviceWords(study, view, holding) : "No rate of any method has a finite mean loss."], ["soft", sureWords(study, statuses, total)]];
  byId("advice").replaceChildren(...lines.map(([className, textContent]) => element("p", { className, textContent })));
}

function adviceWords(study, view, holding) {
  const slack = slackOf(study, view.data);
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
  if (lrs.length > 1) words.push(`The grid has ${((lrs.length - 1) / (Math.log10(lrs.at(-1)) - Math.log10(lrs[0]))).toFixed(1)} rates a decade, and a window's ends are known to one rate of it.`);
  if (statuses.diverged) words.push(`${statuses.diverged} of ${total} runs diverged.`);
  words.push(study.sampling === "iid"
    ? "Batches were drawn independently, as the theorems ask."
    : "Batches were reshuffled each epoch, as in the paper; the theorems ask for independent ones, so the bound is a guide here and no guarantee.");
  return words.join(" ");
}

// Which of the bounds that are drawn prove nothing, in one sentence a reason.
function caveatWords(study, rows) {
  const reasons = new Map();
  for (const { method } of rows) if (method.caveat) reasons.set(method.caveat, [...(reasons.get(method.caveat) ?? []), method.label]);
  return [...reasons].map(([reason, labels]) => `${listed(labels)}: ${reason}.`);
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
  const raised = offsetOf(study, view) !== 0 || (study.optimum.known && view.bias === "distance");
  const bias = view.bias === "envelope"
    ? "the Moreau envelope of the loss at the start, which needs no D"
    : `D²/(2S₁) with D = ${short(view.distance)}${origin}; ${raised ? "it is on f − f⋆, and f⋆ is added to it here" : "it is on f − f⋆, and f⋆ is not known: it can lie below the loss"}`;
  const index = view.index === "safe" ? "the safe index, proved for every convex loss" : "the models' own index, as in the paper";
  const drawn = shown(page);
  const words = [`${what}: mean (solid) and range over the seeds (shade).`];
  if (view.bound) words.push(`Dashed: the bound for the ${view.kind} iterate from ${index}; its bias is ${bias}.`);
  if (view.bound && drawn.some((row) => row.safe)) words.push("Dotted: the same from the safe index, where the two differ.");
  if (view.bound && view.index === "model") words.push(...caveatWords(study, drawn));
  if (view.bound && view.data === "valid") words.push("The bound is on the training loss.");
  words.push("A cross at the upper edge is a rate at which a run diverged, a triangle at an edge a loss beyond it.");
  if (study.lrs.length > MARKED) words.push(`Of ${study.lrs.length.toLocaleString("en")} rates ${MARKED} at most have a mark.`);
  if (study.every > 1) words.push(`Indices were kept at every ${study.every}th step: the bound is an estimate.`);
  if (!study.envelope) words.push(`No envelope: ${study.envelopeMissing}.`);
  document.getElementById("loss-caption").replaceChildren(...typeset(words.join(" ")));
  document.getElementById("thin").textContent = study.traces.seeds ? "single seeds" : "smallest and largest over the seeds";
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
  if (study.constantsLeft) items.push(element("p", { textContent: `${study.constantsLeft.toLocaleString("en")} lower values of C are left out.` }));
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
