// Light or dark: as the system says until somebody chooses.

{
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tell = () => document.dispatchEvent(new CustomEvent("theme"));
  const change = button("◐", "Light or dark", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    tell();
  });
  change.classList.add("theme");
  system.addEventListener("change", tell);
  document.querySelector("main").prepend(change);
}
