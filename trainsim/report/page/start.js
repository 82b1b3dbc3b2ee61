// Shows every interactive part of the page; one that cannot be shown leaves its still picture.

for (const root of document.querySelectorAll(".live")) {
  const still = root.nextElementSibling?.classList.contains("still") ? root.nextElementSibling : null;
  try {
    const data = JSON.parse(root.querySelector("script").textContent);
    views[root.dataset.view](root, data, still);
    root.classList.add("shown");
    if (still) still.classList.add("replaced");
  } catch (error) {
    console.error(root.dataset.view, error);
    root.remove();
  }
}
