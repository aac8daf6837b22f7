// All operations in a table that sorts and filters; those of layers that are alike are one row.

const ROWS_AT_ONCE = 60;
const operationsShown = { sort: null, descending: true, text: "", category: "", rows: ROWS_AT_ONCE };

const OPERATION_COLUMNS = [
  ["name", "operation", (o) => o.name, null],
  ["place", "line", (o) => o.place, null],
  ["category", "kind", (o) => o.category, null],
  ["times", "times", (o) => o.times, countText],
  ["flops", "FLOPs", (o) => o.flops, flopsText],
  ["bytes", "through memory", (o) => o.bytes, bytesText],
  ["sent", "sent", (o) => o.sent, bytesText],
  ["seconds", "of the step", (o) => o.seconds, secondsText],
  ["hidden", "hidden", (o) => o.hidden, secondsText],
];

part("operations", (layout) => {
  if (layout.error) return null;
  const predicted = layout.totals.seconds !== null;
  const columns = OPERATION_COLUMNS.filter(([name]) => (name === "hidden" ? layout.totals.hidden > LEAST_SECONDS : name !== "seconds" || predicted));
  operationsShown.sort ??= predicted ? "seconds" : "flops";
  if (!columns.some(([name]) => name === operationsShown.sort)) operationsShown.sort = "flops";
  const table = make("table");
  const count = make("span", { class: "soft", role: "status" });
  const again = () => fillOperations(layout, columns, table, count, again);
  again();
  const change = (values) => {
    Object.assign(operationsShown, { rows: ROWS_AT_ONCE, ...values });
    again();
  };
  const categories = [...new Set(layout.operations.map((o) => o.category))].sort();
  return [
    make(
      "div",
      { class: "bar-of-controls" },
      make(
        "label",
        {},
        "Filter",
        make("input", {
          type: "search",
          placeholder: "operation, line, dtype or axis",
          value: operationsShown.text,
          input: (event) => change({ text: event.target.value }),
        }),
      ),
      choose("Kind", [["", "all"], ...categories.map((name) => [name, name])], operationsShown.category, (category) => change({ category })),
      count,
    ),
    make("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Operations" }, table),
  ];
});

function fillOperations(layout, columns, table, count, again) {
  const { sort, descending, text, category, rows } = operationsShown;
  const wanted = text.toLowerCase();
  const value = columns.find(([name]) => name === sort)[2];
  const found = layout.operations
    .filter((o) => (!category || o.category === category) && (!wanted || searched(o).includes(wanted)))
    .sort((a, b) => (descending ? -1 : 1) * compareValues(value(a), value(b)));
  const whole = layout.totals.seconds;
  count.textContent = `${countText(found.length)} of ${countText(layout.operations.length)}`;
  const head = columns.map(([name, title, , text]) =>
    heading("", { class: text ? "number" : "", "aria-sort": name === sort ? (descending ? "descending" : "ascending") : "none" }),
  );
  head.forEach((cell, i) => {
    const name = columns[i][0];
    const sortBy = () => {
      Object.assign(operationsShown, { descending: name === sort ? !descending : Boolean(columns[i][3]), sort: name });
      again();
      table.querySelectorAll("thead button")[i].focus();
    };
    cell.append(make("button", { type: "button", click: sortBy }, columns[i][1]));
  });
  const body = found.slice(0, rows).map((o) => operationRow(o, columns, whole));
  const more = found.length - rows;
  table.replaceChildren(make("thead", {}, make("tr", {}, head)), make("tbody", {}, body));
  if (more > 0) {
    const button = make("button", { type: "button", click: () => { operationsShown.rows += 5 * ROWS_AT_ONCE; again(); } }, `show more of the other ${countText(more)}`);
    table.append(make("tfoot", { class: "no-print" }, make("tr", {}, make("td", { colspan: columns.length }, button))));
  }
}

function operationRow(operation, columns, whole) {
  const cells = columns.map(([name, , value, text]) => {
    if (name === "name") return make("th", { scope: "row", class: "names" }, operation.name);
    if (name === "place") return make("td", { class: "names" }, operation.place);
    if (name === "category") return make("td", {}, [operation.category, operation.dtype, operation.axes.join("+")].filter(Boolean).join(", "));
    const own = value(operation);
    if (!(own > LEAST_SECONDS)) return numberCell("–");
    const share = name === "seconds" ? ` ${shareText(own, whole)}` : "";
    return make("td", { class: "number" }, text(own), make("small", { class: "soft" }, share));
  });
  return make("tr", {}, cells);
}

function searched(operation) {
  return [operation.name, operation.place, operation.kind, operation.dtype, ...operation.axes].join(" ").toLowerCase();
}

function compareValues(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : (a ?? 0) - (b ?? 0);
}
