// Drag the threshold over the histogram or move its slider, and see at once what it would have blocked. Without this
// script, the slider and a button do the same.

const STEPS = 100;
const count = new Intl.NumberFormat("en-US");
const percent = (share, digits) => (Number.isFinite(share) ? `${(share * 100).toFixed(digits)}%` : "–");

function show(form) {
  const step = Math.round(form.elements.threshold.value * STEPS);
  const [runs, good, bad, markedGood, markedBad] = JSON.parse(form.dataset.thresholds)[step];
  const totals = JSON.parse(form.dataset.totals);
  const marked = markedGood + markedBad;
  const figures = {
    at: (step / STEPS).toFixed(2),
    runs: count.format(runs),
    share: percent(runs / totals.runs, 1),
    good: count.format(good),
    bad: count.format(bad),
    marked: count.format(marked),
    marked_bad: count.format(markedBad),
    right: percent(markedBad / marked, 0),
    caught: percent(markedBad / totals.marked_bad, 0),
  };
  for (const element of form.querySelectorAll("[data-figure]")) element.textContent = figures[element.dataset.figure];
  form.querySelector("[data-area]").setAttribute("width", step);
  const line = form.querySelector("[data-line]");
  line.setAttribute("x1", step);
  line.setAttribute("x2", step);
}

function drag(form, histogram, event) {
  const { left, width } = histogram.getBoundingClientRect();
  const at = Math.min(1, Math.max(0, (event.clientX - left) / width));
  form.elements.threshold.value = at.toFixed(2);
  show(form);
}

function ready(root) {
  for (const element of document.querySelectorAll("[data-without-script]")) element.hidden = true;
  const form = root.querySelector("[data-thresholds]");
  if (!form) return;
  const histogram = form.querySelector("[data-histogram]");
  form.elements.threshold.addEventListener("input", () => show(form));
  histogram.addEventListener("pointerdown", (event) => {
    histogram.setPointerCapture(event.pointerId);
    drag(form, histogram, event);
    event.preventDefault();
  });
  histogram.addEventListener("pointermove", (event) => {
    if (histogram.hasPointerCapture(event.pointerId)) drag(form, histogram, event);
  });
}

document.addEventListener("groundlane:swapped", ({ detail: { node } }) => ready(node));
ready(document);
