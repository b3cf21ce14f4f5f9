// From a block of text in the page to a study: base64, gzip, a JSON header and the arrays that it points to.

const TYPES = { f8: Float64Array, i2: Int16Array, u2: Uint16Array, u4: Uint32Array };

async function unpack(text) {
  const packed = atob(text);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = await new Response(stream).arrayBuffer();
  const length = new DataView(data).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  return revive(header, data, 4 + length);
}

// Wherever the header points to an array, put it.
function revive(value, data, start) {
  if (Array.isArray(value)) return value.map((item) => revive(item, data, start));
  if (value === null || typeof value !== "object") return value;
  if (value.type in TYPES && "at" in value) {
    const Type = TYPES[value.type];
    const count = value.shape.reduce((product, size) => product * size, 1);
    const begin = start + value.at;
    return nest(new Type(data.slice(begin, begin + count * Type.BYTES_PER_ELEMENT)), value.shape);
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, revive(item, data, start)]));
}

function nest(flat, shape) {
  if (shape.length < 2) return flat;
  const size = flat.length / shape[0];
  return Array.from({ length: shape[0] }, (_, i) => nest(flat.subarray(i * size, (i + 1) * size), shape.slice(1)));
}

// Thousandths of a decade, with three codes for what has no logarithm or is off every plot.
function fromDecades(codes) {
  return Float64Array.from(codes, (code) =>
    code === 32767 ? Infinity : code === -32767 ? 0 : code === -32768 ? NaN : 10 ** (code / 1000),
  );
}
