// A long text that is shown when somebody asks for it, with a button that copies it.

views.folded = (root, data, still) => {
  const text = still.textContent.trim();
  const lines = text.split("\n").length;
  const open = toggle(`${data.title} (${lines} lines)`, `Show ${data.title}`, false, (on) => still.classList.toggle("replaced", !on));
  const copy = button("copy", `Copy ${data.title}`, async () => {
    copy.textContent = (await copied(text)) ? "copied" : "select and copy it";
    setTimeout(() => { copy.textContent = "copy"; }, 1600);
  });
  root.append(element("div", { class: "bar-of-buttons" }, open, copy));
};

/** Whether a text came into the clipboard: pages from a disk may have to do it the old way. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
