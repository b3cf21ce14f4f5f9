// Loads the page again while the run goes on, and says how old it is: a run that was killed leaves a page that stays as it is.
const root = document.documentElement;
const ages = [[86400, "days"], [3600, "hours"], [60, "min"], [1, "s"]];

function tell() {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - Number(root.dataset.written)));
  const [unit, name] = ages.find(([size]) => seconds >= size) ?? ages.at(-1);
  const age = `${Math.floor(seconds / unit)} ${name} ago`;
  document.getElementById("age").textContent =
    seconds < 60 ? `(${age})` : `(${age}: no step since then. It is doing something else, or it was killed.)`;
  if (seconds >= 60) document.getElementById("state").textContent = "No news";
}

if (root.dataset.state === "running") {
  tell();
  setInterval(tell, 1000);
  // Not while somebody reads what they have opened or selected.
  const busy = () => String(getSelection()) !== "" || document.querySelector("details[open]") !== null;
  setInterval(() => busy() || location.reload(), 4000);
}
