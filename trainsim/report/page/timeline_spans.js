// The spans of the timeline, unfolded: lane by lane, in the order of time.

/** All lanes of the data: of each typed arrays start, end (ns), label, microbatch, wait, fact. */
function unfoldedLanes(data) {
  const labels = unfoldedLabels(data.labels);
  const runs = unfoldedRuns(data.runs);
  const lanes = data.lanes.map((lane) => ({ ...lane, count: 0 }));
  const chains = data.chains.map((chain) => unfoldedChain(chain, lanes, labels, runs));
  for (const chain of chains) eachSpan(chain, runs, labels, (lane) => { lane.count += 1; });
  for (const lane of lanes) reserve(lane);
  for (const chain of chains) {
    eachSpan(chain, runs, labels, (lane, start, end, label, row, first) => {
      const k = lane.count++;
      // Rounding to whole nanoseconds may move a span one of them into the one before.
      const begin = k && start < lane.end[k - 1] && start > lane.end[k - 1] - 3 ? lane.end[k - 1] : start;
      lane.start[k] = begin;
      lane.end[k] = Math.max(begin, end);
      lane.label[k] = label;
      lane.microbatch[k] = chain.microbatch[row];
      lane.fact[k] = chain.fact[row];
      if (first) lane.wait[k] = chain.wait[row];
    });
  }
  lanes.forEach(inOrder);
  return { lanes, labels };
}

function unfoldedLabels(packed) {
  const out = { layer: unpacked(packed.layer), looks: packed.looks };
  for (const what of ["name", "kind", "stream", "look", "carries"]) {
    out[what] = { words: packed[what].words, at: unpacked(packed[what].at) };
    out[`${what}Of`] = (label) => out[what].words[out[what].at[label]];
  }
  return out;
}

function unfoldedRuns(packed) {
  const size = unpacked(packed.size);
  const first = new Uint32Array(size.length + 1);
  for (let k = 0; k < size.length; k++) first[k + 1] = first[k] + size[k];
  return {
    first, label: unpacked(packed.label), offset: unpacked(packed.offset), length: unpacked(packed.length),
  };
}

function unfoldedChain(packed, lanes, labels) {
  const streams = labels.stream.words;
  const own = lanes.filter((lane) => lane.rank === packed.rank && lane.chain === packed.name);
  const columns = ["run", "after", "microbatch", "wait", "layer", "fact", "own", "gaps", "lengths"];
  const chain = Object.fromEntries(columns.map((name) => [name, unpacked(packed[name])]));
  let layers = 1;
  for (const layer of chain.layer) layers = Math.max(layers, layer + 1);
  // laneAt[stream * layers + layer]
  chain.layers = layers;
  chain.laneAt = new Array(streams.length * layers).fill(null);
  for (const lane of own) {
    // What compute waits for stands in its lane, where it happens.
    const shown = packed.name === "compute" ? own.find((one) => one.layer === lane.layer) : lane;
    chain.laneAt[streams.indexOf(lane.stream) * layers + lane.layer] = shown;
  }
  return chain;
}

/** Calls `visit(lane, start, end, label, row, whether it is the row's first)` for every span of a chain. */
function eachSpan(chain, runs, labels, visit) {
  const stream = labels.stream.at;
  let start = 0;
  let place = 0;
  for (let row = 0; row < chain.run.length; row++) {
    start += chain.after[row];
    const run = chain.run[row];
    let over = start;
    for (let k = runs.first[run]; k < runs.first[run + 1]; k++) {
      let begin = start + runs.offset[k];
      let end = begin + runs.length[k];
      if (chain.own[row]) {
        begin = over + chain.gaps[place];
        end = begin + chain.lengths[place];
        place += 1;
      }
      over = end;
      const label = runs.label[k];
      visit(chain.laneAt[stream[label] * chain.layers + chain.layer[row]], begin, end, label, row, k === runs.first[run]);
    }
  }
}

function reserve(lane) {
  const n = lane.count;
  lane.start = new Float64Array(n);
  lane.end = new Float64Array(n);
  lane.label = new Uint32Array(n);
  lane.microbatch = new Int32Array(n);
  lane.fact = new Int32Array(n);
  lane.wait = new Float32Array(n);
  lane.count = 0;
}

/** Sorts a lane by start where it is not: messages stand in the order in which they were sent. */
function inOrder(lane) {
  let sorted = true;
  for (let k = 1; k < lane.count && sorted; k++) sorted = lane.start[k] >= lane.start[k - 1];
  if (sorted) return;
  const order = Uint32Array.from({ length: lane.count }, (_, k) => k).sort((a, b) => lane.start[a] - lane.start[b]);
  for (const name of ["start", "end", "label", "microbatch", "fact", "wait"]) {
    lane[name] = lane[name].map((_, k) => lane[name][order[k]]);
  }
}

/** Passes of a compute lane: spans in a row of one task of the schedule. */
function passesOf(lane, facts) {
  const first = [];
  const last = [];
  for (let k = 0; k < lane.count; k++) {
    const same = k && lane.fact[k] === lane.fact[k - 1] && lane.microbatch[k] === lane.microbatch[k - 1];
    if (same) last[last.length - 1] = k;
    else {
      first.push(k);
      last.push(k);
    }
  }
  const keep = first.map((k, n) => n).filter((n) => passName(lane, first[n], facts));
  return {
    start: Float64Array.from(keep, (n) => lane.start[first[n]]),
    end: Float64Array.from(keep, (n) => lane.end[last[n]]),
    name: keep.map((n) => passName(lane, first[n], facts)),
    first: Uint32Array.from(keep, (n) => first[n]),
  };
}

/** "F3", or "B3.1" on chunk 1; nothing for what is no pass of the schedule. */
function passName(lane, k, facts) {
  const fact = facts[lane.fact[k]];
  if (!fact || !/^[FBIW]$/.test(fact[0]) || lane.microbatch[k] < 0) return "";
  return `${fact[0]}${lane.microbatch[k]}${fact[1] ? `.${fact[1]}` : ""}`;
}
