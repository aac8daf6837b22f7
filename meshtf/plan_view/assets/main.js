// What stands once, then everything else.

document.getElementById("title").textContent = plan.title;
document.getElementById("subtitle").textContent = plan.subtitle;
document.getElementById("source").textContent = plan.source;

/** The parts that are shown: with a second layout there is one more. */
drawers.push(() =>
  document.getElementById("contents").replaceChildren(
    ...[...document.querySelectorAll("main section:not([hidden])")].map((section) =>
      make("a", { href: `#${section.id}` }, section.querySelector("h2").textContent),
    ),
  ),
);
controls();
choiceOfLayout();
redraw();

for (const section of document.querySelectorAll("main section")) {
  const title = section.querySelector("h2");
  title.id = `${section.id}-title`;
  section.setAttribute("aria-labelledby", title.id);
}

let wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== wide) redraw();
  wide = innerWidth;
});
