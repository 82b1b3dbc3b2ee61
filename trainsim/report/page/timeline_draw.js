// How the timeline is drawn: the pixels of its lanes, then texts, the critical path and the selected span over them.

Object.assign(Timeline.prototype, {
  draw(context, width, height, ratio) {
    const began = performance.now();
    const gutter = this.gutter(width);
    const plot = { left: gutter, width: width - gutter, across: Math.max(1, Math.round((width - gutter) * ratio)) };
    plot.step = (this.window.until - this.window.from) / plot.across;
    plot.scale = plot.width / (this.window.until - this.window.from);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const rows = this.rows.filter((row) => row.top + row.tall > this.scroll && row.top < this.scroll + height);
    this.drawSpans(context, rows, plot);
    this.drawAxis(context, plot, height);
    context.save();
    context.beginPath();
    context.rect(0, AXIS_HEIGHT, width, height - AXIS_HEIGHT);
    context.clip();
    for (const row of rows) this.drawTexts(context, row, plot);
    if (this.onPath) this.drawPath(context, plot);
    this.outline(context, this.selected, plot, themed("--ink"));
    this.drawNames(context, rows, gutter);
    context.restore();
    this.root.dataset.redrawMs = (performance.now() - began).toFixed(2);
  },

  drawSpans(context, rows, plot) {
    if (!rows.length) return;
    if (!this.pixels || this.pixels.width !== plot.across || this.pixels.height < rows.length) {
      this.pixels = new ImageData(plot.across, rows.length + 8);
      this.off = element("canvas", { width: plot.across, height: rows.length + 8 });
    }
    rows.forEach(({ lane }, n) => {
      paintLane(lane, this.pixels.data, n * plot.across, plot.across, this.window.from, plot.step, 4);
    });
    this.off.getContext("2d").putImageData(this.pixels, 0, 0);
    context.imageSmoothingEnabled = false;
    context.fillStyle = themed("--groove");
    for (const row of rows) context.fillRect(plot.left, this.yOf(row), plot.width, row.tall);
    rows.forEach((row, n) => {
      context.drawImage(this.off, 0, n, plot.across, 1, plot.left, this.yOf(row), plot.width, row.tall);
    });
  },

  yOf(row) {
    return AXIS_HEIGHT + row.top - this.scroll;
  },

  drawAxis(context, plot, height) {
    context.fillStyle = themed("--paper");
    context.fillRect(0, 0, plot.left + plot.width, AXIS_HEIGHT);
    const { from, until } = this.window;
    const { step, marks } = ticks(from, until, plot.width / 110);
    const unit = axisUnit(until);
    context.fillStyle = themed("--soft");
    context.strokeStyle = themed("--grid");
    context.lineWidth = 1;
    context.textAlign = "center";
    context.beginPath();
    for (const mark of marks) {
      const x = Math.round(plot.left + (mark - from) * plot.scale) + 0.5;
      context.moveTo(x, AXIS_HEIGHT - 5);
      context.lineTo(x, height);
      const text = axisText(mark, step, unit);
      const half = context.measureText(text).width / 2 + 2;
      if (x + half < plot.left + plot.width && x - half > plot.left) context.fillText(text, x, 9);
    }
    context.stroke();
    context.textAlign = "left";
    context.fillText(`time (${unit.name})`, 2, 9);
  },

  /** Names of passes, or of spans where these have room. */
  drawTexts(context, row, plot) {
    const { lane } = row;
    const y = this.yOf(row) + row.tall / 2 + 0.5;
    const first = Math.max(0, lastAtMost(lane.start, this.window.from));
    const seen = lastAtMost(lane.start, this.window.until) - first + 1;
    context.textAlign = "center";
    if (lane.passes && plot.width / Math.max(1, seen) < ROOM_FOR_TEXT) {
      this.drawPassNames(context, row, plot, y);
      this.drawSpanNames(context, row, plot, y, first, true);
      return;
    }
    context.font = row.tall > 14 ? "11px system-ui, sans-serif" : "9px system-ui, sans-serif";
    this.drawSpanNames(context, row, plot, y, first, false);
    context.font = "11px system-ui, sans-serif";
  },

  /** Names of the spans that have room for one; `apart`: only of those that are in no pass. */
  drawSpanNames(context, { lane }, plot, y, first, apart) {
    const least = ROOM_FOR_TEXT / plot.scale;
    for (let k = first; k < lane.count && lane.start[k] < this.window.until;) {
      const wide = lane.end[k] - lane.start[k] >= least && !(apart && passName(lane, k, this.data.facts));
      if (wide && !this.hidden.has(this.labels.lookOf(lane.label[k]))) {
        const colour = this.labels.looks[this.labels.lookOf(lane.label[k])].fill;
        this.writeInside(context, this.labels.nameOf(lane.label[k]), lane.start[k], lane.end[k], y, plot, colour);
      }
      k = Math.max(k + 1, forward(lane.start, k, lane.count, lane.start[k] + least));
    }
  },

  drawPassNames(context, row, plot, y) {
    const { passes } = row.lane;
    const least = 12 / plot.scale;
    const wide = (name) => context.measureText(name).width + 3.5;
    for (let k = Math.max(0, lastAtMost(passes.start, this.window.from)); k < passes.name.length;) {
      if (passes.start[k] > this.window.until) break;
      const length = passes.end[k] - passes.start[k];
      const names = [passes.name[k], passes.name[k].slice(1)]; // the microbatch alone where "B12" has no room
      const text = length >= least && names.find((name) => length * plot.scale > wide(name));
      if (text) {
        const fill = this.meanColour(row.lane, passes.start[k], passes.end[k]);
        if (fill) this.writeInside(context, text, passes.start[k], passes.end[k], y, plot, fill);
        const x = plot.left + (passes.start[k] - this.window.from) * plot.scale;
        if (x > plot.left) {
          context.fillStyle = themed("--paper");
          context.fillRect(x - 0.5, this.yOf(row), 1, row.tall);
        }
      }
      k = Math.max(k + 1, forward(passes.start, k, passes.name.length, passes.start[k] + least));
    }
  },

  /** The colour of a lane between two times, as "#rrggbb"; nothing where it is nearly empty. */
  meanColour(lane, from, until) {
    const a = upTo(lane, Math.max(0, lastAtMost(lane.start, from)), from);
    const b = upTo(lane, Math.max(0, lastAtMost(lane.start, until)), until);
    const time = b[3] - a[3];
    if (time < 0.3 * (until - from)) return "";
    return `#${[0, 1, 2].map((n) => Math.round((b[n] - a[n]) / time).toString(16).padStart(2, "0")).join("")}`;
  },

  /** A text in the middle of what is seen of a span, cut to its width. */
  writeInside(context, text, start, end, y, plot, fill) {
    const left = plot.left + Math.max(0, (start - this.window.from) * plot.scale);
    const right = plot.left + Math.min(plot.width, (end - this.window.from) * plot.scale);
    const room = right - left - 3;
    let shown = text;
    const wide = context.measureText(text).width;
    if (wide > room) {
      const letters = Math.floor((text.length * room) / wide) - 1;
      if (letters < 2) return;
      shown = `${text.slice(0, letters)}…`;
    }
    const [r, g, b] = rgb(fill);
    context.fillStyle = 0.3 * r + 0.59 * g + 0.11 * b > 125 ? "#101010" : "#ffffff";
    context.fillText(shown, (left + right) / 2, y);
  },

  /** The critical path: a line along the tops of lanes, and from each to the next. */
  drawPath(context, plot) {
    const { lane, start, length } = this.legs;
    context.strokeStyle = themed("--path");
    context.lineWidth = 2.5;
    context.beginPath();
    let before = false;
    for (let k = Math.max(0, lastAtMost(start, this.window.from) - 1); k < lane.length; k++) {
      if (start[k] > this.window.until) break;
      const row = this.rows[this.lanes[lane[k]].row];
      if (!row || row.lane !== this.lanes[lane[k]]) {
        before = false;
        continue;
      }
      const x = (time) => Math.max(plot.left, plot.left + (time - this.window.from) * plot.scale);
      const y = this.yOf(row) + 1;
      if (before) context.lineTo(x(start[k]), y);
      else context.moveTo(x(start[k]), y);
      context.lineTo(x(start[k] + length[k]), y);
      before = true;
    }
    context.stroke();
  },

  outline(context, span, plot, colour) {
    const row = span && this.rows[span.lane.row];
    if (!row || row.lane !== span.lane) return;
    const left = plot.left + (span.lane.start[span.k] - this.window.from) * plot.scale;
    const wide = Math.max(3, (span.lane.end[span.k] - span.lane.start[span.k]) * plot.scale);
    if (left + wide < plot.left) return;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.strokeRect(Math.max(plot.left, left), this.yOf(row), wide - Math.max(0, plot.left - left), row.tall);
  },

  drawNames(context, rows, gutter) {
    context.fillStyle = themed("--paper");
    context.fillRect(0, AXIS_HEIGHT, gutter, this.height);
    context.textAlign = "left";
    for (const row of rows) {
      const rank = this.data.ranks[row.lane.rank];
      const y = this.yOf(row) + row.tall / 2 + 0.5;
      context.fillStyle = themed(row.lane.main ? "--ink" : "--soft");
      context.font = row.lane.main ? "11px system-ui, sans-serif" : "9.5px system-ui, sans-serif";
      const long = `stage ${rank.stage} · rank ${rank.rank}`;
      const text = !row.lane.main ? row.lane.title : gutter > 100 ? long : `stage ${rank.stage}`;
      context.fillText(fitted(context, text, gutter - (row.lane.main ? 6 : 14)), row.lane.main ? 2 : 10, y);
    }
    context.font = "11px system-ui, sans-serif";
  },
});

/** A text, cut so that it takes no more than `room`. */
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let shown = text;
  while (shown.length > 1 && context.measureText(`${shown}…`).width > room) shown = shown.slice(0, -1);
  return `${shown}…`;
}
