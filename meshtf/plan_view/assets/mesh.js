// The cores of the mesh in their places, each in the colour of what it holds of the chosen tensor; and that tensor, in
// the same colours.

const MOST_CORES = 1024;
const MOST_COLUMNS = 64;
const MOST_BLOCKS = 64;
let tensorFilter = "";

part("mesh", (layout) => {
  if (layout.error) return null;
  const tensors = layout.tensors;
  const tensor = tensors[state.tensor] ?? tensors[0];
  if (!tensor) return make("p", { class: "soft" }, "There is no tensor to lay out.");
  const detail = make("div", { class: "detail", "aria-live": "polite", id: "core-detail" });
  const grid = coresOfMesh(layout, tensor);
  const picture = pictureOfTensor(layout, tensor);
  const show = (core) => {
    state.core = core;
    markCore(grid, picture, layout, tensor, core);
    detail.replaceChildren(...saidOfCore(layout, tensor, core));
  };
  grid.addEventListener("focusin", (event) => event.target.dataset.core && show(Number(event.target.dataset.core)));
  grid.addEventListener("mouseover", (event) => event.target.dataset.core && show(Number(event.target.dataset.core)));
  grid.addEventListener("keydown", (event) => moveInMesh(event, grid));
  picture.addEventListener("mouseover", (event) => event.target.dataset.core && show(Number(event.target.dataset.core)));
  show(Math.min(state.core, layout.cores - 1));
  return make(
    "div",
    { class: "mesh" },
    make("div", {}, grid, detail, make("figure", {}, picture, captionOf(layout, tensor))),
    listOfTensors(layout),
  );
});

function listOfTensors(layout) {
  const list = make("div", { class: "tensors" });
  const fillList = () => {
    const wanted = tensorFilter.toLowerCase();
    list.replaceChildren(
      ...layout.tensors.flatMap((tensor, number) =>
        tensor.name.toLowerCase().includes(wanted) || dimsText(tensor).toLowerCase().includes(wanted) ? [tensorChoice(tensor, number)] : [],
      ),
    );
    if (!list.childElementCount) list.append(make("p", { class: "soft", style: { padding: "0 0.6rem" } }, "No tensor has that in its name."));
  };
  fillList();
  const search = make("input", {
    type: "search",
    value: tensorFilter,
    placeholder: "name or dimension",
    input: (event) => {
      tensorFilter = event.target.value;
      fillList();
    },
  });
  return make(
    "fieldset",
    {},
    make("legend", {}, "The largest tensors, bytes on each core"),
    make("div", { class: "bar-of-controls" }, make("label", {}, "Filter", search)),
    list,
  );
}

function tensorChoice(tensor, number) {
  const times = tensor.count > 1 ? ` (${tensor.count} alike)` : "";
  return make(
    "label",
    {},
    make("input", {
      type: "radio",
      name: "tensor",
      value: number,
      checked: number === state.tensor,
      change: () => {
        state.tensor = number;
        redraw();
        document.querySelector(`input[name="tensor"][value="${number}"]`)?.focus();
      },
    }),
    make("b", {}, tensor.name + times),
    make("span", { class: "size" }, bytesText(tensor.bytes_per_core)),
    make("span", { class: "mono" }, `${dimsText(tensor)} ${tensor.dtype}, ${tensor.kind}`),
  );
}

function dimsText(tensor) {
  const dims = tensor.dims.map(([name, size, axes]) => `${name}:${size}${axes.length ? `/${axes.join("+")}` : ""}`);
  return dims.join(" ") || "a scalar";
}

/** The coordinate of a core along each mesh axis, and along each part of an axis; cores are numbered row-major. */
function coordinates(layout, core) {
  const found = {};
  let rest = core;
  for (const [name, size] of [...layout.mesh].reverse()) {
    found[name] = rest % size;
    rest = Math.floor(rest / size);
  }
  for (const [name] of layout.mesh) {
    let inner = found[name];
    for (const [part, size] of [...layout.axis_parts].reverse()) {
      if (part.slice(0, part.lastIndexOf(".")) !== name) continue;
      found[part] = inner % size;
      inner = Math.floor(inner / size);
    }
  }
  return found;
}

function axisSize(layout, axis) {
  return [...layout.mesh, ...layout.axis_parts].find(([name]) => name === axis)[1];
}

/** Of each dimension, how many parts there are and which one the core holds. */
function blockOf(layout, tensor, core) {
  const own = coordinates(layout, core);
  return tensor.dims.map(([, size, axes]) => {
    let place = 0;
    let parts = 1;
    for (const axis of axes) {
      place = place * axisSize(layout, axis) + own[axis];
      parts *= axisSize(layout, axis);
    }
    const length = Math.ceil(size / parts);
    return { place, parts, begin: Math.min(size, place * length), end: Math.min(size, (place + 1) * length) };
  });
}

function blockNumber(block) {
  return block.reduce((number, { place, parts }) => number * parts + place, 0);
}

function blockCount(block) {
  return block.reduce((count, { parts }) => count * parts, 1);
}

/** Neighbouring blocks differ, and few have one colour: turns by the golden angle where there are many. */
function hueOf(number, count) {
  return count <= 24 ? Math.round(210 + (360 * number) / count) % 360 : Math.round(210 + 137.5 * number) % 360;
}

function boundsText(tensor, block) {
  const parts = tensor.dims.map(([name, size], i) => {
    const { begin, end } = block[i];
    return begin === 0 && end === size ? `${name} whole` : begin === end ? `${name}: padding alone` : `${name} ${begin}:${end}`;
  });
  return parts.join(", ") || "all of it";
}

function coresOfMesh(layout, tensor) {
  const axes = layout.mesh.length ? layout.mesh : [["cores", 1]];
  const [down, across] = drawnAxes(axes);
  const inPlane = axes[across][1] * (down === null ? 1 : axes[down][1]);
  const others = axes.map((_, i) => i).filter((i) => i !== down && i !== across);
  const panels = others.reduce((all, i) => all.flatMap((at) => [...Array(axes[i][1]).keys()].map((n) => ({ ...at, [i]: n }))), [{}]);
  const columns = Math.min(axes[across][1], MOST_COLUMNS);
  const rows = down === null ? 1 : Math.min(axes[down][1], Math.max(1, Math.floor(MOST_CORES / columns)));
  const most = Math.max(1, Math.floor(MOST_CORES / (columns * rows)));
  const dense = columns > 16;
  const box = make("div", {
    class: `cores${dense ? " dense" : layout.cores <= 32 ? " few" : ""}`,
    role: "grid",
    "aria-label": "Cores of the mesh; arrow keys move, and what a core holds is said",
  });
  for (const at of panels.slice(0, most)) box.append(panelOfCores(layout, tensor, axes, { down, across, rows, columns, dense, at }));
  const drawn = Math.min(panels.length, most) * rows * columns;
  const note =
    drawn < layout.cores ? make("p", { class: "soft" }, `${countText(drawn)} of ${countText(layout.cores)} cores are drawn, the first of each axis.`) : null;
  const first = box.querySelector(`[data-core="${state.core}"]`) ?? box.querySelector("[data-core]");
  first.tabIndex = 0;
  return make("div", {}, box, note, make("p", { class: "soft no-print" }, inPlane > 1 ? "Cores of one colour hold the same." : ""));
}

/** The last two axes; of a long and a short one the long goes to the right. */
function drawnAxes(axes) {
  const last = axes.length - 1;
  if (last === 0) return [null, 0];
  const [down, across] = [last - 1, last];
  return axes[down][1] > 16 && axes[down][1] > axes[across][1] ? [across, down] : [down, across];
}

function panelOfCores(layout, tensor, axes, { down, across, rows, columns, dense, at }) {
  const panel = make("div", { class: "panel", role: "rowgroup" });
  const where = Object.entries(at).map(([i, n]) => `${axes[i][0]} ${n}`);
  const along = down === null ? `${axes[across][0]} →` : `${axes[down][0]} ↓, ${axes[across][0]} →`;
  panel.append(make("div", { class: "axis", "aria-hidden": "true" }, [...where, along].join(", ")));
  for (let r = 0; r < rows; r += 1) {
    const row = make("div", { class: "row", role: "row", "--columns": columns, "--least": dense ? "0.55rem" : "1.5rem" });
    for (let c = 0; c < columns; c += 1) {
      const place = { ...at, [across]: c, ...(down === null ? {} : { [down]: r }) };
      const core = axes.reduce((number, [, size], i) => number * size + (place[i] ?? 0), 0);
      const block = blockOf(layout, tensor, core);
      row.append(
        make(
          "div",
          {
            class: "core",
            role: "gridcell",
            tabindex: -1,
            "data-core": core,
            "data-block": blockNumber(block),
            "--hue": hueOf(blockNumber(block), blockCount(block)),
            "aria-label": `core ${core}, ${placeText(layout, core)}: ${boundsText(tensor, block)}`,
          },
          String(core),
        ),
      );
    }
    panel.append(row);
  }
  return panel;
}

function placeText(layout, core) {
  const own = coordinates(layout, core);
  return layout.mesh.map(([name]) => `${name} ${own[name]}`).join(", ");
}

function saidOfCore(layout, tensor, core) {
  const block = blockOf(layout, tensor, core);
  const process = layout.processes > 1 ? `, process ${layout.process_of_core[core]}` : "";
  const alike = layout.cores / tensor.dims.flatMap(([, , axes]) => axes).reduce((n, axis) => n * axisSize(layout, axis), 1);
  const others = alike > 1 ? `${countText(alike)} cores hold the same` : "no other core holds it";
  return [
    make("strong", {}, `Core ${core}`),
    ` (${placeText(layout, core)}${process}) holds of ${tensor.name}: `,
    make("span", { class: "mono" }, boundsText(tensor, block)),
    ` – ${bytesText(tensor.bytes_per_core)}; ${others}.`,
  ];
}

function markCore(grid, picture, layout, tensor, core) {
  const number = blockNumber(blockOf(layout, tensor, core));
  for (const cell of grid.querySelectorAll(".core")) {
    cell.classList.toggle("alike", Number(cell.dataset.block) === number);
    cell.classList.toggle("here", Number(cell.dataset.core) === core);
  }
  for (const box of picture.querySelectorAll("rect")) {
    const isHere = Number(box.dataset.block) === number;
    box.classList.toggle("here", isHere);
    if (isHere && box !== picture.lastChild) picture.append(box); // above its neighbours' edges
  }
}

const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function moveInMesh(event, grid) {
  const rows = [...grid.querySelectorAll(".row")].map((row) => [...row.children]);
  const r = rows.findIndex((row) => row.includes(event.target));
  if (r < 0) return;
  const c = rows[r].indexOf(event.target);
  let to = null;
  if (event.key in STEPS) to = rows[r + STEPS[event.key][0]]?.[c + STEPS[event.key][1]];
  if (event.key === "Home") to = rows[r][0];
  if (event.key === "End") to = rows[r][rows[r].length - 1];
  if (!to) return;
  event.preventDefault();
  rove(grid.querySelectorAll(".core"), to);
}

/** Two dimensions of it, those that are split before others, in blocks. */
function pictureOfTensor(layout, tensor) {
  const [down, across] = drawnDims(tensor);
  const width = 400;
  const height = down === null ? 60 : 150;
  const svg = draw("svg", { class: "drawn", viewBox: `0 0 ${width} ${height + 4}`, role: "img", "aria-label": `${tensor.name} in its parts` });
  const cut = (i) => (i === null ? 1 : Math.min(MOST_BLOCKS, tensor.dims[i][2].reduce((n, axis) => n * axisSize(layout, axis), 1)));
  const whole = (i) => (i === null ? 1 : tensor.dims[i][2].reduce((n, axis) => n * axisSize(layout, axis), 1));
  const seen = holders(layout, tensor);
  for (let r = 0; r < cut(down); r += 1) {
    for (let c = 0; c < cut(across); c += 1) {
      const places = tensor.dims.map((_, i) => (i === down ? Math.floor((r * whole(down)) / cut(down)) : i === across ? Math.floor((c * whole(across)) / cut(across)) : 0));
      const block = tensor.dims.map((_, i) => ({ place: places[i], parts: whole(i) }));
      const number = blockNumber(block);
      svg.append(
        draw("rect", {
          x: 2 + (c * (width - 4)) / cut(across),
          y: 2 + (r * height) / cut(down),
          width: (width - 4) / cut(across),
          height: height / cut(down),
          "--hue": hueOf(number, blockCount(block)),
          "data-block": number,
          "data-core": seen.get(number) ?? 0,
        }),
      );
    }
  }
  return svg;
}

/** The first core that holds each block. */
function holders(layout, tensor) {
  const found = new Map();
  for (let core = 0; core < Math.min(layout.cores, 4 * MOST_CORES); core += 1) {
    const number = blockNumber(blockOf(layout, tensor, core));
    if (!found.has(number)) found.set(number, core);
  }
  return found;
}

function drawnDims(tensor) {
  const order = tensor.dims.map((_, i) => i).sort((a, b) => Number(!tensor.dims[a][2].length) - Number(!tensor.dims[b][2].length) || a - b);
  const [first, second] = order.slice(0, 2).sort((a, b) => a - b);
  return second === undefined ? [null, first ?? null] : [first, second];
}

function captionOf(layout, tensor) {
  const [down, across] = drawnDims(tensor);
  const name = (i) => (i === null ? "" : tensor.dims[i][0]);
  const axes = [down === null ? "" : `${name(down)} ↓`, across === null ? "" : `${name(across)} →`].filter(Boolean).join(", ");
  return make("figcaption", {}, `${tensor.name}: ${axes || "a scalar"}; ${bytesText(tensor.bytes_whole)} in all`);
}
