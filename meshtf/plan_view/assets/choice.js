// Which of the layouts is looked at.

function choiceOfLayout() {
  const box = document.getElementById("choice");
  if (plan.layouts.length < 2) return box.replaceChildren();
  box.replaceChildren(
    make(
      "fieldset",
      {},
      make("legend", {}, "Layout that is shown"),
      make(
        "div",
        { class: "choices" },
        plan.layouts.map((layout, number) =>
          make(
            "label",
            { class: layout.error ? "failed" : "" },
            make("input", {
              type: "radio",
              name: "layout",
              value: number,
              checked: number === state.layout,
              change: () => {
                Object.assign(state, { layout: number, tensor: 0, core: 0, moment: null });
                redraw();
              },
            }),
            make("span", {}, inLines(layout.label), layout.error ? " (not possible)" : null),
          ),
        ),
      ),
    ),
  );
}
