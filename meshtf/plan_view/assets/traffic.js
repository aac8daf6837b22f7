// What cores send, by mesh axes and by links.

part("traffic", (layout) => {
  if (layout.error) return null;
  if (!layout.traffic.length) return make("p", { class: "soft" }, "No core sends anything to another.");
  const predicted = layout.totals.seconds !== null;
  const groups = new Map();
  for (const row of layout.traffic) {
    const axes = row.axes.join(" + ") || "no axis";
    groups.set(axes, [...(groups.get(axes) ?? []), row]);
  }
  const value = (row) => (predicted ? row.seconds : row.bytes);
  const most = Math.max(...layout.traffic.map(value));
  const body = make("tbody");
  const ordered = [...groups].sort((a, b) => sum(b[1].map(value)) - sum(a[1].map(value)));
  for (const [axes, rows] of ordered) {
    const bytes = bytesText(sum(rows.map((row) => row.bytes)));
    const cells = [numberCell(countText(sum(rows.map((row) => row.times)))), numberCell(bytes)];
    if (predicted) cells.push(...timeCells(sum(rows.map((row) => row.seconds)), sum(rows.map((row) => row.exposed))));
    const links = [...new Set(rows.map((row) => row.links).filter(Boolean))].join("; ");
    const title = make("th", { scope: "rowgroup" }, `over ${axes}`, links ? make("small", { class: "soft" }, ` ${links}`) : null);
    body.append(make("tr", { class: "group" }, title, cells, make("td")));
    for (const row of [...rows].sort((a, b) => value(b) - value(a))) body.append(trafficRow(row, predicted, value(row) / most));
  }
  return make(
    "div",
    { class: "scrolls", tabindex: 0, role: "region", "aria-label": "What cores send" },
    make(
      "table",
      {},
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          heading("mesh axes, links, and kind"),
          heading("times", { class: "number" }),
          heading("sent by a core", { class: "number" }),
          predicted ? heading("takes", { class: "number" }) : null,
          predicted ? heading("of the step", { class: "number" }) : null,
          heading("share", { "aria-label": "share, as a bar" }),
        ),
      ),
      body,
    ),
  );
});

function trafficRow(row, predicted, share) {
  return make(
    "tr",
    {},
    make("th", { scope: "row", style: { paddingLeft: "1rem" } }, row.kind.replaceAll("_", " ")),
    numberCell(countText(row.times)),
    numberCell(bytesText(row.bytes)),
    predicted ? timeCells(row.seconds, row.exposed) : null,
    make("td", { class: "bar fill-communication" }, make("span", { class: "meter", style: { width: `${100 * share}%` } })),
  );
}

/** All seconds of collectives, and of them those for which cores wait. */
function timeCells(seconds, exposed) {
  return [numberCell(secondsText(seconds)), numberCell(secondsText(exposed))];
}
