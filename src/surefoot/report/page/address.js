// The page's state in its address: study, D, switches and picks, so that a link shows what its sender saw.

const SWITCHES = { data: "train", kind: "last", index: "model", bias: "distance" };

function addressOf(page) {
  const { study, view } = page;
  const parts = new URLSearchParams();
  if (blocks.length > 1) parts.set("study", study.name);
  if (view.distance !== study.distance) parts.set("D", String(view.distance));
  for (const [name, usual] of Object.entries(SWITCHES)) if (view[name] !== (study.usual?.[name] ?? usual)) parts.set(name, view[name]);
  if (!view.bound) parts.set("bound", "off");
  if (page.touched) for (const { m, l } of page.picks) parts.append("pick", `${study.methods[m].name}@${study.lrs[l]}`);
  if (page.touched && !page.picks.length) parts.append("pick", "none");
  for (const m of page.hidden) parts.append("hide", study.methods[m].name);
  return parts.toString();
}

const partsOf = (hash) => new URLSearchParams(hash.replace(/^#/, ""));

// Safari takes a hundred changes of the address in half a minute: wait until the slider rests.
let waiting = 0, held = false;
function noteAddress(page) {
  clearTimeout(waiting);
  if (held) return;
  waiting = setTimeout(() => {
    const text = addressOf(page);
    if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }, 150);
}

// While another study is opened, the one that is left notes nothing any more.
function holdAddress(hold) {
  clearTimeout(waiting);
  held = hold;
}

// What an address says about a study that has just been set up; what it cannot mean is ignored.
function readAddress(page, parts) {
  const { study, view } = page;
  for (const name of Object.keys(SWITCHES)) {
    const input = [...byId("controls").querySelectorAll(`[name=${name}]`)].find((each) => each.value === parts.get(name));
    if (input && !input.disabled) input.click();
  }
  if (parts.get("bound") === "off" && view.bound) byId("controls").querySelector("[name=bound]").click();
  const distance = Number(parts.get("D"));
  if (distance > 0 && distance < Infinity) view.distance = distance;
  const place = (name) => study.methods.findIndex((method) => method.name === name);
  const picks = parts.getAll("pick").map((text) => {
    const at = text.lastIndexOf("@");
    return { m: place(text.slice(0, at)), l: study.lrs.indexOf(Number(text.slice(at + 1))) };
  });
  if (picks.length) {
    page.touched = true;
    page.picks = picks.filter(({ m, l }) => m >= 0 && l >= 0).slice(0, MOST);
  }
  for (const m of parts.getAll("hide").map(place)) if (page.listed.includes(m)) page.hidden.add(m);
}
