// Numbers as text: short for people, complete for files.

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

const power = (exponent) => `10${[...String(exponent)].map((sign) => SUPERSCRIPTS[sign]).join("")}`;

// Three digits; a power of ten only where zeros would hide them.
function short(value, digits = 3) {
  if (Number.isNaN(value) || value === undefined || value === null) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(digits))).replace("-", "−");
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  return `${Number(mantissa)}`.replace("-", "−") + `·${power(Number(exponent))}`;
}

const decadesText = (value) => (Number.isFinite(value) ? value.toFixed(1) : "none");

// As Python writes a float: the same digits, so that a file from the page equals a file from the library.
function exact(value, whole = false) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (whole) return String(value);
  const [mantissa, exponent] = value.toExponential().split("e");
  const order = Number(exponent);
  if (order < -4 || order >= 16) {
    return `${mantissa}e${order < 0 ? "-" : "+"}${String(Math.abs(order)).padStart(2, "0")}`;
  }
  const text = Object.is(value, -0) ? "-0" : String(value);
  return text.includes(".") ? text : `${text}.0`;
}

// A text that a spreadsheet would take for a formula is marked as text, as `Result.to_csv` does.
const asText = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);

function csv(rows) {
  const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// "a, b and c"
function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
