// Selects a sentence by pointer or keyboard and shows its evidence. Without this script, the links do so.

const NARROW = matchMedia("(max-width: 1020px)");

/** Show the evidence of the selected sentence in the pane. Sentences (identified by data-key) may be added later. */
export function pairUp(root) {
  const pane = root.querySelector(".pane");
  if (!pane) return { choose() {}, close() {} };
  pane.classList.add("paired");
  const sentences = () => [...root.querySelectorAll("[data-reply] .said[data-key]")];

  function choose(key, { scroll = true } = {}) {
    const chosen = pane.querySelector(`.evidence[data-key="${CSS.escape(key)}"]`);
    if (!chosen) return false;
    for (const each of pane.querySelectorAll(".evidence.chosen")) each.classList.remove("chosen");
    chosen.classList.add("chosen");
    pane.classList.remove("closed");
    pane.scrollTop = 0;
    for (const each of sentences()) {
      if (each.dataset.key === key) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
    if (scroll) intoView(root.querySelector(`[data-reply] [data-key="${CSS.escape(key)}"]`), pane);
    return true;
  }

  for (const button of pane.querySelectorAll(".close")) button.hidden = !NARROW.matches;
  NARROW.addEventListener("change", () => {
    for (const button of pane.querySelectorAll(".close")) button.hidden = !NARROW.matches;
  });
  root.closest("main").addEventListener("click", (event) => {
    if (!root.isConnected) return;
    if (event.target.closest(".close")) {
      pane.classList.add("closed");
      root.querySelector('[aria-current="true"]')?.focus({ preventScroll: true });
    }
    const link = event.target.closest("a[data-key]");
    if (link && choose(link.dataset.key)) {
      event.preventDefault();
      if (!link.closest("[data-reply]")) root.scrollIntoView({ block: "nearest" });
      // A keyboard click has detail 0: move the focus to the evidence.
      if (event.detail === 0) pane.querySelector(".evidence.chosen").focus({ preventScroll: true });
    }
    const to = event.target.closest("a[data-document]");
    if (to) document.getElementById(`dt-${to.dataset.document}`)?.setAttribute("open", "");
  });

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const all = sentences();
    const at = all.findIndex((each) => each.getAttribute("aria-current") === "true");
    if (event.key === "Escape" && event.target.closest(".evidence")) {
      event.preventDefault();
      all[at]?.focus();
    }
    const step = { ArrowRight: 1, ArrowDown: 1, j: 1, ArrowLeft: -1, ArrowUp: -1, k: -1 }[event.key];
    if (!step || !event.target.closest("[data-reply]")) return;
    event.preventDefault();
    const next = all[Math.max(0, Math.min(all.length - 1, at + step))];
    next.focus({ preventScroll: true });
    choose(next.dataset.key);
  });
  // On a narrow page the evidence stays closed until a sentence is selected.
  const close = () => pane.classList.add("closed");
  return { choose, close };
}

/** On a narrow page the evidence covers the lower part: keep the sentence out of it. */
function intoView(sentence, pane) {
  if (!sentence) return;
  const box = sentence.getBoundingClientRect();
  if (NARROW.matches) {
    const edge = pane.getBoundingClientRect().top;
    if (box.bottom > edge - 8) scrollBy({ top: box.bottom - edge + 24 });
  } else sentence.scrollIntoView({ block: "nearest" });
}

for (const root of document.querySelectorAll("[data-trace]:not([hidden] *)")) {
  const { choose, close } = pairUp(root);
  if (location.hash.startsWith("#e-")) choose(location.hash.slice(3));
  else close();
}
