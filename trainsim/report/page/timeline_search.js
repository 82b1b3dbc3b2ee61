// What a search of the timeline finds: words of a name or kind, "microbatch 3", "layer 5", "rank 160", a pass ("F3").

const FIELDS = /\b(microbatch|mb|layer|rank|stage)\s*[:=]?\s*(\d+)\b/gi;

/** Whether a span is meant by `text`; null for an empty text. */
function meant(text, view) {
  const wanted = {};
  const words = text.toLowerCase().replace(FIELDS, (_, field, number) => {
    wanted[field === "mb" ? "microbatch" : field] = Number(number);
    return " ";
  }).split(/\s+/).filter(Boolean);
  if (!words.length && !Object.keys(wanted).length) return null;
  const { labels, data } = view;
  const passes = words.filter((word) => /^[fbiw]\d+(\.\d+)?$/.test(word)).map((word) => word.toUpperCase());
  const rest = words.filter((word) => !passes.includes(word.toUpperCase()));
  const fits = Uint8Array.from(labels.look.at, (_, k) => {
    const said = ["name", "kind", "stream", "carries"].map((what) => labels[`${what}Of`](k));
    const all = [...said, labels.looks[labels.lookOf(k)].title].join(" ").toLowerCase();
    const layer = wanted.layer === undefined || labels.layer[k] === wanted.layer;
    return Number(layer && rest.every((word) => all.includes(word)));
  });
  return (lane, k) => {
    const rank = data.ranks[lane.rank];
    return fits[lane.label[k]] === 1
      && (wanted.microbatch === undefined || lane.microbatch[k] === wanted.microbatch)
      && (wanted.rank === undefined || rank.rank === wanted.rank)
      && (wanted.stage === undefined || rank.stage === wanted.stage)
      && passes.every((pass) => passName(lane, k, data.facts) === pass);
  };
}

/** Per lane a mask and the numbers of the spans that are found; null for an empty search. */
function found(text, view) {
  const fits = meant(text, view);
  if (!fits) return null;
  return view.lanes.map((lane) => {
    const mask = new Uint8Array(lane.count);
    const at = [];
    for (let k = 0; k < lane.count; k++) {
      if (!fits(lane, k)) continue;
      mask[k] = 1;
      at.push(k);
    }
    return { mask, at };
  });
}

/** The match after the selected span (or the start of the window) in time, then lane by lane; `step` -1: before it. */
function nextMatch(view, step) {
  const now = view.selected
    ? { time: view.selected.lane.start[view.selected.k], lane: view.lanes.indexOf(view.selected.lane) }
    : { time: view.window.from, lane: step > 0 ? -1 : view.lanes.length };
  const later = (a, b) => step * (a.time - b.time || a.lane - b.lane) > 0;
  let best = null;
  let outermost = null; // where it begins anew
  view.matches.forEach(({ at }, n) => {
    for (const k of nearest(at, view.lanes[n].start, now.time, step)) {
      const one = { time: view.lanes[n].start[k], lane: n, k };
      if (later(one, now) && (!best || later(best, one))) best = one;
    }
    if (!at.length) return;
    const k = step > 0 ? at[0] : at[at.length - 1];
    const one = { time: view.lanes[n].start[k], lane: n, k };
    if (!outermost || later(outermost, one)) outermost = one;
  });
  const chosen = best || outermost;
  return chosen && { lane: view.lanes[chosen.lane], k: chosen.k };
}

/** The matches of a lane around `time`: the first ones that can come next. */
function nearest(at, start, time, step) {
  let low = 0;
  let high = at.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[at[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return step > 0 ? at.slice(low, low + 2) : at.slice(Math.max(0, low - 1), low + 1);
}
