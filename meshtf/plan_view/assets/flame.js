// Where the time goes, from the whole step down to operations: by the names of scopes, or by the lines of the user.

const LEAST_SHARE = 0.0015;
let zoomed = [];

part("work", (layout) => {
  if (layout.error) return null;
  const by = measure(layout);
  const root = treeOf(layout, by);
  if (!root.value) return make("p", { class: "soft" }, `The program has no ${by.title}.`);
  const found = follow(root, zoomed);
  const detail = make("div", { class: "detail", "aria-live": "polite" });
  const graph = flameGraph(root, found, (node) => (detail.textContent = nodeText(node, root, by)));
  detail.textContent = nodeText(found[found.length - 1], root, by);
  const names = [...new Set(layout.operations.map((o) => o.category))].filter((c) => layout.operations.some((o) => o.category === c && by.of(o) > 0));
  return [
    make(
      "div",
      { class: "bar-of-controls" },
      choose("Width", measures(layout).map(([name, m]) => [name, m.title]), state.measure === "seconds" && layout.totals.seconds === null ? "flops" : state.measure, (name) => {
        state.measure = name;
        redraw();
      }),
      choose("Grouped by", [["name", "name of the operation"], ["line", "line of your code"]], state.by, (name) => {
        Object.assign(state, { by: name });
        zoomed = [];
        redraw();
      }),
      zoomed.length ? make("button", { type: "button", click: () => zoom([]) }, "The whole step") : null,
    ),
    legend(names.map((name) => [name, name, amountText(root.rows[name], root, by)])),
    make("div", { class: "scrolls" }, graph),
    detail,
    by === MEASURES.seconds ? make("p", { class: "soft" }, "Widths are the time by which each operation makes the step longer; what goes on behind other work is in none of them.") : null,
    make("p", { class: "soft no-print" }, "Arrow keys move; Enter, or a click, makes a part as wide as the page; Escape goes back."),
  ];
});

function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

function treeOf(layout, by) {
  const root = { name: "the step", value: 0, hidden: 0, children: new Map(), rows: {}, place: "" };
  const hidden = (row) => (by === MEASURES.seconds ? row.hidden : 0);
  for (const row of layout.operations) {
    const value = by.of(row);
    root.hidden += hidden(row);
    if (!(value > 0)) continue;
    let node = root;
    addTo(node, row, value);
    for (const name of pathOf(row)) {
      if (!node.children.has(name)) node.children.set(name, { name, value: 0, hidden: 0, children: new Map(), rows: {}, place: row.place });
      node = node.children.get(name);
      node.hidden += hidden(row);
      addTo(node, row, value);
    }
  }
  return root;
}

function addTo(node, row, value) {
  node.value += value;
  node.rows[row.category] = (node.rows[row.category] ?? 0) + value;
}

function pathOf(row) {
  if (state.by === "line") return [row.file, row.place, `${row.name} (${row.kind})`];
  return [row.phase, ...row.name.replace(/^(gradient|update) of /, "").split("/").filter((name, i) => i || name !== row.phase)];
}

function follow(root, names) {
  const found = [root];
  for (const name of names) {
    const next = found[found.length - 1].children.get(name);
    if (!next) break;
    found.push(next);
  }
  zoomed = found.slice(1).map((node) => node.name);
  return found;
}

function flameGraph(root, path, said) {
  const top = path[path.length - 1];
  const box = make("div", { class: "flame", role: "tree", "aria-label": "Where the time goes", keydown: moveInFlame });
  let depth = 0;
  const place = (node, left, width, level, names) => {
    depth = Math.max(depth, level);
    const kind = Object.entries(node.rows).sort((a, b) => b[1] - a[1])[0][0];
    const known = path.length - 1 > level;
    box.append(
      make(
        "div",
        {
          class: `node fill-${kind}${width < 0.025 ? " slim" : ""}`,
          role: "treeitem",
          tabindex: -1,
          "aria-level": level + 1,
          "aria-expanded": node.children.size ? "true" : null,
          "aria-label": `${node.name}, ${shareText(node.value, root.value)}`,
          title: node.name,
          "data-level": level,
          style: { left: `${100 * left}%`, width: `${100 * width}%`, top: `${1.6 * level}rem` },
          click: () => zoom(names),
          mouseover: () => said(node),
          focus: () => said(node),
        },
        node.name,
      ),
    );
    if (known) return place(path[level + 1], 0, 1, level + 1, [...names, path[level + 1].name]);
    let from = left;
    for (const child of [...node.children.values()].sort((a, b) => b.value - a.value)) {
      const share = (width * child.value) / node.value;
      if (share >= LEAST_SHARE) place(child, from, share, level + 1, [...names, child.name]);
      from += share;
    }
  };
  place(root, 0, 1, 0, []);
  box.style.height = `${1.6 * (depth + 1)}rem`;
  const focus = [...box.children].find((node) => Number(node.dataset.level) === path.length - 1) ?? box.firstChild;
  focus.tabIndex = 0;
  focus.dataset.top = top.name;
  return box;
}

function zoom(names) {
  zoomed = names;
  redraw();
  document.querySelector('.node[tabindex="0"]')?.focus();
}

function moveInFlame(event) {
  const here = event.target;
  const nodes = [...here.parentElement.children];
  const level = Number(here.dataset.level);
  const range = (node) => [parseFloat(node.style.left), parseFloat(node.style.left) + parseFloat(node.style.width)];
  const [left, right] = range(here);
  const beside = nodes.filter((node) => Number(node.dataset.level) === level).sort((a, b) => range(a)[0] - range(b)[0]);
  const to = {
    ArrowRight: () => beside[beside.indexOf(here) + 1],
    ArrowLeft: () => beside[beside.indexOf(here) - 1],
    ArrowDown: () => nodes.find((n) => Number(n.dataset.level) === level + 1 && range(n)[0] >= left - 1e-6 && range(n)[1] <= right + 1e-6),
    ArrowUp: () => nodes.find((n) => Number(n.dataset.level) === level - 1 && range(n)[0] <= left + 1e-6 && range(n)[1] >= right - 1e-6),
    Home: () => nodes[0],
  };
  if (event.key === "Enter" || event.key === " ") here.click();
  else if (event.key === "Escape") zoom(zoomed.slice(0, -1));
  else if (event.key in to) {
    const found = to[event.key]();
    if (found) rove(nodes, found);
  } else return;
  event.preventDefault();
}

function nodeText(node, root, by) {
  const more = node.hidden > LEAST_SECONDS ? ` Besides, ${by.text(node.hidden)} of communication behind other work.` : "";
  const kinds = Object.entries(node.rows).sort((a, b) => b[1] - a[1]).map(([kind, value]) => `${kind} ${by.text(value)}`);
  const place = node.children.size || !node.place ? "" : `, ${node.place}`;
  const amount = node === root ? by.text(root.value) : `${amountText(node.value, root, by)} of the step's ${by.text(root.value)}`;
  return `${node.name}${place}: ${amount} – ${kinds.join(", ")}.${more}`;
}

function amountText(value, root, by) {
  return `${by.text(value)}, ${shareText(value, root.value)}`;
}
