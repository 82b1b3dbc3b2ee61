// Who sends how much to whom: a heat map, all together or by kind of communication.

views.matrix = (root, data) => {
  const n = data.names.length;
  const kinds = data.kinds.map((kind) => ({
    ...kind, from: unpacked(kind.from), to: unpacked(kind.to), bytes: unpacked(kind.bytes),
  }));
  const tables = kinds.map((kind) => {
    const table = new Float64Array(n * n);
    kind.from.forEach((from, k) => { table[from * n + kind.to[k]] = kind.bytes[k]; });
    return table;
  });
  const whole = new Float64Array(n * n);
  for (const table of tables) table.forEach((bytes, k) => { whole[k] += bytes; });
  let shown = whole;
  let pointed = -1;
  const around = element("div", { class: "canvas" });
  const side = () => Math.min(460, around.clientWidth || 460);
  const surface = sharpCanvas({ role: "img", "aria-label": data.title }, side, (context, width, height) => {
    drawMatrix(context, { shown, n, size: height - MATRIX_EDGE, names: data.names, pointed });
  });
  around.append(surface.canvas);
  const tip = tooltip(around);
  const picked = choice("kind", ["all", ...kinds.map((kind) => kind.kind)], (k) => {
    shown = k ? tables[k - 1] : whole;
    surface.redraw();
  });
  root.append(element("div", { class: "bar-of-buttons" }, picked.group), around);
  const cellAt = ({ x, y }) => {
    const cell = (side() - MATRIX_EDGE) / n;
    const [from, to] = [Math.floor((y - MATRIX_EDGE) / cell), Math.floor((x - MATRIX_EDGE) / cell)];
    return from >= 0 && to >= 0 && from < n && to < n ? from * n + to : -1;
  };
  surface.canvas.addEventListener("pointermove", (event) => {
    const place = placeIn(surface.canvas, event);
    pointed = cellAt(place);
    if (pointed >= 0) tip.show(place, ...sentWords(data.names, kinds, tables, whole, pointed, n));
    else tip.hide();
    surface.redraw();
  });
  surface.canvas.addEventListener("pointerleave", () => {
    pointed = -1;
    tip.hide();
    surface.redraw();
  });
  picked.choose(0);
};

const MATRIX_EDGE = 46;

function sentWords(names, kinds, tables, whole, at, n) {
  const list = element("dl", {});
  kinds.forEach((kind, k) => {
    if (tables[k][at] > 0) list.append(element("dt", {}, kind.kind), element("dd", {}, bytesText(tables[k][at])));
  });
  const from = names[Math.floor(at / n)];
  const to = names[at % n];
  const title = from === to ? `within ${from}` : `${from} to ${to}`;
  return [element("b", {}, `${title}: ${whole[at] ? bytesText(whole[at]) : "nothing"}`), list];
}

function drawMatrix(context, { shown, n, size, names, pointed }) {
  const cell = size / n;
  let [most, least] = [0, Infinity];
  for (const bytes of shown) {
    most = Math.max(most, bytes);
    if (bytes > 0) least = Math.min(least, bytes);
  }
  context.fillStyle = themed("--chart");
  context.fillRect(MATRIX_EDGE, MATRIX_EDGE, size, size);
  const gap = cell > 8 ? 1 : 0;
  const range = Math.log(most / least) || 1;
  for (let k = 0; k < n * n; k++) {
    if (!shown[k]) continue;
    const part = most === least ? 1 : 0.12 + (0.88 * Math.log(shown[k] / least)) / range;
    context.fillStyle = heat(part);
    context.fillRect(MATRIX_EDGE + (k % n) * cell, MATRIX_EDGE + Math.floor(k / n) * cell, Math.max(1, cell - gap), Math.max(1, cell - gap));
  }
  if (pointed >= 0) {
    context.strokeStyle = themed("--ink");
    context.lineWidth = 2;
    context.strokeRect(MATRIX_EDGE + (pointed % n) * cell, MATRIX_EDGE + Math.floor(pointed / n) * cell, cell, cell);
  }
  matrixNames(context, { n, cell, names, size, legend: most > 0 ? [least, most] : null });
}

/** Pale yellow for little, dark red for much: their lightness differs too. */
function heat(part) {
  return `hsl(${50 - 46 * part} ${70 + 10 * part}% ${80 - 44 * part}%)`;
}

function matrixNames(context, { n, cell, names, size, legend }) {
  context.fillStyle = themed("--soft");
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "middle";
  const every = Math.ceil(14 / cell);
  for (let k = 0; k < n; k += every) {
    const at = MATRIX_EDGE + (k + 0.5) * cell;
    const short = names[k].match(/\d+/)[0];
    context.textAlign = "right";
    context.fillText(short, MATRIX_EDGE - 4, at);
    if (k % (every * (cell * every < 30 ? 3 : 1)) === 0) {
      context.textAlign = "center";
      context.fillText(short, at, MATRIX_EDGE - 8);
    }
  }
  context.textAlign = "left";
  context.fillText(`to ${names[0].replace(/[\d ].*$/, "")} →`, MATRIX_EDGE, 10);
  context.fillText("from ↓", 0, MATRIX_EDGE - 8);
  if (!legend) return;
  const left = MATRIX_EDGE + size + 24;
  if (left + 130 > context.canvas.clientWidth) return;
  for (let k = 0; k < 100; k++) {
    context.fillStyle = heat(1 - k / 100);
    context.fillRect(left, MATRIX_EDGE + k * 1.5, 14, 2);
  }
  context.fillStyle = themed("--soft");
  context.fillText(bytesText(legend[1]), left + 20, MATRIX_EDGE + 5);
  context.fillText(`${bytesText(legend[0])} (logarithmic)`, left + 20, MATRIX_EDGE + 146);
}
