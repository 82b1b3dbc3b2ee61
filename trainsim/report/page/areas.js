// Levels over time as areas upon each other: what a stage holds in memory, how full a link is. One series at a time.

views.areas = (root, data) => {
  const series = data.series.map((one) => ({
    ...one,
    times: unpacked(one.times),
    parts: one.parts.map((part) => ({ ...part, levels: unpacked(part.levels) })),
  }));
  const text = data.unit === "bytes" ? bytesText : (share) => `${(100 * share).toFixed(1)}%`;
  let shown = series[0];
  const note = element("p", { class: "note" });
  const legend = element("p", { class: "legend" });
  const around = element("div", { class: "canvas" });
  let pointer = null;
  const surface = sharpCanvas({ role: "img", "aria-label": data.title }, 210, (context, width, height) => {
    drawAreas(context, { data, shown, text, width, height, pointer });
  });
  around.append(surface.canvas);
  const tip = tooltip(around);
  const picked = choice(data.choice, series.map((one) => one.name), (k) => {
    shown = series[k];
    note.textContent = `${shown.title}: ${shown.note}`;
    legend.replaceChildren(...shown.parts.map((part) => element("span", {}, element("i", { style: `background:${part.fill}` }), part.name)));
    surface.redraw();
  });
  root.append(element("div", { class: "bar-of-buttons" }, element("span", { class: "note" }, data.choice), picked.group), note, around, legend);
  surface.canvas.addEventListener("pointermove", (event) => {
    const place = placeIn(surface.canvas, event);
    pointer = momentAt(place.x, surface.canvas.clientWidth, shown);
    tip.show(place, ...levelsAt(shown, pointer, text));
    surface.redraw();
  });
  surface.canvas.addEventListener("pointerleave", () => {
    pointer = null;
    tip.hide();
    surface.redraw();
  });
  picked.choose(data.first || 0);
};

const CHART_LEFT = 64;
const CHART_FOOT = 20;

function momentAt(x, width, shown) {
  return Math.max(0, Math.min(1, (x - CHART_LEFT) / (width - CHART_LEFT))) * shown.until;
}

function levelsAt(shown, moment, text) {
  const k = Math.max(0, lastAtMost(shown.times, moment));
  const list = element("dl", {});
  let sum = 0;
  for (const part of [...shown.parts].reverse()) {
    sum += part.levels[k];
    if (part.levels[k] > 0) list.append(element("dt", {}, part.name), element("dd", {}, text(part.levels[k])));
  }
  return [element("b", {}, `${text(sum)} at ${timeText(moment)}`), list];
}

function drawAreas(context, { data, shown, text, width, height, pointer }) {
  const bottom = height - CHART_FOOT;
  const x = (time) => CHART_LEFT + (time / shown.until) * (width - CHART_LEFT - 1);
  const y = (level) => bottom - (level / data.top) * (bottom - 8);
  context.fillStyle = themed("--chart");
  context.fillRect(CHART_LEFT, 0, width - CHART_LEFT, bottom);
  const base = new Float64Array(shown.times.length);
  for (const part of shown.parts) {
    context.fillStyle = part.fill;
    context.beginPath();
    stair(context, shown, base, x, y, false);
    for (let k = 0; k < base.length; k++) base[k] += part.levels[k];
    stair(context, shown, base, x, y, true);
    context.fill();
  }
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  scales(context, { data, shown, text, width, bottom, x, y });
  for (const line of data.lines) {
    context.strokeStyle = themed("--path");
    context.lineWidth = 1.5;
    context.setLineDash([6, 4]);
    context.strokeRect(CHART_LEFT, y(line.value), width - CHART_LEFT, 0);
    context.setLineDash([]);
    context.fillStyle = themed("--path");
    context.textAlign = "right";
    context.fillText(line.name, width - 4, y(line.value) + (y(line.value) < 14 ? 9 : -8));
  }
  if (pointer !== null) {
    context.fillStyle = themed("--ink");
    context.fillRect(x(pointer), 0, 1, bottom);
  }
}

/** A staircase from left to right, or back: its levels hold from each time to the next. */
function stair(context, shown, level, x, y, back) {
  const n = level.length;
  for (let j = 0; j < n; j++) {
    const k = back ? n - 1 - j : j;
    const [left, right] = [x(shown.times[k]), x(k + 1 < n ? shown.times[k + 1] : shown.until)];
    context.lineTo(back ? right : left, y(level[k]));
    context.lineTo(back ? left : right, y(level[k]));
  }
}

function scales(context, { data, shown, text, width, bottom, x, y }) {
  context.fillStyle = themed("--soft");
  context.textAlign = "right";
  const unit = data.unit === "bytes" ? 1024 ** Math.floor(Math.log(data.top) / Math.log(1024)) : 0.01;
  for (const mark of ticks(0, data.top / unit, 4).marks) {
    context.fillText(data.unit === "bytes" ? text(mark * unit) : `${Math.round(mark)}%`, CHART_LEFT - 6, Math.max(6, y(mark * unit)));
    context.fillRect(CHART_LEFT - 3, y(mark * unit), 3, 1);
  }
  context.textAlign = "center";
  const { step, marks } = ticks(0, shown.until, (width - CHART_LEFT) / 110);
  const measure = axisUnit(shown.until);
  for (const mark of marks) if (x(mark) < width - 20) context.fillText(axisText(mark, step, measure), x(mark), bottom + 11);
  context.textAlign = "left";
  context.fillText(measure.name, CHART_LEFT - 24, bottom + 11);
}
