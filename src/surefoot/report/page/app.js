// The page's state, its controls, and what is drawn when. What the words and windows say is decided in Python.

const byId = (id) => document.getElementById(id);
const blocks = [...document.querySelectorAll("script[data-study]")];
const MOST = 8; // picked runs: more lines than that show nothing
const DRAWN = 12; // methods that are drawn at first
const ROWS = 2000; // lines of the table of numbers

// JSON has no ∞ and no NaN; in arrays and beside them they are texts.
const WORDS = { inf: Infinity, "-inf": -Infinity, nan: NaN };
const revive = (key, value) => (typeof value === "string" && Object.hasOwn(WORDS, value) && key !== "name" && key !== "label" ? WORDS[value] : value);

const page = {
  study: null, picks: [], hidden: new Set(), cursor: null, view: {},

  placeOf(m, l) { return this.picks.findIndex((pick) => pick.m === m && pick.l === l); },

  pick(m, l) {
    const place = this.placeOf(m, l);
    if (place >= 0) this.picks.splice(place, 1);
    else this.picks = [...this.picks, { m, l }].slice(-MOST);
    this.cursor = { m, l };
    byId("live").textContent = `${this.nameOf({ m, l })} ${place >= 0 ? "left out" : "picked"}`;
    redraw();
  },

  nameOf({ m, l }) { return `${this.study.methods[m].label}, α = ${short(this.study.lrs[l])}`; },

  // Runs of one method differ by their dashes.
  dashOf({ m, l }) { return DASHES[this.picks.filter((pick) => pick.m === m).findIndex((pick) => pick.l === l) % DASHES.length]; },
};

let due = false;
function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}

function draw() {
  const { study, view } = page;
  const shownView = study.views[view.loss];
  drawHeadline(shownView);
  drawLoss(page);
  drawWords(shownView);
  drawWindows(page);
  drawPicks();
  drawTrace(page, "delta", "delta", "Stability index of the picked runs over the steps", 1e3 * yardstick(page));
  drawTrace(page, "travel", "distance", "Distance of the picked runs from the start over the steps", 30 * view.distance,
    view.bias === "distance" ? view.distance : undefined);
  byId("methods").replaceChildren(tableOf(study.head, shownView.table));
  if (byId("numbers").open) drawNumbers();
  if (byId("theory").open) drawCurve(page);
}

// One line per method: where it holds, how low it comes, what the bound predicts. Its name hides and shows it.
function drawHeadline({ lines }) {
  renew(byId("headline"), page.study.methods.map((method, m) => {
    const icon = svg("svg", { viewBox: "-8 -6 16 12", width: 20, height: 14, "aria-hidden": "true" });
    svg("path", { d: markOf(method, 4.2), class: "mark" }, icon);
    const chip = element("button", { type: "button", className: "chip", onclick: () => { page.hidden.delete(m) || page.hidden.add(m); redraw(); } },
      coloured(icon, method), element("span", { textContent: method.label }));
    chip.setAttribute("aria-pressed", String(!page.hidden.has(m)));
    const line = element("li", {}, chip, element("span", { className: "first", textContent: lines[m][0] }), element("span", { className: "more", textContent: lines[m][1] }));
    line.dataset.method = method.name;
    return line;
  }));
}

function drawWords({ what, advice }) {
  const { study, view } = page;
  const { bound } = study;
  const origin = view.distance === bound.distance ? ` (${bound.origin})` : "";
  const bias = view.bias === "free" ? bound.free
    : `D²/(2S₁) with D = ${short(view.distance)}${origin}; it is on f − f⋆, and f⋆ is ${bound.lowest === null ? "not known: it can lie below the loss" : "added to it here"}`;
  byId("caption").textContent = [`${what}: mean (solid) and range over the seeds (shade).`,
    `Dashed: the bound of the ${view.loss === "average" ? "average" : "last"} iterate from ${view.index === "safe" ? "the safe index, proved for every convex loss" : "the models' own index"}; its bias is ${bias}.`,
    ...(view.loss === "valid" ? ["The bound is on the training loss."] : []), ...(view.index === "model" ? study.caveats : []),
    "A cross at the upper edge is a rate at which a run diverged, a triangle at an edge a loss beyond it.",
    ...(bound.sampled > 1 ? [`Indices were kept at every ${bound.sampled}th step: the bound is an estimate.`] : [])].join(" ");
  byId("advice").textContent = advice;
  byId("slider").disabled = view.bias === "free";
  byId("distance").textContent = view.bias === "free" ? "" : short(view.distance);
}

function drawPicks() {
  const chips = page.picks.map((pick) => {
    const dash = svg("svg", { viewBox: "0 0 26 8", width: 26, height: 8, "aria-hidden": "true" });
    svg("path", { d: "M1,4H25", class: "line trace", "stroke-dasharray": page.dashOf(pick) }, dash);
    const chip = element("button", { type: "button", className: "chip", onclick: () => page.pick(pick.m, pick.l) },
      coloured(dash, page.study.methods[pick.m]), page.nameOf(pick), element("span", { className: "cross", textContent: "×", ariaHidden: "true" }));
    chip.setAttribute("aria-label", `leave out ${page.nameOf(pick)}`);
    return chip;
  });
  if (chips.length > 1) chips.push(element("button", { type: "button", className: "chip quiet", textContent: "none", onclick: () => { page.picks = []; redraw(); } }));
  renew(byId("picks"), chips);
}

function drawNumbers() {
  const rows = shown(page).flatMap((row) => page.study.lrs.map((lr, l) => [row.method.label,
    ...[lr, row.mean[l], row.low[l], row.high[l], row.bound.bias[l], row.bound.noise[l], row.bound.total[l]].map((value) => short(value, 4))]));
  byId("numbers").lastElementChild.replaceChildren(
    tableOf(["method", "rate", "mean loss", "lowest", "highest", "bias", "noise", "bound"], rows.slice(0, ROWS)));
}

function tableOf(titles, rows) {
  return element("table", {},
    element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { textContent: title, scope: "col" })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((textContent) => element("td", { textContent }))))));
}

// What a reader should see first: every method just above the narrowest window, where the methods part.
function firstPicks({ lrs, methods, views }) {
  const ends = views.last.measured.map(([, high]) => (high > 0 ? high : Infinity));
  const narrowest = ends.indexOf(least(ends));
  const l = narrowest < 0 ? 0 : Math.min(lrs.indexOf(ends[narrowest]) + 1, lrs.length - 1);
  return [...new Set([narrowest, 0, 1, 2])].filter((m) => m in methods).map((m) => ({ m, l }));
}

function open(place) {
  [...byId("tabs").children].forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === place)));
  const study = JSON.parse(blocks[place].textContent, revive);
  Object.assign(page, { study, picks: firstPicks(study), cursor: null, view: { loss: "last", index: "model", bias: study.bound.usual, distance: study.bound.distance } });
  page.hidden = new Set(study.methods.map((_, m) => m).slice(DRAWN));
  byId("losses").replaceChildren(byId("losses").firstElementChild, ...Object.entries(study.views).map(([name, { label }]) =>
    element("label", {}, element("input", { type: "radio", name: "loss", value: name, checked: name === "last" }), element("span", { textContent: label }))));
  for (const name of ["index", "bias"]) byId("controls").querySelector(`[name=${name}][value=${page.view[name]}]`).checked = true;
  byId("slider").value = 0;
  byId("state").textContent = study.state;
  byId("state").hidden = !study.state;
  byId("certainty").textContent = study.certainty;
  byId("traces").textContent = `Each point is the mean over the seeds${study.traces.each > 1 ? ` and ${study.traces.each} steps` : ""}, which is what the bound sums; the shade holds 80 % of the values. Dotted: the safe index, where it differs.`;
  byId("infimum").textContent = study.infimum;
  byId("settings").replaceChildren(...study.settings.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));
  byId("study").hidden = false;
  draw();
}

function listen() {
  const tabs = byId("tabs");
  tabs.hidden = blocks.length < 2;
  tabs.replaceChildren(...blocks.map((block, i) => element("button", { type: "button", textContent: block.dataset.study,
    onclick: () => { history.replaceState(null, "", `#${i + 1}`); open(i); } })));
  byId("study").addEventListener("change", ({ target }) => {
    if (target.type === "radio") { page.view[target.name] = target.value; redraw(); }
  });
  byId("slider").addEventListener("input", ({ target }) => {
    page.view.distance = Number(target.value) === 0 ? page.study.bound.distance : Number((page.study.bound.distance * 10 ** target.value).toPrecision(3));
    redraw();
  });
  for (const id of ["numbers", "theory"]) byId(id).addEventListener("toggle", redraw);
  byId("methods-csv").addEventListener("click", () => download("methods.csv", page.study.views[page.view.loss].csv));
  byId("runs-csv").addEventListener("click", () => download("runs.csv", page.study.runs));
  byId("loss").addEventListener("keydown", walk);
  byId("loss").addEventListener("focusin", () => { page.cursor ??= { m: 0, l: 0 }; showCursor(page); });
  byId("loss").addEventListener("focusout", () => page.lossPlot?.point([]));
  let width = 0;
  new ResizeObserver(() => {
    if (byId("loss").clientWidth !== width) redraw();
    width = byId("loss").clientWidth;
  }).observe(byId("loss"));
}

// Arrow keys in the first plot: along the rates, and from method to method.
function walk(event) {
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const { cursor, study } = page;
  const rows = shown(page);
  if (event.key === "Enter" || event.key === " ") page.pick(cursor.m, cursor.l);
  else if (event.key in moves && rows.length) {
    const [down, right] = moves[event.key];
    const row = rows[(Math.max(rows.findIndex(({ m }) => m === cursor.m), 0) + down + rows.length) % rows.length];
    page.cursor = { m: row.m, l: Math.min(Math.max(cursor.l + right, 0), study.lrs.length - 1) };
    showCursor(page);
    byId("live").textContent = pointWords(page, row, page.cursor.l).join(", ");
  } else return;
  event.preventDefault();
}

function download(name, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

listen();
open(Math.min(Math.max(Number(location.hash.slice(1)) || 1, 1), blocks.length) - 1);
