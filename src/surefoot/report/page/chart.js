// Plots as SVG, drawn for the width at hand: axes, lines, bands, marks, and what the pointer is near to.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 54, right: 14, top: 14, bottom: 42 };
const REACH = 28; // pixels from the pointer to the point that it means
const TOUCH = 3; // points that are closer than this cannot be told apart: they share their words, and clicks go round
const MARKS = {
  o: (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
  s: (r) => `M${-r * 0.9},${-r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}Z`,
  "^": (r) => `M0,${-r * 1.2}L${r * 1.1},${r * 0.8}H${-r * 1.1}Z`,
  D: (r) => `M0,${-r * 1.3}L${r * 1.3},0L0,${r * 1.3}L${-r * 1.3},0Z`,
  v: (r) => `M0,${r * 1.2}L${r * 1.1},${-r * 0.8}H${-r * 1.1}Z`,
  P: (r) => `M${-r * 1.2},${-r * 0.4}h${r * 0.8}v${-r * 0.8}h${r * 0.8}v${r * 0.8}h${r * 0.8}v${r * 0.8}h${-r * 0.8}v${r * 0.8}h${-r * 0.8}v${-r * 0.8}h${-r * 0.8}Z`,
  X: (r) => star(r * 1.3, 4, 0.45, 45),
  p: (r) => star(r * 1.25, 5, 0.81, 0),
};

function star(r, tips, depth, turn) {
  const corners = Array.from({ length: 2 * tips }, (_, i) => {
    const angle = ((i * 180) / tips + turn - 90) * (Math.PI / 180);
    const far = i % 2 ? r * depth : r;
    return `${(far * Math.cos(angle)).toFixed(2)},${(far * Math.sin(angle)).toFixed(2)}`;
  });
  return `M${corners.join("L")}Z`;
}

function svg(tag, attributes, parent) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  parent?.append(element);
  return element;
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// New children in an old place: who had the focus keeps it.
function renew(host, children) {
  const place = [...host.children].indexOf(document.activeElement);
  host.replaceChildren(...children);
  if (place >= 0) (host.children[place] ?? host.lastElementChild)?.focus();
}

const coloured = (target, method) => {
  target.classList.add("m");
  target.style.setProperty("--base", method.colour);
  return target;
};

const markOf = (method, r) => (MARKS[method.mark] ?? MARKS.o)(r);

// axis: {label, log, domain: [low, high]}
function scaleOf({ log, domain }, from, to) {
  const warp = log ? Math.log10 : (value) => value;
  const [low, high] = domain.map(warp);
  return (value) => from + ((warp(value) - low) / (high - low)) * (to - from);
}

// An empty plot in its host, with axes; what is drawn on it is cut at its frame.
function plotOn(host, { x, y, label, height = 280 }) {
  const width = Math.max(host.clientWidth, 240);
  const root = host.querySelector("svg") ?? host.appendChild(svg("svg", { role: "img" }));
  root.replaceChildren();
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.setAttribute("aria-label", label);
  const right = width - MARGIN.right;
  const bottom = height - MARGIN.bottom;
  const plot = {
    root, host, width, height, hits: [],
    px: scaleOf(x, MARGIN.left, right), py: scaleOf(y, bottom, MARGIN.top),
    top: MARGIN.top, bottom, left: MARGIN.left, right, xDomain: x.domain, yDomain: y.domain,
  };
  const axes = svg("g", { class: "axes" }, root);
  for (const value of ticks(...x.domain, x.log, Math.floor(width / 60))) {
    svg("line", { x1: plot.px(value), x2: plot.px(value), y1: plot.top, y2: bottom, class: "rule" }, axes);
    svg("text", { x: plot.px(value), y: bottom + 16, class: "tick middle" }, axes).textContent = short(value);
  }
  for (const value of ticks(...y.domain, y.log, Math.floor(height / 36))) {
    svg("line", { x1: plot.left, x2: right, y1: plot.py(value), y2: plot.py(value), class: "rule" }, axes);
    svg("text", { x: plot.left - 7, y: plot.py(value) + 4, class: "tick end" }, axes).textContent = short(value);
  }
  svg("text", { x: (plot.left + right) / 2, y: height - 6, class: "label middle" }, axes).textContent = x.label;
  const clip = `clip-${host.id}`;
  svg("rect", { x: plot.left, y: plot.top, width: right - plot.left, height: bottom - plot.top }, svg("clipPath", { id: clip }, root));
  plot.inside = svg("g", { "clip-path": `url(#${clip})` }, root);
  plot.over = svg("g", {}, root);
  hover(plot);
  return plot;
}

// The numbers of a line stay with it as `points`, for whoever asks the page.
function lineOn(plot, xs, ys, method, kind, dash = "") {
  let path = "";
  let pen = "M";
  for (let i = 0; i < ys.length; i++) {
    const known = ys[i] > 0 && ys[i] < Infinity;
    if (known) path += `${pen}${plot.px(xs[i]).toFixed(1)},${bounded(plot.py(ys[i])).toFixed(1)}`;
    pen = known ? "L" : "M";
  }
  const line = coloured(svg("path", { d: path, class: `line ${kind}` }, plot.inside), method);
  if (dash) line.setAttribute("stroke-dasharray", dash);
  line.points = { x: Array.from(xs), y: Array.from(ys) };
  return line;
}

// Coordinates far outside upset renderers.
const bounded = (pixel) => Math.min(Math.max(pixel, -5000), 5000);

// From the lowest to the highest values; what is infinite or zero leaves the plot, what is missing is left out.
function bandOn(plot, xs, lows, highs, method) {
  const there = Array.from(xs.keys()).filter((i) => !Number.isNaN(lows[i] + highs[i]));
  const edge = (values) => (i) => `${plot.px(xs[i]).toFixed(1)},${bounded(plot.py(Math.max(values[i], 0))).toFixed(1)}`;
  if (there.length < 2) return;
  const d = `M${[...there.map(edge(highs)), ...there.reverse().map(edge(lows))].join("L")}Z`;
  coloured(svg("path", { d, class: "band" }, plot.inside), method);
}

function levelOn(plot, value, text, kind = "level") {
  if (!(value > plot.yDomain[0] && value < plot.yDomain[1])) return;
  const y = plot.py(value);
  svg("line", { x1: plot.left, x2: plot.right, y1: y, y2: y, class: kind }, plot.inside);
  svg("text", { x: plot.right - 4, y: y - 5, class: "note end" }, plot.over).textContent = text;
}

// What the pointer is near to: a ring, a few words, and an action on click.
function hover(plot) {
  const { root, host } = plot;
  const tip = host.querySelector(".tip") ?? host.appendChild(element("div", { className: "tip", hidden: true }));
  const ring = svg("circle", { r: 8, class: "ring", visibility: "hidden" }, plot.over);
  plot.point = (hits) => {
    ring.setAttribute("visibility", hits.length ? "visible" : "hidden");
    tip.hidden = !hits.length;
    if (!hits.length) return;
    const { x, y } = hits[0];
    ring.setAttribute("cx", x);
    ring.setAttribute("cy", y);
    tip.replaceChildren(...hits.slice(0, 4).map(({ words: [first, ...rest] }) =>
      element("div", {}, element("b", { textContent: first }), ...rest.map((textContent) => element("div", { textContent })))));
    const shrink = host.clientWidth / plot.width;
    const left = Math.min(Math.max(x * shrink - tip.offsetWidth / 2, 0), host.clientWidth - tip.offsetWidth);
    const high = y * shrink - tip.offsetHeight - 14;
    tip.style.left = `${left}px`;
    tip.style.top = `${high > 0 ? high : y * shrink + 16}px`;
  };
  // The nearest point, and those that lie upon it.
  const near = (event) => {
    const box = root.getBoundingClientRect();
    const grow = plot.width / box.width;
    const [x, y] = [(event.clientX - box.left) * grow, (event.clientY - box.top) * grow];
    let [found, reach] = [null, REACH];
    for (const hit of plot.hits) {
      const away = Math.hypot(hit.x - x, hit.y - y);
      if (away < reach) [found, reach] = [hit, away];
    }
    return found ? [found, ...plot.hits.filter((hit) => hit !== found && Math.hypot(hit.x - found.x, hit.y - found.y) < TOUCH)] : [];
  };
  root.onpointermove = (event) => plot.point(near(event));
  root.onpointerleave = () => plot.point([]);
  root.onclick = (event) => {
    const hits = near(event);
    (hits.find((hit) => hit.act && !hit.picked) ?? hits[0])?.act?.();
  };
}

function emptyOn(plot, text) {
  svg("text", { x: (plot.left + plot.right) / 2, y: (plot.top + plot.bottom) / 2, class: "label middle" }, plot.over).textContent = text;
}
