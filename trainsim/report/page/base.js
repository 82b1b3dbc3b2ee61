// What all views use: columns of data, elements, numbers for people, canvases as sharp as the screen.

/** View name -> function(root, data, still): fills `root`, may hide `still`. */
const views = {};

const TYPES = {
  u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array,
  u4: Uint32Array, i4: Int32Array, f4: Float32Array, f8: Float64Array,
};

/** A column as an array: of one number, or a typed array in base64 (little-endian, as all browsers are). */
function unpacked(column) {
  if (!("data" in column)) return new Float64Array(column.size).fill(column.all);
  const text = atob(column.data);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return new TYPES[column.type](bytes.buffer);
}

/** An element with attributes and children; texts are texts, whatever is in them. */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function button(text, label, action) {
  return element("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
}

/** A button that is on or off; `action` is told which. */
function toggle(text, label, on, action) {
  const made = button(text, label, () => set(made.getAttribute("aria-pressed") !== "true"));
  const set = (now) => {
    made.setAttribute("aria-pressed", String(now));
    action(now);
  };
  made.setAttribute("aria-pressed", String(on));
  return made;
}

/** Of several buttons one is on: `action` is told the number of the one that was chosen. */
function choice(label, names, action) {
  const buttons = names.map((name, k) => button(name, `${label} ${name}`, () => choose(k)));
  const choose = (chosen) => {
    buttons.forEach((one, k) => one.setAttribute("aria-pressed", String(k === chosen)));
    action(chosen);
  };
  const group = element("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
  return { group, choose };
}

/** A length of time in nanoseconds, to four digits. */
function timeText(ns) {
  const size = Math.abs(ns);
  const [unit, name] = size >= 1e9 ? [1e9, "s"] : size >= 1e6 ? [1e6, "ms"] : size >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const value = ns / unit;
  const digits = unit === 1 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.max(1, Math.abs(value)))));
  return `${value.toFixed(digits)} ${name}`;
}

function bytesText(bytes) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let k = 0;
  while (bytes >= 1024 && k < names.length - 1) {
    bytes /= 1024;
    k += 1;
  }
  return `${k ? bytes.toFixed(bytes < 10 ? 2 : 1) : Math.round(bytes)} ${names[k]}`;
}

/** Marks of an axis between two values, at round steps. */
function ticks(from, until, about) {
  const rough = (until - from) / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough) || 10 * power;
  const marks = [];
  for (let k = Math.ceil(from / step); k * step <= until; k++) marks.push(k * step);
  return { step, marks };
}

/** A mark of a time axis whose marks are `step` apart, with as many digits as tell them apart. */
function axisText(ns, step, unit) {
  let digits = 0;
  while (digits < 9 && Math.abs((step / unit.size) * 10 ** digits - Math.round((step / unit.size) * 10 ** digits)) > 1e-6) digits += 1;
  return (ns / unit.size).toFixed(digits);
}

function axisUnit(until) {
  return until >= 1e9 ? { size: 1e9, name: "s" } : until >= 1e6 ? { size: 1e6, name: "ms" } : { size: 1e3, name: "µs" };
}

const themeColours = new Map();
document.addEventListener("theme", () => themeColours.clear());

/** The value of a variable of the style sheet, which depends on the theme. */
function themed(name) {
  if (!themeColours.has(name)) {
    themeColours.set(name, getComputedStyle(document.querySelector("main")).getPropertyValue(name).trim());
  }
  return themeColours.get(name);
}

/** A canvas that fills the width of its parent; `draw(context, width, height)` in CSS pixels, once a frame at most. */
function sharpCanvas(attributes, height, draw) {
  const canvas = element("canvas", attributes);
  let waiting = false;
  const paint = () => {
    waiting = false;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const width = canvas.parentElement ? canvas.parentElement.clientWidth : 0;
    if (!width) return;
    const tall = typeof height === "function" ? height() : height;
    const [across, down] = [Math.round(width * ratio), Math.round(tall * ratio)];
    if (canvas.width !== across || canvas.height !== down) {
      canvas.width = across;
      canvas.height = down;
      canvas.style.width = "100%";
      canvas.style.height = `${tall}px`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, tall);
    draw(context, width, tall, ratio);
  };
  const redraw = () => {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(paint);
    }
  };
  new ResizeObserver(redraw).observe(document.querySelector("main"));
  document.addEventListener("theme", redraw);
  return { canvas, redraw };
}

/** The place of the pointer in an element. */
function placeIn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** The last place in sorted `column` whose value is at most `value`, or -1. */
function lastAtMost(column, value) {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** A box beside the pointer. */
function tooltip(root) {
  const box = element("div", { class: "tip", role: "status", hidden: "" });
  root.append(box);
  return {
    box,
    show(place, ...lines) {
      box.replaceChildren(...lines);
      box.hidden = false;
      const room = root.clientWidth - box.offsetWidth - 4;
      box.style.left = `${Math.max(0, Math.min(place.x + 14, room))}px`;
      box.style.top = `${place.y + 16}px`;
    },
    hide() {
      box.hidden = true;
    },
  };
}
