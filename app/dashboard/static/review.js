// The keys of the review page: s, c and u choose a verdict, Enter saves it, k skips the sentence, z undoes the last label.

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("select, textarea, input:not([type=radio])")) return;
  const key = event.key.toLowerCase();
  const choice = [...document.querySelectorAll("#label [data-key]")].find((each) => each.dataset.key === key);
  if (choice) {
    choice.checked = true;
    choice.focus();
  } else if (key === "k") document.getElementById("skip")?.click();
  else if (key === "z") document.getElementById("undo")?.requestSubmit();
  else return;
  event.preventDefault();
});
