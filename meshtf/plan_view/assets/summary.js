// What a step takes: the numbers that decide, and the rules.

part("summary", (layout) => {
  if (layout.error) return make("p", { class: "error" }, layout.error);
  const { totals, settings } = layout;
  const facts = [];
  if (totals.seconds !== null) {
    facts.push(["a step takes", secondsText(totals.seconds), `predicted, on ${plan.machine.name}`]);
    if (totals.tokens_per_second) facts.push(["speed", countText(totals.tokens_per_second), "tokens per second"]);
    facts.push(["of the machine's peak", shareText(totals.share_of_peak, 1), "in its products"]);
  }
  const room = totals.memory_bytes ? `of ${bytesText(totals.memory_bytes)} a core` : "on each core";
  const tight = totals.memory_bytes && totals.peak_bytes > totals.memory_bytes;
  facts.push(["peak memory", bytesText(totals.peak_bytes), tight ? `${room}: it does not fit` : room]);
  facts.push(["work of a core", flopsText(totals.flops), `${shareText(totals.repeated_flops, totals.flops)} repeated elsewhere`]);
  facts.push(["sent by a core", bytesText(totals.bytes_sent), `in ${countText(totals.collectives)} collectives`]);
  if (layout.processes > 1) {
    facts.push(["between processes", bytesText(totals.bytes_between_processes), `from each of ${layout.processes}`]);
  }
  const rules = [["mesh", settings.mesh_shape], ["layout", settings.layout || "nothing is split"]];
  if (settings.parameter_layout) rules.push(["parameter layout", settings.parameter_layout]);
  if (settings.activation_layout) rules.push(["activation layout", settings.activation_layout]);
  rules.push(["batch size", String(settings.batch_size)]);
  rules.push(["peak is reached in", layout.peak_place]);
  return [
    make(
      "dl",
      { class: "facts" },
      facts.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, more)))),
    ),
    totals.parts ? partsOfStep(layout) : null,
    make("dl", { class: "rules" }, rules.flatMap(([name, text]) => [make("dt", {}, name), make("dd", { class: "mono" }, text)])),
    layout.remarks.length ? make("h3", { class: "remarks" }, "What another layout might do better") : null,
    layout.remarks.length ? make("ul", { class: "remarks" }, layout.remarks.map((text) => make("li", {}, text))) : null,
    layout.search ? make("h3", { class: "remarks" }, "What the search says") : null,
    layout.search ? make("pre", { class: "search", tabindex: 0 }, layout.search) : null,
  ];
});

/** What is overlapped, and that it is no part of the step. */
function overlapText(layout) {
  const { hidden, parts } = layout.totals;
  if (!plan.machine.overlaps) return `On ${plan.machine.name} cores do nothing else while they communicate.`;
  if (!(hidden > LEAST_SECONDS)) return parts.communication > 0 ? "Cores wait for all of the communication: none is behind other work." : "";
  return `Besides, ${secondsText(hidden)} of communication are behind other work, for which no core waits: they make the step no longer, and are in none of its parts.`;
}

function partsOfStep(layout) {
  const { totals } = layout;
  const parts = Object.entries(totals.parts).filter(([, seconds]) => seconds > 0);
  const rows = parts.map(([name, seconds]) => [name, name, `${secondsText(seconds)}, ${shareText(seconds, totals.seconds)}`]);
  const said = rows.map(([, name, value]) => `${name} ${value}`).join("; ");
  return make(
    "div",
    {},
    make(
      "div",
      { class: "stack", role: "img", "aria-label": `The step's time: ${said}` },
      parts.map(([name, seconds]) => make("span", { class: `fill-${name}`, style: { width: `${(100 * seconds) / totals.seconds}%`, background: "var(--fill)" } })),
    ),
    legend(rows),
    make("p", { class: "soft" }, overlapText(layout)),
  );
}
