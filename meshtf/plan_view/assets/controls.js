// Of a page that meshtf-plan serves: other values, planned again, beside those that are there.

const SETTING_TITLES = {
  mesh_shape: "mesh, as rows:8;cols:4",
  layout: "layout, as batch:rows;d_ff:cols",
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
  const button = make("button", { class: "main" }, "Plan");
  const form = make(
    "form",
    { submit: (event) => submitted(event, inputs, button, error) },
    make("div", { class: "fields" }, inputs.map(([, title, input]) => make("label", {}, title, input))),
    make("div", { style: { display: "flex", gap: "1rem", alignItems: "center" } }, button, make("span", { class: "soft", role: "status", id: "planned" })),
    error,
  );
  section.append(form);
}

async function submitted(event, inputs, button, error) {
  event.preventDefault();
  button.disabled = true;
  error.textContent = "";
  const settings = Object.fromEntries(inputs.map(([name, , input]) => [name, name === "batch_size" ? Number(input.value) : input.value]));
  try {
    const begun = performance.now();
    const response = await fetch(plan.plan_again, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(settings),
    });
    const layout = await response.json();
    if (!response.ok) throw new Error(layout.error);
    plan.layouts.push({ ...layout, label: `plan ${plan.layouts.length + 1}` });
    Object.assign(state, { layout: plan.layouts.length - 1, tensor: 0, core: 0 });
    choiceOfLayout();
    redraw();
    document.getElementById("planned").textContent = `planned in ${secondsText((performance.now() - begun) / 1000)}`;
  } catch (problem) {
    error.textContent = problem instanceof TypeError ? "meshtf-plan does not answer: it has been ended" : problem.message;
  }
  button.disabled = false;
}
