// Memory over the step's time: an area for each kind, one upon the other.

const KINDS = ["weights", "slots", "feeds", "gradients", "activations", "temporary"];
const KIND_TITLES = { slots: "optimizer's state", feeds: "inputs" };

part("memory", (layout) => {
  if (layout.error) return null;
  const moments = layout.timeline;
  if (!moments.length) return make("p", { class: "soft" }, "The program holds nothing over time.");
  const totals = moments.map((m) => KINDS.reduce((sum, kind) => sum + m[kind], 0));
  const peak = totals.indexOf(Math.max(...totals));
  state.moment = Math.min(state.moment ?? peak, moments.length - 1);
  const detail = make("div", { class: "detail", "aria-live": "polite" });
  const chart = memoryChart(layout, moments, totals);
  const show = (number) => {
    state.moment = Math.max(0, Math.min(moments.length - 1, number));
    const x = chart.at(moments[state.moment].begins);
    for (const name of ["x1", "x2"]) chart.cursor.setAttribute(name, x);
    chart.svg.setAttribute("aria-valuenow", state.moment);
    const text = momentText(layout, moments[state.moment], totals[state.moment]);
    chart.svg.setAttribute("aria-valuetext", text);
    detail.textContent = text;
  };
  chart.svg.addEventListener("pointermove", (event) => show(nearestMoment(chart, moments, event)));
  chart.svg.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -moments.length, End: moments.length };
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(state.moment + steps[event.key]);
  });
  show(state.moment);
  const used = KINDS.filter((kind) => moments.some((m) => m[kind] > 0));
  return [
    legend(used.map((kind) => [kind, KIND_TITLES[kind] ?? kind, `at most ${bytesText(Math.max(...moments.map((m) => m[kind])))}`])),
    chart.svg,
    detail,
    orderText(layout, totals[peak]),
    make("p", { class: "soft no-print" }, "Arrow keys go from moment to moment; Home and End to the first and the last."),
  ];
});

/** Why the peak of the step may be above the chart. */
function orderText(layout, most) {
  const peak = layout.totals.peak_bytes;
  if (bytesText(peak) === bytesText(most)) return null;
  return make(
    "p",
    { class: "soft" },
    `The chart has collectives where the plan has them: ${bytesText(most)} at most. A core that waits for others, or they for it, runs them later or earlier, and then needs up to ${bytesText(peak)}, which is its peak.`,
  );
}

function momentText(layout, m, total) {
  const kinds = KINDS.filter((kind) => m[kind] > 0).map((kind) => `${KIND_TITLES[kind] ?? kind} ${bytesText(m[kind])}`);
  const when = layout.timeline_unit === "seconds" ? secondsText(m.begins) : `operation ${m.begins}`;
  return `At ${when}, in ${m.name} (${m.place}): ${bytesText(total)} – ${kinds.join(", ")}.`;
}

function nearestMoment(chart, moments, event) {
  const box = chart.svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * chart.width;
  let found = 0;
  while (found + 1 < moments.length && chart.at(moments[found + 1].begins) <= x) found += 1;
  return found;
}

function memoryChart(layout, moments, totals) {
  const width = Math.max(320, Math.min(1160, document.getElementById("memory").clientWidth - 42));
  const height = width < 500 ? 210 : 270;
  const [left, right, top, bottom] = [66, 8, 12, 26];
  const capacity = layout.totals.memory_bytes;
  const most = Math.max(...totals);
  const highest = (capacity !== null && capacity < 3 * most ? Math.max(most, capacity) : most) * 1.06 || 1;
  const end = layout.timeline_end || 1;
  const at = (x) => left + ((width - left - right) * x) / end;
  const up = (y) => height - bottom - ((height - top - bottom) * y) / highest;
  const svg = draw("svg", {
    class: "chart",
    viewBox: `0 0 ${width} ${height}`,
    role: "slider",
    tabindex: 0,
    "aria-label": "Memory of a core over the step, by kind; a moment of it",
    "aria-valuemin": 0,
    "aria-valuemax": moments.length - 1,
  });
  for (const tick of ticks(highest)) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: up(tick), y2: up(tick) }));
    svg.append(draw("text", { x: left - 6, y: up(tick) + 4, "text-anchor": "end" }, bytesText(tick).replace(/\.0+ /, " ")));
  }
  let below = moments.map(() => 0);
  for (const kind of KINDS) {
    const above = moments.map((m, i) => below[i] + m[kind]);
    svg.append(draw("path", { class: `area fill-${kind}`, d: areaPath(moments, below, above, end, at, up) }));
    below = above;
  }
  if (capacity !== null && capacity <= highest) {
    svg.append(draw("line", { class: "capacity", x1: left, x2: width - right, y1: up(capacity), y2: up(capacity) }));
    const under = up(capacity) + 15;
    const y = under < height - bottom - 4 ? under : up(capacity) - 6; // never upon the axis
    svg.append(draw("text", { x: width - right - 4, y, "text-anchor": "end", class: "over" }, `${bytesText(capacity)} of the machine`));
  }
  const unit = layout.timeline_unit === "seconds" ? secondsText : (n) => `operation ${Math.round(n)}`;
  for (const share of [0, 0.5, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    svg.append(draw("text", { x: at(share * end), y: height - 8, "text-anchor": anchor }, unit(share * end)));
  }
  const cursor = draw("line", { class: "cursor", y1: top, y2: height - bottom });
  svg.append(cursor);
  return { svg, cursor, at, width };
}

/** In steps: what is there at a moment is there until the next. */
function areaPath(moments, below, above, end, at, up) {
  const until = (i) => at(i + 1 < moments.length ? moments[i + 1].begins : end).toFixed(1);
  const upper = moments.map((m, i) => `${at(m.begins).toFixed(1)},${up(above[i]).toFixed(1)} ${until(i)},${up(above[i]).toFixed(1)}`);
  const lower = moments.map((m, i) => `${until(i)},${up(below[i]).toFixed(1)} ${at(m.begins).toFixed(1)},${up(below[i]).toFixed(1)}`).reverse();
  return `M${upper.join(" L")} L${lower.join(" L")}Z`;
}

/** Four or five round numbers of bytes. */
function ticks(highest) {
  const unit = 1024 ** Math.floor(Math.log(highest) / Math.log(1024));
  const rough = highest / unit / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) * unit;
  const found = [];
  for (let tick = 0; tick <= highest; tick += step) found.push(tick);
  return found;
}
