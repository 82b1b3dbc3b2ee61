// What each pixel of a lane shows: the mean colour of what happens meanwhile, however many spans that are.

/** Sums of red, green, blue and time over the spans of a lane; `weightOf(lane, k)` is 0 for what is hidden, and less
 * than 1 for what is pale. A pixel is the difference of two sums, so its price does not depend on how much it holds. */
function sumColours(lane, colours, weightOf) {
  const n = lane.count;
  const sums = lane.sums || (lane.sums = [0, 1, 2, 3].map(() => new Float64Array(n + 1)));
  const [red, green, blue, time] = sums;
  for (let k = 0; k < n; k++) {
    const weight = (lane.end[k] - lane.start[k]) * weightOf(lane, k);
    const colour = 3 * lane.label[k];
    red[k + 1] = red[k] + weight * colours[colour];
    green[k + 1] = green[k] + weight * colours[colour + 1];
    blue[k + 1] = blue[k] + weight * colours[colour + 2];
    time[k + 1] = time[k] + weight;
  }
}

/** Three numbers (0 to 255) per label. */
function labelColours(labels) {
  const of = Object.fromEntries(Object.entries(labels.looks).map(([look, shown]) => [look, rgb(shown.fill)]));
  const out = new Float64Array(3 * labels.look.at.length);
  for (let k = 0; k < labels.look.at.length; k++) out.set(of[labels.lookOf(k)], 3 * k);
  return out;
}

function rgb(hex) {
  return [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
}

/** Writes `width` pixels of a lane into `pixels` from place `at` on: from time `from`, `step` ns each. The edges of
 * spans that are `edge` pixels wide or wider are darker. */
function paintLane(lane, pixels, at, width, from, step, edge) {
  const least = lane.main ? 0.08 : 0.3; // how much colour what is short has, so that it can still be seen
  const { start, end, sums: [red, green, blue, time] } = lane;
  const n = lane.count;
  let k = Math.max(0, lastAtMost(start, from)); // the span that the left edge of a pixel is in, or behind
  let [r, g, b, t] = upTo(lane, k, from);
  for (let x = 0; x < width; x++) {
    const right = from + (x + 1) * step;
    if (!n || (end[k] <= right - step && (k + 1 >= n || start[k + 1] >= right))) {
      pixels[4 * (at + x) + 3] = 0; // between two spans
      continue;
    }
    const before = k;
    k = forward(start, k, n, right);
    const length = end[k] - start[k];
    const part = length > 0 ? Math.min(1, Math.max(0, (right - start[k]) / length)) : right >= start[k] ? 1 : 0;
    const r1 = red[k] + (red[k + 1] - red[k]) * part;
    const g1 = green[k] + (green[k + 1] - green[k]) * part;
    const b1 = blue[k] + (blue[k + 1] - blue[k]) * part;
    const t1 = time[k] + (time[k + 1] - time[k]) * part;
    const share = t1 - t;
    const place = 4 * (at + x);
    if (share > 1e-6 * step) {
      const dark = k !== before && k === before + 1 && length > edge * step ? 0.72 : 1;
      pixels[place] = ((r1 - r) / share) * dark;
      pixels[place + 1] = ((g1 - g) / share) * dark;
      pixels[place + 2] = ((b1 - b) / share) * dark;
      pixels[place + 3] = 255 * (least + (1 - least) * Math.min(1, share / step));
    } else pixels[place + 3] = 0;
    r = r1; g = g1; b = b1; t = t1;
  }
}

function upTo(lane, k, moment) {
  if (!lane.count) return [0, 0, 0, 0];
  const length = lane.end[k] - lane.start[k];
  const part = length > 0 ? Math.min(1, Math.max(0, (moment - lane.start[k]) / length)) : 0;
  return lane.sums.map((sum) => sum[k] + (sum[k + 1] - sum[k]) * part);
}

/** The last span from `k` on that starts before `moment`: steps that double, then halves. */
function forward(start, k, n, moment) {
  if (k + 1 >= n || start[k + 1] >= moment) return k;
  let reach = 1;
  while (k + reach < n && start[k + reach] < moment) reach *= 2;
  let low = k + (reach >> 1);
  let high = Math.min(n, k + reach);
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (start[middle] < moment) low = middle;
    else high = middle;
  }
  return low;
}
