// The timeline: a lane per rank and stream, to zoom into. Its state, its drawing, and its window of time.

const TALL_LANES = [[3, 40], [8, 26], [Infinity, 20]]; // up to so many ranks: CSS pixels of a lane of compute, ...
const THIN_LANES = [[3, 16], [8, 12], [Infinity, 11]]; // ... and of one of communication
const BETWEEN_RANKS = 8;
const AXIS_HEIGHT = 24;
const LEAST_WINDOW = 50; // ns
const ROOM_FOR_TEXT = 30; // CSS pixels

views.timeline = (root, data) => {
  const view = new Timeline(root, data);
  controls(view);
  view.recolour();
  view.show(0, view.until);
};

class Timeline {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    Object.assign(this, unfoldedLanes(data));
    this.until = data.until || 1;
    this.window = { from: 0, until: this.until };
    this.colours = labelColours(this.labels);
    this.hidden = new Set();
    this.matches = null; // of a search: per lane the numbers of the spans that it finds
    this.selected = null; // { lane, k }
    this.onPath = false;
    this.withStreams = true;
    this.scroll = 0;
    for (const lane of this.lanes) {
      lane.main = lane.chain === "compute" && lane.layer === 0 && lane.count > 0;
      lane.passes = lane.main ? passesOf(lane, data.facts) : null;
    }
    this.legs = data.path && {
      lane: unpacked(data.path.lane), start: unpacked(data.path.start), length: unpacked(data.path.length),
    };
    this.pixels = null;
    this.surface = sharpCanvas(
      { tabindex: "0", role: "application", "aria-label": "Timeline: w and s zoom, a and d move, 0 shows all, / searches" },
      () => this.height, (...all) => this.draw(...all),
    );
    this.map = overview(this);
    this.lay();
  }

  // -- what is where ------------------------------------------------------------------------------------------

  /** Puts lanes under each other: those with spans, or the compute lanes alone. */
  lay() {
    let y = 0;
    let rank = -1;
    const [high, low] = [TALL_LANES, THIN_LANES].map((table) => table.find(([ranks]) => this.data.ranks.length <= ranks)[1]);
    this.rows = [];
    for (const lane of this.lanes) {
      if (!lane.count || !(lane.main || this.withStreams)) continue;
      if (lane.rank !== rank) y += this.rows.length ? BETWEEN_RANKS : 2;
      const first = lane.rank !== rank;
      rank = lane.rank;
      const tall = lane.main ? high : low;
      this.rows.push({ lane, top: y, tall, first });
      lane.row = this.rows.length - 1;
      y += tall + 1;
    }
    this.content = y + 4;
    this.height = Math.min(this.content, Math.max(240, Math.min(620, window.innerHeight - 230))) + AXIS_HEIGHT;
    this.roll(0);
  }

  /** Moves the lanes up by so many pixels. */
  roll(by) {
    const most = Math.max(0, this.content + AXIS_HEIGHT - this.height);
    this.scroll = Math.min(most, Math.max(0, this.scroll + by));
    this.surface.redraw();
  }

  gutter(width) {
    return width < 640 ? 74 : 150;
  }

  get plotWidth() {
    const width = this.surface.canvas.clientWidth;
    return Math.max(10, width - this.gutter(width));
  }

  timeAt(x) {
    const width = this.surface.canvas.clientWidth;
    return this.window.from + ((x - this.gutter(width)) / this.plotWidth) * (this.window.until - this.window.from);
  }

  rowAt(y) {
    const inside = y - AXIS_HEIGHT + this.scroll;
    return y < AXIS_HEIGHT ? undefined : this.rows.find((row) => inside >= row.top && inside < row.top + row.tall + 1);
  }

  /** The span under a point, or the nearest one within three pixels: { lane, k, together } or null. */
  spanAt({ x, y }) {
    const row = this.rowAt(y);
    const width = this.surface.canvas.clientWidth;
    if (!row || x < this.gutter(width)) return null;
    const { lane } = row;
    const pixel = (this.window.until - this.window.from) / this.plotWidth;
    const moment = this.timeAt(x);
    let k = lastAtMost(lane.start, moment);
    if (k < 0 || lane.end[k] < moment) {
      const behind = k >= 0 && moment - lane.end[k] < 3 * pixel;
      const ahead = k + 1 < lane.count && lane.start[k + 1] - moment < 3 * pixel;
      if (!behind && !ahead) return null;
      if (!behind) k += 1;
    }
    const together = lastAtMost(lane.start, moment + pixel / 2) - Math.max(0, lastAtMost(lane.start, moment - pixel / 2));
    return this.hidden.has(this.labels.lookOf(lane.label[k])) ? null : { lane, k, together };
  }

  // -- the window of time -------------------------------------------------------------------------------------

  /** Shows from `from` to `until` (ns), moved and cut to what there is. */
  show(from, until) {
    const length = Math.min(this.until, Math.max(LEAST_WINDOW, until - from));
    const begin = Math.min(this.until - length, Math.max(0, from - (length - (until - from)) / 2));
    if (begin === this.window.from && begin + length === this.window.until && "from" in this.root.dataset) return;
    this.window = { from: begin, until: begin + length };
    this.root.dataset.from = begin;
    this.root.dataset.until = begin + length;
    this.surface.redraw();
    this.map.redraw();
  }

  /** The same in a sixth of a second. */
  glide(from, until) {
    const [a, b] = [this.window.from, this.window.until];
    const began = performance.now();
    const number = (this.gliding = (this.gliding || 0) + 1);
    const step = (now) => {
      if (number !== this.gliding) return;
      const part = Math.min(1, Math.max(0, (now - began) / 160));
      const eased = part * (2 - part);
      this.show(a + (from - a) * eased, b + (until - b) * eased);
      if (part < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  /** A window `factor` times as long around `centre` (ns; the middle if it is left out). */
  zoomed(factor, centre) {
    const { from, until } = this.window;
    const about = centre ?? (from + until) / 2;
    const length = Math.min(this.until, Math.max(LEAST_WINDOW, (until - from) * factor));
    const begin = about - ((about - from) * length) / (until - from);
    return [begin, begin + length];
  }

  move(part) {
    const by = (this.window.until - this.window.from) * part;
    const room = part < 0 ? Math.max(by, -this.window.from) : Math.min(by, this.until - this.window.until);
    this.glide(this.window.from + room, this.window.until + room);
  }

  /** Selects a span (null: none) and, if `reveal`, brings it into view, wide enough to be seen. */
  select(span, reveal = false) {
    this.selected = span;
    if (span && reveal) this.reveal(span);
    this.surface.redraw();
    this.onSelect?.(span);
  }

  reveal({ lane, k }) {
    const length = Math.max(1, lane.end[k] - lane.start[k]);
    const now = this.window.until - this.window.from;
    const wanted = Math.min(now, Math.max(length * 12, LEAST_WINDOW));
    const middle = (lane.start[k] + lane.end[k]) / 2;
    const inside = lane.start[k] >= this.window.from && lane.end[k] <= this.window.until;
    if (!inside || wanted < now) this.show(middle - wanted / 2, middle + wanted / 2);
    const row = this.rows[lane.row];
    if (row && row.lane === lane) {
      const room = this.height - AXIS_HEIGHT;
      if (row.top < this.scroll || row.top + row.tall > this.scroll + room) this.roll(row.top - room / 2 - this.scroll);
    }
  }

  /** Sums colours anew: after a kind was switched, or a search. */
  recolour() {
    const shown = Float64Array.from(this.labels.look.at, (look) => (this.hidden.has(this.labels.look.words[look]) ? 0 : 1));
    this.lanes.forEach((lane, n) => {
      const found = this.matches && this.matches[n].mask;
      sumColours(lane, this.colours, (of, k) => shown[of.label[k]] * (found && !found[k] ? 0.13 : 1));
    });
    this.surface.redraw();
    this.map.refresh();
  }
}
