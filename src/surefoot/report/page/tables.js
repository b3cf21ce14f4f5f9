// The page in tables, with pages of their own where they are long, and as files.

const PAGE = 50; // rows of a table that are drawn at once
const LONGEST = 2000; // rows of a table that has no pages

const COLUMNS = [
  ["method", (row) => row.method.label, "algorithm", (row) => asText(row.method.name)],
  ["holds", (row) => rangeWords(row.measured), "low", (row) => exact(row.measured.low)],
  [null, null, "high", (row) => exact(row.measured.high)],
  ["best rate", (row) => short(row.bestRate), "best_rate", (row) => exact(row.bestRate)],
  ["loss there", (row) => short(row.best), "best_loss", (row) => exact(row.best)],
  ["decades", (row) => decadesText(row.measured.decades), "decades", (row) => exact(row.measured.decades)],
  ["bound's best rate", (row) => short(row.boundRate), "bound_rate", (row) => exact(row.boundRate)],
  [null, null, "bound_value", (row) => exact(row.boundValue)],
  ["predicted", (row) => rangeWords(row.predicted), "bound_low", (row) => exact(row.predicted.low)],
  [null, null, "bound_high", (row) => exact(row.predicted.high)],
  ["decades", (row) => decadesText(row.predicted.decades), "bound_decades", (row) => exact(row.predicted.decades)],
  ["overlap", (row) => `${row.both} of ${row.either}`, "overlap", (row) => exact(row.overlap)],
  ["rank agreement", (row) => (Number.isNaN(row.correlation) ? "–" : row.correlation.toFixed(2)), "rank_correlation", (row) => exact(row.correlation)],
  [null, null, "minimiser_distance", (row) => exact(row.minimisers)],
  ["sensitivity", (row) => short(row.excess), "expected_excess", (row) => exact(row.excess)],
  ["diverged", (row) => `${row.diverged} of ${row.runs}`, "diverged", (row) => exact(row.diverged, true)],
];

function drawTable(page) {
  const columns = COLUMNS.filter(([title]) => title);
  const head = element("tr", {}, ...columns.map(([title]) => element("th", { textContent: title, scope: "col" })));
  const order = page.rows.length > page.listed.length ? [...page.rows].sort(byWindow) : page.rows;
  const pages = Math.ceil(order.length / PAGE);
  page.sheet = Math.min(Math.max(page.sheet, 0), pages - 1);
  const body = order.slice(page.sheet * PAGE, (page.sheet + 1) * PAGE).map((row) => element("tr", {}, ...columns.map(([title, text]) =>
    title === "method" ? element("th", { scope: "row" }, drawButton(page, row)) : element("td", { textContent: text(row) }))));
  document.getElementById("methods").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  const turn = (text, step, off) => element("button", { type: "button", textContent: text, disabled: off, onclick: () => { page.sheet += step; drawTable(page); } });
  byId("sheets").replaceChildren(...(pages > 1
    ? [turn("earlier", -1, page.sheet === 0), `page ${page.sheet + 1} of ${pages}`, turn("later", 1, page.sheet === pages - 1)] : []));
  document.getElementById("table-caption").textContent =
    `A rate holds if the mean loss ends at most ${short(100 * page.study.tolerance)} % of f(x₁) − f⋆ above the method's best, without a gap to the best rate. ` +
    "Rank agreement: Spearman's correlation of bound and loss over the rates. Sensitivity: mean over the rates of what is lost to the best one, with the loss at the start as the worst.";
}

// The name of a method in the table: draws it in the plots, or leaves it out of them.
function drawButton(page, row) {
  const drawn = page.listed.includes(row.index) && !page.hidden.has(row.index);
  const button = element("button", { type: "button", className: "plain", title: drawn ? "leave out of the plots" : "draw in the plots",
    onclick: () => page.toggle(row.index) }, coloured(element("span", { className: drawn ? "dot" : "dot off" }), row.method), row.method.label);
  button.setAttribute("aria-pressed", String(drawn));
  return button;
}

const methodsCsv = (page) => csv([COLUMNS.map(([, , name]) => name), ...page.rows.map((row) => COLUMNS.map(([, , , value]) => value(row)))]);

function runsCsv({ runs }) {
  const rows = Array.from(runs[0].values, (_, i) =>
    runs.map((column) => (column.words ? asText(column.words[column.values[i]]) : exact(column.values[i], column.whole))));
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
  const wrap = element("div", { className: "scroll" }, ...longTable(["method", "rate", "runs", "step", "reason"], rows));
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
  details.lastElementChild.replaceChildren(...longTable(["method", "rate", "mean loss", "lowest", "highest", "bias", "noise", "bound"], rows));
}

// A table, and a word on what was left out of it.
function longTable(titles, rows) {
  const left = rows.length - LONGEST;
  const note = left > 0 ? [element("p", { className: "caption", textContent: `${left.toLocaleString("en")} more rows are not shown; the CSV file has all runs.` })] : [];
  return [...note, tableOf(titles, rows.slice(0, LONGEST))];
}

