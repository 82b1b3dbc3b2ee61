// The whole step above the timeline, with a frame around the window: drag to move it, or draw a new one.

function overview(view) {
  const lanes = view.lanes.filter((lane) => lane.main);
  const tall = Math.min(64, Math.max(22, lanes.length * 5));
  let kept = null; // the picture of the whole step, until colours or the width change
  const surface = sharpCanvas({ class: "map", "aria-hidden": "true" }, tall, (context, width, height, ratio) => {
    const gutter = view.gutter(width);
    const across = Math.max(1, Math.round((width - gutter) * ratio));
    if (!kept || kept.width !== across) kept = picture(lanes, across, view.until);
    context.imageSmoothingEnabled = false;
    context.fillStyle = themed("--groove");
    context.fillRect(gutter, 0, width - gutter, height);
    if (kept) context.drawImage(kept, gutter, 0, width - gutter, height);
    frame(context, view, gutter, width, height);
    context.fillStyle = themed("--soft");
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillText("whole step", 2, height / 2);
  });
  dragged(surface.canvas, view);
  return { ...surface, refresh() { kept = null; surface.redraw(); } };
}

function picture(lanes, across, until) {
  if (!lanes.length) return null;
  const image = new ImageData(across, lanes.length);
  lanes.forEach((lane, n) => paintLane(lane, image.data, n * across, across, 0, until / across, Infinity));
  const canvas = element("canvas", { width: across, height: lanes.length });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function frame(context, view, gutter, width, height) {
  const scale = (width - gutter) / view.until;
  const left = gutter + view.window.from * scale;
  const wide = Math.max(3, (view.window.until - view.window.from) * scale);
  context.fillStyle = themed("--veil");
  context.fillRect(gutter, 0, left - gutter, height);
  context.fillRect(left + wide, 0, width - left - wide, height);
  context.strokeStyle = themed("--ink");
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, 0.75, wide - 1.5, height - 1.5);
}

function dragged(canvas, view) {
  let begin = null;
  const timeAt = (event) => {
    const width = canvas.clientWidth;
    const gutter = view.gutter(width);
    return (Math.max(0, placeIn(canvas, event).x - gutter) / (width - gutter)) * view.until;
  };
  canvas.addEventListener("pointerdown", (event) => {
    const at = timeAt(event);
    const { from, until } = view.window;
    const whole = until - from > 0.98 * view.until;
    begin = { at, moves: !whole && at >= from && at <= until, from, until };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!begin) return;
    const at = timeAt(event);
    if (begin.moves) view.show(begin.from + at - begin.at, begin.until + at - begin.at);
    else if (Math.abs(at - begin.at) > view.until / 400) view.show(Math.min(at, begin.at), Math.max(at, begin.at));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (begin && Math.abs(timeAt(event) - begin.at) <= view.until / 400) {
      const half = (begin.until - begin.from) / 2;
      if (begin.until - begin.from < 0.98 * view.until) view.glide(begin.at - half, begin.at + half);
    }
    begin = null;
  });
}
