// Layouts side by side: the first is what the others differ from.

const COMPARED_TOTALS = [
  ["predicted step", (l) => l.totals.seconds, secondsText],
  ["tokens per second", (l) => l.totals.tokens_per_second, countText],
  ["of the machine's peak", (l) => l.totals.share_of_peak, (share) => shareText(share, 1)],
  ["peak memory", (l) => l.totals.peak_bytes, bytesText],
  ["work of a core", (l) => l.totals.flops, flopsText],
  ["of it repeated", (l) => l.totals.repeated_flops, flopsText],
  ["sent by a core", (l) => l.totals.bytes_sent, bytesText],
  ["collectives", (l) => l.totals.collectives, countText],
];

part("comparison", () => {
  document.getElementById("comparison").hidden = plan.layouts.length < 2;
  if (plan.layouts.length < 2) return null;
  const body = make("tbody");
  for (const name of ["mesh_shape", "layout", "parameter_layout", "activation_layout", "batch_size"]) {
    body.append(settingRow(name));
  }
  addNumbers(body, "A step", COMPARED_TOTALS);
  const parts = namesOf((l) => Object.keys(l.totals.parts ?? {}));
  addNumbers(body, "Time by part", parts.map((name) => [name, (l) => l.totals.parts?.[name], secondsText]));
  addNumbers(body, "Besides", [["communication behind other work", (l) => l.totals.hidden, secondsText]]);
  const kinds = namesOf((l) => Object.keys(l.memory));
  addNumbers(body, "Memory of a core, the most of each kind", kinds.map((kind) => [kind, (l) => l.memory[kind], bytesText]));
  const traffic = namesOf((l) => l.traffic.map(trafficName));
  const sent = (name) => (l) => l.traffic.filter((t) => trafficName(t) === name).reduce((sum, t) => sum + t.bytes, 0);
  addNumbers(body, "Sent by a core", traffic.map((name) => [name, sent(name), bytesText]));
  const columns = plan.layouts.map((layout) => heading("")).map((cell, i) => fill(cell, { class: "compared" }, inLines(plan.layouts[i].label)));
  return make(
    "div",
    { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Layouts side by side" },
    make("table", {}, make("thead", {}, make("tr", {}, heading("", { "aria-label": "what" }), columns)), body),
  );
});

function trafficName(traffic) {
  return `${traffic.kind} over ${traffic.axes.join("+")}`;
}

function namesOf(names) {
  return [...new Set(plan.layouts.filter((layout) => !layout.error).flatMap(names))];
}

function settingRow(name) {
  const first = plan.layouts[0].settings[name];
  const cells = plan.layouts.map((layout) => {
    const text = inLines(String(layout.settings[name] || "–"));
    return make("td", { class: "mono" }, layout.settings[name] === first ? text : make("mark", {}, text));
  });
  return make("tr", {}, make("th", { scope: "row" }, name.replace("_", " ")), cells);
}

/** Rules, which a line may end after. */
function inLines(text) {
  return text.split(/(?<=;)/).flatMap((rule) => [rule, make("wbr")]);
}

function addNumbers(body, title, rows) {
  const used = rows.filter(([, value]) => plan.layouts.some((layout) => !layout.error && value(layout)));
  if (!used.length) return;
  body.append(make("tr", { class: "group" }, make("th", { scope: "rowgroup", colspan: plan.layouts.length + 1 }, title)));
  for (const [name, value, text] of used) {
    const first = plan.layouts[0].error ? null : value(plan.layouts[0]);
    body.append(make("tr", {}, make("th", { scope: "row" }, name), plan.layouts.map((layout, i) => compared(layout, i, first, value, text))));
  }
}

function compared(layout, number, first, value, text) {
  if (layout.error) return make("td", {}, "not possible");
  const own = value(layout);
  if (own === null || own === undefined) return make("td", {}, "–");
  if (number === 0 || first === null || first === undefined || own === first) return make("td", {}, own ? text(own) : "–");
  const factor = own / first;
  if (Math.abs(factor - 1) < 0.005) return make("td", {}, text(own));
  const change = !Number.isFinite(factor) || factor === 0 ? "" : factor > 1 ? ` ×${short(factor)}` : ` ÷${short(1 / factor)}`;
  return make("td", {}, make("mark", {}, own ? text(own) : "–"), make("span", { class: "change" }, change));
}

function short(factor) {
  return factor >= 100 ? factor.toFixed(0) : factor.toPrecision(3);
}
