// How the timeline is steered: buttons, keys, wheel, fingers; what is said of the span under the pointer.

function controls(view) {
  const { root, surface } = view;
  const bar = element("div", { class: "bar-of-buttons", role: "toolbar", "aria-label": "Timeline" });
  bar.append(
    button("+", "Zoom in (w)", () => view.glide(...view.zoomed(0.5))),
    button("−", "Zoom out (s)", () => view.glide(...view.zoomed(2))),
    button("◀", "Earlier (a)", () => view.move(-0.5)),
    button("▶", "Later (d)", () => view.move(0.5)),
    button("whole step", "Show the whole step (0)", () => view.glide(0, view.until)),
  );
  if (view.legs && view.legs.lane.length) {
    bar.append(toggle("critical path", "Draw the critical path", false, (on) => {
      view.onPath = on;
      surface.redraw();
    }));
  }
  if (view.lanes.some((lane) => lane.count && !lane.main)) {
    bar.append(toggle("communication lanes", "Lanes of communication under those of compute", true, (on) => {
      view.withStreams = on;
      view.lay();
    }));
  }
  bar.append(searchBox(view));
  const details = element("div", { class: "details", "aria-live": "polite" });
  const hint = element("p", { class: "note" },
    "Click into the timeline: the wheel then zooms (without a click: Ctrl and wheel). Drag to move; w s a d, arrows, + − 0 "
    + "and / work too; a double click zooms to a span.");
  const around = element("div", { class: "canvas" }, surface.canvas);
  root.append(bar, kindButtons(view), element("div", { class: "canvas" }, view.map.canvas), around, details, hint);
  view.onSelect = (span) => details.replaceChildren(...(span ? describe(view, span, true) : []));
  pointed(view, around);
  keyed(view, root);
}

/** A button per kind, in its colour: switches what is of that kind on and off. */
function kindButtons(view) {
  const group = element("div", { class: "kinds", role: "group", "aria-label": "Kinds of spans" });
  const used = new Set();
  for (const lane of view.lanes) for (const label of lane.label) used.add(view.labels.look.at[label]);
  view.labels.look.words.forEach((look, n) => {
    if (!used.has(n)) return;
    const { fill, title } = view.labels.looks[look];
    const one = toggle(title, `Show ${title}`, true, (on) => {
      view.hidden[on ? "delete" : "add"](look);
      view.recolour();
    });
    one.prepend(element("i", { style: `background:${fill}` }));
    group.append(one);
  });
  group.append(element("span", { class: "key" }, element("i", { class: "idle" }), "idle: waiting"));
  return group;
}

function searchBox(view) {
  const count = element("output", { class: "count" });
  const field = element("input", {
    type: "search", placeholder: "search: a name, microbatch 3, layer 5, F3 …", "aria-label": "Search spans", size: "30",
  });
  let waiting = 0;
  const search = () => {
    waiting = 0;
    view.matches = found(field.value, view);
    const some = view.matches && view.matches.reduce((sum, { at }) => sum + at.length, 0);
    count.textContent = some === null ? "" : some ? `${some.toLocaleString("en")} found` : "nothing found";
    view.recolour();
    return some;
  };
  const jump = (step) => {
    if (waiting) {
      clearTimeout(waiting);
      search();
    }
    const next = view.matches && nextMatch(view, step);
    if (next) view.select(next, true);
  };
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 120);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") jump(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      field.value = "";
      search();
    }
  });
  view.focusSearch = () => field.focus();
  return element("span", { class: "search" }, field,
    button("‹", "Previous match (Shift and Enter)", () => jump(-1)), button("›", "Next match (Enter)", () => jump(1)), count);
}

// -- pointer and keys -----------------------------------------------------------------------------------------

function pointed(view, around) {
  const { canvas } = view.surface;
  const tip = tooltip(around);
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, placeIn(canvas, event));
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    view.gliding = (view.gliding || 0) + 1;
  });
  canvas.addEventListener("pointermove", (event) => {
    const place = placeIn(canvas, event);
    if (fingers.has(event.pointerId)) {
      moved += drag(view, fingers, event.pointerId, place);
      tip.hide();
      return;
    }
    const span = view.spanAt(place);
    if (span) tip.show(place, ...describe(view, span, false));
    else tip.hide();
  });
  const up = (event) => {
    if (fingers.delete(event.pointerId) && moved < 4 && event.type === "pointerup") {
      view.select(view.spanAt(placeIn(canvas, event)));
    }
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => tip.hide());
  canvas.addEventListener("dblclick", (event) => {
    const span = view.spanAt(placeIn(canvas, event));
    if (span) zoomTo(view, span);
  });
  canvas.addEventListener("wheel", (event) => wheel(view, event), { passive: false });
}

function zoomTo(view, { lane, k }) {
  const room = Math.max(lane.end[k] - lane.start[k], LEAST_WINDOW) * 0.6;
  view.glide(lane.start[k] - room, lane.end[k] + room);
}

/** One finger moves, two zoom; how far it went. */
function drag(view, fingers, id, place) {
  const before = fingers.get(id);
  const other = [...fingers].find(([one]) => one !== id)?.[1];
  const { from, until } = view.window;
  if (other) {
    const spread = Math.max(8, Math.abs(place.x - other.x)) / Math.max(8, Math.abs(before.x - other.x));
    view.show(...view.zoomed(1 / spread, view.timeAt((place.x + other.x) / 2)));
  } else {
    const by = ((before.x - place.x) / view.plotWidth) * (until - from);
    if (from + by >= 0 && until + by <= view.until) view.show(from + by, until + by);
    else if (by < 0) view.show(0, until - from);
    else view.show(view.until - (until - from), view.until);
    view.roll(before.y - place.y);
  }
  fingers.set(id, place);
  return Math.abs(place.x - before.x) + Math.abs(place.y - before.y);
}

/** The wheel zooms around the pointer, sideways it moves; the page scrolls unless somebody has clicked here. */
function wheel(view, event) {
  const { canvas } = view.surface;
  const pinch = event.ctrlKey || event.metaKey;
  if (!pinch && document.activeElement !== canvas) return;
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 16 : 1;
  const length = view.window.until - view.window.from;
  if (event.shiftKey && !pinch) {
    view.roll((event.deltaY || event.deltaX) * lines);
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = ((event.deltaX * lines) / view.plotWidth) * length;
    const room = by < 0 ? Math.max(by, -view.window.from) : Math.min(by, view.until - view.window.until);
    view.show(view.window.from + room, view.window.until + room);
  } else {
    const speed = pinch && !event.deltaMode ? 0.008 : 0.0022;
    view.show(...view.zoomed(Math.exp(event.deltaY * lines * speed), view.timeAt(placeIn(canvas, event).x)));
  }
}

function keyed(view, root) {
  const does = {
    w: () => view.glide(...view.zoomed(0.6)), s: () => view.glide(...view.zoomed(1 / 0.6)),
    "+": () => view.glide(...view.zoomed(0.5)), "=": () => view.glide(...view.zoomed(0.5)),
    "-": () => view.glide(...view.zoomed(2)),
    a: () => view.move(-0.25), d: () => view.move(0.25), ArrowLeft: () => view.move(-0.25), ArrowRight: () => view.move(0.25),
    ArrowUp: () => view.roll(-40), ArrowDown: () => view.roll(40),
    0: () => view.glide(0, view.until), Home: () => view.glide(0, view.until),
    f: () => view.selected && zoomTo(view, view.selected), "/": () => view.focusSearch(),
    Escape: () => (view.selected ? view.select(null) : view.surface.canvas.blur()),
  };
  view.surface.canvas.addEventListener("keydown", (event) => {
    const action = does[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
}

// -- what is known of a span ----------------------------------------------------------------------------------

/** Elements that say everything of a span; `whole`: for the panel under the timeline, with buttons. */
function describe(view, { lane, k, together }, whole) {
  const { labels, data } = view;
  const label = lane.label[k];
  const rank = data.ranks[lane.rank];
  const pass = passName(lane, k, data.facts);
  const layer = labels.layer[label];
  const facts = [
    ["kind", labels.looks[labels.lookOf(label)].title],
    ["time", `${timeText(lane.end[k] - lane.start[k])}, from ${timeText(lane.start[k])}`],
    ["pass", [pass, lane.microbatch[k] >= 0 && `microbatch ${lane.microbatch[k]}`].filter(Boolean).join(", ")],
    ["layer", layer >= 0 ? String(layer) : ""],
    ["carries", labels.carriesOf(label)],
    ["waited", lane.wait[k] > 0 ? `${timeText(lane.wait[k])} for its peers before` : ""],
    ["where", `stage ${rank.stage}, rank ${rank.rank}, ${lane.title}`],
    ["here", !whole && together > 1 ? `${together.toLocaleString("en")} spans in this pixel: zoom in` : ""],
  ];
  const list = element("dl", {});
  for (const [name, said] of facts) if (said) list.append(element("dt", {}, name), element("dd", {}, said));
  const title = element("b", {}, labels.nameOf(label));
  if (!whole) return [title, list];
  const step = (by) => () => {
    const next = Math.min(lane.count - 1, Math.max(0, k + by));
    view.select({ lane, k: next }, true);
  };
  return [
    element("p", {}, title, " ", button("‹", "The span before, in its lane", step(-1)),
      button("›", "The span behind, in its lane", step(1)), button("zoom to it", "Zoom to it (f)", () => zoomTo(view, { lane, k }))),
    list,
  ];
}
