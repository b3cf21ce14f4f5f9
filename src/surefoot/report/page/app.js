// The page's state, its controls, and what is drawn when.

const byId = (id) => document.getElementById(id);
const blocks = [...document.querySelectorAll("script[data-study]")];
const unpacked = new Map();
const MOST = 8; // picked runs: more lines than that tell nothing
const DRAWN = 12; // methods in the plots

const page = {
  study: null, rows: [], picks: [], listed: [], hidden: new Set(), cursor: null, line: "all", sheet: 0, touched: false,
  view: { data: "train", kind: "last", index: "model", bias: "distance", bound: true, distance: 1 },

  pick(m, l) {
    const place = this.picks.findIndex((pick) => pick.m === m && pick.l === l);
    if (place >= 0) this.picks.splice(place, 1);
    else this.picks = [...this.picks, { m, l }].slice(-MOST);
    this.cursor = { m, l };
    this.touched = true;
    byId("live").textContent = `${this.study.methods[m].label} at rate ${short(this.study.lrs[l])} ${place >= 0 ? "left out" : "picked"}`;
    redraw();
  },

  // Draw a method, or leave it out; of many methods only so many can be drawn at once.
  toggle(m) {
    if (!this.listed.includes(m)) this.listed = [...this.listed, m].slice(-DRAWN);
    else if (!this.hidden.delete(m)) this.hidden.add(m);
    redraw();
  },

  // Runs of one method differ by their dashes.
  dashOf(pick) {
    const kin = this.picks.filter((other) => other.m === pick.m);
    return DASHES[kin.indexOf(pick) % DASHES.length];
  },
};

let due = false;
function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    if (page.study) draw();
  });
}

function draw() {
  const counts = divergedCounts(page.study);
  page.rows = measure(page.study, page.view).map((row, index) => ({ ...row, index, ...counts[index] }));
  drawHeadline(page);
  drawLoss(page);
  drawCaptions(page);
  drawAdvice(page);
  drawWindows(page);
  drawPicks();
  drawDelta(page);
  drawTravel(page);
  drawSizes(page);
  drawCurve(page);
  drawTable(page);
  drawNumbers(page);
  noteAddress(page);
}

function divergedCounts(study) {
  const [algorithm, status] = ["algorithm", "status"].map((name) => study.runs.find((column) => column.name === name));
  const counts = study.methods.map(() => ({ diverged: 0, runs: 0 }));
  const places = new Map(study.methods.map((method, m) => [method.name, m]));
  const place = algorithm.words.map((word) => places.get(word));
  const code = status.words.indexOf("diverged");
  algorithm.values.forEach((word, i) => {
    counts[place[word]].runs++;
    counts[place[word]].diverged += status.values[i] === code;
  });
  return counts;
}

function markIcon(method) {
  const icon = svg("svg", { viewBox: "-8 -6 16 12", width: 20, height: 14, "aria-hidden": "true" });
  svg("path", { d: markOf(method, 4.2), class: "mark" }, icon);
  return coloured(icon, method);
}

function drawPicks() {
  const { study } = page;
  const chips = page.picks.map((pick) => {
    const dash = svg("svg", { viewBox: "0 0 26 8", width: 26, height: 8, "aria-hidden": "true" });
    svg("path", { d: "M1,4H25", class: "line trace", "stroke-dasharray": page.dashOf(pick) }, dash);
    const chip = element("button", { type: "button", className: "chip", title: "leave out" },
      coloured(dash, study.methods[pick.m]), `${study.methods[pick.m].label}, α = ${short(study.lrs[pick.l])}`, element("span", { className: "cross", textContent: "×", ariaHidden: "true" }));
    chip.setAttribute("aria-label", `leave out ${study.methods[pick.m].label} at rate ${short(study.lrs[pick.l])}`);
    chip.onclick = () => page.pick(pick.m, pick.l);
    return chip;
  });
  if (chips.length > 1) chips.push(element("button", { type: "button", className: "chip quiet", textContent: "none", onclick: () => { page.picks = []; page.touched = true; redraw(); } }));
  renew(byId("picks"), chips);
}

// What a reader should see first: every method just above the narrowest window, where the methods part.
function firstPicks(study, rows, listed) {
  const holding = rows.filter((row) => !Number.isNaN(row.measured.high));
  if (!holding.length) return [{ m: listed[0], l: 0 }];
  const narrowest = holding.reduce((a, b) => (b.measured.high < a.measured.high ? b : a));
  const l = Math.min(study.lrs.indexOf(narrowest.measured.high) + 1, study.lrs.length - 1);
  return listed.slice(0, 4).map((m) => ({ m, l }));
}

function setUp(study, parts) {
  const { view } = page;
  Object.assign(page, { study, hidden: new Set(), cursor: null, line: "all", sheet: 0, touched: false });
  Object.assign(view, { distance: study.distance });
  study.place = new Int32Array(study.methods.length).fill(-1);
  study.kept.forEach((m, place) => { study.place[m] = place; });
  const form = byId("controls");
  const allow = (name, value, allowed, why) => {
    const input = form.querySelector(`[name=${name}][value=${value}]`);
    input.disabled = !allowed;
    input.parentElement.title = allowed ? "" : why;
    if (!allowed && view[name] === value) form.querySelector(`[name=${name}]`).click();
  };
  allow("data", "valid", "valid" in study.loss, "the problem has no validation rows");
  const averaged = !study.network || study.loss.average.mean.some((row) => row.some((value) => !Number.isNaN(value)));
  allow("kind", "average", averaged, "the loss at the average of a network's iterates was not measured");
  allow("bias", "envelope", study.envelope !== null, study.envelopeMissing);
  for (const [name, usual] of Object.entries(SWITCHES)) form.querySelector(`[name=${name}][value=${usual}]`).click();
  study.usual = { bias: study.distanceOrigin.startsWith("a guess") && study.envelope ? "envelope" : "distance" };
  form.querySelector(`[name=bias][value=${study.usual.bias}]`).click();
  const { lines, seeds } = study.traces;
  byId("lines").replaceChildren(new Option("all lines", "all"), ...lines.map((line) => new Option(
    line === "mean" ? "mean over the seeds" : seeds ? `seed ${line}` : { low: "smallest", high: "largest" }[line], line)));
  const rows = measure(study, view).map((row, index) => ({ ...row, index }));
  const widest = rows.length > DRAWN ? [...rows].sort(byWindow).slice(0, DRAWN) : rows;
  page.listed = widest.map((row) => row.index);
  page.picks = firstPicks(study, rows, page.listed);
  readAddress(page, parts);
  showDistance();
  drawDiverged(page);
  drawConstants(page);
  drawSettings(page);
  byId("study").hidden = false;
  draw();
}

function showDistance() {
  byId("slider").value = Math.log10(page.view.distance / page.study.distance);
  byId("distance").value = Number(page.view.distance.toPrecision(4));
  byId("slider").setAttribute("aria-valuetext", `D = ${short(page.view.distance)}`);
}

function listen() {
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").addEventListener("change", ({ target }) => {
    if (target.type === "radio") page.view[target.name] = target.value;
    if (target.type === "checkbox") page.view[target.name] = target.checked;
    const off = page.view.bias === "envelope";
    for (const id of ["slider", "distance", "reset"]) byId(id).disabled = off;
    redraw();
  });
  const setDistance = (distance) => {
    if (!(distance > 0 && distance < Infinity)) return;
    page.view.distance = distance;
    byId("slider").setAttribute("aria-valuetext", `D = ${short(distance)}`);
    redraw();
  };
  byId("slider").addEventListener("input", ({ target }) => {
    setDistance(Number(target.value) === 0 ? page.study.distance : Number((page.study.distance * 10 ** target.value).toPrecision(4)));
    byId("distance").value = Number(page.view.distance.toPrecision(4));
  });
  byId("distance").addEventListener("input", ({ target }) => {
    setDistance(Number(target.value));
    byId("slider").value = Math.log10(page.view.distance / page.study.distance);
  });
  byId("reset").addEventListener("click", () => { setDistance(page.study.distance); showDistance(); });
  byId("lines").addEventListener("change", ({ target }) => { page.line = target.value; redraw(); });
  byId("numbers").addEventListener("toggle", () => drawNumbers(page));
  byId("methods-csv").addEventListener("click", () => download("methods.csv", methodsCsv(page)));
  byId("runs-csv").addEventListener("click", () => download("runs.csv", runsCsv(page.study)));
  byId("loss").addEventListener("keydown", walk);
  byId("loss").addEventListener("focusin", () => { page.cursor ??= { m: page.listed[0], l: 0 }; showCursor(page); });
  byId("loss").addEventListener("focusout", () => page.lossPlot?.point([]));
  byId("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  addEventListener("beforeprint", () => document.querySelectorAll("#diverged details").forEach((details) => { details.open = true; }));
  addEventListener("hashchange", () => open(partsOf(location.hash)));
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
  if (!cursor) return;
  if (event.key === "Enter" || event.key === " ") page.pick(cursor.m, cursor.l);
  else if (event.key in moves) {
    const visible = shown(page).map((row) => row.index);
    if (!visible.length) return;
    const [down, right] = moves[event.key];
    const place = Math.max(visible.indexOf(cursor.m), 0) + down;
    cursor.m = visible[(place + visible.length) % visible.length];
    cursor.l = Math.min(Math.max(cursor.l + right, 0), study.lrs.length - 1);
    showCursor(page);
    byId("live").textContent = pointWords(page, page.rows[cursor.m], cursor.l).join(", ");
  } else return;
  event.preventDefault();
}

let asked = 0;
async function open(parts) {
  const ask = ++asked;
  holdAddress(true); // it is the new study's already
  const place = Math.max(blocks.findIndex((block) => block.dataset.study === parts.get("study")), 0);
  [...byId("tabs").children].forEach((tab, i) => {
    tab.setAttribute("aria-selected", String(i === place));
    tab.tabIndex = i === place ? 0 : -1;
  });
  if (!unpacked.has(place)) unpacked.set(place, await unpack(blocks[place].textContent));
  if (ask !== asked) return; // for another one, meanwhile
  holdAddress(false);
  setUp(unpacked.get(place), parts);
}

function setUpTabs() {
  const tabs = byId("tabs");
  tabs.hidden = blocks.length < 2;
  const go = (place) => {
    const parts = new URLSearchParams({ study: blocks[place].dataset.study });
    history.pushState(null, "", `#${parts}`);
    open(parts);
  };
  tabs.replaceChildren(...blocks.map((block, i) => {
    const tab = element("button", { type: "button", textContent: block.dataset.study, onclick: () => go(i) });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "study");
    return tab;
  }));
  tabs.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    const place = ([...tabs.children].indexOf(document.activeElement) + move + blocks.length) % blocks.length;
    tabs.children[place].focus();
    go(place);
  });
}

try {
  if (!("DecompressionStream" in window)) throw new Error("it needs a browser of 2023 or later");
  setUpTabs();
  listen();
  await open(partsOf(location.hash));
} catch (error) {
  byId("notice").textContent = `This page cannot be shown: ${error.message}`;
  byId("notice").hidden = false;
  throw error;
}
