// Of a page that meshtf-plan serves: other values, planned again, beside those that are there.

const SETTING_TITLES = {
  mesh_shape: "mesh, as rows:8;cols:4",
  layout: "layout, as batch:rows;d_ff:cols, or auto",
  parameter_layout: "parameter layout, between steps",
  activation_layout: "activation layout, between layers",
  batch_size: "batch size",
};

function controls() {
  if (!plan.plan_again) return;
  const section = document.getElementById("controls");
  section.hidden = false;
  const settings = plan.layouts[0].settings;
  const inputs = Object.entries(SETTING_TITLES).map(([name, title]) => {
    const number = name === "batch_size" ? { type: "number", min: 1, step: 1 } : { type: "text", spellcheck: "false", autocomplete: "off" };
    return [name, title, make("input", { name, value: settings[name] ?? "", ...number })];
  });
  const error = make("p", { class: "error", role: "alert" });
  const status = make("span", { class: "soft", role: "status", id: "planned" });
  const button = make("button", { class: "main" }, "Plan");
  const form = make(
    "form",
    { submit: (event) => submitted(event, inputs, button, { status, error }) },
    make("div", { class: "fields" }, inputs.map(([, title, input]) => make("label", {}, title, input))),
    make("div", { class: "asking" }, button, status),
    error,
  );
  section.append(form);
}

async function submitted(event, inputs, button, { status, error }) {
  event.preventDefault();
  button.disabled = true;
  error.textContent = "";
  const settings = Object.fromEntries(inputs.map(([name, , input]) => [name, name === "batch_size" ? Number(input.value) : input.value]));
  const begun = performance.now();
  const since = () => (performance.now() - begun) / 1000;
  const news = showProgress(status, since);
  try {
    const layout = await planOf(settings);
    news.end();
    showPlanned(layout);
    status.textContent = `planned in ${secondsText(since())}: ${shown().label}`;
  } catch (problem) {
    news.end();
    status.textContent = "";
    error.textContent = problem instanceof TypeError ? "meshtf-plan does not answer: it has been ended" : problem.message;
  }
  button.disabled = false;
}

async function planOf(settings) {
  const response = await fetch(plan.plan_again, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(settings),
  });
  const layout = await response.json();
  if (!response.ok) throw new Error(layout.error);
  return layout;
}

/** The layout beside the others; one that is there already is shown again. */
function showPlanned(layout) {
  const known = plan.layouts.findIndex((other) => isSame(other, layout));
  if (known < 0) plan.layouts.push(layout);
  Object.assign(state, { layout: known < 0 ? plan.layouts.length - 1 : known, tensor: 0, core: 0, moment: null });
  choiceOfLayout();
  redraw();
}

function isSame(one, other) {
  if (one.search || other.search) return one.label === other.label;
  return JSON.stringify(one.settings) === JSON.stringify(other.settings);
}

/** Says how long a plan has taken so far, and what the server says of it, until it is ended. */
function showProgress(status, since) {
  const ask = async () => {
    const answer = await fetch(`${plan.plan_again}/progress`).then((response) => response.json()).catch(() => ({}));
    if (timer !== null) status.textContent = answer.progress || `planning, ${Math.round(since())} s`;
  };
  status.textContent = "planning";
  let timer = setInterval(ask, 1000);
  const end = () => {
    clearInterval(timer);
    timer = null;
  };
  return { end };
}
